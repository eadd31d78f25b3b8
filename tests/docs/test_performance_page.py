"""docs/PERFORMANCE.md shows what the committed JSON of the last runs says, and nothing else."""

import json

import pytest

from benchmarks import page


@pytest.mark.parametrize("part", sorted(page.CONTENTS))
def test_table_shows_the_figures_of_the_last_run(part: str) -> None:
    """The generated part of the page is what its JSON makes; otherwise run with --update-docs."""
    figures = json.loads((page.DOCS / f"{part}.json").read_text())
    text = page.PAGE.read_text()
    assert page.filled(text, part, page.CONTENTS[part](figures)) == text


def test_every_system_checked_its_results() -> None:
    """No figure is shown of a run that lost or made up anything."""
    figures = json.loads((page.DOCS / "peers.json").read_text())
    assert [row["system"] for row in figures["rows"] if not row["checked"]] == []


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
