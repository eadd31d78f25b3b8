"""`penstock backup`: everything that an application is, in a directory of backups."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from penstock.base.ids import Epoch
from penstock.cli.application import application_of
from penstock.cli.options import ConfigOption, DataOption, JsonOption
from penstock.cli.progress import Bar
from penstock.errors import ConfigError
from penstock.history.backup import Backup, Backups, CreatedBackup
from penstock.process.fault import Fault

HELP: Final = """Back up an application, while it runs, into a directory of backups.

A backup holds the newest epoch and all of its history, what waits in the log, savepoints and API
keys. What an earlier backup in the directory has is not copied again, except for the log. Every byte
is checked while it is read: where something is damaged there is no backup, and the file is named.

\b
Examples:
  penstock backup /mnt/backups/shop examples/shop
  penstock backup /mnt/backups/shop examples/shop --keep 7
  penstock backup /mnt/backups/shop --list
"""

_MICROSECOND: Final = 1_000_000


class Line(msgspec.Struct, frozen=True):
    """What `--json` prints of a backup. Keys are stable.

    Attributes:
        app: The application's name.
        first, epoch: The oldest and the newest epoch that it holds.
        made_us: When it was made, microseconds since the Unix epoch.
        files, bytes: What it consists of.
        copied_files, copied_bytes: What had to be copied for it; None where that was long ago.
    """

    app: str
    first: Epoch
    epoch: Epoch
    made_us: int
    files: int
    bytes: int
    copied_files: int | None = None
    copied_bytes: int | None = None


def backup(  # noqa: PLR0913 -- one parameter for each flag
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of backups.")],
    app: Annotated[
        str | None, typer.Argument(metavar="APP", help="The application; see penstock run.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the backups in DIR.")] = False,  # noqa: FBT002 -- a flag
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="Remove all but the newest N.")
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Make or list backups; see `HELP`."""
    backups = Backups(directory)
    if listed:
        _show(backups, as_json=as_json)
        return
    if app is None:
        raise ConfigError("name the application: penstock backup DIR APP; or DIR with --list")
    application, settings = application_of(app, data=data, file=config)
    reached = Fault(settings.fault).reached
    with Bar("backup") as bar:
        made = backups.make(settings.data, application.name, reached, bar.at)
    removed = [] if keep is None else backups.keep(keep, reached)
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(_made_line(made)).decode()}\n")
        return
    one = made.backup
    copied = sum(file.size for file in made.copied)
    sys.stdout.write(
        f"backup of {application.name} at epoch {one.contents.epoch}: {len(one.files)} files, "
        f"{decimal(one.size)}; copied {len(made.copied)}, {decimal(copied)}\n"
    )
    if removed:
        sys.stdout.write(f"removed {len(removed)} older backups\n")


def _show(backups: Backups, *, as_json: bool) -> None:
    found = backups.every()
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode([_line(one) for one in found]).decode()}\n")
        return
    table = Table("made", "application", "epochs", "files", "size")
    for one in found:
        made = datetime.fromtimestamp(one.made_us / _MICROSECOND, UTC)
        epochs = f"{one.contents.first} to {one.contents.epoch}"
        files = f"{len(one.files):,}"
        row = (f"{made:%Y-%m-%d %H:%M:%S} UTC", one.contents.app, epochs, files, decimal(one.size))
        table.add_row(*row)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(table)
    for path in backups.damaged():
        console.print(f"damaged, of no use: {path}", style="red")


def _line(one: Backup) -> Line:
    truth = one.contents
    return Line(truth.app, truth.first, truth.epoch, one.made_us, len(one.files), one.size)


def _made_line(made: CreatedBackup) -> Line:
    return msgspec.structs.replace(
        _line(made.backup),
        copied_files=len(made.copied),
        copied_bytes=sum(file.size for file in made.copied),
    )
