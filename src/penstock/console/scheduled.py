"""The scheduled requests of an application, for the console: the requests that wait in the log, and their due times."""

from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from penstock.files.layout import LOG
from penstock.log.sqlite import SqliteLog
from penstock.sql_view.system_tables import arguments_text, recorded_call

REQUESTS_MAX: Final = 25
"""The largest number of requests in an answer."""

_ARGUMENTS_SHOWN: Final = 600


class ScheduledRequest(msgspec.Struct, frozen=True):
    """A request that is not due yet. `arguments` is JSON text, cut at 600 characters."""

    request_id: str
    due_us: int
    entity: str | None
    key: str | None
    method: str
    arguments: str


class ScheduledRequests(msgspec.Struct, frozen=True):
    """The requests that are due next, and whether others follow them."""

    requests: list[ScheduledRequest]
    has_more: bool


def scheduled_in(data: Path) -> ScheduledRequests:
    """Return the scheduled requests in a data directory, those that are due next first."""
    path = data / LOG
    if not path.exists():  # opening it would make it
        return ScheduledRequests([], has_more=False)
    with closing(SqliteLog(path)) as log:
        upcoming = log.upcoming(REQUESTS_MAX + 1)
    requests = [
        _described(entry.request_id, due_us, entry.body)
        for due_us, entry in upcoming[:REQUESTS_MAX]
    ]
    return ScheduledRequests(requests, has_more=len(upcoming) > REQUESTS_MAX)


def _described(request_id: str, due_us: int, body: bytes) -> ScheduledRequest:
    call = recorded_call(body)
    return ScheduledRequest(
        request_id=request_id,
        due_us=due_us,
        entity=call.entity or None,
        key=call.key,
        method=call.method,
        arguments=arguments_text(call)[:_ARGUMENTS_SHOWN],
    )
