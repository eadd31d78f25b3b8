"""`penstock flow`: pause and resume requests, drain an application, and show its limits and pauses."""

import getpass
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import word_completion
from penstock.cli.options import AppOptions, DataOptions, JsonOption, expanded
from penstock.cli.output import folding_table, print_result, utc_text
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError, OperationalError
from penstock.model.limit import EVERYTHING
from penstock.orders.pauses import EFFECTIVE_S, describe, target_text

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.gateway.flow.orders import FlowStanding
    from penstock.orders.order import Place
    from penstock.orders.paused_workflows import PausedWorkflow

HELP: Final = """Pause and resume requests, drain an application, and show its limits and pauses.

A pause closes admission: gateways answer such requests with 503 and Retry-After. Requests that are
in the log run, and scheduled requests run when they are due. Pauses survive restarts.

\b
Examples:
  penstock flow pause examples/shop Order --reason "prices are wrong"
  penstock flow resume examples/shop Order
  penstock flow drain examples/shop --reason "new disk"
  penstock flow show examples/shop
  penstock flow pause Order --reason "prices are wrong" --url https://shop.example --key KEY

With --url, a gateway takes the order. If the application has keys, the key needs the scope admin.
"""

PAUSE_HELP: Final = """Pause a class, a method, a function, a stream, or everything; gateways obey within a second.

A pause of a stream, as streams/lines, refuses the appends to it. Handlers and workflows publish as before.

\b
Examples:
  penstock flow pause examples/shop --reason "maintenance"
  penstock flow pause examples/shop Order --reason "prices are wrong"
  penstock flow pause examples/shop Order.checkout --reason "payment is down"
  penstock flow pause examples/cart streams/actions --reason "the source sends nonsense"
"""

RESUME_HELP: Final = """End a pause of requests, or of a workflow that has failed; other pauses stay in force.

\b
Examples:
  penstock flow resume examples/shop
  penstock flow resume examples/shop Order.checkout
  penstock flow resume examples/cart checkout --skip

\b
A workflow with on_failure="pause" pauses itself at a failure. Its resume is a record of the log: the
workflow takes the steps that it holds in order, the failed atom first. With --skip, it sets this atom
aside. A workflow that fails again pauses again: see penstock flow show.
"""

DRAIN_HELP: Final = """Pause everything, and wait until every admitted request is committed.

Then the application can be stopped with nothing under way. The pause stays in force, also after a
restart: end it with penstock flow resume. A request that is scheduled for later stays scheduled.

Exit code 1: requests still wait; the pause stays in force.

\b
Examples:
  penstock flow drain examples/shop
  penstock flow drain examples/shop --reason "new disk" --timeout 60
"""

SHOW_HELP: Final = """Show the limits, the pauses in force, paused workflows, and the newest pauses and resumes.

\b
Examples:
  penstock flow show examples/shop
  penstock flow show examples/shop --json
"""

_LOOK_S: Final = 0.2

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="APP TARGET",
        help="The application, if no option or setting names it; then a class, Class.method, a "
        "function or streams/NAME; resume takes a workflow, too. Default: everything.",
        show_default=False,
        autocompletion=word_completion.flow_targets,
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded.")]

command: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode=None
)


