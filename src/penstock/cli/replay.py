"""`penstock replay`: the journal's requests again, compared with what was recorded of them."""

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.base.ids import Epoch
from penstock.cli.application import application_of
from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    DataOption,
    JsonOption,
)
from penstock.engine.replay import reply_of
from penstock.history.debugger import debug_request
from penstock.history.nondeterminism import MEANING
from penstock.history.reader import HistoryReader
from penstock.history.replay import Divergence, ReplayResult, replay

HELP: Final = """Run the journal's requests again in this process, and compare.

Every reply and every entity that an epoch changed must be, byte for byte, what the journal has. The
first difference is shown with its request and code line, and its cause is looked for: code that
was changed, or a handler that reaches outside, or uses a clock, chance, the order of a set, the
environment or global variables. Connections, processes and files that a handler wants are refused.
Nothing is written; the application may run meanwhile.

With --break, it stops in pdb inside the handler of one request, with the state of that moment.

Exit codes: 0 all is as recorded, 1 something differs.

\b
Examples:
  penstock replay examples/shop
  penstock replay examples/shop --from 100 --to 200 --json
  penstock replay examples/shop --break checkout-17
"""

REFRESHES_PER_S: Final = 4
FromOption = Annotated[
    int | None, typer.Option("--from", metavar="EPOCH", help="The first; default 0.")
]
ToOption = Annotated[
    int | None, typer.Option("--to", metavar="EPOCH", help="The last; default the newest.")
]


def replay_command(  # noqa: PLR0913 -- one parameter for each flag
    app: AppArgument,
    first: FromOption = None,
    last: ToOption = None,
    stop_in: Annotated[
        str | None, typer.Option("--break", metavar="REQUEST_ID", help="Stop in its handler.")
    ] = None,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,  # noqa: FBT002 -- a flag
) -> None:
    """Replay a range of epochs; see `HELP`."""
    application, settings = application_of(app, data=data, file=config)
    with HistoryReader(settings.data, application, "replay") as past:
        if stop_in is not None:
            outcome = debug_request(past, application, stop_in, settings.limits)
            value = msgspec.json.encode(reply_of(outcome.error, outcome.reply)).decode()
            sys.stdout.write(f"reply: {value}\n")
            return
        span = past.span(first, last)
        # What handlers print is no part of the answer.
        with Rate(span) as rate, redirect_stdout(sys.stderr):
            found = replay(past, application, app, settings.limits, span, rate.at)
    if as_json:
        sys.stdout.write(f"{msgspec.json.encode(json_of(found)).decode()}\n")
    else:
        show(found, Console(soft_wrap=True, highlight=False))
    if found.divergence is not None:
        raise typer.Exit(OTHER_ERROR)


class Rate:
    """A bar on standard error, when that is a terminal: epochs done, requests a second."""

    def __init__(self, span: tuple[Epoch, Epoch]) -> None:
        console = Console(stderr=True)
        self._first = span[0]
        self._bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            refresh_per_second=REFRESHES_PER_S,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=span[1] - span[0] + 1, epoch=span[0], text="")

    def __enter__(self) -> "Rate":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def at(self, epoch: Epoch, requests: int) -> None:
        """Move the bar."""
        elapsed = self._bar.tasks[0].elapsed or 0.0
        text = f"{requests / elapsed:,.0f} requests/s" if elapsed > 0 else ""
        done = epoch - self._first + 1
        self._bar.update(self._task, completed=done, epoch=epoch, text=text)


def show(found: ReplayResult, console: Console) -> None:
    """Print what a replay found, for a person."""
    rate = found.requests / found.spent_s if found.spent_s else 0.0
    console.print(
        f"epochs {found.first} to {found.last}: {found.requests:,} requests in "
        f"{found.spent_s:.1f} s ({rate:,.0f}/s)"
    )
    if found.skipped:
        console.print(
            f"{found.skipped:,} requests had exceeded a limit; they were taken as recorded",
            style="yellow",
        )
    if found.divergence is None:
        console.print("every reply and every entity is as recorded", style="green")
    else:
        _show_divergence(found.divergence, console)


def _show_divergence(one: Divergence, console: Console) -> None:
    console.print(f"epoch {one.epoch} differs from the journal", style="bold red")
    console.print(f"  request  {one.request_id} (position {one.lsn} of the log)", markup=False)
    console.print(f"  call     {one.call}", markup=False)
    if one.handler:
        console.print(f"  handler  {one.handler}", markup=False)
    table = Table("where", "attribute", "recorded", "replayed")
    for finding in one.findings:
        place, attribute, recorded, replayed = finding
        table.add_row(place, attribute, text_of(recorded), text_of(replayed))
    console.print(table, markup=False)
    verdict = one.verdict
    if verdict.request_id != one.request_id:
        console.print(f"The request to blame, before it, is {verdict.request_id}.", markup=False)
    for cause in verdict.causes:
        console.print(f"cause: {cause}: {MEANING[cause]}", style="bold", markup=False)
    for line in verdict.lines:
        console.print(f"  {line}", markup=False)


def text_of(value: Any) -> str:
    """Return a value as JSON; what is no JSON as Python writes it."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def json_of(found: ReplayResult) -> dict[str, Any]:
    """Return what a replay found as plain data."""
    plain = asdict(found)
    if found.divergence is not None:
        plain["divergence"]["findings"] = [one._asdict() for one in found.divergence.findings]
    return plain
