"""`penstock changes`: the changes of the entities of a class, before and after."""

import sys
import time
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from penstock.base.difference import attribute_differences
from penstock.cli.options import AppOptions
from penstock.cli.sql import (
    RESULT_FORMATS,
    ROWS_SHOWN,
    OutputFormat,
    cell_text,
    opened_history,
    require_journal,
    table_of,
)
from penstock.cli.value_text import difference_text, value_text
from penstock.sql.query import Query, QueryResult
from penstock.sql.result_format import encode_result, json_rows

HELP: Final = """Show the changes that epochs made to the entities of a class.

Each change has its epoch, the time of the commit, the entity's key, and the entity before and after.
The command reads the journal in the data directory; no process of the application needs to run. In SQL
the same is a table: changes('Item', 10, 20).

\b
Examples:
  penstock changes Item examples/shop
  penstock changes Item examples/shop --from 10 --to 20
  penstock changes Order examples/shop --data DIR --format lines | jq .after
"""

_QUERY: Final = "SELECT * FROM changes(?, ?, ?)"


def command(
    entity: Annotated[str, typer.Argument(metavar="CLASS", help="The class of the entities.")],
    options: AppOptions,
    first: Annotated[
        int | None,
        typer.Option("--from", metavar="N", help="First epoch; default the oldest held."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="N", help="Last epoch; default the newest.")
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="The output format.")
    ] = OutputFormat.TABLE,
) -> None:
    """Print the changes of a class; see `HELP`."""
    app, settings = options.load()
    require_journal(settings, options)
    with opened_history(app, settings) as history:
        oldest, newest = history.held_epochs()
        span = [oldest if first is None else first, newest if last is None else last]
        question = Query(_QUERY, [entity, *span])
        past = question.as_of_statement()
        assert past is not None, "changes are of the past"
        result = history.ask(past, question, time.monotonic() + settings.view.time_ms / 1_000)
    if output_format is OutputFormat.TABLE:
        _print_table(result)
        return
    sys.stdout.buffer.write(encode_result(result, RESULT_FORMATS[output_format]))
    sys.stdout.buffer.flush()


def _print_table(result: QueryResult) -> None:
    """Show each change by the attributes that differ."""
    table = table_of(result.table, f"up to epoch {result.epoch}, ", "change", "lines")
    for name in ("epoch", "time", "key", "kind", "change"):
        table.add_column(name, no_wrap=name == "time", overflow="fold")
    for epoch, time_, key, kind, before, after in json_rows(result.table.slice(0, ROWS_SHOWN)):
        time_text = f"{time_:%Y-%m-%d %H:%M:%S}.{time_.microsecond // 1_000:03} UTC"
        cells = (str(epoch), time_text, cell_text(key), kind, _difference(before, after))
        table.add_row(*map(Text, cells))
    Console().print(table)


def _difference(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    if before is None or after is None:
        return ", ".join(
            f"{name} {value_text(value)}" for name, value in (before or after or {}).items()
        )
    return difference_text(attribute_differences(before, after))
