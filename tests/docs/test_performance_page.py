"""Pages show the figures of the committed JSON, and no other measured figure."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from benchmarks import machine, page
from benchmarks.harness.command import command as bench

MEASURES = re.compile(r"\d[\d,.]*\s?(µs|ms|s|seconds|minutes|%|/s|a second|per second|times)(?!\w)")
TABLE = re.compile(r"<!-- begin: (\w+) -->.*?<!-- end: \1 -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```$|^    [^\n]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
QUOTED_FROM_OTHERS = re.compile(r"^\|.*\]\(https://.*$", re.MULTILINE)
WITHOUT_OWN_FIGURES = ("README.md", "docs/ARCHITECTURE.md")
COMMAND = re.compile(r"^    (?:\.venv/bin/python -m (benchmarks\.\w+)|penstock bench)(.*)$", re.M)


@pytest.mark.parametrize("part", sorted(page.measured()))
def test_table_shows_the_figures_of_the_last_run(part: str) -> None:
    """The generated part of the page follows from its JSON; otherwise run with --update-docs."""
    figures = json.loads((page.DOCS / f"{part}.json").read_text())
    text = page.PAGE.read_text()
    assert page.filled(text, part, page.CONTENTS[part](figures)) == text


@pytest.mark.parametrize("path", page.PAGES, ids=lambda path: path.name)
def test_figures_in_sentences_are_those_of_the_last_run(path: Path) -> None:
    """A figure in a sentence is its JSON's; otherwise run `python -m benchmarks.page`."""
    text = path.read_text()
    assert page.quoted(text, page.measured()) == text


@pytest.mark.parametrize("name", WITHOUT_OWN_FIGURES)
def test_no_measured_figure_is_written_by_hand(name: str) -> None:
    """A figure with a unit of time or rate comes from JSON, or the line links to its source."""
    text = (page.TOP / name).read_text()
    for generated in (TABLE, page.FIGURE, CODE, QUOTED_FROM_OTHERS):
        text = generated.sub("", text)
    by_hand = [found.group() for found in MEASURES.finditer(text)]
    assert by_hand == [], "quote these from JSON (benchmarks/page.py), or leave them out"


@pytest.mark.parametrize("part", ["checkouts", "keys"])
def test_every_system_checked_its_results(part: str) -> None:
    """No figure is shown of a run that lost or made up anything."""
    assert [row["id"] for row in page.measured()[part]["rows"] if not row["checked"]] == []


def test_checkouts_of_both_kinds_stand_beside_those_of_postgresql() -> None:
    """In bulk and over HTTP, at every number of clients, all systems have a row; DBOS takes requests alone."""
    rows = page.measured()["checkouts"]["rows"]
    kinds = {(row["clients"], "HTTP" in row["what"]) for row in rows if "pgbench" not in row["id"]}
    for clients, over_http in kinds:
        systems = {
            row["system"].split(",")[0]
            for row in rows
            if (row["clients"], "HTTP" in row["what"]) == (clients, over_http)
        }
        durable = {"DBOS Transact on PostgreSQL"} if over_http else set()
        assert systems == {"Penstock", "PostgreSQL"} | durable
    assert len({over_http for _, over_http in kinds}) == 2


@pytest.mark.parametrize("name", ["docs/PERFORMANCE.md", "benchmarks/README.md"])
def test_commands_are_accepted(name: str) -> None:
    """Every command of the page has the arguments that its program takes."""
    commands = COMMAND.findall((page.TOP / name).read_text())
    assert commands
    for module, rest in commands:
        words = shlex.split(rest, comments=True)
        if module:
            source = (page.TOP / f"{module.replace('.', '/')}.py").read_text()
            names = [word for at, word in enumerate(words) if at == 0 or word.startswith("--")]
            unknown = [word for word in names if f'"{word}"' not in source]
            assert unknown == [], module
        else:
            group = typer.main.get_command(bench)
            command = group.commands[words[0]]  # type: ignore[attr-defined]
            command.make_context(words[0], words[1:])


def test_figures_for_docs_are_refused_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs would disturb the figures; the message says how to go on."""
    monkeypatch.setattr(machine, "LOOK_S", 0.1)
    monkeypatch.setattr(machine, "BUSY_PERCENT", -1)
    with pytest.raises(SystemExit, match="leave out --update-docs"):
        machine.require_idle()


@pytest.mark.parametrize("path", ["a.rows.x.per_s", "a.rows.one", "b", "a.rows.one.per_s.more"])
def test_figure_that_nobody_measured_is_refused(path: str) -> None:
    """A sentence cannot name a figure that is not in the JSON."""
    measured = {"a": {"rows": [{"id": "one", "per_s": 1_234.5}]}}
    assert page.quoted("<!--=a.rows.one.per_s-->9<!--/-->", measured).endswith("1,230<!--/-->")
    with pytest.raises(ValueError, match=re.escape(path)):
        page.quoted(f"<!--={path}-->9<!--/-->", measured)


@pytest.mark.parametrize("text", ["", "<!-- begin: peers -->", "<!-- end: peers -->"])
def test_page_without_markers_is_refused(text: str) -> None:
    """A page that lost a marker is not written over."""
    with pytest.raises(ValueError, match="once each"):
        page.filled(text, "peers", "table")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.1234, "0.12"),
        (1.834, "1.83"),
        (31.25, "31.2"),
        (537, "537"),
        (26_849, "26,800"),
    ],
)
def test_number_has_three_digits(value: float, text: str) -> None:
    """A figure shows no more digits than a repeated run would confirm."""
    assert page.number(value) == text
