"""Moments: which epoch a number or an instant means.

An instant means the newest epoch that was committed at or before it, as the driver's clock told.
Promises to read a number of commits that grows with the logarithm of the history, and that what is
not held is refused by name.
"""

from bisect import bisect_right
from datetime import UTC, datetime
from typing import Final

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.journal.api import Journal

PointInTime = int | datetime
"""An epoch, or an instant; one without a zone is UTC."""

_MICROSECOND: Final = 1_000_000


def epoch_as_of(journal: Journal, moment: PointInTime) -> Epoch:
    """Return the epoch that a moment means.

    Raises:
        QueryError: The journal does not hold it; the message names the epochs that it holds.
        Corrupt: A commit is damaged.
    """
    first, last = held_epochs(journal)
    if isinstance(moment, datetime):
        return _epoch_at(journal, moment, first, last)
    if not first <= moment <= last:
        raise QueryError(f"there is no epoch {moment}; {_said(first, last)}")
    return Epoch(moment)


def held_epochs(journal: Journal) -> tuple[Epoch, Epoch]:
    """Return the oldest and the newest epoch that a journal holds.

    Raises:
        QueryError: It has none yet.
    """
    newest = journal.last()
    if newest is None:
        raise QueryError("the journal has no epoch yet")
    return journal.first(), newest.epoch


def parse_point_in_time(text: str) -> PointInTime:
    """Return the moment that a word means: an epoch, or an instant as `parse_timestamp` reads it.

    Raises:
        QueryError: It is neither.
    """
    return int(text) if text.isdecimal() else parse_timestamp(text)


def parse_timestamp(text: str) -> datetime:
    """Return the instant that ISO 8601 writes so; without a zone it is UTC.

    Raises:
        QueryError: It is none.
    """
    try:
        return _in_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise QueryError(
            f"{text!r} is no time; one is written 2026-11-21 08:30:00+01:00"
        ) from error


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _epoch_at(journal: Journal, moment: datetime, first: Epoch, last: Epoch) -> Epoch:
    when = _in_utc(moment)
    since = when - datetime.fromtimestamp(0, UTC)
    time_us = (since.days * 86_400 + since.seconds) * _MICROSECOND + since.microseconds
    if when > datetime.now(UTC):
        raise QueryError(f"what will be at {when.isoformat()} is not known yet")
    place = bisect_right(range(first, last + 1), time_us, key=lambda one: _time_of(journal, one))
    if place == 0:
        began = datetime.fromtimestamp(_time_of(journal, first) / _MICROSECOND, UTC)
        raise QueryError(
            f"no epoch that is held was committed by {when.isoformat()}; epoch {first}, the oldest, "
            f"was committed at {began.isoformat()}"
        )
    return Epoch(first + place - 1)


def _time_of(journal: Journal, epoch: int) -> int:
    commit = next(iter(journal.commits(Epoch(epoch - 1), Epoch(epoch))))
    return commit.time_us


def _said(first: Epoch, last: Epoch) -> str:
    return f"the journal holds {first} to {last}"
