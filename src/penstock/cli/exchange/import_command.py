"""`penstock import`: import rows into a class, and report those that do not fit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import word_completion
from penstock.cli.error_output import USER_ERROR
from penstock.cli.options import AppOptions, FormatOption, JsonOption, check_class_word
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.exchange.import_order import ImportReport

HELP: Final = """Import a file or a table into a class: all rows become entities in one epoch, or none does.

The source is a file of Parquet, CSV or JSON lines, or a table of PostgreSQL. It has a column for the key, and one for
each attribute without a default; the columns of a class with an __init__ are its arguments. All rows are converted to
the declared types before anything is written. If some do not fit, the command lists the first of them with row, column,
value and reason, and nothing is imported.

If the entity of a row exists, the command refuses all rows. With --existing replace, the entity gets the state of its row; with
--existing update, only the attributes that the row has; with --existing skip, it stays as it is. With update, a row without
an entity creates one, if it has each attribute without a default. The command appends one record to the log, so the import
has its place among the requests; if no driver runs, the record waits for the next start. With --id, the import takes effect
once, however often the command is repeated.

With --url, a gateway does the import; its key needs the scope admin, and SOURCE is a path on the host of the gateway.

\b
Examples:
  penstock import Item items.parquet examples/shop
  penstock import Item items.csv examples/shop --dry-run
  penstock import Item items.jsonl --data DIR --existing replace --id items-2026-01
  penstock import Item prices.csv examples/shop --existing update
  penstock import Item postgresql://crm@db/crm --table public.items examples/shop
"""


def command(
    entity: Annotated[
        str,
        typer.Argument(
            metavar="CLASS",
            help="The class of the entities.",
            autocompletion=word_completion.stored_classes,
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A file, or the URL of a database, without a password."
        ),
    ],
    options: AppOptions,
    remote: RemoteOptions,
    file_format: FormatOption = None,
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="The table of the database.")
    ] = "",
    existing: Annotated[
        str,
        typer.Option(
            "--existing",
            metavar="WHAT",
            help="If an entity exists: refuse, replace, update or skip.",
        ),
    ] = "refuse",
    order_id: Annotated[
        str,
        typer.Option("--id", metavar="ID", help="Take effect once for this id; default: a new id."),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and compare all rows; write nothing.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the driver.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Import rows into a class; see `HELP`."""
    check_class_word(entity, "penstock import CLASS SOURCE [APP]")
    if remote.url is None:
        options.find()
    import msgspec

    from penstock.cli.progress import ProgressBar
    from penstock.exchange.import_order import ImportOrder

    is_file = remote.url is None and "://" not in source
    if is_file and not Path(source).is_file():
        raise ConfigError(
            f"the file {source} does not exist; write its path, or the URL of a database"
        )
    given = {
        "entity": entity,
        "source": str(Path(source).absolute()) if is_file else source,
        "format": file_format,
        "table": table,
        "existing": existing,
        "id": order_id,
        "dry_run": dry_run,
    }
    try:
        order = msgspec.convert(given, ImportOrder)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error}; see penstock import --help") from error
    with ProgressBar("rows") as bar:
        report = remote.give(order, lambda: options.place(told=bar.at), timeout_s)
    print_result(report, lambda console: _show(report, entity, existing, console), as_json=as_json)
    if report.outcome == "refused":
        raise typer.Exit(USER_ERROR)


def _show(report: "ImportReport", entity: str, existing: str, console: "Console") -> None:
    if report.outcome == "refused":
        table = folding_table("row", "column", "value", "reason")
        for misfit in report.misfits:
            table.add_row(str(misfit.row), misfit.column, misfit.value, misfit.reason)
        console.print(table)
        more = (
            f", of which {len(report.misfits)} are shown"
            if report.unfit > len(report.misfits)
            else ""
        )
        console.print(
            f"{report.unfit} of {report.rows} rows do not fit{more}. Nothing is imported.",
            style="red",
        )
    elif report.outcome == "waits":
        from penstock.orders.order import durable

        console.print(
            f"No driver runs. The import of {report.rows} rows ({report.id}) is {durable()}."
        )
    else:
        verb = "would be" if report.outcome == "fits" else "are"
        counts = [f"{report.created} entities of {entity} {verb} new"]
        changed = "changed" if existing == "update" else "replaced"
        counts += [f"{report.replaced} {verb} {changed}"] if report.replaced else []
        counts += [f"{report.unchanged} stay as they are"] if report.unchanged else []
        at = f", in epoch {report.epoch}" if report.epoch is not None else "; nothing is written"
        console.print(f"{', '.join(counts)}{at}.")
