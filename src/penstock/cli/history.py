"""`penstock history`: every change of one entity, and the request behind it."""

import sys
from contextlib import redirect_stdout
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.base.ids import entity_key
from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    JsonOption,
)
from penstock.cli.replay import FromOption, ToOption
from penstock.cli.trace import moment, show_outside, text_of
from penstock.errors import RequestError
from penstock.history.reader import HistoryReader
from penstock.history.trace import entity_history, entity_history_json

HELP: Final = """Show the changes of one entity, newest last, with the request behind each.

The epochs that changed it are found in the journal, and only those are run again, in this process,
to tell which of their requests did what. Nothing is written.

\b
Examples:
  penstock history Item i1 examples/shop
  penstock history Item i1 examples/shop --last 100 --json
  penstock history Order o7 examples/shop --from 100 --to 200
"""


def history_of(  # noqa: PLR0913 -- one parameter for each flag
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Its class.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its key.")],
    app: AppArgument,
    first: FromOption = None,
    last: ToOption = None,
    most: Annotated[
        int, typer.Option("--last", metavar="N", min=1, help="The newest changes only.")
    ] = 20,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Show the changes of an entity; see `HELP`."""
    application, settings = application_of(app, data=data, file=config)
    if entity not in application.entities:
        known = ", ".join(application.entities)
        raise RequestError(f"{application.name} has no entity class {entity!r}; it has {known}")
    name = entity_key(entity, key)
    # What handlers print is no part of the answer.
    with HistoryReader(settings.data, application, "history") as past, redirect_stdout(sys.stderr):
        span = past.span(first, last)
        changes = entity_history(past, application, name, span, most, settings.limits)
    found = entity_history_json(name, changes)
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(found, enc_hook=str).decode()}\n")
    else:
        show(found, Console(soft_wrap=True, highlight=False))


def show(found: dict[str, Any], console: Console) -> None:
    """Print changes for a person."""
    table = Table("epoch", "committed", "request", "attribute", "before", "after")
    for change in found["changes"]:
        head = [str(change["epoch"]), moment(change["time_us"]), _request(change)]
        rows = change["attributes"] or [{"name": "", "before": None, "after": None}]
        for number, one in enumerate(rows):
            told = head if number == 0 else ["", "", ""]
            before = "-" if change["kind"] == "create" else text_of(one["before"])
            after = "-" if change["kind"] == "delete" else text_of(one["after"])
            table.add_row(*map(escape, (*told, one["name"], before, after)))
        table.add_section()
    console.print(table)
    show_outside(found["outside"], console)
    if found["more"]:
        console.print("there are older changes; --last shows more")


def _request(change: dict[str, Any]) -> str:
    return f"{change['request_id']}: {change['call']}"
