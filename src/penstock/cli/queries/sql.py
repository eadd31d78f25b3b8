"""`penstock sql`: run one query over the whole state at one epoch."""

import sys
from typing import Annotated, Any, Final

import msgspec
import typer

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import OutputFormat
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

HELP: Final = """Run a SQL query over all entities at one epoch: DuckDB's SQL, read-only.

Each entity class is a table; requests, replies, epochs and effects are tables, too. A class whose name is a word
of SQL, such as Order, is written "Order". The result is of the newest epoch.

With --as-of, or with AS OF at the end of the query, the result is of an earlier epoch, or of the newest
epoch at a time.

The query goes to the view of penstock run or penstock view serve or, with --url, to a gateway. If no view
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
    if remote.url is None:
        options.find(hint=" or --url")
    from penstock.cli.queries.sql_answer import answer_to
    from penstock.sql_view.query_body import AsOf, QueryBody

    past = None
    if as_of is not None:
        past = AsOf(int(as_of)) if as_of.isdecimal() else AsOf(timestamp=as_of)
    question = QueryBody(text, parameters_of(parameters or []), min_epoch, past)
    output_format = OutputFormat.JSON if as_json else output_format
    answer = answer_to(question, output_format.result_format, options, remote)
    if output_format is OutputFormat.TABLE:
        from penstock.cli.queries.sql_table import print_result_table

        print_result_table(answer)
        return
    sys.stdout.buffer.write(answer.content)
    if output_format is OutputFormat.JSON:
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    sys.stderr.write(f"epoch {answer.epoch}\n")


def parameters_of(words: list[str]) -> list[Any] | dict[str, Any]:
    """Read parameters: JSON or bare text, all by position or all as name=value."""
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
