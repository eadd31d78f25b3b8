"""`penstock effects`: list the effects that wait or have failed, retry and discard them, and call effects alone."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from penstock.base.instants import instant_of
from penstock.cli.options import AppOptions, DataOptions, JsonOption, expanded
from penstock.cli.orders.flow import user
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.cli.running.effects import SERVE_HELP, serve
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.orders.effect_orders import EffectsState

HELP: Final = """List effects that wait or have failed for good, retry and discard them; call effects alone.

An effect is a function marked @effect, which calls the outside after a transaction. penstock run starts the process that
calls them. An effect that has failed for good is a dead letter: it keeps its arguments and its last error until it is
retried or discarded.

\b
Examples:
  penstock effects list examples/travel
  penstock effects retry examples/travel order-7~~1
  penstock effects discard examples/travel order-7~~1
  penstock effects list --url https://travel.example --key KEY

With --url, a gateway takes the order. If the application has keys, the key needs the scope admin.
"""

LIST_HELP: Final = """List the effects that wait, run, or have failed for good: state, tries, last error.

\b
States:
  ready    it is called when a place is free
  running  it is called
  waiting  its last call has failed, and the next one is due later
  settled  its outcome is in the log
  lost     a once=True effect whose process has ended; its outcome will be unknown
  dead     it has failed for good: retry or discard it

\b
Examples:
  penstock effects list examples/travel
  penstock effects list --data /var/lib/travel --json
"""

RETRY_HELP: Final = """Retry an effect: a dead letter waits again, and one that waits for its next try is called at once.

The function is called with the same effect_id() as before. The method of .then gets another outcome.

\b
Example:
  penstock effects retry examples/travel order-7~~1
"""

DISCARD_HELP: Final = """Discard an effect: it is not called again.

A dead letter is removed. An effect without outcome gets the outcome failed, so that the application goes on.

\b
Example:
  penstock effects discard examples/travel order-7~~1
"""

command: Final = typer.Typer(
    add_completion=False, help=HELP, no_args_is_help=True, rich_markup_mode=None
)

_WAIT_S: Final = 60.0
_ERROR_MAX: Final = 200

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="APP ID",
        help="The application, if no option or setting names it; then the id of the effect.",
        show_default=False,
    ),
]


def listed(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """List the effects; see `LIST_HELP`."""
    options.find()
    from penstock.orders.effect_orders import STATE

    state = remote.report(STATE, options.place)
    print_result(state, lambda console: _show(state, console), as_json=as_json)


def retry(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Retry an effect; see `RETRY_HELP`."""
    _give("retry", options, remote, words, as_json=as_json)


def discard(
    options: DataOptions,
    remote: RemoteOptions,
    words: WordsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """Discard an effect; see `DISCARD_HELP`."""
    _give("discard", options, remote, words, as_json=as_json)


_DONE: Final = {"retry": "Effect {} is tried again.", "discard": "Effect {} is discarded."}


def _give(
    order_kind: Literal["retry", "discard"],
    options: DataOptions,
    remote: RemoteOptions,
    words: list[str] | None,
    *,
    as_json: bool,
) -> None:
    from dataclasses import replace

    match words:
        case [effect]:
            pass
        case [app, effect]:
            options = replace(options, named=app)
        case _:
            raise ConfigError("write the id of an effect; before it, the application: APP ID")
    options.find()
    from penstock.orders.effect_orders import EffectOrder

    order = EffectOrder(order_kind, effect)
    state = remote.give(order, lambda: options.place()._replace(by=user()), _WAIT_S)

    def show(console: "Console") -> None:
        text = state.left or _DONE[order_kind].format(effect)
        style = "yellow" if state.left else ""
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    print_result(state, show, as_json=as_json)


def _show(state: "EffectsState", console: "Console") -> None:
    process = state.process
    if process is None:
        console.print(
            "No process has called effects here; penstock run starts one for an application with effects."
        )
    else:
        text = "; ".join(filter(None, (process.state, process.reason, process.remedy)))
        style = "" if process.state == "following" and not process.reason else "yellow"
        console.print(
            f"effects: {text}", style=style, markup=False, highlight=False, soft_wrap=True
        )
        counts = folding_table("Effect", "Waiting", "Running", "Dead", "Calls", "Failures")
        for each in process.functions:
            numbers = (each.waiting, each.running, each.dead, each.calls, each.failures)
            counts.add_row(each.function, *(f"{number:,}" for number in numbers))
        console.print(counts)
    if not state.effects:
        return
    table = folding_table("Id", "Effect", "State", "Tries", "Next try", "Last error")
    for effect in state.effects:
        due = "" if effect.due_us is None else f"{instant_of(effect.due_us):%Y-%m-%d %H:%M:%S}"
        error = effect.error[:_ERROR_MAX]
        table.add_row(effect.id, effect.function, effect.state, str(effect.tries), due, error)
    console.print(table)


command.command("list", help=LIST_HELP)(expanded(listed))
command.command("retry", help=RETRY_HELP)(expanded(retry))
command.command("discard", help=DISCARD_HELP)(expanded(discard))
command.command("serve", help=SERVE_HELP)(expanded(serve))
