"""Scratch journals: epochs that never were, in a data directory that the commands of history read.

The journal begins with the state before the first of them, as an epoch 0 of its own that has changes
and no requests; where that state is empty because history begins there, it is left out. So the epochs
have other numbers than those that they stand for, but for a range that begins with epoch 0 or 1.
There is no log: such a directory can be asked, and not run.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from penstock.base.ids import ONLY_PARTITION, EntityKey, Epoch, Lsn, split_entity_key
from penstock.engine.execute import Outcome
from penstock.engine.replay import RequestRow
from penstock.engine.what_if import ReplayPlan
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, Part, PartKind
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory

_NAME: Final = "what-if"


def epoch_shift(first: Epoch) -> int:
    """Return what the number of an epoch lacks in a scratch journal that begins with `first`."""
    return max(0, first - 1)


class ScratchJournal:
    """A journal that is written epoch by epoch.

    Attributes:
        shift: What an epoch's number here lacks of that of the epoch which it stands for.
    """

    def __init__(
        self,
        data: Path,
        app: App,
        secret: bytes,
        first: Epoch,
        state: Mapping[EntityKey, bytes],
        time_us: int,
    ) -> None:
        """Begin with the state before an epoch.

        Args:
            data: A directory that is empty.
            app: The application that runs the epochs.
            secret: Of the journal whose requests they run.
            first: The epoch.
            state: Every entity before it.
            time_us: When it was committed, microseconds since the Unix epoch; before that, nothing.
        """
        self.shift = epoch_shift(first)
        self._journal = DataDirectory(data).open_journal(app, secret)
        self._position = Lsn(0)
        if first > 0:
            parts = self._changes(Epoch(0), state)
            self._journal.commit(Commit(Epoch(0), {ONLY_PARTITION: self._position}, parts, time_us))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close()

    def commit(
        self,
        epoch: Epoch,
        time_us: int,
        course: ReplayPlan,
        outcomes: Sequence[Outcome | None],
        changes: Mapping[EntityKey, bytes | None],
    ) -> None:
        """Write the epoch that stands for another one.

        Args:
            epoch: The other one.
            time_us: When that was committed.
            course: What ran instead.
            outcomes: How that came out; None is taken as recorded.
            changes: What it made of entities.

        Raises:
            JournalUnavailable: The disk is full or fails.
        """
        here = Epoch(epoch - self.shift)
        if course.rows:
            self._position = Lsn(course.rows[-1].lsn + 1)
        parts = (*self._transactions(here, course.rows, outcomes), *self._changes(here, changes))
        self._journal.commit(Commit(here, {ONLY_PARTITION: self._position}, parts, time_us))

    def _transactions(
        self, epoch: Epoch, rows: Sequence[RequestRow], outcomes: Sequence[Outcome | None]
    ) -> tuple[Part, ...]:
        if not rows:
            return ()
        lsns, ids, times, bodies, errors, replies = zip(*rows, strict=True)
        errors, replies = zip(
            *(
                (error, reply) if outcome is None else outcome[:2]
                for error, reply, outcome in zip(errors, replies, outcomes, strict=True)
            ),
            strict=True,
        )
        columns = [[0] * len(rows), lsns, ids, times, bodies, errors, replies]
        return self._written(PartKind.TRANSACTIONS, TRANSACTIONS, epoch, columns)

    def _changes(self, epoch: Epoch, changes: Mapping[EntityKey, bytes | None]) -> tuple[Part, ...]:
        if not changes:
            return ()
        entities, keys = zip(*map(split_entity_key, changes), strict=True)
        columns = [entities, keys, list(changes.values())]
        return self._written(PartKind.CHANGES, CHANGES, epoch, columns)

    def _written(
        self, kind: PartKind, schema: pa.Schema, epoch: Epoch, columns: Iterable[Sequence[object]]
    ) -> tuple[Part, ...]:
        """Write a part from all columns but the first, which is the epoch."""
        values = list(columns)
        every = [[epoch] * len(values[0]), *values]
        arrays = [pa.array(one, field.type) for one, field in zip(every, schema, strict=True)]
        return (self._journal.write(kind, pa.Table.from_arrays(arrays, schema=schema), _NAME),)
