"""Points in time: the epoch that a number or a timestamp stands for.

A timestamp stands for the newest epoch that was committed at or before it, by the driver's clock. The
look-up reads O(log epochs) commits. A point that the journal does not hold is refused.
"""

from bisect import bisect_right
from datetime import UTC, datetime
from typing import Final

from penstock.base.ids import Epoch, epochs_text
from penstock.errors import QueryError
from penstock.journal.api import Journal

PointInTime = int | datetime
"""An epoch, or a timestamp; without a time zone it is UTC."""

_MICROSECOND: Final = 1_000_000


def epoch_as_of(journal: Journal, moment: PointInTime) -> Epoch:
    """Return the epoch that a point in time stands for.

    Raises:
        QueryError: The journal does not hold it; the message names the epochs that it holds.
    """
    first, last = held_epochs(journal)
    if isinstance(moment, datetime):
        return _epoch_at(journal, moment, first, last)
    if not first <= moment <= last:
        raise QueryError(
            f"there is no epoch {moment}; the journal holds {epochs_text(first, last)}"
        )
    return Epoch(moment)


def held_epochs(journal: Journal) -> tuple[Epoch, Epoch]:
    """Return the oldest and the newest epoch that a journal holds."""
    newest = journal.last()
    if newest is None:
        raise QueryError("the journal has no epoch yet")
    return journal.first(), newest.epoch


def parse_point_in_time(text: str) -> PointInTime:
    """Return the point in time in a text: an epoch, or a timestamp as for `parse_timestamp`."""
    return int(text) if text.isdecimal() else parse_timestamp(text)


def parse_timestamp(text: str) -> datetime:
    """Return the timestamp in a text, which has the form of ISO 8601; without a zone it is UTC."""
    try:
        return _in_utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        raise QueryError(
            f"{text!r} is not a time; write it like 2026-11-21 08:30:00+01:00"
        ) from error


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _epoch_at(journal: Journal, moment: datetime, first: Epoch, last: Epoch) -> Epoch:
    when = _in_utc(moment)
    since = when - datetime.fromtimestamp(0, UTC)
    time_us = (since.days * 86_400 + since.seconds) * _MICROSECOND + since.microseconds
    if when > datetime.now(UTC):
        raise QueryError(f"{when.isoformat()} is in the future, so its state is not known yet")
    count = bisect_right(
        range(first, last + 1), time_us, key=lambda epoch: _time_of(journal, epoch)
    )
    if count == 0:
        began = datetime.fromtimestamp(_time_of(journal, first) / _MICROSECOND, UTC)
        raise QueryError(
            f"the journal holds no epoch that was committed by {when.isoformat()}; epoch {first}, "
            f"the oldest, was committed at {began.isoformat()}"
        )
    return Epoch(first + count - 1)


def _time_of(journal: Journal, epoch: int) -> int:
    commit = next(iter(journal.commits(Epoch(epoch - 1), Epoch(epoch))))
    return commit.time_us
