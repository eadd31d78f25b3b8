"""`penstock replay`: run the journal's requests again, and compare the outcome with the records."""

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.base.ids import epochs_text
from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import AppOptions, FromOption, JsonOption, PresentCodeOption, ToOption
from penstock.cli.output import counted, folding_table, json_line, print_result, show_deployments
from penstock.cli.progress import epoch_progress
from penstock.cli.value_text import difference_rows, finding_differences

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.history.nondeterminism import Cause
    from penstock.history.replay import Divergence, ReplayResult

HELP: Final = """Run the journal's requests again without Spark, and compare.

Every reply and every entity that an epoch changed must be, byte for byte, as in the journal, and also
every atom of a stream, every request that a handler sent, and every later record. The command counts the
epochs that differ, and goes on after each with the recorded state. For the first three, it shows the request and the line of code, and looks for the cause: code that has
changed, or a handler that calls other services, or that uses a clock, random numbers, the order of a
set, the environment or global variables. Connections, processes and files that a handler asks for are
refused. Nothing is written; the application may run meanwhile.

Each epoch runs with the code that executed it, as far as penstock apps lists deployments. With --present-code,
the present code runs all epochs, and the first difference shows the effect of a change.

With --break, the command stops in pdb inside the handler of one request, with the state before it.

Exit code 1: something differs.

\b
Examples:
  penstock replay examples/shop
  penstock replay examples/shop --from 100 --to 200 --json
  penstock replay examples/shop --present-code
  penstock replay examples/shop --break checkout-17
"""


def command(
    options: AppOptions,
    first: FromOption = None,
    last: ToOption = None,
    stop_in: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="REQUEST_ID",
            help="Stop in its handler.",
        ),
    ] = None,
    present_code: PresentCodeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replay a range of epochs; see `HELP`."""
    application, settings = options.load()
    from penstock.history.code_versions import CodeVersions
    from penstock.history.debugger import debug_request
    from penstock.history.reader import HistoryReader
    from penstock.history.replay import replay

    with (
        HistoryReader(settings.data, application, "replay") as past,
        CodeVersions(past, application, settings.app, present_only=present_code) as versions,
    ):
        if stop_in is not None:
            named = past.complete(stop_in)
            outcome = debug_request(past, versions, named, settings.limits)
            from penstock.engine.replay import reply_of

            sys.stdout.write(f"reply: {json_line(reply_of(outcome.error, outcome.reply))}\n")
            return
        span = past.span(first, last)
        # The output of handlers is not part of the answer.
        with epoch_progress(span) as progress, redirect_stdout(sys.stderr):
            replayed = replay(past, versions, settings.limits, span, progress)
    has_streams = bool(application.topology.streams)
    print_result(
        _plain(replayed),
        lambda console: _show(replayed, console, has_streams=has_streams),
        as_json=as_json,
    )
    if replayed.divergence is not None:
        raise typer.Exit(OTHER_ERROR)


def _plain(replayed: "ReplayResult") -> dict[str, Any]:
    plain = asdict(replayed)
    for divergence, shown in zip(replayed.divergences, plain["divergences"], strict=True):
        shown["findings"] = [finding._asdict() for finding in divergence.findings]
    plain["divergence"] = next(iter(plain["divergences"]), None)
    return plain


def _show(replayed: "ReplayResult", console: "Console", *, has_streams: bool) -> None:
    rate = replayed.requests / replayed.spent_s if replayed.spent_s else 0.0
    console.print(
        f"{epochs_text(replayed.first, replayed.last)}: {counted(replayed.requests, 'request', 'requests')} in "
        f"{replayed.spent_s:.1f} s ({rate:,.0f}/s)"
    )
    show_deployments(replayed.deployments, console)
    if replayed.erased:
        console.print(
            f"{counted(replayed.erased, 'epoch concerns', 'epochs concern')} erased persons; taken as recorded"
        )
    if replayed.skipped:
        console.print(
            f"{counted(replayed.skipped, 'request', 'requests')} had exceeded a limit; the recorded outcome was used",
            style="yellow",
        )
    if replayed.divergence is None:
        streams = ", every atom" if has_streams else ""
        console.print(f"every reply{streams} and every entity is as recorded", style="green")
    for divergence in replayed.divergences:
        _show_divergence(divergence, console)
    if replayed.differing:
        shown = len(replayed.divergences)
        first = "" if shown == replayed.differing else f"; the first {shown} are above"
        epochs = counted(replayed.differing, "epoch differs", "epochs differ")
        console.print(f"{epochs} from the journal{first}", style="bold red")


def _show_divergence(divergence: "Divergence", console: "Console") -> None:
    console.print(f"epoch {divergence.epoch} differs from the journal", style="bold red")
    console.print(f"  request  {divergence.request_id} (position {divergence.lsn} of the log)")
    console.print(f"  call     {divergence.call}")
    if divergence.handler:
        console.print(f"  handler  {divergence.handler}")
    table = folding_table("where", "element", "recorded", "replayed")
    for finding in divergence.findings:
        for row in difference_rows(finding_differences(finding)):
            table.add_row(finding.place, *row)
    console.print(table)
    verdict = divergence.verdict
    if verdict.request_id != divergence.request_id:
        console.print(f"The difference comes from an earlier request, {verdict.request_id}.")
    for cause in verdict.causes:
        console.print(f"cause: {cause}: {_meaning(cause, divergence)}", style="bold")
    for line in verdict.lines:
        console.print(f"  {line}")
    for change in divergence.environment:
        console.print(f"  since the deployment: {change}")


def _meaning(cause: "Cause", divergence: "Divergence") -> str:
    """Return the meaning of a cause in a sentence."""
    from penstock.history.nondeterminism import ARCHIVED, MEANING, Cause

    if cause is Cause.CODE and divergence.deployment is not None:
        return ARCHIVED.format(divergence.deployment)
    return MEANING[cause]