def pause(
    options: DataOptions,
    remote: RemoteOptions,
    reason: ReasonOption,
    words: WordsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Pause a target; see `PAUSE_HELP`."""
    options, target = _named(options, words, is_remote=remote.url is not None)
    from penstock.gateway.flow.orders import PauseOrder

    remote.give(PauseOrder("pause", target, reason), lambda: _place(options))
    line = f"Paused {target_text(target)}. Gateways refuse such requests within a second."
    print_result({"paused": target}, lambda console: console.print(line), as_json=as_json)


def resume(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    reason: ReasonOption = "",
    skip: Annotated[
        bool, typer.Option("--skip", help="Set the failed atom of a workflow aside.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """End a pause; see `RESUME_HELP`."""
    options, target = _named(options, words, is_remote=remote.url is not None)
    from penstock.gateway.flow.orders import PauseOrder

    order = PauseOrder("resume", target, reason, skip)
    state = remote.give(order, lambda: _place(options))
    workflow, left = state.resumed, state.standing.paused
    lines = [
        f"Resumed {target_text(target)}." if workflow is None else _resumed(workflow, skip=skip),
        *(f"Still paused: {describe(action)}" for action in left),
    ]
    plain: dict[str, Any] = {"resumed": target, "paused": [action.target for action in left]}
    if workflow is not None:
        plain |= {"skipped": skip, "held": workflow.held}
    print_result(plain, lambda console: console.print("\n".join(lines)), as_json=as_json)


def _place(options: DataOptions) -> "Place":
    from penstock.orders.order import Place

    application, settings = options.load_unchecked()
    return Place(settings, application, user())


def drain(
    options: AppOptions,
    remote: RemoteOptions,
    reason: ReasonOption = "drain",
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Longest wait in seconds.")
    ] = 300.0,
    as_json: JsonOption = False,
) -> None:
    """Pause everything and wait for the requests under way; see `DRAIN_HELP`."""
    from rich.console import Console

    from penstock.gateway.flow.orders import STATE, PauseOrder

    place = _place(options) if remote.url is None else None
    remote.give(PauseOrder("pause", EVERYTHING, reason), lambda: place or _place(options))
    Console(stderr=True).print("Paused everything. Waiting for the requests under way …")
    await_drained(lambda: remote.report(STATE, lambda: place or _place(options)).under_way, timeout)
    where = f"--url {remote.url}"
    if place is not None:
        where = f"{place.settings.app} --data {place.settings.data}"
    line = (
        "Drained: every admitted request is committed. The pause stays in force until "
        f"penstock flow resume {where}"
    )
    print_result({"drained": True}, lambda console: console.print(line), as_json=as_json)


def show(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """Show limits, pauses and paused workflows; see `SHOW_HELP`."""
    from penstock.gateway.flow.orders import STATE
    from penstock.process import presence

    place = _place(options) if remote.url is None else None
    running = presence.find(place.settings.data, "gateway") if place else ()
    urls = [gateway.details.get("url") for gateway in running]
    flow = remote.report(STATE, lambda: place or _place(options)).standing
    print_result(flow, lambda console: _print(flow, console, urls), as_json=as_json)


def _named(
    options: DataOptions, words: list[str] | None, *, is_remote: bool
) -> tuple[DataOptions, str]:
    """Return the options with the application that the words name, and the target.

    Args:
        is_remote: Whether a gateway takes the order; then no word names an application.
    """
    names = list(words or [])
    if is_remote:
        if len(names) > 1:
            raise ConfigError("with --url, write at most a target")
        return options, names[0] if names else EVERYTHING
    known = options.settings().app
    # A single word is a target, if another source names the application; else it is the application.
    if names and options.named is None and (not known or names[0] == known or len(names) > 1):
        options = replace(options, named=names.pop(0))
    if len(names) > 1:
        raise ConfigError("write at most an application and one target: APP TARGET")
    options.find()
    return options, names[0] if names else EVERYTHING


command.command("pause", help=PAUSE_HELP)(expanded(pause))
command.command("resume", help=RESUME_HELP)(expanded(resume))
command.command("drain", help=DRAIN_HELP)(expanded(drain))
command.command("show", help=SHOW_HELP)(expanded(show))


def await_drained(
    count: Callable[[], int],
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until no request is under way, after every gateway has had time to obey the pause.

    Args:
        count: Returns the number of requests under way.
        timeout_s: The longest wait.
        clock: Seconds that never go back.
        sleep: Waits for a number of seconds.
    """
    deadline_s = clock() + max(timeout_s, EFFECTIVE_S)
    # Until then a gateway may admit requests that the count does not have yet.
    sleep(EFFECTIVE_S)
    while left := count():
        if clock() >= deadline_s:
            raise OperationalError(
                f"{left} requests still wait after {timeout_s:g} s. They are not lost, and everything "
                "stays paused. See in penstock status whether a driver runs, and drain again"
            )
        sleep(_LOOK_S)


def user() -> str:
    """Return the user and the machine of this process, for the record."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # the system has no name for the user
        name = f"user {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def _resumed(workflow: "PausedWorkflow", *, skip: bool) -> str:
    """Return the next work of a resumed workflow, as text."""
    begin = f"Resumed workflow {workflow.name}: it"
    if skip:
        return (
            f"{begin} sets the failed atom aside, and takes {_steps(workflow.held - 1)} after it."
        )
    return f"{begin} takes {_steps(workflow.held)} that it holds, the failed atom first."


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _print(flow: "FlowStanding", console: "Console", urls: Sequence[object]) -> None:
    from rich.text import Text

    console.print("Limits:" if flow.limits else "There are no limits.")
    for limit in flow.limits:
        console.print(f"  {limit}")
    if urls:
        console.print(
            f"Running gateways may have other settings: penstock flow show --url {urls[0]} asks them."
        )
    console.print("Paused:" if flow.paused else "Nothing is paused.")
    for action in flow.paused:
        console.print(f"  {describe(action)}")
    if flow.workflows:
        console.print("Workflows that are paused by a failure:")
    for workflow in flow.workflows:
        resumes = "; it resumes with the next epochs" if workflow.is_resuming else ""
        since = utc_text(workflow.since_us)
        console.print(
            Text(
                f"  {workflow.name}, since {since}, holds {_steps(workflow.held)}{resumes}: {workflow.failure}"
            )
        )
    if not flow.newest:
        return
    table = folding_table("time", "action", "target", "by", "reason", box=None)
    for action in flow.newest:
        table.add_row(
            utc_text(action.time_us),
            action.kind,
            target_text(action.target),
            action.by,
            action.reason,
        )
    console.print(table)
