"""`penstock retry` and `penstock discard`: the next attempt of failed requests, or none."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import DataOptions
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.orders.attempts import AttemptOrder, Attempts

IdsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="REQUEST_ID…", help="The requests; penstock failed lists them."),
]
AllOption = Annotated[bool, typer.Option("--all", help="All requests that penstock failed lists.")]


def give(
    order: Literal["retry", "discard"],
    ids: list[str] | None,
    options: DataOptions,
    remote: RemoteOptions,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Give an order for some or all failed requests, and print its outcome.

    Args:
        order: The order.
        ids: The ids on the command line.
        options: The options that name the data directory.
        remote: The gateway, if the command line names one.
        every: Whether `--all` was given.
        as_json: Whether `--json` was given.

    Raises:
        ConfigError: The command line names no request, or some and all.
    """
    if bool(ids) == every:
        raise ConfigError(f"name the requests to {order}, or write --all")
    from penstock.cli.orders.failed import failed
    from penstock.orders.attempts import AttemptOrder

    chosen = ids or [each.request_id for each in failed(options, remote).requests]
    done = _ordered(AttemptOrder(order, chosen), options, remote)
    print_result(done, lambda console: _show(order, done, console), as_json=as_json)
    if done.refused:
        raise typer.Exit(OTHER_ERROR)


def _ordered(order: "AttemptOrder", options: DataOptions, remote: RemoteOptions) -> "Attempts":
    from msgspec import json

    from penstock.base.http import JSON
    from penstock.orders.attempts import Attempts, carry_out

    if remote.url is None:
        return carry_out(replace(options.settings(), data=options.folder()), order)
    return remote.post("/failed", json.encode(order), JSON, Attempts, 60.0)


def _show(order: str, done: "Attempts", console: "Console") -> None:
    for attempt in done.attempts:
        what = "runs again" if order == "retry" else "is discarded"
        console.print(f"{attempt.request_id} {what}: position {attempt.position}", highlight=False)
    for refused in done.refused:
        console.print(f"{refused.request_id}: {refused.message}", style="red", highlight=False)
    if not done.attempts and not done.refused:
        console.print("no request of the background has failed")
