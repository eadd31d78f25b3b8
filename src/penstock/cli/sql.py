"""`penstock sql`: one query over the whole state at one epoch, as a table or for programs."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import msgspec
import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from penstock.cli.application import application_of
from penstock.cli.options import (
    ConfigOption,
    DataOption,
    SetOption,
    config_of,
)
from penstock.errors import (
    ConfigError,
    ViewUnavailable,
)
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.loading import load_app
from penstock.snapshots.text import json_text
from penstock.sql.as_of_query import AsOfQueries, as_of_queries
from penstock.sql.query import Query, QueryResult
from penstock.sql.query_body import AsOf
from penstock.sql.result_format import ResultFormat, encode_result, json_rows
from penstock.sql.view import View
from penstock.sql.view_client import EncodedAnswer, socket_of, view_client
from penstock.sql.view_client import query as query_view

HELP: Final = """Ask a SQL query over all entities at one epoch: DuckDB's SQL, read-only.

Each entity class is a table; requests, replies and epochs are tables, too. A class that is called as
a word of SQL, as Order is, is written "Order". The answer is of the newest epoch, or of a later one.

With --as-of, or AS OF at its end, a query is answered as of an epoch of the past, or of the newest one
at a time.

It comes from the view that penstock run or penstock view keep, or with --url from a gateway. If no
view runs, this command brings one up to date itself, and needs to know the APP.

\b
Examples:
  penstock sql "SHOW TABLES" examples/shop
  penstock sql 'SELECT count(*), sum(total_cost) FROM "Order" WHERE paid' examples/shop
  penstock sql "SELECT * FROM Item WHERE stock < ?" examples/shop --param 10 --format csv
  penstock sql "SELECT * FROM requests WHERE entity = $name" --data DIR --param name=Order
  penstock sql "FROM Item" examples/shop --as-of 120
  penstock sql "SELECT sum(stock) FROM Item AS OF TIMESTAMP '2026-11-21 08:30+01:00'" --data DIR
  penstock sql "FROM User" --url http://127.0.0.1:8000 --key KEY --format arrow > users.arrow
"""

ROWS_SHOWN: Final = 1_000
_LOOK_S: Final = 0.05


class OutputFormat(StrEnum):
    """How an answer is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    LINES = "lines"
    ARROW = "arrow"


ASKED: Final = {
    OutputFormat.TABLE: ResultFormat.ARROW,
    OutputFormat.CSV: ResultFormat.CSV,
    OutputFormat.JSON: ResultFormat.JSON,
    OutputFormat.LINES: ResultFormat.LINES,
    OutputFormat.ARROW: ResultFormat.ARROW,
}


