"""`penstock snapshot`: the state as Delta tables now, and what else keeps history in order."""

import sys
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console

from penstock.base.ids import BEFORE_FIRST
from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    JsonOption,
    SetOption,
)
from penstock.errors import ConfigError
from penstock.process.data_directory import DataDirectory
from penstock.retention.maintenance import MaintenanceReport, maintain

HELP: Final = """Take a snapshot: the state after the newest epoch, as one Delta table for each class.

The tables are in snapshots/CLASS of the data directory; DuckDB, Polars, Spark and others read them.
Small files of older epochs are merged on the way, and what the settings history.keep_… do not want to
keep, and nobody needs, is forgotten. The application may run meanwhile; it does all of this by
itself, too, as often as the settings history.snapshot_… say.

With --merge-only files are merged and epochs forgotten only.

\b
Examples:
  penstock snapshot examples/shop
  penstock snapshot examples/shop --json
  penstock snapshot examples/shop --merge-only --set history.keep_epochs=10000
"""


def snapshot(
    app: AppArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    merge_only: Annotated[  # noqa: FBT002 -- a flag
        bool, typer.Option("--merge-only", help="Take none; merge and forget only.")
    ] = False,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Take a snapshot and say what there is; see `HELP`."""
    application, settings = application_of(app, data=data, file=config, assignments=assignments)
    if not DataDirectory(settings.data).journal_path.is_dir():
        raise ConfigError(
            f"there is no journal in {settings.data}: nothing of {application.name} was ever "
            "processed there; name its directory with --data"
        )
    messages = Console(stderr=True)
    with messages.status("writing the state, merging files …"):
        done = maintain(application, settings, snapshot=not merge_only, wait=True)
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(plain(done)).decode()}\n")
    else:
        show(done, Console(soft_wrap=True, highlight=False))


def plain(done: MaintenanceReport) -> dict[str, Any]:
    """Return what was done as plain data, holders by name."""
    told: dict[str, Any] = msgspec.to_builtins(done)
    told["holders"] = [{"who": one.who, "epoch": one.epoch} for one in done.holders]
    return told


def show(done: MaintenanceReport, console: Console) -> None:
    """Print what was done, for a person."""
    if done.snapshot == BEFORE_FIRST:
        console.print("there is no snapshot yet")
    else:
        console.print(f"newest snapshot: epoch {done.snapshot}, {done.rows:,} entities")
        console.print(f"snapshots of epochs: {', '.join(map(str, done.snapshots))}")
    console.print(f"the journal begins with epoch {done.first}; {done.merged:,} epochs merged")
    console.print(f"the log begins with record {done.log_start:,}")
    if done.first < done.wanted:
        console.print(f"epochs before {done.wanted} could be forgotten, but are needed:")
        for one in done.holders:
            console.print(f"  from epoch {one.epoch} on by {one.who}", markup=False)
