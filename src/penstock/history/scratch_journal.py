"""Scratch journals: the epochs of a what-if, in a data directory for the commands of history.

The journal begins with the state before the first epoch, stored as an epoch 0 that has changes and no
requests. If that state is empty because history begins there, the epoch is omitted. So an epoch has a
smaller number than the recorded epoch that it replaces, unless the span begins with epoch 0 or 1.
There is no log: the directory can be queried, and not run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
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
    """Return the recorded number of an epoch minus its number in a scratch journal.

    `first` is the first recorded epoch that the scratch journal replaces.
    """
    return max(0, first - 1)


class ScratchJournal:
    """A journal that is written epoch by epoch.

    Attributes:
        shift: The recorded number of an epoch minus its number here.
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
            data: An empty directory.
            app: The application that executes the epochs.
            secret: The secret of the recorded journal.
            first: The first recorded epoch that is replaced.
            state: All entities before it.
            time_us: The commit time of that state, microseconds since the Unix epoch.
        """
        self.shift = epoch_shift(first)
        self._journal = DataDirectory(data).open_journal(app, secret)
        self._position = Lsn(0)
        if first > 0:
            self._commit(Epoch(0), self._changes(Epoch(0), state), time_us)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._journal.close()

    def commit(
        self,
        epoch: Epoch,
        time_us: int,
        plan: ReplayPlan,
        outcomes: Sequence[Outcome | None],
        changes: Mapping[EntityKey, bytes | None],
    ) -> None:
        """Write the epoch that replaces a recorded one.

        Args:
            epoch: The recorded epoch's number.
            time_us: Its commit time.
            plan: The executed requests.
            outcomes: Their outcomes; None keeps the recorded one.
            changes: The entities that the epoch has changed.

        Raises:
            JournalUnavailable: The disk is full or fails.
        """
        number = Epoch(epoch - self.shift)
        if plan.rows:
            self._position = Lsn(plan.rows[-1].lsn + 1)
        transactions = self._transactions(number, plan.rows, outcomes)
        self._commit(number, transactions + self._changes(number, changes), time_us)

    def _commit(self, epoch: Epoch, parts: tuple[Part, ...], time_us: int) -> None:
        self._journal.commit(Commit(epoch, {ONLY_PARTITION: self._position}, parts, time_us))

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
        return self._write(PartKind.TRANSACTIONS, TRANSACTIONS, epoch, columns)

    def _changes(self, epoch: Epoch, changes: Mapping[EntityKey, bytes | None]) -> tuple[Part, ...]:
        if not changes:
            return ()
        entities, keys = zip(*map(split_entity_key, changes), strict=True)
        columns = [entities, keys, list(changes.values())]
        return self._write(PartKind.CHANGES, CHANGES, epoch, columns)

    def _write(
        self,
        part_kind: PartKind,
        schema: pa.Schema,
        epoch: Epoch,
        columns: Sequence[Sequence[object]],
    ) -> tuple[Part, ...]:
        """Write a part with a column for the epoch, followed by `columns`."""
        values = [[epoch] * len(columns[0]), *columns]
        arrays = [
            pa.array(column, field.type) for column, field in zip(values, schema, strict=True)
        ]
        return (self._journal.write(part_kind, pa.Table.from_arrays(arrays, schema=schema), _NAME),)
