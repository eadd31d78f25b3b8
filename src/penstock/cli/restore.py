"""`penstock restore`: from a backup to an application in a new data directory."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from penstock.cli.options import JsonOption, config_of
from penstock.cli.progress import Bar
from penstock.errors import ConfigError
from penstock.history.branch import DROPPED, Branch
from penstock.history.restore import RestorePoint, restore
from penstock.journal.as_of import parse_timestamp
from penstock.process.fault import Fault

HELP: Final = """Restore a backup into a new data directory.

Without a choice it is the newest backup, with the requests that it had taken and not processed: they
run when the application starts. With an epoch, a time or a savepoint, history ends there; requests
that came later are not in the new directory, and are listed in its dropped-requests.jsonl.

Every byte is checked. The directory appears when all is done, or not at all.

\b
Examples:
  penstock restore /mnt/backups/shop /var/lib/shop
  penstock restore /mnt/backups/shop /var/lib/shop --to-epoch 1200
  penstock restore /mnt/backups/shop /var/lib/shop --to-time 2026-11-21T08:30:00+01:00
  penstock restore /mnt/backups/shop /var/lib/shop --to before-sale
"""

_MICROSECOND: Final = 1_000_000


def restore_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of backups.")],
    target: Annotated[
        Path, typer.Argument(metavar="NEW_DATA", help="A data directory that does not exist.")
    ],
    epoch: Annotated[
        int | None, typer.Option("--to-epoch", metavar="N", min=0, help="The last epoch.")
    ] = None,
    moment: Annotated[
        str | None,
        typer.Option("--to-time", metavar="TIME", help="The newest epoch by then (ISO 8601)."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="The epoch of a savepoint.")
    ] = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Restore a backup; see `HELP`."""
    given = [one for one in (epoch, moment, name) if one is not None]
    if len(given) > 1:
        raise ConfigError("give one of --to-epoch, --to-time and --to")
    aim: RestorePoint = parse_timestamp(moment) if moment is not None else next(iter(given), None)
    reached = Fault(config_of(target).fault).reached
    with Bar("restore") as bar:
        show(restore(directory, target, aim, reached, bar.at), "restored", "APP", as_json=as_json)


def show(branch: Branch, how: str, app: str, *, as_json: bool) -> None:
    """Print what a new directory holds, and how it is run."""
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(branch).decode()}\n")
        return
    when = datetime.fromtimestamp(branch.time_us / _MICROSECOND, UTC)
    lines = [
        f"{branch.app}, {how} at epoch {branch.epoch} ({when:%Y-%m-%d %H:%M:%S} UTC): {branch.data}"
    ]
    if branch.waiting:
        lines.append(f"{branch.waiting:,} requests that were not processed run when it starts")
    if branch.dropped:
        listed = Path(branch.data, DROPPED)
        lines.append(f"{branch.dropped:,} later requests are not part of it: {listed}")
    lines.append(f"run it: penstock run {app} --data {branch.data}")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
