"""`penstock savepoint`: a name for the newest epoch, which then stays readable for ever."""

import sys
import time
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.application import application_of
from penstock.cli.options import ConfigOption, DataOption, JsonOption
from penstock.errors import ConfigError
from penstock.history.reader import HistoryReader
from penstock.retention import savepoints
from penstock.retention.savepoints import Savepoint

HELP: Final = """Give the newest epoch a name, and keep it and all that follow for ever.

Nothing from a savepoint's epoch on is forgotten until the savepoint is removed, whatever the
retention. Its name stands for the epoch in penstock restore --to and penstock fork --at.

\b
Examples:
  penstock savepoint before-sale examples/shop
  penstock savepoint before-sale examples/shop --note "prices of spring"
  penstock savepoint examples/shop --list
  penstock savepoint examples/shop --remove before-sale
"""

_MICROSECOND: Final = 1_000_000


def savepoint(  # noqa: PLR0913 -- one parameter for each flag
    words: Annotated[
        list[str],
        typer.Argument(metavar="[NAME] APP", help="The new name, and the application."),
    ],
    note: Annotated[str, typer.Option("--note", help="What to remember with it.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="Show all savepoints.")] = False,  # noqa: FBT002 -- a flag
    removed: Annotated[
        str | None, typer.Option("--remove", metavar="NAME", help="Remove a savepoint.")
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Make, list or remove savepoints; see `HELP`."""
    *names, app = words
    wanted = 0 if listed or removed is not None else 1
    if len(names) != wanted or (listed and removed is not None):
        raise ConfigError(
            "write penstock savepoint NAME APP, or APP with --list, or APP with --remove NAME"
        )
    application, settings = application_of(app, data=data, file=config)
    folder = settings.data
    if removed is not None:
        savepoints.remove(folder, removed)
        return
    if listed:
        _show(savepoints.every(folder), as_json=as_json)
        return
    with HistoryReader(folder, application) as past:
        _, epoch = past.span(None, None)
        made = Savepoint(names[0], epoch, time.time_ns() // 1_000, note)
        savepoints.create(folder, made)
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(made).decode()}\n")
    else:
        sys.stdout.write(f"savepoint {made.name}: epoch {made.epoch}\n")


def _show(found: list[Savepoint], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(found).decode()}\n")
        return
    table = Table("savepoint", "epoch", "made", "note")
    for one in found:
        made = datetime.fromtimestamp(one.time_us / _MICROSECOND, UTC)
        table.add_row(one.name, str(one.epoch), f"{made:%Y-%m-%d %H:%M:%S} UTC", one.note)
    Console(soft_wrap=True, highlight=False, markup=False).print(table)
