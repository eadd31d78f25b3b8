"""Plain values reach a command as typer's validator would give them, and all other values are validated."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

from penstock.cli.commands import take_plain_values


def given(  # noqa: PLR0913 -- a parameter of each kind
    words: Annotated[list[str] | None, typer.Argument()] = None,
    text: Annotated[str, typer.Option()] = "text",
    number: Annotated[int | None, typer.Option()] = None,
    bounded: Annotated[int, typer.Option(min=1)] = 7,
    ratio: Annotated[float, typer.Option()] = 0.5,
    place: Annotated[Path | None, typer.Option()] = None,
    existing: Annotated[Path | None, typer.Option(exists=True)] = None,
    flag: Annotated[bool, typer.Option()] = False,  # noqa: FBT002 -- as in commands
    tags: Annotated[list[str] | None, typer.Option("--tag")] = None,
) -> None:
    """Take a parameter of each kind."""


def outcome(arguments: list[str], *, plain: bool) -> Any:
    """Return the values of the parameters, or the message of the error."""
    seen: list[dict[str, Any]] = []
    program = typer.Typer(add_completion=False)
    program.command()(given)
    command = get_command(program)
    if plain:
        take_plain_values(command)
    command.callback = lambda **values: seen.append(values)
    try:
        command.main(arguments, standalone_mode=False)
    except typer.TyperException as error:
        return error.format_message()
    return {name: (type(value), value) for name, value in seen[0].items()}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b c", ""],
        ["--text", "", "--number", "8000", "--place", "some/where", "--flag"],
        ["--number", "-5", "--bounded", "1", "--ratio", "1", "--tag", "a", "--tag", "1"],
        ["--number", "1_000"],
        ["--number", "٣"],
        ["--number", "9" * 30],
        ["--number", "x"],
        ["--bounded", "0"],
        ["--ratio", "x"],
        ["--place", "."],
        ["--existing", "."],
        ["--existing", "missing"],
        ["--text"],
        ["--nope"],
    ],
    ids=" ".join,
)
def test_values_equal_those_of_typer(arguments: list[str]) -> None:
    """Each command line has the same values, or the same error, with and without the shortcut."""
    assert outcome(arguments, plain=True) == outcome(arguments, plain=False)
