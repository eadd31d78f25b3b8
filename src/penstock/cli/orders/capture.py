"""`penstock capture`: list the streams of changes of databases, give orders about them, and run one alone."""

from typing import TYPE_CHECKING, Final

import typer

from penstock.cli.options import AppOptions, DataOptions, JsonOption, expanded
from penstock.cli.orders.flow import user
from penstock.cli.orders.view import ReasonOption
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.cli.running.capture import FEED_HELP, CaptureWords, feed
from penstock.cli.running.view import named_view

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.orders.capture_orders import CaptureOrderKind, CapturesState

HELP: Final = """List, pause and resume streams of changes of databases, read their tables again, and run one alone.

changes(…) declares such a stream: it has the rows of tables of a database, and then each transaction as an atom.
penstock run starts a process for each of them, which obeys an order within a second.

\b
Examples:
  penstock capture list examples/strangle
  penstock capture pause examples/strangle crm --reason "the database moves"
  penstock capture resume examples/strangle crm
  penstock capture snapshot examples/strangle crm

With --url, a gateway takes the order. If the application has keys, the key needs the scope admin.
"""

LIST_HELP: Final = """List the streams of changes: state, position, lag, and the remedy that is needed.

\b
States:
  reading    it reads the whole tables
  following  it takes each transaction
  waiting    the database, the log or the driver is not ready; it tries again
  refused    nothing is taken until the remedy is done
  paused     by an order
  held       the directory was restored or forked; penstock resume ends the hold
  stopped    its process does not run

Kept is how much of its own log the database keeps for the stream: it grows while the stream stands still.

\b
Examples:
  penstock capture list examples/strangle
  penstock capture list --data /var/lib/shop --json
"""

PAUSE_HELP: Final = """Pause a stream of changes: it closes its connections. The database keeps its log meanwhile.

\b
Example:
  penstock capture pause examples/strangle crm --reason "the database moves"
"""

RESUME_HELP: Final = """Resume a stream of changes: it goes on behind its last atom.

\b
Example:
  penstock capture resume examples/strangle crm
"""

SNAPSHOT_HELP: Final = """Read the tables of a stream of changes again: the change reset, and then all rows.

Needed if the database has lost the slot, or was replaced, or if a table is new in the stream. The slot is dropped and
made again.

\b
Example:
  penstock capture snapshot examples/strangle crm
"""

command: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode=None
)


def listed(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """List the streams of changes; see `LIST_HELP`."""
    options.find()
    from penstock.orders.capture_orders import STATE

    state = remote.report(STATE, options.place)
    print_result(state, lambda console: show_captures(state, console), as_json=as_json)


def pause(
    options: DataOptions,
    remote: RemoteOptions,
    words: CaptureWords = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Pause a stream of changes; see `PAUSE_HELP`."""
    _give("pause", options, remote, words, reason, as_json=as_json)


def resume(
    options: DataOptions,
    remote: RemoteOptions,
    words: CaptureWords = None,
    as_json: JsonOption = False,
) -> None:
    """Resume a stream of changes; see `RESUME_HELP`."""
    _give("resume", options, remote, words, as_json=as_json)


def snapshot(
    options: DataOptions,
    remote: RemoteOptions,
    words: CaptureWords = None,
    as_json: JsonOption = False,
) -> None:
    """Read the tables again; see `SNAPSHOT_HELP`."""
    _give("snapshot", options, remote, words, as_json=as_json)


_DONE: Final = {
    "pause": "Paused {}.",
    "resume": "Resumed {}.",
    "snapshot": "Reading the tables of {} again.",
}


def _give(
    order_kind: "CaptureOrderKind",
    options: DataOptions,
    remote: RemoteOptions,
    words: list[str] | None,
    reason: str = "",
    *,
    as_json: bool,
) -> None:
    options, name = named_view(options, words, "a stream of changes")
    options.find()
    from penstock.orders.capture_orders import CaptureOrder

    order = CaptureOrder(order_kind, name, reason)
    state = remote.give(order, lambda: options.place()._replace(by=user()))

    def show(console: "Console") -> None:
        console.print(_DONE[order_kind].format(name), markup=False, highlight=False)

    print_result(state, show, as_json=as_json)


def show_captures(state: "CapturesState", console: "Console") -> None:
    """Print how the streams of changes stand."""
    if not state.captures:
        console.print(
            "The newest deployment declares no stream of changes; penstock run and penstock deploy deploy an application."
        )
        return
    table = folding_table("Stream", "Database", "State", "Position", "Rows", "Unfit", "Lag", "Kept")
    for each in state.captures:
        table.add_row(
            each.name,
            each.source,
            each.state,
            each.source_lsn or "-",
            f"{each.rows:,}",
            f"{each.unfit:,}",
            f"{each.lag_s:,.1f} s",
            "-" if each.retained_bytes is None else f"{each.retained_bytes / 1e6:,.1f} MB",
        )
    console.print(table)
    for each in state.captures:
        if told := "; ".join(filter(None, (each.reason, each.remedy))):
            text = f"{each.name}: {told}"
            console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for each in state.captures:
        if each.untaken:
            text = f"{each.name}: no field takes {', '.join(each.untaken)}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


command.command("list", help=LIST_HELP)(expanded(listed))
command.command("pause", help=PAUSE_HELP)(expanded(pause))
command.command("resume", help=RESUME_HELP)(expanded(resume))
command.command("snapshot", help=SNAPSHOT_HELP)(expanded(snapshot))
command.command("feed", help=FEED_HELP)(expanded(feed))
