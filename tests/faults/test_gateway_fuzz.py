"""The gateway against requests that are generated from its own OpenAPI document, good and bad.

Requests are made from the document by schemathesis, some that fit it and some that do not; each
goes over a real connection to a real gateway. The bodies of answers are checked by jsonschema,
because schemathesis rewrites schemas of answers in a form that knows no `prefixItems`.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from penstock.deployment.loading import load_app
from penstock.gateway.openapi.document import openapi_document
from penstock.gateway.openapi.examples import example_of
from tests.checkout import TOP
from tests.gateway_thread import RunningGateway

APPS = (
    "examples/shop",
    "tests.unit.client.all_types_app:app",
    "tests.unit.gateway.newsstand_app:app",
)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
LEFT_OUT = (
    "/sql",
    "/changes",
    "/trace",
    "/failed",
    "/history",
    "init",
)  # the view is tested by itself; `n` of a batch is as long as it says
SEEN = ("upsert", "/send/Item", "/send/User", "/send/Coat")  # read as another path
WAITING = ("Penstock-Min-Epoch", "timeout", "wait")  # a caller that waits in vain gets 504
KEYS = {"key", "item_id", "user_id", "order_id", "item"}
KNOWN = "1"
SECRETS = (b"Traceback", b'File "', str(TOP).encode(), b"/tmp/")

pytestmark = [pytest.mark.long, pytest.mark.faults]


class Fuzzed(NamedTuple):
    """A gateway, and its document."""

    gateway: RunningGateway
    document: dict[str, Any]


@pytest.fixture(scope="module", params=APPS)
def fuzzed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fuzzed]:
    with RunningGateway(request.param, tmp_path_factory.mktemp("fuzz")) as gateway:
        document = openapi_document(load_app(request.param))
        for path in document["paths"]:
            if path.startswith("/call/") and path.endswith("/{key}/upsert"):
                create(gateway, document, path)
        yield Fuzzed(gateway, document)


def create(gateway: RunningGateway, document: dict[str, Any], path: str) -> None:
    """Create an entity that requests with `KNOWN` in the place of its key will meet."""
    body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    url = gateway.url + path.replace("{key}", KNOWN)
    assert httpx.post(url, json=example_of(document, body["schema"]), timeout=60).status_code == 200


def operations(document: dict[str, Any]) -> list[Any]:
    schema = schemathesis.openapi.from_dict(document)
    found = [one.ok() for one in schema.get_all_operations()]  # type: ignore[union-attr]
    return [one for one in found if not any(part in one.path for part in LEFT_OUT + SEEN)]


def fuzz(
    operation: Any, mode: GenerationMode, examples: int, check: Callable[[Case[Any]], None]
) -> None:
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    def run(case: Case[Any], known: bool) -> None:  # noqa: FBT001 -- drawn
        if known:
            case.path_parameters.update(dict.fromkeys(KEYS & case.path_parameters.keys(), KNOWN))
        for name in WAITING:
            for place in (case.headers, case.query):
                if place is not None:
                    place.pop(name, None)
        check(case)

    with contextlib.suppress(Unsatisfiable):  # nothing about it can be wrong
        run()


def complaints_of(document: dict[str, Any], case: Case[Any], response: Response) -> list[str]:
    """Compare an answer with its description in the document."""
    told = document["paths"][case.operation.path][case.method.lower()]["responses"]
    described = told[str(response.status_code)]
    if "$ref" in described:
        described = document["components"]["responses"][described["$ref"].rpartition("/")[2]]
    found = [one.decode() for one in SECRETS if one in response.content]
    found += [name for name in described.get("headers", {}) if name.lower() not in response.headers]
    if not described.get("content"):  # it leads to another page
        return [*found, "a body"] if response.content else found
    kind = response.headers["content-type"][0].partition(";")[0]
    if kind == "application/json":
        schema = {**described["content"][kind]["schema"], "components": document["components"]}
        value = response.json()
        found += [one.message for one in Draft202012Validator(schema).iter_errors(value)]
    return found


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.turns(1, "gateway")
def test_gateway_keeps_to_its_document(fuzzed: Fuzzed, mode: GenerationMode) -> None:
    """Every answer has a status, a type and a body that the document names."""
    gateway, document = fuzzed

    def check(case: Case[Any]) -> None:
        response = case.call(base_url=gateway.url, timeout=30)
        case.validate_response(response, checks=CHECKS)
        assert complaints_of(document, case, response) == [], case.as_curl_command()

    for operation in operations(document):
        fuzz(operation, mode, 2, check)
