"""Reads of rows at the newest committed epoch, which a driver may replace meanwhile."""

from collections.abc import Callable, Collection, Sequence, Set
from typing import Final, TypeVar

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Corrupt, PenstockError, StateUnavailable
from penstock.journal.api import Journal, PartKind
from penstock.journal.parquet import entity_keys
from penstock.state.stores import PartitionedReader, Stores

R = TypeVar("R")

_ATTEMPTS: Final = 20
"""A read is repeated if a driver commits the next epoch meanwhile; at most this often."""

_READS_PER_EPOCH: Final = 300
_ROWS_PER_READ: Final = 4
_BYTES_PER_READ: Final = 2_500
"""What the keys of the changes of an epoch take, in reads of a row: so many for each epoch, and one for so many rows or bytes."""


def read_newest(
    journal: Journal, stores: Stores, keys: Sequence[EntityKey]
) -> tuple[Epoch, list[bytes | None]]:
    """Return the newest epoch, and the rows of some keys at that epoch; None for a row that does not exist."""
    failure: PenstockError | None = None
    for _ in range(_ATTEMPTS):
        last = journal.last()
        if last is None:
            return BEFORE_FIRST, [None] * len(keys)
        states: list[bytes | None] = []
        try:
            stores.follow(last)
            with stores.at(last.epoch) as reader:
                for key in keys:
                    states.append(reader.get(key))  # noqa: PERF401 -- an error needs the number
                return last.epoch, states
        except StateUnavailable as error:  # usually a driver has committed meanwhile
            failure = error
        except Corrupt as error:
            failure = error
            stores.rebuild(stores.partition_of(keys[len(states)]), str(error))
    raise StateUnavailable("no epoch could be read") from failure


def at_newest(journal: Journal, stores: Stores, read: Callable[[PartitionedReader], R]) -> R | None:
    """Let a function read from the stores at the newest epoch, and return its result; None before the first epoch."""
    failure: PenstockError | None = None
    for _ in range(_ATTEMPTS):
        last = journal.last()
        if last is None:
            return None
        try:
            stores.follow(last)
            with stores.at(last.epoch) as reader:
                return read(reader)
        except StateUnavailable as error:  # usually a driver has committed meanwhile
            failure = error
        except Corrupt as error:
            failure = error
            if not stores.examine():  # which deletes damaged stores
                raise
    raise StateUnavailable("no epoch could be read") from failure


def read_changed(
    journal: Journal, stores: Stores, keys: Set[EntityKey], after: Epoch | None
) -> tuple[Epoch, dict[EntityKey, bytes | None]]:
    """Return the newest epoch, and the rows at that epoch of those entities that may have changed after another one.

    An entity that is left out has the same row at both epochs.

    Args:
        keys: The entities.
        after: The other epoch; None for all rows.
    """

    def chosen_at(epoch: Epoch) -> Collection[EntityKey]:
        changed = None if after is None else _changed(journal, keys, after, epoch)
        return keys if changed is None else changed

    last = journal.last()
    if last is None:
        return BEFORE_FIRST, dict.fromkeys(keys)
    chosen = chosen_at(last.epoch)
    if not chosen:  # no store has to be brought to the epoch
        return last.epoch, {}

    def read(reader: PartitionedReader) -> tuple[Epoch, dict[EntityKey, bytes | None]]:
        wanted = chosen if reader.epoch == last.epoch else chosen_at(reader.epoch)
        return reader.epoch, {key: reader.get(key) for key in wanted}

    rows = at_newest(journal, stores, read)
    assert rows is not None, "there is an epoch"
    return rows


def _changed(
    journal: Journal, keys: Set[EntityKey], after: Epoch, upto: Epoch
) -> Collection[EntityKey] | None:
    """Return those of some entities that the epochs of (after, upto] have changed; None if to read all takes less time."""
    if (upto - after) * _READS_PER_EPOCH >= len(keys):
        return None
    changed: dict[EntityKey, None] = {}
    reached, left = after, len(keys)
    try:
        for commit in journal.commits(after, upto):
            parts = commit.parts_of(PartKind.CHANGES)
            left -= _READS_PER_EPOCH + sum(
                part.rows // _ROWS_PER_READ + part.size // _BYTES_PER_READ for part in parts
            )
            if left < 0 or commit.epoch != reached + 1:  # the journal may begin later
                return None
            for part in parts:
                names = entity_keys(journal.read(part, ("entity", "key")))
                changed |= dict.fromkeys(key for key in names if key in keys)
            reached = commit.epoch
    except PenstockError:  # a store that has the epoch already can be read all the same
        return None
    return changed if reached == upto else None
