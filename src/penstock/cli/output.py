"""The standard output of commands: one JSON value for programs, or text and tables for people."""

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.base.instants import instant_of, with_times
from penstock.base.json_keys import as_text, json_bytes
from penstock.process.logs import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.tree import Tree

    from penstock.sql_view.result_format import ResultFormat

_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode


class OutputFormat(StrEnum):
    """The output format of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    LINES = "lines"
    ARROW = "arrow"

    @property
    def result_format(self) -> "ResultFormat":
        """The format of the answer that the command asks for; a table is made of Arrow columns."""
        from penstock.sql_view.result_format import ResultFormat

        return ResultFormat["ARROW" if self is OutputFormat.TABLE else self.name]


def print_result(result: object, show: "Callable[[Console], None]", *, as_json: bool) -> None:
    """Print the result of a command.

    Args:
        result: The value that `--json` prints.
        show: Prints the result for people.
        as_json: Whether `--json` was given.
    """
    if as_json:
        print_json(result)
    else:
        show(safe_console(soft_wrap=True, highlight=False, markup=False))


def safe_console(**settings: Any) -> "Console":
    """Return a console that escapes control characters: values and errors of an application must not control a terminal.

    Args:
        settings: Those of rich's `Console`.
    """
    from rich.console import Console  # programs read JSON, without it
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, *given: Any, **named: Any) -> Iterator[Segment]:
            for segment in super().render(*given, **named):
                is_safe = segment.control or segment.text.isprintable() or segment.text == "\n"
                yield (
                    segment
                    if is_safe
                    else Segment(printable(segment.text, lines=True), segment.style)
                )

    return SafeConsole(**settings)


WHOLE: Final = 64
"""Keys and ids of so many characters stand in one line, even if the terminal is too narrow for the table."""

JSON_WHOLE: Final = 32
"""As `WHOLE`, of lists and records as JSON: a key may be a short one, and a value is a long one."""


def folding_table(*columns: str, **style: Any) -> "Table":
    """Return a table that folds long text, and never cuts a key or an id in pieces.

    Args:
        style: The style of the table, as rich names it.
    """
    from rich.table import Column, Table

    class FoldingTable(Table):
        def add_row(self, *given: Any, **style: Any) -> None:
            # The layout needs the width of a text as it is shown.
            cells = [
                printable(each, lines=True) if isinstance(each, str) else each for each in given
            ]
            for column, cell in zip(self.columns, cells, strict=False):
                column.min_width = max(column.min_width or 0, longest_word(str(cell)))
            super().add_row(*cells, **style)

    return FoldingTable(*(Column(title, overflow="fold") for title in columns), **style)


def longest_word(text: str) -> int:
    """Return the width of the longest word of a text that must not be cut; lists and records of JSON may be, if they are long."""
    return max((len(word) for word in text.split() if len(word) <= _most(word)), default=0)


def _most(word: str) -> int:
    return JSON_WHOLE if word[0] in "[{" or word[-1] in "]}" else WHOLE


def folding_tree(tree: "Tree") -> "Tree":
    """Let the labels of a tree continue in the next line: by itself, it cuts those that are too long for the terminal."""
    from rich.text import Text

    if isinstance(tree.label, Text):
        tree.label.no_wrap, tree.label.overflow = False, "fold"
    for inner in tree.children:
        folding_tree(inner)
    return tree


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(f"{json_line(value)}\n")
    sys.stdout.flush()


def json_line(value: Any) -> str:
    """Return a value as JSON: instants of structs also as times, and Python's `str` of unknown values."""
    return json_bytes(_encode, with_times(value)).decode()


def counted(count: int, singular: str, plural: str) -> str:
    """Return a number with its noun: `1 round`, `2,000 rounds`."""
    return f"{count:,} {singular if count == 1 else plural}"


def utc_text(time_us: int, *, exact: bool = False) -> str:
    """Return a time in UTC: to the second, or to the microsecond if `exact`.

    Args:
        time_us: Microseconds since the Unix epoch.
        exact: Whether to print the microseconds.
    """
    time = instant_of(time_us)
    return f"{time:%Y-%m-%d %H:%M:%S.%f} UTC" if exact else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def show_deployments(deployments: Sequence[int | None], console: "Console") -> None:
    """Print whose code has run; None stands for the present code, and nothing is printed if it has run alone."""
    numbers = [str(number) for number in deployments if number is not None]
    if numbers:
        ran = f"with the code of deployment{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
        console.print(f"{ran}, and the present code" if None in deployments else ran)
