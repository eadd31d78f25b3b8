"""The page that `--help` prints: plain text in columns, with headings and names in colour on a terminal.

Typer's own pages, with rich, need much more processor time.
"""

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from typer._click.formatting import HelpFormatter
else:
    HelpFormatter = typer.Context.formatter_class  # typer has no public name for it

WIDTH_MAX: Final = 100
"""The columns of a page on a wider terminal."""

_FORMS: Final = re.compile(r"^(-\w, )?\S+")


class HelpPage(HelpFormatter):
    """The text of a page, which typer fills."""

    def __init__(self, width: int | None = None, max_width: int | None = None) -> None:
        """Begin an empty page.

        Args:
            width: The columns of each line; None: those of the terminal.
            max_width: The most columns for a terminal; None: `WIDTH_MAX`.
        """
        super().__init__(width=width, max_width=max_width or WIDTH_MAX)
        self._in_colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        text = f"{heading}:"
        self.write(f"{typer.style(text, bold=True) if self._in_colour else text}\n")

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write two columns: names, and their meanings.

        Args:
            rows: A name, which may be followed by a placeholder for its value, and its meaning.
            col_max: The most columns for names; the meaning of a longer name begins on the next line.
            col_spacing: The columns between the two.
        """
        if self._in_colour:
            rows = [(_with_colour(name), meaning) for name, meaning in rows]
        super().write_dl(rows, col_max, col_spacing)


class HelpContext(typer.Context):
    """The context of a command that prints such pages."""

    formatter_class = HelpPage


def use_help_page(command: Any) -> None:
    """Let a command and the commands below it print such pages."""
    command.context_class = HelpContext
    for subcommand in getattr(command, "commands", {}).values():
        subcommand.short_help = (subcommand.help or "").partition("\n\n")[0]
        use_help_page(subcommand)


def is_help_page(text: str) -> bool:
    """Say whether a message of typer is a page: typer raises it for a group of commands without a command."""
    return text.startswith("Usage: ")


def _with_colour(name: str) -> str:
    """Return a name in colour: of the two forms of an option both, but not the placeholder."""
    return _FORMS.sub(lambda forms: typer.style(forms[0], fg="cyan", bold=True), name)
