"""`penstock failed`: the failed requests that no caller waits for."""

from typing import TYPE_CHECKING, Final

from penstock.cli.options import AppOptions, DataOptions, JsonOption
from penstock.cli.output import print_result
from penstock.cli.remote import RemoteOptions

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.sql.failed_requests import FailedRequests

HELP: Final = """List the failed requests of the background: those that no caller waits for.

A handler has sent them, at once or later, or a workflow has. A request is listed until an attempt succeeds (penstock
retry), or it is discarded (penstock discard). Answers that the application declares, with a class of Aborted, are not
failures. The SQL view answers; without --url or a running view, the command builds one from the journal.

\b
Examples:
  penstock failed examples/shop
  penstock failed --data DIR --json
  penstock failed --url http://127.0.0.1:8000 --key KEY
"""


def command(options: AppOptions, remote: RemoteOptions, as_json: JsonOption = False) -> None:
    """List failed requests of the background; see `HELP`."""
    answer = failed(options, remote)
    print_result(answer, lambda console: _show(answer, console), as_json=as_json)


def failed(options: DataOptions, remote: RemoteOptions) -> "FailedRequests":
    """Return the list of a gateway, of the view of a data directory, or of a view in this process.

    Raises:
        ConfigError: No view runs, and the options name no application.
        PenstockError: The list cannot be had.
    """
    from penstock.sql.failed_requests import FailedRequests, list_failed

    if remote.url is not None:
        return remote.get("/failed", FailedRequests)
    options.find(hint=" or --url")
    from msgspec import json

    from penstock.cli.queries.sql_answer import answer_to
    from penstock.sql.query import Query
    from penstock.sql.result_format import ResultFormat

    return list_failed(
        lambda body, accept: answer_to(
            json.decode(body, type=Query), ResultFormat(accept), options, remote
        )
    )


def _show(answer: "FailedRequests", console: "Console") -> None:
    from rich.table import Table

    if not answer.requests:
        console.print(f"no request of the background has failed, up to epoch {answer.epoch}")
        return
    table = Table("request", "call", "epoch", "failure")
    for each in answer.requests:
        owner = f"{each.entity}/{each.key}." if each.entity else ""
        failure = f"{each.kind or each.code}: {each.message or ''}"
        table.add_row(each.request_id, f"{owner}{each.method}", str(each.epoch), failure)
    console.print(table)
    if answer.has_more:
        console.print(f"the newest {len(answer.requests):,} are shown")
