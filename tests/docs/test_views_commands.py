"""The commands, requests and questions of the page on views, as they stand, against real processes but for Spark."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest

from penstock.cli.main import execute
from penstock.client.synchronous import Client
from penstock.deployment.loading import load_app
from penstock.history.restore import fork
from penstock.process import presence
from penstock.sql_view.server import ROLE
from tests.checkout import TOP
from tests.deployments import kept_imports
from tests.docs.conftest import Run
from tests.docs.test_newsroom import queried
from tests.docs.test_pages import snippets
from tests.views.processes import deployed
from tests.waiting import wait_for

__all__ = ["kept_imports"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kept_imports")]

PAGE = (TOP / "docs" / "VIEWS.md").read_text()
CATALOGUE = """

from penstock import search


class Tea(Entity):
    order_id: str = key()
    name: str
    brand: str
    price: int


catalogue = view("catalogue", search(text=["name"], facets=["brand"]), Tea)
app = App("store", Order, Tea, view("reporting", sqlite(), Order, open_orders), catalogue)
"""
"""What the page says of a catalogue, behind its program."""


class Store(NamedTuple):
    """The store of the page, which runs in the present directory."""

    url: str
    client: Client


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@contextmanager
def sql_view(spec: str, data: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "penstock", "view", "serve", spec, "--data", str(data)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(lambda: presence.find(data, ROLE), "the SQL view")
            yield
        finally:
            process.kill()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    Path("store.py").write_text(snippets("docs/VIEWS.md")[0] + CATALOGUE)
    spec, data = str(Path("store.py").absolute()), Path(".penstock/store").absolute()
    with (
        deployed(spec, data) as url,
        sql_view(spec, data),
        Client(url, load_app(spec)) as client,
    ):
        monkeypatch.setenv("PENSTOCK_GATEWAY_PORT", str(urlsplit(url).port))
        yield Store(url, client)


def test_page_is_true_from_top_to_bottom(store: Store, penstock: Run) -> None:
    """Each command succeeds, each request is answered, and each question in Python has what the page says."""
    store.client.Tea.create("o1", name="green tea", brand="Leaf", price=3)
    (first,) = blocks("console")
    run, call, look = first.splitlines()
    assert run == "penstock run store.py"
    assert penstock(*shlex.split(call)[1:])[0] == 0
    wait_for(lambda: queried(look) == [("o1", 12)], "the row of the first view")
    assert store.client.search("catalogue", "green tea").total == 1  # it waits for its own writes
    names: dict[str, Any] = {"client": store.client}
    answers = [
        dict(ask(piece, store, names)) for block in blocks("text") for piece in pieces(block)
    ]
    found, answered, begun, asked = [each for each in answers if "epoch" in each]
    assert (found["total"], found["facets"]["brand"][0]["value"]) == (1, "Leaf")
    assert [answered["answers"][at].get("rows") for at in (0, 2)] == [[[12]], [[1]]]
    assert answered["answers"][1]["search"]["total"] == 1
    assert (begun["answers"], asked["answers"][0]["rows"]) == ([], [[12]])
    assert names["answer"].answers[0].rows == [(12,)]
    assert names["sold"].rows == [(12,)]
    orders, resume = blocks("sh")
    fork(Path(".penstock/store"), "store", Path("copy"), None)
    for line in [*orders.splitlines(), resume.replace("/tmp/store-copy", "copy")]:
        code, _, errors = penstock(*shlex.split(line)[1:])
        assert code == 0, (line, errors)


def pieces(block: str) -> Iterator[str]:
    """Yield the commands, the requests and the programs of a block; not the answers that it shows."""
    program: list[str] = []
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith(("GET ", "curl ", "penstock ", "{")):
            if program:
                yield "\n".join(program)
                program = []
            while line.count("'") % 2:
                line += "\n" + next(lines)
            if not line.startswith("{"):
                yield line
        elif line:
            program.append(line)
    if program:
        yield "\n".join(program)


def ask(piece: str, store: Store, names: dict[str, Any]) -> dict[str, Any]:
    """Do one piece; return the answer of a request, and nothing of a command or a program."""
    if piece.startswith("penstock "):
        assert execute(shlex.split(piece)[1:]) == 0
        return {}
    if piece.startswith(("GET ", "curl ")):
        answer = sent(piece, store.url, names.get("session", ""))
        assert answer.is_success, answer.text
        told: dict[str, Any] = answer.json() if answer.content else {}
        names["session"] = told.get("session", names.get("session"))
        return told
    exec(compile(piece, "VIEWS.md", "exec"), names)
    return {}


def sent(piece: str, url: str, session: str) -> httpx.Response:
    if piece.startswith("GET "):
        return httpx.get(url + piece.removeprefix("GET "), timeout=60)
    words = shlex.split(piece)
    (address,) = [word for word in words if word.startswith("http:")]
    path = re.sub(r"^/at/.+", f"/at/{session}", urlsplit(address).path)
    if "-X" in words:
        return httpx.request(words[words.index("-X") + 1], url + path, timeout=60)
    headers = dict([words[words.index("-H") + 1].split(": ")])
    return httpx.post(url + path, content=words[words.index("-d") + 1], headers=headers, timeout=60)
