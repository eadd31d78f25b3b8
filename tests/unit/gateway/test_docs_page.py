"""The reference page: complete, self-contained, and safe for every text of an application."""

import base64
import hashlib
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from penstock import App, entity, key
from penstock.deployment.loading import load_app
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import granted
from penstock.gateway.openapi.docs_page import PAGE_HEADERS, docs_page
from penstock.gateway.openapi.document import openapi_document
from penstock.gateway.openapi.examples import curl_of, example_of
from tests.gateway_thread import RunningGateway

EVIL = "<script>alert(1)</script>\"'`<b>`&amp;"
VOID = {"meta", "link", "wbr", "br", "input"}


@entity
class Note:
    note_id: str = key()
    text: str = EVIL

    def say(self, word: str = EVIL) -> str:
        return word


Note.__doc__ = EVIL
Note.say.__doc__ = EVIL


class Page(HTMLParser):
    """Collects the tags and text of a page, and fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text += data

    def values_of(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


@pytest.fixture(scope="module", params=["examples/shop", "examples/talk", "examples/bank"])
def shown(request: pytest.FixtureRequest) -> App:
    app: App = load_app(request.param)
    return app


def test_page_names_every_path(shown: App) -> None:
    """Every path that is served is on the page."""
    page = Page(docs_page(shown))
    assert [one for one in openapi_document(shown)["paths"] if one not in page.text] == []


def test_links_lead_somewhere(shown: App) -> None:
    """Every link inside the page has its target, and no two places share a name."""
    page = Page(docs_page(shown))
    names = page.values_of("id")
    assert len(names) == len(set(names))
    inside = {unquote(one[1:]) for one in page.values_of("href") if one[:1] == "#"}
    assert inside <= set(names)


def test_page_needs_nothing_else(shown: App) -> None:
    """The page loads nothing: no script, no image, no style but its own, which its policy names."""
    text = docs_page(shown)
    page = Page(text)
    assert {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object", "form"} == set()
    assert page.values_of("src") == []
    assert [
        name for _, one in page.tags for name in one if name[:2] == "on" or name == "style"
    ] == []
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in PAGE_HEADERS["Content-Security-Policy"]


def test_words_of_the_application_stay_words() -> None:
    """Docstrings and defaults that look like HTML are shown as they are, and do nothing."""
    page = Page(docs_page(App("notes", Note)))
    assert "script" not in {tag for tag, _ in page.tags}
    assert "b" not in {tag for tag, _ in page.tags}
    assert "<script>alert(1)</script>" in page.text


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


def test_a_browser_without_a_key_gets_a_page_that_says_so(tmp_path: Path) -> None:
    """A person who opens the reference without a key reads the reason and can enter one; programs get JSON as before."""
    _, secret = KeyStore(tmp_path).add("ada", granted(["call"]), None, utc_now())
    with (
        RunningGateway("examples/shop", tmp_path, drives=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        for path in ("/docs", "/openapi.json"):
            opened = client.get(path, headers={"Accept": "text/html,*/*;q=0.8"})
            assert (opened.status_code, opened.headers["cache-control"]) == (401, "no-store")
            shown = Page(
                opened.text.replace("<script>", "<style>").replace("</script>", "</style>")
            )
            assert "send a key or a token" in shown.text
            assert client.get(path).json()["error"]["code"] == "unauthenticated"
            with_key = client.get(path, headers={"Authorization": f"Bearer {secret}"})
            assert with_key.status_code == 200
            policy = opened.headers["content-security-policy"]
            style = PAGE_HEADERS["Content-Security-Policy"].split("'")[3]
            assert style in policy, "the reference has its style"
            assert "unsafe" not in policy
        html = {"Accept": "text/html"}
        assert client.get("/entities/Item/a", headers=html).json()["error"]["code"]
