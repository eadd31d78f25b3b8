"""Access memory: the entities that the last transaction of a root accessed beyond its access hint.

A checkout names its order; its user and its items are known when it has run. The next transaction of the same
order probably accesses them again. Before the first one, the entities count that the row of the root mentions. Memory
changes no outcome, only how many transactions run again.

The table has a fixed size and one slot for each root, by its fingerprint, so a root may replace another one. It
keeps 30 bits of an entity's fingerprint: two entities that look equal join transactions without need.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.engine.access import AccessSet, Fingerprints, Positions, components
from penstock.engine.mentions import Mentions
from penstock.engine.order import balance, hinted_access
from penstock.engine.step import EpochRun

SLOTS: Final = 1 << 20
"""Roots that have a slot: 33 MiB, of which the system gives only pages that were written."""

_OWED_MAX: Final = 1_024
"""Mentions that epochs of a single task may leave to the next look."""

_WIDTH: Final = 8  # 32 bits of the root's fingerprint, and seven accesses

# An access has 32 bits: those of the entity's fingerprint, and how it is known.
_SHORT: Final = np.uint64(34)
_KINDS: Final = np.uint64(2)
_WROTE: Final = 1
_HINTED: Final = 2
_HALF: Final = np.uint64(32)


class AccessMemory:
    """Remembers accesses from one epoch to the next."""

    def __init__(self, slots: int = SLOTS) -> None:
        """Begin without knowledge; `slots` is a power of two."""
        assert slots.bit_count() == 1, "a mask finds the slot"
        self._mask = np.uint64(slots - 1)
        self._table = np.zeros((slots, _WIDTH), np.uint32)
        self._only_read = np.zeros(slots, np.bool_)  # an entity, in the last epoch that accessed it

    def expected(self, hinted: AccessSet) -> tuple[AccessSet, AccessSet]:
        """Return the accesses that an epoch will probably have.

        Args:
            hinted: Its hinted accesses, ascending by position; those of a request begin with its root.

        Returns:
            The hinted accesses and the remembered ones, with shortened fingerprints. Entities that were only read in
            the last epoch that accessed them are hinted as reads.
        """
        first = _begins(hinted.position)
        roots = hinted.entity[first]
        rows = self._table[self._slots(roots)]
        known = np.where((rows[:, 0] == _upper(roots))[:, None], rows[:, 1:], np.uint32(0))
        place = np.flatnonzero(known)
        accesses = known.ravel()[place]
        remembered = AccessSet(
            hinted.position[first[place // (_WIDTH - 1)]],
            accesses.astype(np.uint64) >> _KINDS,
            (accesses & _WROTE).astype(np.bool_),
        )
        wrote = ~self._only_read[self._slots(hinted.entity)]
        return AccessSet(hinted.position, hinted.entity >> _SHORT, wrote), remembered

    def learn(self, hinted: AccessSet, accesses: AccessSet) -> None:
        """Remember the accesses of an epoch beyond its hints; a root without such accesses keeps its former ones.

        Args:
            hinted: Its hinted accesses, as for `expected`.
        """
        slots = self._slots(accesses.entity)
        self._only_read[slots] = True
        self._only_read[slots[accesses.wrote]] = False
        position, access = _beyond_hints(hinted, accesses)
        begins = _begins(position)
        first = np.searchsorted(hinted.position, position[begins])  # every position has a hint
        self._remember(hinted.entity[first], begins, access)

    def learn_mentions(self, mentions: Sequence[Mentions]) -> None:
        """Remember what new rows of roots mention; a mentioned entity that was only read lately will be read again.

        Args:
            mentions: Those of one task or epoch after the other, at least one; the last ones of a root count.
        """
        every = np.concatenate(mentions)
        root, entity = every[:, 0], every[:, 1]
        wrote = ~self._only_read[self._slots(entity)]
        is_first = np.diff(root, prepend=~root[:1]) != 0
        is_first[np.cumsum([len(each) for each in mentions[:-1]], dtype=np.int64)] = True
        begins = np.flatnonzero(is_first)
        self._remember(root[begins], begins, _access(entity, wrote.astype(np.uint64)))

    def _remember(
        self,
        roots: Fingerprints,
        begins: npt.NDArray[np.int64],
        access: npt.NDArray[np.uint32],
    ) -> None:
        """Replace the accesses of roots.

        Args:
            roots: The roots; shape (n,).
            begins: The place of the first access of each root; shape (n,).
            access: The accesses of all roots, as the table has them; shape (m,).
        """
        row = np.repeat(np.arange(begins.size), np.diff(begins, append=access.size))
        column = 1 + np.arange(access.size) - begins[row]
        fits = column < _WIDTH
        learned = np.zeros((begins.size, _WIDTH), np.uint32)
        learned[:, 0] = _upper(roots)
        learned[row[fits], column[fits]] = access[fits]
        self._table[self._slots(roots)] = learned

    def _slots(self, entities: Fingerprints) -> npt.NDArray[np.int64]:
        """Return the slot of each entity."""
        return (entities & self._mask).astype(np.int64)


def _begins(groups: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.int64]:
    """Return where each run of equal numbers begins."""
    return np.flatnonzero(np.diff(groups, prepend=~groups[:1]))


def _access(
    entity: Fingerprints, flags: npt.NDArray[np.uint64] | np.uint64
) -> npt.NDArray[np.uint32]:
    """Return 30 bits of each entity, and its flags."""
    return (entity >> _SHORT << _KINDS | flags).astype(np.uint32)


def _upper(roots: Fingerprints) -> npt.NDArray[np.uint32]:
    """Return the bits of fingerprints that distinguish roots in a slot."""
    return (roots >> _HALF).astype(np.uint32)


def _beyond_hints(
    hinted: AccessSet, accesses: AccessSet
) -> tuple[Positions, npt.NDArray[np.uint32]]:
    """Return each access once that its transaction's hint did not announce, of transactions with a hint.

    Args:
        hinted: The hinted accesses of an epoch, ascending by position.

    Returns:
        Positions, ascending, and the accesses; both of shape (n,).
    """
    count = 1 + max(int(some.position.max(initial=0)) for some in (hinted, accesses))
    has_hint = np.zeros(count, np.bool_)
    has_hint[hinted.position] = True
    rows = np.concatenate(
        [
            _packed(accesses, accesses.wrote.astype(np.uint64))[has_hint[accesses.position]],
            _packed(hinted, np.uint64(_HINTED)),
        ]
    )
    rows.sort()  # of one entity, a read comes before a write, and this before a hint
    entity = rows >> _KINDS
    is_last = np.diff(entity, append=~entity[-1:]) != 0
    rows = rows[is_last & (rows & np.uint64(_HINTED) == 0)]
    return (rows >> _HALF).astype(np.uint32), rows.astype(np.uint32)


def _packed(accesses: AccessSet, flags: npt.NDArray[np.uint64] | np.uint64) -> Fingerprints:
    """Return each access as a number: its position, 30 bits of its entity, and its flags."""
    position = accesses.position.astype(np.uint64) << _HALF
    return position | _access(accesses.entity, flags)


# It spreads components of the expected accesses: those of hints, and those that memory adds (`access_memory`).
# A wrong guess costs time only, because `step` validates the real accesses.
#
# Memory may be out of date, and join too much. Then one task would have most of the work; and of a component that is so
# large in truth, some member is always unknown, and makes it run again. So if a component with the remembered accesses is
# too large for an even spread, only the hints count.


class FirstRounds:
    """Spreads the epochs of a driver over tasks, one after the other."""

    def __init__(self) -> None:
        self._memory = AccessMemory()
        self._hinted = AccessSet.empty()
        self._owed: list[Mentions] = []  # that memory has not learned yet
        self._owed_rows = 0

    def spread(self, hints: list[bytes], tasks: int) -> list[Positions]:
        """Assign a whole epoch to tasks; requests with a common entity in their expected accesses stay together.

        Args:
            hints: The access hint of each request, in the order of positions.

        Returns:
            For each task its positions, ascending; may be empty.
        """
        count = len(hints)
        self._learn_owed()
        self._hinted = hinted_access(hints)
        named, remembered = self._memory.expected(self._hinted)
        labels = components(count, named.union([remembered]))
        if remembered.position.size and np.bincount(labels).max() * tasks > count:
            labels = components(count, named)
        return balance(np.arange(count, dtype=np.uint32), labels, tasks)

    def learn(self, run: EpochRun, mentions: Iterable[Mentions] = ()) -> None:
        """Learn from an epoch when its rounds have ended: the last one that was spread, or one of a single task.

        Args:
            mentions: The mentions in the rows that the epoch's tasks have written.
        """
        # Memory serves epochs of several tasks. Epochs of a single one have few mentions, which cost the same for one
        # epoch as for hundreds.
        for each in mentions:
            if len(each):
                self._owed.append(each)
                self._owed_rows += len(each)
        if run.tasks > 1 or self._owed_rows >= _OWED_MAX:
            self._learn_owed()
        if run.tasks > 1:  # accesses are known better than mentions
            self._memory.learn(self._hinted, run.accesses)

    def _learn_owed(self) -> None:
        if self._owed:
            self._memory.learn_mentions(self._owed)
            self._owed, self._owed_rows = [], 0
