"""`penstock snapshot`: take a snapshot of the state, and maintain the history."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from penstock.base.ids import BEFORE_FIRST
from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import counted, print_result
from penstock.errors import ConfigError
from penstock.files.roots import has_journal

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.retention.maintenance_report import MaintenanceReport

HELP: Final = """Take a snapshot: the state after the newest epoch, as one Delta table for each class.

The tables are in snapshots/CLASS of the data directory; DuckDB, Polars, Spark and others read them.
The command also merges small files of older epochs, and removes the epochs that the settings
history.keep_… do not keep and that no reader needs. The application may run meanwhile; it does all
of this by itself, too, as often as the settings history.snapshot_… say.

With --merge-only, the command only merges files and removes epochs.

\b
Examples:
  penstock snapshot examples/shop
  penstock snapshot examples/shop --json
  penstock snapshot examples/shop --merge-only --set history.keep_epochs=10000
"""


def command(
    options: AppOptions,
    merge_only: Annotated[
        bool, typer.Option("--merge-only", help="Take no snapshot; merge and remove only.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Take a snapshot and print the state of the history; see `HELP`."""
    from rich.console import Console

    application, settings = options.load()
    from penstock.retention.maintenance import maintain

    if not has_journal(settings.data):
        raise ConfigError(
            f"there is no journal in {settings.data}: {application.name} has not processed any "
            "request there; name its data directory with --data"
        )
    with Console(stderr=True).status("writing the state, merging files …"):
        done = maintain(application, settings, snapshot=not merge_only, wait=True)
    print_result(_plain(done), lambda console: _show(done, console), as_json=as_json)


def _plain(done: "MaintenanceReport") -> dict[str, Any]:
    holders = [{"who": holder.who, "epoch": holder.epoch} for holder in done.holders]
    return {**msgspec.to_builtins(done), "holders": holders}


def _show(done: "MaintenanceReport", console: "Console") -> None:
    if done.snapshot == BEFORE_FIRST:
        console.print("there is no snapshot yet")
    else:
        console.print(
            f"newest snapshot: epoch {done.snapshot}, {counted(done.rows, 'entity', 'entities')}"
        )
        console.print(f"snapshots of epochs: {', '.join(map(str, done.snapshots))}")
    console.print(
        f"the journal begins with epoch {done.first}; {counted(done.merged, 'epoch', 'epochs')} merged"
    )
    console.print(f"the log begins with record {done.log_start:,}")
    if done.first < done.wanted:
        console.print(f"epochs before {done.wanted} could be removed, but are in use:")
        for holder in done.holders:
            console.print(f"  from epoch {holder.epoch} on by {holder.who}")
