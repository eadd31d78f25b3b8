"""The rows of a query on the terminal: as a table, or each row by itself if the terminal is too narrow.

A table that folds every value to a few letters cannot be read. So a table appears only if each column has
room for its name, for its keys and for the beginning of longer values; otherwise each row is a block with a line per column.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.cli.output import longest_word, safe_console
from penstock.process.logs import printable
from penstock.snapshots.text import json_text
from penstock.sql_view.result_format import json_rows
from penstock.sql_view.view_client import EncodedAnswer

if TYPE_CHECKING:
    from rich.table import Table

ROWS_SHOWN: Final = 200
"""The rows of a table on a terminal. Each takes half a millisecond to lay out, and the other formats print all rows."""

_LEGIBLE: Final = 20
"""The columns of the terminal that a longer value needs, so that its continuation in further lines is legible."""

_FRAME: Final = 3
"""The columns of the terminal that the frame of a table takes for each column."""


def print_result_table(answer: EncodedAnswer) -> None:
    """Print the rows of an answer, which is an Arrow stream."""
    result = pa.ipc.open_stream(answer.content).read_all()
    rows = [
        ["" if value is None else cell_text(value) for value in row]
        for row in json_rows(result.slice(0, ROWS_SHOWN))
    ]
    console, head = safe_console(), f"epoch {answer.epoch}, "
    if is_legible(result.schema.names, rows, console.width):
        console.print(
            _filled(table_of(result, head, "row", "csv"), result.schema, rows), markup=False
        )
        return
    for number, row in enumerate(rows, 1):
        console.print(f"row {number:,}", style="bold", highlight=False)
        console.print(_block(result.schema.names, row), markup=False, highlight=False)
    console.print(head + counted_rows(result, "row", "csv"), style="italic", highlight=False)


def is_legible(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Say whether a table has room for the names of its columns, for each key, and for the beginning of longer values."""
    columns = [[name, *texts] for name, *texts in zip(names, *rows, strict=True)]
    needed = [
        max(min(_LEGIBLE, max(map(len, column))), *map(longest_word, column)) for column in columns
    ]
    return len(columns) == 1 or sum(needed) + _FRAME * len(columns) + 1 <= width


def table_of(result: pa.Table, head: str, noun: str, whole: str) -> "Table":
    """Return an empty table whose caption says how many rows a result has.

    Args:
        head: The beginning of the caption.
        noun: The word for a row, in the singular.
        whole: The output format that prints all rows.
    """
    from rich.table import Table

    caption = head + counted_rows(result, noun, whole)
    return Table(caption=caption, min_width=len(caption))


def counted_rows(result: pa.Table, noun: str, whole: str) -> str:
    """Return how many rows a result has, and how many of them are shown; see `table_of`."""
    count = f"{result.num_rows:,} {noun}{'s' if result.num_rows != 1 else ''}"
    if result.num_rows > ROWS_SHOWN:
        return f"the first {ROWS_SHOWN:,} of {count}; --format {whole} prints all"
    return count


def cell_text(value: Any) -> str:
    """Return a value of a result as text: text and times as they are but for control characters, others as JSON."""
    return printable(value, lines=True) if isinstance(value, str) else json_text(value).strip('"')


def _filled(table: "Table", schema: pa.Schema, rows: Sequence[Sequence[str]]) -> "Table":
    for number, field in enumerate(schema):
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        numeric = numeric or pa.types.is_decimal(field.type)
        table.add_column(
            field.name,
            justify="right" if numeric else "left",
            overflow="fold",
            min_width=max((longest_word(row[number]) for row in rows), default=0),
        )
    for row in rows:
        table.add_row(*row)
    return table


def _block(names: Sequence[str], row: Sequence[str]) -> "Table":
    """Return a row as lines of a name and a value."""
    from rich.table import Table

    block = Table.grid(padding=(0, 2, 0, 0))
    block.add_column(style="dim", no_wrap=True)
    block.add_column(overflow="fold")
    for name, text in zip(names, row, strict=True):
        block.add_row(f"  {name}", text)
    return block
