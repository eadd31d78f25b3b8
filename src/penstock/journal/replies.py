"""Replies in the journal: looked up by the log positions of their requests."""

import time
from collections.abc import Collection
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn, RequestId
from penstock.errors import PenstockError, RequestError, TimedOut
from penstock.journal.api import Commit, Journal, PartKind
from penstock.model.reply import Reply

_COLUMNS: Final = ("partition", "lsn", "request_id", "error", "reply")

_FEW: Final = 64
"""Rows that take less time as Python's objects than the search for the others."""

LogPosition = tuple[LogPartition, Lsn]
"""Where a request is in the log."""


def find_reply(journal: Journal, position: LogPosition) -> Reply:
    """Return the reply to a request that is committed, by its log position.

    Reads O(log epochs) commits, and one epoch's transactions.
    """
    outcome = find_replies(journal, [position])[position]
    if isinstance(outcome, Reply):
        return outcome
    raise outcome


def await_reply(journal: Journal, position: LogPosition, timeout_s: float) -> Reply | None:
    """Return the reply to a request as soon as its epoch is committed; None if it did not come in time.

    For a process that waits for one reply only. The request may still take effect after the time.
    """
    partition, lsn = position
    deadline = time.monotonic() + timeout_s
    commit = journal.last()
    while commit is None or commit.positions.get(partition, Lsn(0)) <= lsn:
        epoch = BEFORE_FIRST if commit is None else commit.epoch
        commit = journal.wait(epoch, max(0, round((deadline - time.monotonic()) * 1_000)))
        if commit is None:
            return None
    return find_reply(journal, position)


def find_replies(
    journal: Journal, positions: Collection[LogPosition]
) -> dict[LogPosition, Reply | PenstockError]:
    """Return the replies at log positions, or the errors of `find_reply`; reads each epoch once."""
    last = journal.last()
    outcomes: dict[LogPosition, Reply | PenstockError] = {}
    for position in positions:
        if position in outcomes:
            continue
        partition, lsn = position
        if last is None or last.positions.get(partition, Lsn(0)) <= lsn:
            error = TimedOut(f"the request at log position {lsn} is not processed yet")
            outcomes[position] = error
            continue
        replies = replies_of(journal, _commit_of(journal, position, last), positions)
        outcomes |= replies
        if position not in replies:
            outcomes[position] = forgotten(journal, lsn)
    return outcomes


def find_sent_reply(journal: Journal, position: LogPosition, request_id: str) -> Reply | None:
    """Return the reply to a request that the cascade of a committed record has sent, and processed at once.

    Returns:
        The reply; None if the cascade has sent no such request.
    """
    find_reply(journal, position)  # its epoch may be forgotten
    outcome = find_outcome(journal, position, PartKind.SENT, request_id)
    return None if outcome is None else outcome.reply


class Outcome(NamedTuple):
    """A processed request: its reply, and its body as it was appended or sent."""

    reply: Reply
    body: bytes


def find_outcome(
    journal: Journal, position: LogPosition, part_kind: PartKind, request_id: str
) -> Outcome | None:
    """Return the outcome of a request by its id, and by the position of the record in whose cascade it ran.

    Args:
        part_kind: `TRANSACTIONS` for the record itself, `SENT` for a request that its cascade has sent.

    Returns:
        The outcome; None if the epoch of the position has no such request.

    Raises:
        TimedOut: No committed epoch holds the position.
    """
    last = journal.last()
    if last is None or last.positions.get(position[0], Lsn(0)) <= position[1]:
        raise TimedOut(f"the request at log position {position[1]} is not processed yet")
    commit = _commit_of(journal, position, last)
    for part in commit.parts_of(part_kind):
        table = journal.read(part, ("lsn", "request_id", "request", "error", "reply"))
        for row in table.filter(pc.equal(table["request_id"], request_id)).to_pylist():
            if row["lsn"] == position[1]:
                reply = Reply(
                    RequestId(request_id), Lsn(row["lsn"]), commit.epoch, row["error"], row["reply"]
                )
                return Outcome(reply, row["request"])
    return None


def _commit_of(journal: Journal, position: LogPosition, last: Commit) -> Commit:
    """Return the commit that holds a log position; the newest commit is `last`.

    Most questions are about the newest epochs, so the search begins there, in steps that grow.
    """
    partition, lsn = position
    first, high, step = int(journal.first()), int(last.epoch), 1
    low = first
    while high - step > first:
        commit = next(journal.commits(Epoch(high - step - 1), Epoch(high - step)))
        if commit.positions.get(partition, Lsn(0)) <= lsn:
            low = high - step + 1
            break
        high, step = high - step, 2 * step
    while low < high:
        middle = (low + high) // 2
        commit = next(journal.commits(Epoch(middle - 1), Epoch(middle)))
        if commit.positions.get(partition, Lsn(0)) > lsn:
            high = middle
        else:
            low = middle + 1
    return next(journal.commits(Epoch(low - 1), Epoch(low)))


def forgotten(journal: Journal, lsn: Lsn) -> RequestError:
    """Return the error for a reply whose epoch the journal does not hold any more."""
    return RequestError(
        f"the reply to the request at log position {lsn} is forgotten: the journal begins with "
        f"epoch {journal.first()}"
    )


def replies_of(
    journal: Journal, commit: Commit, wanted: Collection[LogPosition]
) -> dict[LogPosition, Reply]:
    """Return the replies of an epoch to the requests at some log positions, as far as it has them."""
    replies: dict[LogPosition, Reply] = {}
    if not wanted:
        return replies
    parts = commit.parts_of(PartKind.TRANSACTIONS)
    for part, table in zip(parts, journal.read_all(parts, _COLUMNS), strict=True):
        if part.rows - len(wanted) > _FEW:
            lsns = pa.array({lsn for _, lsn in wanted}, pa.int64())
            table = table.filter(pc.is_in(table["lsn"], lsns))
        for partition, lsn, request_id, error, data in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            position = (LogPartition(partition), Lsn(lsn))
            if position in wanted:
                replies[position] = Reply(
                    RequestId(request_id), Lsn(lsn), commit.epoch, error, data
                )
    return replies
