"""The pages of `--help`: columns, colour on a terminal, and no colour for other readers."""

import pytest
import typer

from penstock.cli.commands import load
from penstock.cli.help_page import WIDTH_MAX, HelpPage
from penstock.cli.main import execute


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> HelpPage:
    """Return an empty page of a terminal with colours."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return HelpPage()


def test_both_forms_of_an_option_have_colour_and_its_placeholder_has_none(page: HelpPage) -> None:
    """The columns of a row with colours are those of a row without."""
    page.write_dl([("-n, --last N", "Begin N atoms before."), ("--key KEY", "A key.")])
    last = typer.style("-n, --last", fg="cyan", bold=True)
    key = typer.style("--key", fg="cyan", bold=True)
    assert page.getvalue() == f"{last} N  Begin N atoms before.\n{key} KEY     A key.\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_page_without_colour(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """`NO_COLOR` and a terminal without colours give plain text."""
    monkeypatch.setenv(name, value)
    page = HelpPage()
    with page.section("Options"):
        page.write_dl([("--key", "A key.")])
    assert page.getvalue() == "Options:\n  --key  A key.\n"


def test_a_line_is_at_most_as_long_as_a_person_reads_with_ease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wide terminal does not make long lines."""
    monkeypatch.setenv("COLUMNS", "250")
    page = HelpPage()
    page.write_text("word " * 200)
    assert max(map(len, page.getvalue().splitlines())) <= WIDTH_MAX


def test_a_group_shows_the_whole_summary_of_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """No summary ends in dots."""
    monkeypatch.setenv("NO_COLOR", "1")
    command = load("keys")
    text = command.get_help(command.context_class(command, info_name="keys"))
    assert "secrets are never shown." in " ".join(text.split())
    assert "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize("command", [[], ["keys"], ["flow"]])
def test_a_group_without_a_command_prints_its_page(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is no error message: it is on standard output, in plain text for a program."""
    assert execute(command) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith(" ".join(["Usage: penstock", *command]))
    assert "\x1b" not in shown.out
    assert shown.err == ""
