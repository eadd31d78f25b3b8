"""`penstock savepoint`: give the newest epoch a name, and keep its history."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import DataOptions, JsonOption
from penstock.cli.output import folding_table, print_result, utc_text
from penstock.errors import ConfigError
from penstock.log.clock import wall_clock_us
from penstock.retention import savepoints
from penstock.retention.savepoints import Savepoint

if TYPE_CHECKING:
    from rich.console import Console

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

_OPTIONS: Final = ("list", "remove")
"""Words of other commands that a user may write in place of the options; they are no names."""


def command(
    options: DataOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME APP",
            help="The new name, and the application if no option or setting names it.",
            show_default=False,
        ),
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A text to keep with the savepoint.")] = "",
    listed: Annotated[bool, typer.Option("--list", help="Show all savepoints.")] = False,
    removed: Annotated[
        str | None, typer.Option("--remove", metavar="NAME", help="Remove a savepoint.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make, list or remove savepoints; see `HELP`."""
    names_wanted = 0 if listed or removed is not None else 1
    names, apps = (words or [])[:names_wanted], (words or [])[names_wanted:]
    if apps:
        options = replace(options, named=apps[0])
    unclear = len(names) < names_wanted or len(apps) > 1 or (listed and removed is not None)
    if unclear or not options.settings().app:
        raise ConfigError(
            "write penstock savepoint NAME APP, or APP with --list, or APP with --remove NAME; "
            "--app or a setting may name the application in place of APP"
        )
    if names and names[0] in _OPTIONS:
        raise ConfigError(
            f"{names[0]} is no name of a savepoint: write penstock savepoint APP --{names[0]}"
        )
    application, settings = options.load_unchecked()
    if removed is not None:
        savepoints.remove(settings.data, removed)
        print_result({"removed": removed}, lambda console: None, as_json=as_json)
        return
    if listed:
        every = savepoints.every(settings.data)
        print_result(every, lambda console: _show(every, console), as_json=as_json)
        return
    from penstock.history.backup_set import newest_in

    epoch = newest_in(settings.data, application.name)
    made = Savepoint(names[0], epoch, wall_clock_us(), note)
    savepoints.create(settings.data, made)
    line = f"savepoint {made.name}: epoch {made.epoch}"
    print_result(made, lambda console: console.print(line), as_json=as_json)


def _show(every: list[Savepoint], console: "Console") -> None:
    table = folding_table("savepoint", "epoch", "made", "note")
    for savepoint in every:
        epoch, made = str(savepoint.epoch), utc_text(savepoint.time_us)
        table.add_row(savepoint.name, epoch, made, savepoint.note)
    console.print(table)
