"""The failed requests of the background: those that no caller waits for.

These are the requests that handlers send, at once or later, and the requests of workflows: their ids are derived. A
request is in the list if its last attempt has failed and the application has not declared its failure.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.http import NDJSON
from penstock.engine.failure import REPEATABLE
from penstock.engine.streams.derived_ids import MARK, OF_NO_REQUEST
from penstock.errors import ViewUnavailable
from penstock.sql_view.query_body import QueryBody
from penstock.sql_view.view_client import EncodedAnswer, query_view, socket_of

LISTED_MAX: Final = 1_000
"""The most requests of a list."""

_CODES: Final = ", ".join(f"'{code}'" for code in sorted(REPEATABLE))
QUERY: Final = f"""\
SELECT failed.request_id, failed.epoch, request.time, request.entity, request.key, request.method,
       failed.error AS code, failed.kind, failed.message, request.parent
FROM penstock.replies failed JOIN penstock.requests request USING (epoch, lsn, request_id)
WHERE failed.error IN ({_CODES}) AND contains(failed.request_id, '{MARK}')
  AND NOT regexp_matches(failed.request_id, '{OF_NO_REQUEST}') AND NOT starts_with(request.method, '$')
  AND NOT EXISTS (SELECT 1 FROM penstock.replies later
                  WHERE later.request_id = failed.request_id AND later.epoch > failed.epoch)
ORDER BY failed.epoch DESC, failed.lsn DESC, failed.request_id"""  # noqa: S608 -- names of ours
"""The list as SQL, the newest first."""


class FailedRequest(msgspec.Struct, frozen=True):
    """A failed request of the background.

    Attributes:
        epoch: The epoch of its last attempt.
        entity: The class; None for a function.
        key: The key; None for a function.
        method: The method or function.
        parent: The id of the request whose handler has sent it; None if the request is a record of its own.
    """

    request_id: str
    epoch: int
    time: datetime | None
    entity: str | None
    key: str | None
    method: str
    code: str
    kind: str | None
    message: str | None
    parent: str | None


class FailedRequests(msgspec.Struct, frozen=True):
    """The failed requests of the background at an epoch, the newest first, and whether others follow them."""

    epoch: int
    requests: list[FailedRequest]
    has_more: bool


Ask = Callable[[bytes, str], EncodedAnswer]
"""Sends the body of a query to a view or a gateway, and returns the answer in a format."""


def list_failed(ask: Ask, most: int = LISTED_MAX) -> FailedRequests:
    """Return the failed requests of the background, at most `most` of them."""
    body = msgspec.json.encode(QueryBody(f"{QUERY} LIMIT {most + 1}"))
    answer = ask(body, NDJSON)
    rows = msgspec.json.Decoder(FailedRequest).decode_lines(answer.content)
    return FailedRequests(int(answer.epoch), rows[:most], has_more=len(rows) > most)


def failed_in(data: Path, most: int = LISTED_MAX) -> FailedRequests:
    """Return the list from the view of a data directory."""
    socket = socket_of(data)
    if socket is None:
        raise ViewUnavailable("no SQL view runs here; penstock run starts one")
    return list_failed(partial(query_view, socket), most)
