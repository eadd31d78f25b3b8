"""Plans of two applications, in every form, as people and programs will see them."""

import re
from collections.abc import Callable

import pytest

from examples.shop import app as shop
from examples.travel import app as travel
from penstock import App
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.mermaid import plan_mermaid
from penstock.dataflow.text import plan_json, plan_text
from tests.golden.depot import app as depot
from tests.golden.workshop import app as workshop

Golden = Callable[[str, str], None]

TRAVEL = """\
    asks     book                        examples/travel/trips.py:46, 47
    asks     charge                      examples/travel/trips.py:48
    asks     cancel  in a loop, perhaps  examples/travel/trips.py:51
    asks     refund  in a loop, perhaps  examples/travel/trips.py:51
"""

APPS = pytest.mark.parametrize("app", [shop, workshop, depot], ids=lambda app: app.name)


@APPS
def test_text(app: App, golden: Golden) -> None:
    """The text names the accesses of each method, aligned, with their lines."""
    golden(f"{app.name}.txt", plan_text(analyze_app(app)))


def test_effects_are_operators() -> None:
    """An effect is named with its parameters, and so is each handler that asks for it."""
    text = plan_text(analyze_app(travel))
    assert (
        "effect charge  examples/travel/providers.py:36\n  charge(card: str, cents: int) -> str"
        in text
    )
    assert TRAVEL in text
    assert '(["effect refund"])' in plan_mermaid(analyze_app(travel))


@APPS
def test_json(app: App, golden: Golden) -> None:
    """The JSON holds the whole plan."""
    golden(f"{app.name}.json", plan_json(analyze_app(app)))


@APPS
def test_mermaid(app: App, golden: Golden) -> None:
    """The flowchart has every operator and every pair that deal with each other."""
    golden(f"{app.name}.mmd", plan_mermaid(analyze_app(app)))


TEXT = r'"[^"<>]+(?:<br/>[^"<>]+)*"'
SHAPES = [
    ("[", "]"),
    ("[/", "/]"),
    ("([", "])"),
    ("{{", "}}"),
    ("[(", ")]"),
    ("[[", "]]"),
    ("(", ")"),
]
NODE = rf"  \w+(?:{'|'.join(re.escape(a) + TEXT + re.escape(b) for a, b in SHAPES)})"
ARROW = rf"  (\w+) (?:-->|-\.->)(?:\|{TEXT}\|)? (\w+)"


@APPS
def test_mermaid_uses_the_safe_part_of_the_syntax(app: App) -> None:
    """Every line is a node or an arrow between nodes, with quoted labels that need no escape."""
    head, *lines = plan_mermaid(analyze_app(app)).splitlines()
    arrows = [match for line in lines if (match := re.fullmatch(ARROW, line))]
    nodes = {
        line.strip().partition("[")[0].rstrip("({") for line in lines if re.fullmatch(NODE, line)
    }
    nodes = {re.match(r"\w+", node)[0] for node in nodes}  # type: ignore[index]
    assert head == "flowchart LR"
    assert len(arrows) + sum(bool(re.fullmatch(NODE, line)) for line in lines) == len(lines)
    assert {end for match in arrows for end in match.groups()} <= nodes
