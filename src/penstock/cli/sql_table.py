"""The rows of a query as a table on the terminal."""

from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.snapshots.text import json_text
from penstock.sql.result_format import json_rows
from penstock.sql.view_client import EncodedAnswer

ROWS_SHOWN: Final = 1_000


def print_result_table(answer: EncodedAnswer) -> None:
    """Print the rows of an answer, which is an Arrow stream."""
    result = pa.ipc.open_stream(answer.content).read_all()
    table = table_of(result, f"epoch {answer.epoch}, ", "row", "csv")
    for field in result.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        numeric = numeric or pa.types.is_decimal(field.type)
        table.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in json_rows(result.slice(0, ROWS_SHOWN)):
        table.add_row(*("" if value is None else cell_text(value) for value in row))
    Console().print(table, markup=False)


def table_of(result: pa.Table, head: str, noun: str, whole: str) -> Table:
    """Return an empty table whose caption says how many rows a result has.

    Args:
        result: The rows of a query.
        head: The beginning of the caption.
        noun: The word for a row, in the singular.
        whole: The output format that prints all rows.
    """
    count = f"{result.num_rows:,} {noun}{'s' if result.num_rows != 1 else ''}"
    if result.num_rows > ROWS_SHOWN:
        count = f"the first {ROWS_SHOWN:,} of {count}; --format {whole} prints all"
    return Table(caption=f"{head}{count}", min_width=len(head) + len(count))


def cell_text(value: Any) -> str:
    """Return a value of a result as text: text and times as they are, others as JSON."""
    return value if isinstance(value, str) else json_text(value).strip('"')
