"""`penstock trace`: what one request did, as a tree of calls, and what it made of entities."""

import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from penstock.cli.application import application_of
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    JsonOption,
)
from penstock.history.reader import HistoryReader
from penstock.history.trace import trace, trace_json

HELP: Final = """Show what one request did: its calls, what it read and changed, its reply.

Nothing of this is recorded while the application runs: the request is run again, over the state
before it, in this process, and nothing is written. Connections, processes and files that a handler
wants are refused, and told of. What came out is compared with the journal.

Shown are its place in the order, the tree of calls with the time that each took in this run, every
entity before and after, what a savepoint or an abort has undone, and the request that changed each
entity next.

\b
Examples:
  penstock trace checkout-17 examples/shop
  penstock trace checkout-17 examples/shop --data DIR --json
  penstock trace web~checkout-17 examples/shop

\b
The last one was made with the API key `web`; SQL shows ids as they are named here.
"""

_UNITS: Final = ((1_000_000, "s"), (1_000, "ms"))


def trace_request(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The request.")],
    app: AppArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Run a request again and show what it did; see `HELP`."""
    application, settings = application_of(app, data=data, file=config)
    # What handlers print is no part of the answer.
    with HistoryReader(settings.data, application, "trace") as past, redirect_stdout(sys.stderr):
        found = trace_json(trace(past, application, settings.data, request_id, settings.limits))
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(found, enc_hook=str).decode()}\n")
    else:
        show(found, Console(soft_wrap=True, highlight=False))


def show(found: dict[str, Any], console: Console) -> None:
    """Print a trace for a person."""
    console.print(f"[bold]{escape(found['request_id'])}[/]  {escape(found['call'])}")
    console.print(
        f"epoch {found['epoch']}, request {found['position'] + 1:,} of "
        f"{found['requests_in_epoch']:,} in it, position {found['lsn']:,} of the log"
    )
    console.print(
        f"appended {moment(found['appended_us'])}, committed {moment(found['committed_us'])}"
    )
    console.print(_rounds(found))
    _show_reply(found["reply"], console)
    show_outside(found["outside"], console)
    if not found["as_recorded"]:
        why = (
            ", since calls to the outside were refused."
            if found["outside"]
            else ": its code has changed or is not deterministic. penstock replay finds out which."
        )
        console.print(f"It came out otherwise this time{why}", style="bold red")
    if found["taken_as_recorded"]:
        console.print("It had exceeded a limit, and was not run again.", style="yellow")
    if found["root"] is not None:
        console.print(_tree(found["root"]))
    if found["entities"]:
        console.print(_entities(found["entities"]))


def show_outside(calls: list[dict[str, str]], console: Console) -> None:
    """Print which requests were refused a call to the outside."""
    for one in calls:
        where = f" ({one['where']})" if one["where"] else ""
        console.print(
            f"request {one['request_id']}: the handler {one['what']}{where}; looking back refuses "
            "that, and it is what makes the request non-deterministic",
            style="bold red",
            markup=False,
        )


def moment(time_us: int) -> str:
    """Return a time for a person, in UTC."""
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def text_of(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def _rounds(found: dict[str, Any]) -> str:
    if found["rounds"] is None:
        return "how many rounds its epoch took is not known any more"
    return (
        f"its epoch took {found['rounds']} round(s) of {found['tasks']} task(s); "
        f"{found['reran']} transaction(s) ran more than once"
    )


def _show_reply(reply: dict[str, Any], console: Console) -> None:
    if "value" in reply:
        console.print(f"reply: {text_of(reply['value'])}", style="green", markup=False)
        return
    error = reply["error"]
    text = f"undone: {error['kind']}: {error['message']} ({error['code']})"
    console.print(text, style="red", markup=False)


def _took(microseconds: float) -> str:
    for size, unit in _UNITS:
        if microseconds >= size:
            return f"{microseconds / size:.1f} {unit}"
    return f"{microseconds:.0f} µs"


def _tree(call: dict[str, Any]) -> Tree:
    tree = Tree(_label(call))
    for one in call["calls"]:
        tree.children.append(_tree(one))
    return tree


def _label(call: dict[str, Any]) -> str:
    label = f"{escape(call['call'])} [dim]{_took(call['took_us'])}[/]"
    if call["error"] is not None:
        label += f" [red]raised {escape(call['error'])}[/]"
    elif call["value"] not in (None, "None"):
        label += f" → {escape(call['value'])}"
    if call["undone"]:
        label += " [yellow](undone)[/]"
    if call["where"]:
        label += f" [dim]{escape(call['where'])}[/]"
    return label


def _entities(entities: list[dict[str, Any]]) -> Table:
    table = Table("entity", "", "attribute", "before", "after", "changed next by")
    for one in entities:
        name = f"{one['entity']}/{one['key']}"
        what = "written" if one["written"] else "undone" if one["undone"] else "read"
        rows = _rows(one["before"], one["after"])
        if not rows:
            rows = [("", "", "")]
        for number, row in enumerate(rows):
            first = (name, what) if number == 0 else ("", "")
            table.add_row(*map(escape, (*first, *row, _next(one["next"]) if number == 0 else "")))
    return table


def _rows(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> list[tuple[str, str, str]]:
    """Return the attributes that differ; where the entity came or went, it says so."""
    if before is None and after is None:
        return [("(does not exist)", "", "")]
    old, new = before or {}, after or {}
    names = list(dict.fromkeys([*old, *new]))
    return [
        (
            name,
            text_of(old[name]) if before is not None else "-",
            text_of(new[name]) if after is not None else "-",
        )
        for name in names
        if before is None or after is None or old.get(name) != new.get(name)
    ]


def _next(following: dict[str, Any] | None) -> str:
    if following is None:
        return ""
    if following["request_id"] is None:
        return f"epoch {following['epoch']}"
    return f"{following['request_id']} (epoch {following['epoch']}): {following['call']}"
