"""`penstock sql`: run one query over the whole state at one epoch."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.progress import ProgressBar
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError, ViewUnavailable
from penstock.model.application import App
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.text import json_text
from penstock.sql.as_of_query import AsOfQueries, as_of_queries
from penstock.sql.query import Query, QueryResult
from penstock.sql.query_body import AsOf
from penstock.sql.result_format import ResultFormat, encode_result, json_rows
from penstock.sql.view import View
from penstock.sql.view_client import EncodedAnswer, query, socket_of, view_client

HELP: Final = """Run a SQL query over all entities at one epoch: DuckDB's SQL, read-only.

Each entity class is a table; requests, replies and epochs are tables, too. A class whose name is a word
of SQL, such as Order, is written "Order". The result is of the newest epoch.

With --as-of, or with AS OF at the end of the query, the result is of an earlier epoch, or of the newest
epoch at a time.

The query goes to the view of penstock run or penstock view or, with --url, to a gateway. If no view
runs, this command builds the view itself; it then needs the APP.

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
    """The output format of a result."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    LINES = "lines"
    ARROW = "arrow"


RESULT_FORMATS: Final = {
    OutputFormat.TABLE: ResultFormat.ARROW,
    OutputFormat.CSV: ResultFormat.CSV,
    OutputFormat.JSON: ResultFormat.JSON,
    OutputFormat.LINES: ResultFormat.LINES,
    OutputFormat.ARROW: ResultFormat.ARROW,
}


def command(
    text: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT.")],
    options: AppOptions,
    remote: RemoteOptions,
    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="The output format.")
    ] = OutputFormat.TABLE,
    min_epoch: Annotated[
        int | None, typer.Option("--min-epoch", metavar="N", help="Wait for this epoch.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="N|TIME", help="At this epoch, or the newest at this time."
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="VALUE", help="For ? a value, for $name a name=value."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a query and print the result; see `HELP`."""
    past = None if as_of is None else _as_of(as_of)
    question = Query(text, parameters_of(parameters or []), min_epoch, past)
    output_format = OutputFormat.JSON if as_json else output_format
    result_format = RESULT_FORMATS[output_format]
    if remote.url is not None:
        with remote.connection() as connection:
            answer = query(connection, msgspec.json.encode(question), result_format, None)
    else:
        answer = _answer_here(question, result_format, options)
    if output_format is OutputFormat.TABLE:
        _print_table(answer)
        return
    sys.stdout.buffer.write(answer.content)
    if output_format is OutputFormat.JSON:
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    Console(stderr=True).print(f"epoch {answer.epoch}", highlight=False)


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


def _answer_here(
    question: Query, result_format: ResultFormat, options: AppOptions
) -> EncodedAnswer:
    """Query the view of a data directory, or build the view in this process if none runs.

    Raises:
        ConfigError: No view runs, and the options name no application or there is no journal.
    """
    loaded = None if options.spec is None else options.load()
    folder = options.folder(hint=" or --url") if loaded is None else loaded[1].data
    socket = socket_of(folder)
    if socket is not None:
        with view_client(socket) as client:
            return query(client, msgspec.json.encode(question), result_format, None)
    if loaded is None and not options.settings().app:
        raise ConfigError(f"no view runs in {folder}; name the application to build one here")
    app, settings = loaded or options.load()
    require_journal(settings)
    result = _result(question, app, settings)
    return EncodedAnswer(str(result.epoch), encode_result(result, result_format))


def require_journal(settings: Config) -> None:
    """Check that a data directory has a journal.

    Raises:
        ConfigError: It has none.
    """
    if DataDirectory(settings.data).app_name is None:
        raise ConfigError(
            f"there is no journal in {settings.data}; penstock run {settings.app} makes one"
        )


def _result(question: Query, app: App, settings: Config) -> QueryResult:
    past = question.as_of_statement()
    if past is None:
        with _opened_view(app, settings) as view:
            return view.ask(question)
    deadline = time.monotonic() + settings.view.time_ms / 1_000
    with opened_history(app, settings) as history:
        return history.ask(past, question, deadline)


@contextmanager
def opened_history(app: App, settings: Config) -> Iterator[AsOfQueries]:
    """Open the history in a data directory, which has a journal; nothing is written there."""
    with closing(DataDirectory(settings.data).open_journal(app)) as journal:
        yield as_of_queries(settings.data, app, journal, settings.view)


@contextmanager
def _opened_view(app: App, settings: Config) -> Iterator[View]:
    """Open a view in this process, and bring it up to date behind a progress bar.

    Raises:
        ViewUnavailable: The view cannot go on; the message says why.
    """
    with (
        closing(DataDirectory(settings.data).open_journal(app)) as journal,
        closing(View(settings.data, app, journal, settings.view)) as view,
    ):
        view.start()
        first, last = view.epoch, view.journal_epoch()
        with ProgressBar("reading the journal") as bar:
            while not view.await_epoch(last, _LOOK_S):
                if view.problem is not None:
                    raise ViewUnavailable(
                        f"the SQL view cannot go on from epoch {view.epoch}: {view.problem}"
                    )
                bar.at(view.epoch - first, last - first)
        yield view


def _print_table(answer: EncodedAnswer) -> None:
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
