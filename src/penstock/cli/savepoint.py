"""`penstock savepoint`: give the newest epoch a name, and keep its history."""

import time
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.options import AppOptions, ConfigOption, DataOption, JsonOption
from penstock.cli.output import print_result, utc_text
from penstock.errors import ConfigError
from penstock.history.reader import HistoryReader
from penstock.retention import savepoints
from penstock.retention.savepoints import Savepoint

HELP: Final = """Give the newest epoch a name, and keep this epoch and all later ones.

Epochs from a savepoint on are not removed until the savepoint is removed, independently of the
retention settings. The name stands for the epoch in penstock restore --to and penstock fork --at.

\b
Examples:
  penstock savepoint before-sale examples/shop
  penstock savepoint before-sale examples/shop --note "prices of spring"
  penstock savepoint examples/shop --list
  penstock savepoint examples/shop --remove before-sale
"""


def command(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[NAME] APP", help="The new name, and the application."),
    ],
    note: Annotated[str, typer.Option("--note", help="A text to keep with the savepoint.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="Show all savepoints.")] = False,
    removed: Annotated[
        str | None, typer.Option("--remove", metavar="NAME", help="Remove a savepoint.")
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make, list or remove savepoints; see `HELP`."""
    *names, app = words
    names_wanted = 0 if listed or removed is not None else 1
    if len(names) != names_wanted or (listed and removed is not None):
        raise ConfigError(
            "write penstock savepoint NAME APP, or APP with --list, or APP with --remove NAME"
        )
    application, settings = AppOptions(app, data, config).load()
    if removed is not None:
        savepoints.remove(settings.data, removed)
        return
    if listed:
        every = savepoints.every(settings.data)
        print_result(every, lambda console: _show(every, console), as_json=as_json)
        return
    with HistoryReader(settings.data, application) as past:
        _, epoch = past.span(None, None)
        made = Savepoint(names[0], epoch, time.time_ns() // 1_000, note)
        savepoints.create(settings.data, made)
    line = f"savepoint {made.name}: epoch {made.epoch}"
    print_result(made, lambda console: console.print(line), as_json=as_json)


def _show(every: list[Savepoint], console: Console) -> None:
    table = Table("savepoint", "epoch", "made", "note")
    for savepoint in every:
        epoch, made = str(savepoint.epoch), utc_text(savepoint.time_us)
        table.add_row(savepoint.name, epoch, made, savepoint.note)
    console.print(table)
