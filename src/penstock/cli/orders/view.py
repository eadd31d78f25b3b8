"""`penstock view`: list views, give orders about them, and run the SQL view or the applier of a view alone."""

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import typer

from penstock.base.ids import BEFORE_FIRST
from penstock.cli.options import AppOptions, DataOptions, JsonOption, expanded
from penstock.cli.orders.flow import user
from penstock.cli.output import folding_table, print_result
from penstock.cli.queries import search
from penstock.cli.remote import RemoteOptions
from penstock.cli.running.view import FEED_HELP, SERVE_HELP, WordsArgument, feed, named_view, serve

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.orders.view_orders import ViewsState

HELP: Final = """List, pause, resume, rebuild and remove views; run the applier of a view, or the SQL view, alone.

A view of an application is a database or a search index that shows its tables, fed from the journal. penstock run
starts an applier for each view, which obeys an order within a second. The SQL view, which answers penstock sql, is
another process: penstock view serve runs it alone.

\b
Examples:
  penstock view list examples/shop
  penstock view pause examples/shop reporting --reason "the database moves"
  penstock view resume examples/shop reporting
  penstock view rebuild examples/shop reporting
  penstock view list --url https://shop.example --key KEY

With --url, a gateway takes the order. If the application has keys, the key needs the scope admin.
"""

LIST_HELP: Final = """List the views: target, state, epoch, lag, and the remedy that is needed.

\b
States:
  filling    its tables are filled; readers see the former rows until all are there
  following  it takes each epoch
  waiting    the target cannot be written now; the applier tries it again
  refused    the target is not written until the remedy is done
  paused     by an order
  held       the directory was restored or forked; penstock resume ends the hold
  stopped    its applier does not run

A view is incomplete if rows are absent because their row function has failed, or because rows of a query have the same
key; its table _failed lists them. Of a view with SQL tables, the last line says how long its queries took. If they would take
more of the time than view.tables_percent, it rests between them.

\b
Examples:
  penstock view list examples/shop
  penstock view list --data /var/lib/shop --json
"""

PAUSE_HELP: Final = """Pause a view: its tables stay at their epoch, and its applier closes the target.

\b
Example:
  penstock view pause examples/shop reporting --reason "the database moves"
"""

RESUME_HELP: Final = """Resume a paused view: it goes on from its epoch.

\b
Example:
  penstock view resume examples/shop reporting
"""

REBUILD_HELP: Final = """Rebuild a view: its tables are filled again from the newest snapshot.

Readers see the former rows until the new ones replace them in one transaction. Needed if the state of the view says so.

\b
Example:
  penstock view rebuild examples/shop reporting
"""

REMOVE_HELP: Final = """Remove a view that the newest deployment does not declare any more: its files, and its tables in a database.

The setting views.NAME.url must still have the address of the database. Only tables that the view has made are removed;
a table on which something depends is not, and the message has its name. Without the database, --keep-tables removes
the files alone.

\b
Examples:
  penstock view remove examples/shop reporting
  penstock view remove examples/shop reporting --keep-tables
"""

command: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode=None
)

Kind: TypeAlias = Literal["pause", "resume", "rebuild", "remove"]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded.")]


def listed(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """List the views; see `LIST_HELP`."""
    options.find()
    from penstock.orders.view_orders import STATE

    state = remote.report(STATE, options.place)
    print_result(state, lambda console: show_views(state, console), as_json=as_json)


def pause(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    reason: ReasonOption = "",
    as_json: JsonOption = False,
) -> None:
    """Pause a view; see `PAUSE_HELP`."""
    _give("pause", options, remote, words, as_json=as_json, reason=reason)


def resume(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Resume a view; see `RESUME_HELP`."""
    _give("resume", options, remote, words, as_json=as_json)


def rebuild(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild a view; see `REBUILD_HELP`."""
    _give("rebuild", options, remote, words, as_json=as_json)


def remove(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    keep_tables: Annotated[
        bool, typer.Option("--keep-tables", help="Leave the tables in a database.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a view; see `REMOVE_HELP`."""
    _give("remove", options, remote, words, as_json=as_json, keep_tables=keep_tables)


_DONE: Final = {
    "pause": "Paused {}.",
    "resume": "Resumed {}.",
    "rebuild": "Rebuilding {}; readers see its former rows until then.",
    "remove": "Removed {}.",
}


def _give(
    order_kind: Kind,
    options: DataOptions,
    remote: RemoteOptions,
    words: list[str] | None,
    *,
    as_json: bool,
    reason: str = "",
    keep_tables: bool = False,
) -> None:
    options, name = named_view(options, words)
    options.find()
    from penstock.orders.view_orders import ViewOrder

    order = ViewOrder(order_kind, name, reason, keep_tables)
    state = remote.give(order, lambda: options.place()._replace(by=user()))

    def show(console: "Console") -> None:
        console.print(_DONE[order_kind].format(f"view {name}"), markup=False, highlight=False)
        if state.left:
            console.print(state.left, style="yellow", markup=False, highlight=False)

    print_result(state, show, as_json=as_json)


def show_views(state: "ViewsState", console: "Console") -> None:
    """Print how the views stand."""
    if not state.views:
        console.print(
            "The newest deployment declares no view; penstock run and penstock deploy deploy an application."
        )
        return
    table = folding_table("View", "Target", "State", "Epoch", "Lag", "Failed rows")
    for each in state.views:
        filled = "" if each.filled is None else f" ({each.filled:.0%})"
        epoch = "-" if each.epoch == BEFORE_FIRST else f"{each.epoch}"
        shown = f"{each.state}{filled}{', incomplete' if each.incomplete else ''}"
        table.add_row(each.name, each.target, shown, epoch, f"{each.lag:,}", f"{each.failed:,}")
    console.print(table)
    for each in state.views:
        if told := "; ".join(filter(None, (each.reason, each.remedy))):
            text = f"{each.name}: {told}"
            console.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
    for each in state.views:
        if each.asked_ms is not None:
            rests = ", so the view rests (view.tables_percent)" if each.rests else ""
            text = f"{each.name}: its queries took {each.asked_ms:,.0f} ms{rests}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


command.command("list", help=LIST_HELP)(expanded(listed))
command.command("pause", help=PAUSE_HELP)(expanded(pause))
command.command("resume", help=RESUME_HELP)(expanded(resume))
command.command("rebuild", help=REBUILD_HELP)(expanded(rebuild))
command.command("remove", help=REMOVE_HELP)(expanded(remove))
command.command("search", help=search.HELP)(expanded(search.command))
command.command("serve", help=SERVE_HELP)(expanded(serve))
command.command("feed", help=FEED_HELP)(expanded(feed))
