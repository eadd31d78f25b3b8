"""`penstock failed`, `retry` and `discard`: failed requests that no caller waits for, and their next attempt, or none."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from penstock.cli.error_output import OTHER_ERROR
from penstock.cli.options import AppOptions, DataOptions, JsonOption
from penstock.cli.output import folding_table, print_result
from penstock.cli.remote import RemoteOptions
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from penstock.orders.attempts import Attempts
    from penstock.sql_view.failed_requests import FailedRequests

RETRY_HELP: Final = """Run a failed request again, as another attempt of the same id.

Mend the code and deploy it first. The request must have failed by an exception that the application does not declare
(no class of Aborted), by a limit, or by an incident. An answer that the application has declared is final. The attempt
runs once: the command may be repeated. From then on the id has the outcome of the new attempt. A request that a handler
has sent is named by its id, such as order-7~~1.

Exit code 0: all attempts are in the log. Exit code 1: some requests get no attempt; the messages say why.

\b
Examples:
  penstock retry order-7~~1 --data DIR
  penstock retry --all --url http://127.0.0.1:8000 --key KEY
"""

DISCARD_HELP: Final = """Let a failed request have no further attempt.

The request leaves the list of penstock failed, and its result is the error cancelled. This is final.

Exit code 0: the orders are in the log. Exit code 1: some requests cannot be discarded; the messages say why.

\b
Examples:
  penstock discard order-7~~1 --data DIR
  penstock discard --all --data DIR
"""

FAILED_HELP: Final = """List the failed requests of the background: those that no caller waits for.

A handler has sent them, at once or later, or a workflow has. A request is listed until an attempt succeeds (penstock
retry), or it is discarded (penstock discard). Answers that the application declares, with a class of Aborted, are not
failures. The SQL view answers; without --url or a running view, the command builds one from the journal.

\b
Examples:
  penstock failed examples/shop
  penstock failed --data DIR --json
  penstock failed --url http://127.0.0.1:8000 --key KEY
"""

_Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="REQUEST_ID…", help="The requests; penstock failed lists them."),
]
_All = Annotated[bool, typer.Option("--all", help="All requests that penstock failed lists.")]


def _command(order: Literal["retry", "discard"]) -> "Callable[..., None]":
    """Return the command of an order: both have the same options."""

    def command(
        options: DataOptions,
        remote: RemoteOptions,
        ids: _Ids = None,
        every: _All = False,
        as_json: JsonOption = False,
    ) -> None:
        if bool(ids) == every:
            raise ConfigError(f"name the requests to {order}, or write --all")
        from penstock.orders.attempts import AttemptOrder

        chosen = ids or [each.request_id for each in _failed(options, remote).requests]
        done = remote.give(AttemptOrder(order, chosen), options.place)
        print_result(done, lambda console: _show(order, done, console), as_json=as_json)
        if done.refused:
            raise typer.Exit(OTHER_ERROR)

    return command


retry: Final = _command("retry")
discard: Final = _command("discard")


def _show(order: str, done: "Attempts", console: "Console") -> None:
    for attempt in done.attempts:
        what = "runs again" if order == "retry" else "is discarded"
        console.print(f"{attempt.request_id} {what}: position {attempt.position}", highlight=False)
    for refused in done.refused:
        console.print(f"{refused.request_id}: {refused.message}", style="red", highlight=False)
    if not done.attempts and not done.refused:
        console.print("no request of the background has failed")


def failed(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """List failed requests of the background; see `FAILED_HELP`."""
    answer = _failed(options, remote)
    print_result(answer, lambda console: _show_failed(answer, console), as_json=as_json)


def _failed(options: DataOptions, remote: RemoteOptions) -> "FailedRequests":
    """Return the list of a gateway, of the view of a data directory, or of a view in this process.

    Raises:
        ConfigError: No view runs, and the options name no application.
    """
    from penstock.sql_view.failed_requests import FailedRequests, list_failed

    if remote.url is not None:
        return remote.get("/failed", FailedRequests)
    options.find(hint=" or --url")
    from msgspec import json

    from penstock.cli.queries.sql_answer import answer_to
    from penstock.sql_view.query import Query
    from penstock.sql_view.result_format import ResultFormat

    return list_failed(
        lambda body, accept: answer_to(
            json.decode(body, type=Query), ResultFormat(accept), options, remote
        )
    )


def _show_failed(answer: "FailedRequests", console: "Console") -> None:
    if not answer.requests:
        console.print(f"no request of the background has failed, up to epoch {answer.epoch}")
        return
    table = folding_table("request", "call", "epoch", "failure")
    for each in answer.requests:
        owner = f"{each.entity}/{each.key}." if each.entity else ""
        failure = f"{each.kind or each.code}: {each.message or ''}"
        table.add_row(each.request_id, f"{owner}{each.method}", str(each.epoch), failure)
    console.print(table)
    if answer.has_more:
        console.print(f"the newest {len(answer.requests):,} are shown")
