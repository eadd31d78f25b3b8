"""Attempts of failed requests: `retry` runs a request again, and `discard` ends its attempts.

A request that a mistake in the code has failed keeps its id, so its caller cannot send it again. Another attempt is
a record of the same id and body at a later position, and from then on the id leads to it. A discarded request gets a
record with the mark of a cancelled request: it runs nowhere. The log takes one record for each attempt that a caller has
seen to fail, so a repetition and a second operator change nothing. An answer that the application has declared, with a
class of `Aborted`, is final.
"""

import re
from collections.abc import Callable
from contextlib import closing
from typing import ClassVar, Final, Literal, NamedTuple

import msgspec

from penstock.base.ids import Lsn, RequestId
from penstock.engine.failure import REPEATABLE
from penstock.engine.streams.derived_ids import OF_NO_REQUEST, continuation_id, record_of
from penstock.errors import RequestError, TimedOut, TooLate, UserError
from penstock.journal.api import Journal, PartKind
from penstock.journal.replies import Outcome, find_outcome
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.catch_up import is_catch_up
from penstock.model.control import is_control
from penstock.model.request import cancelled_body, decode_failure
from penstock.model.table_scan import is_scan
from penstock.model.waiting_effect import is_settlement
from penstock.orders.order import Place, Way

_NOT_IN_LOG: Final = Lsn(-1)


class _Failed(NamedTuple):
    """A failed request: the position of its last attempt, and its body."""

    after: Lsn
    body: bytes


def retry(log: Log, journal: Journal, request_id: RequestId) -> Lsn:
    """Append the next attempt of a failed request durably; a repetition returns the same position.

    Args:
        request_id: The stored request id; also that of a request that a handler has sent.

    Raises:
        RequestError: No processed request has this id, or its epoch is forgotten.
        TooLate: It has not run yet, it took effect, or its failure is a declared answer.
    """
    return _append(log, journal, request_id)


def discard(log: Log, journal: Journal, request_id: RequestId) -> Lsn:
    """Let a failed request have no further attempt; its result is `cancelled` from then on. Raises as `retry`."""
    return _append(log, journal, request_id, cancelled_body)


def _append(
    log: Log,
    journal: Journal,
    request_id: RequestId,
    mark: Callable[[bytes], bytes] | None = None,
) -> Lsn:
    failed = _failed(log, journal, request_id)
    entry = Entry(request_id, failed.body, b"", wall_clock_us())
    return log.repeat(entry, failed.after, mark)


def _failed(log: Log, journal: Journal, request_id: RequestId) -> _Failed:
    """Return the last attempt of a request; raises as `retry`."""
    place = log.find(request_id)
    try:
        if place is not None:
            after = place[1]
            outcome = find_outcome(journal, place, PartKind.TRANSACTIONS, request_id)
        else:
            after, outcome = _NOT_IN_LOG, _sent(log, journal, request_id)
    except TimedOut as error:
        raise TooLate(f"request {request_id} has not run yet: {error}") from error
    if outcome is None:
        if log.scheduled(request_id) is not None:
            raise TooLate(f"request {request_id} is scheduled, and has not run yet")
        raise RequestError(
            f"no processed request has the id {request_id}, or its epoch was forgotten; penstock failed lists "
            "the failed requests of the background"
        )
    _check_repeatable(request_id, outcome)
    return _Failed(after, outcome.body)


def _sent(log: Log, journal: Journal, request_id: RequestId) -> Outcome | None:
    """Return the outcome of a request that a cascade has sent, in its record or in a continuation of it."""
    record = record_of(request_id)
    while record and (place := log.find(record)) is not None:
        outcome = find_outcome(journal, place, PartKind.SENT, request_id)
        if outcome is not None:
            return outcome
        record = continuation_id(record)
    return None


def _check_repeatable(request_id: RequestId, outcome: Outcome) -> None:
    reply = outcome.reply
    if reply.error is None:
        raise TooLate(f"request {request_id} took effect in epoch {reply.epoch}")
    if (
        re.search(OF_NO_REQUEST, request_id)
        or is_control(outcome.body)
        or is_catch_up(outcome.body)
        or is_scan(outcome.body)
        or is_settlement(outcome.body)
    ):
        raise RequestError(f"{request_id} is the id of a record of Penstock, and of no request")
    failure = decode_failure(reply.data)
    if reply.error not in REPEATABLE:
        raise TooLate(
            f"request {request_id} was answered with {reply.error} ({failure.kind}: {failure.message}) in epoch "
            f"{reply.epoch}; the application has declared this answer, so it is final"
        )


class Attempt(msgspec.Struct, frozen=True):
    """The next attempt of a request, and its position in the log."""

    request_id: str
    position: int


class RefusedAttempt(msgspec.Struct, frozen=True):
    """A request that gets no attempt, and the code and the text of the reason."""

    request_id: str
    code: str
    message: str


class Attempts(msgspec.Struct, frozen=True):
    """The outcome of an order: the attempts in the log, and the requests without one."""

    attempts: list[Attempt]
    refused: list[RefusedAttempt]


class AttemptOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Run several failed requests again, or discard them.

    A refused request does not end the order.

    Attributes:
        order: `retry` or `discard`.
    """

    order: Literal["retry", "discard"]
    ids: list[str]

    way: ClassVar[Way] = Way(
        noun="a retry or a discard",
        path="/failed",
        name="failed.order",
        result=Attempts,
        text="The attempts in the log, and the requests without an attempt.",
        example='{"order": "retry", "ids": ["order-7~~1"]}',
        needs_key=False,
        is_awaited=False,
    )

    def carry_out(self, place: Place, _timeout_s: float = 0.0) -> Attempts:
        """Append the attempts durably; a refused request does not end the order. No driver is waited for."""
        directory, name = place.directory()
        act = retry if self.order == "retry" else discard
        done = Attempts([], [])
        with (
            closing(directory.open_log(place.settings)) as log,
            closing(directory.open_journal_of(name)) as journal,
        ):
            for text in self.ids:
                try:
                    done.attempts.append(Attempt(text, act(log, journal, RequestId(text))))
                except UserError as error:
                    # The attempts before it are durable already, so the answer must list them.
                    done.refused.append(RefusedAttempt(text, error.code, str(error)))
        return done
