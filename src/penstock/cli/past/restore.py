"""`penstock restore`: from a backup to an application in a new data directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import JsonOption, config_of, new_place_of, root_of
from penstock.cli.output import counted, print_result, utc_text
from penstock.cli.progress import ProgressBar
from penstock.errors import ConfigError
from penstock.files.layout import SUBJECT_KEYS
from penstock.process.fault import Fault
from penstock.process.stop import interruptible

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.history.branch import Branch
    from penstock.history.restore import Announce, RestorePoint

HELP: Final = """Restore a backup into a new data directory, or into a new place in an object store.

Without an option, the newest backup is restored, with the requests that the log had taken and no
epoch had processed: they run when the application starts. With an epoch, a time or a savepoint,
history ends there; the new directory does not have later requests, and lists them in its
dropped-requests.jsonl.

If the application has personal classes, the command says before it copies that no backup contains their keys: put your
own copy of subjects.keys into the new directory.

Every byte is checked. The directory appears when it is complete, or not at all. An application whose data are to be in an object
store is made in a folder of this host first, which needs room for the whole backup.

\b
Examples:
  penstock restore /mnt/backups/shop /var/lib/shop
  penstock restore /mnt/backups/shop /var/lib/shop --to-epoch 1200
  penstock restore /mnt/backups/shop /var/lib/shop --to-time 2026-11-21T08:30:00+01:00
  penstock restore /mnt/backups/shop /var/lib/shop --to before-sale
  penstock restore s3://bucket/backups/shop s3://bucket/shop
"""


def command(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The directory of backups, or s3://BUCKET/PREFIX."),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="NEW_DATA",
            help="A data directory that does not exist, or s3://BUCKET/PREFIX without objects.",
        ),
    ],
    epoch: Annotated[
        int | None, typer.Option("--to-epoch", metavar="N", min=0, help="The last epoch.")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="The last commit time (ISO 8601)."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="The savepoint of the last epoch.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup; see `HELP`."""
    from penstock.history.restore import restore
    from penstock.journal.as_of import parse_timestamp

    aims: list[RestorePoint] = [aim for aim in (epoch, time, name) if aim is not None]
    if len(aims) > 1:
        raise ConfigError("give only one of --to-epoch, --to-time and --to")
    aim = parse_timestamp(time) if time is not None else next(iter(aims), None)
    place = new_place_of(target)
    reached = Fault(config_of(place.folder).fault).reached
    with interruptible(), ProgressBar("restore") as bar:
        announce = announcer("no backup contains", place.folder)
        branch = restore(root_of(directory), place, aim, reached, bar.at, announce)
    print_branch(branch, "restored", "APP", place.folder, as_json=as_json)


def announcer(lacking: str, target: Path) -> "Announce":
    """Return a function that says on standard error which file the new directory needs before it can be used.

    Args:
        lacking: Why it lacks the keys: the beginning of a sentence whose object is their file.
    """

    def announce(personal: list[str]) -> None:
        from rich.console import Console

        text = (
            f"{lacking} {SUBJECT_KEYS}, the keys of {', '.join(personal)}: {target} is refused until your own copy of the "
            f"file lies in it as {target / SUBJECT_KEYS}"
        )
        Console(stderr=True).print(text, style="bold yellow", highlight=False, soft_wrap=True)

    return announce


def print_branch(branch: "Branch", how: str, app: str, folder: Path, *, as_json: bool) -> None:
    """Print the content of a new data directory, and the command that runs it.

    Args:
        how: The past participle of the operation that made the directory.
        folder: The directory, on this host; `branch.data` may be in an object store.
        as_json: Whether `--json` was given.
    """
    from penstock.history.branch import DROPPED

    def show(console: "Console") -> None:
        console.print(
            f"{branch.app}, {how} at epoch {branch.epoch} ({utc_text(branch.time_us)}): {branch.data}"
        )
        if branch.waiting:
            run = "request was not processed, and runs", "requests were not processed, and run"
            console.print(f"{counted(branch.waiting, *run)} when it starts")
        if branch.dropped:
            path = folder / DROPPED
            dropped = counted(branch.dropped, "later request is", "later requests are")
            console.print(f"{dropped} not part of it: {path}")
        if branch.held:
            console.print(
                f"its views write nothing until penstock resume --data {branch.data}: {', '.join(branch.held)}"
            )
        if branch.held_effects:
            console.print(
                f"its effects are not called until penstock resume --data {branch.data}: {', '.join(branch.held_effects)}"
            )
        if branch.held_captures:
            console.print(
                f"its streams of changes take nothing until penstock resume --data {branch.data}: {', '.join(branch.held_captures)}"
            )
        console.print(f"run it: penstock run {app} --data {branch.data}")

    print_result(branch, show, as_json=as_json)
