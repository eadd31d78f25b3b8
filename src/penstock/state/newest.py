"""Reads of rows at the newest committed epoch, which a driver may replace meanwhile."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Corrupt, PenstockError, StateUnavailable
from penstock.journal.api import Journal
from penstock.state.stores import PartitionedReader, Stores

R = TypeVar("R")

_ATTEMPTS: Final = 20
"""A read is repeated if a driver commits the next epoch meanwhile; at most this often."""


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
