"""The examples of the OpenAPI document: values that fit, and commands that run."""

import json
import shlex
from typing import Any

import pytest

from penstock import App
from penstock.deployment.loading import load_app
from penstock.gateway.openapi.document import openapi_document
from penstock.gateway.openapi.examples import curl_of, example_of


@pytest.fixture(scope="module", params=["examples/shop", "examples/talk", "examples/bank"])
def shown(request: pytest.FixtureRequest) -> App:
    app: App = load_app(request.param)
    return app


def test_examples_are_commands(shown: App) -> None:
    """Every example is one curl command whose body is JSON."""
    document = openapi_document(shown)
    commands = []
    for path, item in document["paths"].items():
        for verb in item:
            words = shlex.split(curl_of(document, path, verb))
            commands.append(words[0])
            assert "{" not in next(one for one in words if one.startswith("http"))
            assert "--json" in words or not item[verb].get("requestBody", {}).get("required")
            if "--json" in words:
                json.loads(words[words.index("--json") + 1])
    assert commands == ["curl"] * sum(map(len, document["paths"].values()))
    assert len(commands) > 20


def test_sample_ends_where_a_record_holds_itself() -> None:
    """A sample of a schema that refers to itself has an end."""
    document: dict[str, Any] = {"components": {"schemas": {}}}
    tree = {"type": "object", "properties": {"child": {"$ref": "#/components/schemas/Tree"}}}
    document["components"]["schemas"]["Tree"] = tree
    sample = json.dumps(example_of(document, {"$ref": "#/components/schemas/Tree"}))
    assert 1 <= sample.count("child") < 9


def test_example_of_a_key_is_not_the_word_for_a_derived_key() -> None:
    """`-` stands for a key that the request id gives; the example of a path has a real key."""
    members = {"type": "string", "enum": ["red", "blue"]}
    assert example_of({}, {"anyOf": [{"const": "-"}, members]}) == "red"
    assert example_of({}, {"const": "-"}) == "-"
