"""Cancelling: a scheduled request before it is due, and the rest of a cascade.

The log decides: a request is promoted or cancelled, never both, and also a crash leaves one of the
two. A cancelled request takes its position in the order with a mark in its body. So an epoch answers
it like any other request, with the code `cancelled`; its id stays taken, and it runs nowhere: not in
the application, not in a replay, and not in a scenario.

The rest of a cascade is ended by a record of its own, at its place in the order: it removes the requests and the
workflow steps that wait then, and the record that continues the cascade finds nothing.
"""

from contextlib import closing
from typing import Final, Literal

import msgspec

from penstock.base.ids import PRINCIPAL_SEPARATOR, Lsn, RequestId
from penstock.engine.streams.derived_ids import cascade_id, end_id
from penstock.engine.streams.stored_cascade import rest_keys
from penstock.errors import RequestError, TooLate, Truncated
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.request import cancelled_body, encode_continuation, is_cancelled
from penstock.orders.order import Place
from penstock.orders.paused_workflows import newest_rows
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory

_LOOKED_MAX: Final = 1_000
_NAMED_MAX: Final = 5


class Cancelled(msgspec.Struct, frozen=True):
    """A request that does not run, or whose cascade ends."""

    request_id: str
    status: Literal["cancelled", "ending"] = "cancelled"


def cancel_at(place: Place, text: str) -> Cancelled:
    """Cancel the scheduled request of a data directory that a text names, or end the rest of its cascade.

    Raises:
        TooLate: The request was due before, and nothing of its cascade waits.
    """
    settings = place.settings
    directory = DataDirectory(settings.data)
    if not directory.log_path.exists():  # opening it would create it
        raise RequestError(f"{settings.data} has no requests: no application has run there")
    with closing(directory.open_log(settings)) as log:
        request_id = complete(log, text)
        try:
            lsn = cancel(log, request_id)
        except TooLate:
            if end_cascade(settings, log, request_id) is None:
                raise
            return Cancelled(request_id, "ending")
    if lsn is None:
        raise RequestError(
            f"no request has the id {text}, or its id is no longer kept; "
            "the console lists the requests that are scheduled"
        )
    return Cancelled(request_id)


def cancel(log: Log, request_id: RequestId) -> Lsn | None:
    """Cancel a scheduled request durably; a repetition returns the same position.

    Returns:
        The position of the cancelled request; None if the log knows no such request.

    Raises:
        TooLate: The request was due before, or was never delayed.
        LogUnavailable: The log cannot be written; a repetition tells whether it was cancelled.
    """
    # One step of the log both takes the request from the schedule and writes its cancelled form, so a crash leaves one.
    lsn = log.append_scheduled(request_id, wall_clock_us(), cancelled_body)
    if lsn is not None:
        return lsn
    place = log.find(request_id)
    if place is None:
        return None
    if not _is_cancelled_at(log, place[1]):
        raise TooLate(
            f"request {request_id} cannot be cancelled: it is in the log at position {place[1]} and "
            "runs, or has run; its result tells how it ended"
        )
    return place[1]


def end_cascade(config: Config, log: Log, root: RequestId) -> Lsn | None:
    """Append a record that ends the rest of a cascade, durably; a repetition appends nothing.

    Args:
        root: The stored id of the request that has caused the cascade, or of a record that continues it.

    Returns:
        The position of the record, whose result has the numbers of requests and steps that it removes; None if nothing
        of the cascade waits at the newest epoch.
    """
    if all(row is None for row in newest_rows(config, rest_keys(root))):
        return None
    now_us = wall_clock_us()
    ends = end_id(cascade_id(root))
    return log.append([Entry(ends, encode_continuation(), b"", now_us, is_control=True)])[0]


def complete(log: Log, text: str) -> RequestId:
    """Return the stored id that is the text, or the only scheduled id that begins with it.

    The id belongs to the principal that the text names, or to none. The ids of a cascade are not completed: their
    requests are cancelled by the whole id only. A text with which no id begins is returned unchanged.
    """
    named = RequestId(text)
    if log.scheduled(named) is not None or log.find(named) is not None:
        return named
    parts = text.count(PRINCIPAL_SEPARATOR)
    ids = log.scheduled_ids(text, _LOOKED_MAX)
    fitting_ids = [name for name in ids if name.count(PRINCIPAL_SEPARATOR) == parts]
    if len(fitting_ids) > 1:
        names = ", ".join(fitting_ids[:_NAMED_MAX])
        more = ", …" if len(fitting_ids) > _NAMED_MAX else ""
        raise RequestError(
            f"several scheduled ids begin with {text}: {names}{more}; write more of the id"
        )
    return fitting_ids[0] if fitting_ids else named


def _is_cancelled_at(log: Log, lsn: Lsn) -> bool:
    """Say whether the record at a position is a cancelled request; False after its truncation."""
    try:
        return is_cancelled(log.read(lsn, Lsn(lsn + 1))[0].body)
    except Truncated:
        return False
