"""`penstock explain` prints the plan, whole, to standard output."""

import json

import pytest
import typer
from typer.testing import CliRunner

from penstock.cli.options import expanded
from penstock.cli.queries.explain import ExplainFormat
from penstock.cli.queries.explain import command as explain
from tests.checkout import SHOP


@pytest.fixture
def program() -> typer.Typer:
    """A program with only this command."""
    made = typer.Typer()
    made.command()(expanded(explain))
    return made


def test_text_is_the_default(program: typer.Typer) -> None:
    """Without a format, a person reads it."""
    result = CliRunner().invoke(program, [SHOP])
    assert result.exit_code == 0
    assert result.stdout.startswith("shop: ")
    assert "calls    Item.subtract *" in result.stdout


def test_json_names_operators_and_edges(program: typer.Typer) -> None:
    """The JSON can be read by a program."""
    result = CliRunner().invoke(program, [SHOP, "--format", "json"])
    document = json.loads(result.stdout)
    assert document["app"] == "shop"
    assert [one["name"] for one in document["operators"]][:3] == ["Item", "User", "Order"]
    assert {one["dynamic"] for one in document["edges"]} == {True, False}


def test_mermaid_is_a_flowchart(program: typer.Typer) -> None:
    """The drawing can be piped into a file."""
    result = CliRunner().invoke(program, [SHOP, "-f", "mermaid"])
    assert result.stdout.startswith("flowchart LR\n")


def test_other_formats_are_refused(program: typer.Typer) -> None:
    """An unknown format is refused with those that there are."""
    result = CliRunner().invoke(program, [SHOP, "--format", "svg"])
    assert result.exit_code == 2
    assert all(one.value in result.output for one in ExplainFormat)
