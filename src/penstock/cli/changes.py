"""`penstock changes`: what epochs made of the entities of a class, before and after."""

import sys
import time
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    SetOption,
)
from penstock.cli.sql import ASKED, ROWS_SHOWN, OutputFormat, history_opened
from penstock.errors import ConfigError
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.text import json_text
from penstock.sql.query import Query, QueryResult
from penstock.sql.result_format import encode_result, json_rows

HELP: Final = """Show what epochs made of the entities of a class.

Each change has its epoch, when that was committed, the entity's key, and the entity before and after
it. It is read from the journal in the data directory; nothing needs to run. In SQL the same is a
table: changes('Item', 10, 20).

\b
Examples:
  penstock changes Item examples/shop
  penstock changes Item examples/shop --from 10 --to 20
  penstock changes Order examples/shop --data DIR --format lines | jq .after
"""

_QUERY: Final = "SELECT * FROM changes(?, ?, ?)"


def changes(  # noqa: PLR0913 -- one parameter for each flag
    entity: Annotated[str, typer.Argument(metavar="CLASS", help="Of the entities.")],
    app: AppArgument,
    first: Annotated[
        int | None,
        typer.Option("--from", metavar="N", help="First epoch; default the oldest held."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="N", help="Last epoch; default the newest.")
    ] = None,
    shape: Annotated[
        OutputFormat, typer.Option("--format", help="How to print it.")
    ] = OutputFormat.TABLE,
    data: DataOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Print the changes of a class; see `HELP`."""
    _, settings = application_of(app, data=data, file=config, assignments=assignments)
    answer = _answer(entity, app, settings, (first, last))
    if shape is OutputFormat.TABLE:
        _print_table(answer)
        return
    sys.stdout.buffer.write(encode_result(answer, ASKED[shape]))
    sys.stdout.buffer.flush()


def _answer(
    entity: str, app: str, settings: Config, given: tuple[int | None, int | None]
) -> QueryResult:
    if DataDirectory(settings.data).app_name is None:
        raise ConfigError(f"there is no journal in {settings.data}; penstock run {app} makes one")
    with history_opened(app, settings) as history:
        held = history.held_epochs()
        bounds = [own if one is None else one for one, own in zip(given, held, strict=True)]
        question = Query(_QUERY, [entity, *bounds])
        past = question.past()
        assert past is not None, "changes are of the past"
        return history.ask(past, question, time.monotonic() + settings.view.time_ms / 1_000)


def _print_table(answer: QueryResult) -> None:
    """Show each change by the attributes that differ."""
    found = answer.table
    count = f"{found.num_rows:,} change{'s' if found.num_rows != 1 else ''}"
    if found.num_rows > ROWS_SHOWN:
        count = f"the first {ROWS_SHOWN:,} of {count}; --format lines prints all"
    caption = f"up to epoch {answer.epoch}, {count}"
    table = Table(caption=caption, min_width=len(caption))
    for name in ("epoch", "time", "key", "kind", "change"):
        table.add_column(name, no_wrap=name == "time", overflow="fold")
    for epoch, when, key, kind, before, after in json_rows(found.slice(0, ROWS_SHOWN)):
        time_text = when.isoformat(sep=" ", timespec="milliseconds")
        cells = (str(epoch), time_text, _text(key), kind, _difference(before or {}, after or {}))
        table.add_row(*map(Text, cells))
    Console().print(table)


def _difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    told = []
    for name in before or after:
        old, new = before.get(name), after.get(name)
        if not before or not after:
            told.append(f"{name} {_text(new if after else old)}")
        elif old != new:
            told.append(f"{name} {_text(old)} → {_text(new)}")
    return ", ".join(told)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