def sql(  # noqa: PLR0913 -- one parameter for each flag
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT.")],
    app: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="The application; see penstock run.")
    ] = None,
    data: DataOption = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Ask a gateway instead.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="With --url: the API key.")
    ] = None,
    shape: Annotated[
        OutputFormat, typer.Option("--format", help="How to print it.")
    ] = OutputFormat.TABLE,
    min_epoch: Annotated[
        int | None, typer.Option("--min-epoch", metavar="N", help="Of this epoch or a later one.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="N|TIME", help="Of this epoch, or the newest at this time."
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="VALUE", help="For ? a value, for $name a name=value."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Ask a query and print the answer; see `HELP`."""
    moment = None if as_of is None else _as_of(as_of)
    question = Query(query, parameters_of(parameters or []), min_epoch, moment)
    messages = Console(stderr=True)
    if url is not None:
        with httpx.Client(base_url=url) as client:
            told = query_view(client, msgspec.json.encode(question), ASKED[shape], key)
    else:
        told = _told_here(question, ASKED[shape], _settings(app, data, config, assignments), app)
    _print(told, shape, messages)


def _as_of(text: str) -> AsOf:
    return AsOf(int(text)) if text.isdecimal() else AsOf(timestamp=text)


def parameters_of(words: list[str]) -> list[Any] | dict[str, Any]:
    """Read parameters: JSON or bare text, all by position or all as name=value.

    Raises:
        ConfigError: Some have names and others do not.
    """
    pairs = [word.partition("=") for word in words]
    named = [bool(equals) and name.isidentifier() for name, equals, _ in pairs]
    if any(named) and not all(named):
        raise ConfigError("either all --param have names (name=value), or none has")
    if words and all(named):
        return {name: _value(text) for name, _, text in pairs}
    return [_value(word) for word in words]


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _settings(
    app: str | None, data: Path | None, config: Path | None, assignments: list[str] | None
) -> Config:
    if app is None and data is None:
        raise ConfigError("which application is meant? Name it, or give --data or --url")
    if app is None:
        return config_of(Path(), data=data, file=config, assignments=assignments)
    return application_of(app, data=data, file=config, assignments=assignments)[1]


def _told_here(
    question: Query, asked: ResultFormat, settings: Config, app: str | None
) -> EncodedAnswer:
    """Ask the view of a data directory; open it here if none runs.

    Raises:
        ConfigError: None runs, and the application is not known.
    """
    socket = socket_of(settings.data)
    if socket is not None:
        with view_client(socket) as client:
            return query_view(client, msgspec.json.encode(question), asked, None)
    if app is None:
        raise ConfigError(f"no view runs in {settings.data}; name the application to open it here")
    if not DataDirectory(settings.data).journal_path.is_dir():
        raise ConfigError(f"there is no journal in {settings.data}; penstock run {app} makes one")
    answer = _answer_of_past(question, app, settings)
    if answer is None:
        with _opened(app, settings) as view:
            answer = view.ask(question)
    return EncodedAnswer(str(answer.epoch), encode_result(answer, asked))


def _answer_of_past(question: Query, app: str, settings: Config) -> QueryResult | None:
    """Answer a question of the past from the journal; None where it is one of the present."""
    past = question.past()
    if past is None:
        return None
    deadline = time.monotonic() + settings.view.time_ms / 1_000
    with history_opened(app, settings) as history:
        return history.ask(past, question, deadline)


@contextmanager
def history_opened(app: str, settings: Config) -> Iterator[AsOfQueries]:
    """Open the history of a data directory, which has a journal; nothing is written there."""
    application = load_app(app)
    with closing(DataDirectory(settings.data).open_journal(application)) as journal:
        yield as_of_queries(settings.data, application, journal, settings.view)


@contextmanager
def _opened(app: str, settings: Config) -> Iterator[View]:
    """Open a view in this process and bring it up to date, in sight of whoever waits."""
    application = load_app(app)
    with closing(DataDirectory(settings.data).open_journal(application)) as journal:
        view = View(settings.data, application, journal, settings.view)
        with closing(view):
            view.start()
            _show_progress(view)
            yield view


def _show_progress(view: View) -> None:
    """Wait until a view has come to where the journal is.

    Raises:
        ViewUnavailable: It cannot; says why.
    """
    first, last = view.epoch, view.journal_epoch()
    columns = TextColumn("reading the journal"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=last - first)
        while not view.await_epoch(last, _LOOK_S):
            if view.problem is not None:
                raise ViewUnavailable(
                    f"the SQL view cannot go on from epoch {view.epoch}: {view.problem}"
                )
            progress.update(task, completed=view.epoch - first)


def _print(told: EncodedAnswer, shape: OutputFormat, messages: Console) -> None:
    if shape is OutputFormat.TABLE:
        _print_table(told)
        return
    sys.stdout.buffer.write(told.content)
    if shape is OutputFormat.JSON:
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    messages.print(f"epoch {told.epoch}", highlight=False)


def _print_table(told: EncodedAnswer) -> None:
    found = pa.ipc.open_stream(told.content).read_all()
    count = f"{found.num_rows:,} row{'s' if found.num_rows != 1 else ''}"
    if found.num_rows > ROWS_SHOWN:
        count = f"the first {ROWS_SHOWN:,} of {count}; --format csv prints all"
    caption = f"epoch {told.epoch}, {count}"
    table = Table(caption=caption, min_width=len(caption))
    for field in found.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        numeric = numeric or pa.types.is_decimal(field.type)
        table.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in json_rows(found.slice(0, ROWS_SHOWN)):
        table.add_row(*("" if one is None else _cell(one) for one in row))
    Console().print(table, markup=False)


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
