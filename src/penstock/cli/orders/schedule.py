"""`penstock schedule`: list the schedules of an application; pause, resume or fire one of them."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import AppOptions, JsonOption
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError
from penstock.files.roots import has_journal

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.orders.order import Place
    from penstock.orders.schedules import ListedSchedule, ScheduleResult

HELP: Final = """List the schedules of an application, or pause, resume or fire one of them.

A schedule is a function with @every or @cron of the deployment in force: another expression is a deployment. The list has the
times of each, its last tick, and the next five in UTC. The ticks of a paused schedule are passed over. fire runs the function
once more, with the present time as its due time. With --url, a gateway answers; its key needs the scope admin.

\b
Examples:
  penstock schedule examples/shop
  penstock schedule examples/shop --pause nightly --reason "new disk"
  penstock schedule examples/shop --resume nightly
  penstock schedule --fire nightly --url http://127.0.0.1:8000
"""

_SHOWN: Final = "%Y-%m-%d %H:%M:%S"


def command(
    options: AppOptions,
    remote: RemoteOptions,
    pause: Annotated[
        str | None, typer.Option("--pause", metavar="NAME", help="Pass over its ticks.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="NAME", help="Take its ticks again.")
    ] = None,
    fire: Annotated[
        str | None, typer.Option("--fire", metavar="NAME", help="Run it once more, now.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it is paused.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List schedules, or give an order about one; see `HELP`."""
    given = [("pause", pause), ("resume", resume), ("fire", fire)]
    chosen = [(order, name) for order, name in given if name is not None]
    if len(chosen) > 1:
        raise ConfigError("give one of --pause, --resume and --fire")
    if reason and pause is None:
        raise ConfigError("--reason belongs to --pause")
    if remote.url is None:
        options.find("")
    import msgspec

    from penstock.orders.schedules import SCHEDULES, ScheduleOrder

    if not chosen:
        listed = remote.report(SCHEDULES, lambda: _place(options))
        print_result(listed, lambda console: _show(listed, console), as_json=as_json)
        return
    order = msgspec.convert(
        {"order": chosen[0][0], "name": chosen[0][1], "reason": reason}, ScheduleOrder
    )
    made = remote.give(order, lambda: _place(options))
    print_result(made, lambda console: console.print(_text_of(made)), as_json=as_json)


def _place(options: AppOptions) -> "Place":
    from penstock.deployment.code_in_force import code_in_force, load_deployed
    from penstock.orders.order import Place
    from penstock.process.data_directory import DataDirectory

    app, settings = options.load_unchecked()
    if has_journal(settings.data):
        DataDirectory(settings.data).open_journal_of(
            app.name
        ).close()  # refuses another application
        if (deployed := code_in_force(settings.data)) is not None:
            # The file may have changed since: it has perhaps other schedules than those that run.
            app = load_deployed(settings.data, deployed[0])
    return Place(settings, app)


def _text_of(made: "ScheduleResult") -> str:
    if made.request_id:
        return f"{made.name} runs as the request {made.request_id}."
    return f"{made.name} is {'paused' if made.order == 'pause' else 'resumed'}."


def _show(listed: "list[ListedSchedule]", console: "Console") -> None:
    if not listed:
        console.print("The application has no schedules: no function with @every or @cron.")
        return
    table = folding_table("schedule", "times", "zone", "last", "next (UTC)", "missed", "")
    for each in listed:
        last = "" if each.last is None else each.last.strftime(_SHOWN)
        following = "\n".join(due.strftime(_SHOWN) for due in each.next)
        state = "paused" if each.paused else ""
        table.add_row(each.name, each.times, each.zone or "-", last, following, each.missed, state)
    console.print(table)
