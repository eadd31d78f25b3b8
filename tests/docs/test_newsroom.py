"""The README of the newsroom is true: its commands run one after the other, against real processes but for Spark."""

import json
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.checkout import TOP
from tests.deployments import kept_imports
from tests.docs.conftest import Run
from tests.views.processes import deployed
from tests.waiting import wait_for

__all__ = ["kept_imports"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kept_imports")]

TEXT = (TOP / "examples" / "newsroom" / "README.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
DATA = Path(".penstock/newsroom")


@pytest.fixture
def newsroom(penstock: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first block: the example is copied, and runs."""
    for name in [each for each in sys.modules if each.split(".")[0] == "newsroom"]:
        monkeypatch.delitem(sys.modules, name)  # the example itself
    new, run = BLOCKS[0].splitlines()
    assert run == "penstock run newsroom"
    assert penstock(*shlex.split(new)[1:])[0] == 0
    spec, data = str(Path("newsroom").absolute()), DATA.absolute()
    with deployed(spec, data) as url:
        monkeypatch.setenv("PENSTOCK_GATEWAY_PORT", str(urlsplit(url).port))
        yield


def queried(line: str) -> list[tuple[Any, ...]]:
    """Execute a line with the program sqlite3; no rows before the view is filled."""
    program, path, query = shlex.split(line)
    assert program == "sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:  # its tables are not there yet
            return []


@pytest.mark.usefixtures("newsroom")
def test_commands_of_the_readme_run(penstock: Run) -> None:
    """An article is published, and stands on its page, in a letter and in the index; then it is withdrawn."""
    _, publish, look, withdraw = (block.splitlines() for block in BLOCKS)

    def done(line: str) -> str:
        code, told, errors = penstock(*shlex.split(line)[1:])
        assert code == 0, errors
        return told

    for line in publish:
        done(line)
    views, pages, letters, found = look
    wait_for(lambda: queried(letters), "the letter")
    assert queried(letters) == [("bob", "section/arts", '["The theatre opens"]')]
    wait_for(lambda: queried(pages), "the page")
    (page, _) = queried(pages)
    assert "<h1>The theatre opens</h1>" in page[0]
    wait_for(lambda: "1 row at epoch" in done(found), "the document in the index")
    assert [each["name"] for each in json.loads(done(f"{views} --json"))["views"]] == [
        "pages",
        "search",
        "inbox",
    ]
    for line in withdraw:
        done(line)
    wait_for(lambda: queried(pages) == [], "the page to go")
