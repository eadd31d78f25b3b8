"""`penstock backup`: make and list the backups of an application."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from penstock.base.ids import Epoch
from penstock.cli.options import AppOptions, JsonOption, root_of
from penstock.cli.output import folding_table, print_json, print_result, utc_text
from penstock.cli.progress import ProgressBar
from penstock.process.fault import Fault

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.history.backup import Backup, CreatedBackup

HELP: Final = """Back up an application, which may run meanwhile, into a directory of backups, or into an object store.

A backup holds the newest epoch and its whole history, the requests that wait in the log, savepoints
and API keys. Files that an earlier backup in the directory has are not copied again, except for the
log. Every byte is checked while it is read: if a file is damaged, no backup is made, and the message
names the file.

\b
Examples:
  penstock backup /mnt/backups/shop examples/shop
  penstock backup /mnt/backups/shop examples/shop --keep 7
  penstock backup /mnt/backups/shop --list
  penstock backup s3://bucket/backups/shop examples/shop
"""


class BackupLine(msgspec.Struct, frozen=True):
    """A backup as `--json` prints it. Keys are stable.

    Attributes:
        app: The application's name.
        first, epoch: The oldest and the newest epoch of the backup.
        made_us: When the backup was made, in microseconds since the Unix epoch.
        files, bytes: The number and the total size of its files.
        copied_files, copied_bytes: The files that had to be copied; None for a backup in a list.
    """

    app: str
    first: Epoch
    epoch: Epoch
    made_us: int
    files: int
    bytes: int
    copied_files: int | None = None
    copied_bytes: int | None = None


def command(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The directory of backups, or s3://BUCKET/PREFIX."),
    ],
    options: AppOptions,
    listed: Annotated[bool, typer.Option("--list", help="Show the backups in DIR.")] = False,
    keep: Annotated[
        int | None, typer.Option("--keep", metavar="N", min=1, help="Remove all but the newest N.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make or list backups; see `HELP`."""
    from rich.filesize import decimal

    options.find()
    from penstock.history.backup import Backups

    backups = Backups(root_of(directory))
    if listed:
        lines = [_line(backup) for backup in backups.every()]
        print_result(
            lines, lambda console: _show(lines, backups.damaged(), console), as_json=as_json
        )
        return
    application, settings = options.load_unchecked()
    reached = Fault(settings.fault).reached
    with ProgressBar("backup") as bar:
        made = backups.make(settings.data, application.name, reached, bar.at)
    removed = [] if keep is None else backups.keep(keep, reached)
    line = _made_line(made)
    if as_json:
        print_json(line)
        return
    sys.stdout.write(
        f"backup of {line.app} at epoch {line.epoch}: {line.files} files, {decimal(line.bytes)}; "
        f"copied {line.copied_files}, {decimal(line.copied_bytes or 0)}\n"
    )
    if removed:
        sys.stdout.write(f"removed {len(removed)} older backups\n")


def _show(lines: list[BackupLine], damaged: list[str], console: "Console") -> None:
    from rich.filesize import decimal

    table = folding_table("made", "application", "epochs", "files", "size")
    for line in lines:
        epochs = f"{line.first} to {line.epoch}"
        files, size = f"{line.files:,}", decimal(line.bytes)
        table.add_row(utc_text(line.made_us), line.app, epochs, files, size)
    console.print(table)
    for path in damaged:
        console.print(f"damaged, cannot be restored: {path}", style="red")


def _line(backup: "Backup") -> BackupLine:
    contents = backup.contents
    files = len(backup.files)
    return BackupLine(
        contents.app, contents.first, contents.epoch, backup.made_us, files, backup.size
    )


def _made_line(made: "CreatedBackup") -> BackupLine:
    return msgspec.structs.replace(
        _line(made.backup),
        copied_files=len(made.copied),
        copied_bytes=sum(file.size for file in made.copied),
    )
