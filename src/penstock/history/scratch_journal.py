"""Scratch journals: the epochs of a what-if, in a data directory for the commands of history.

The journal begins with the state before the first epoch, stored as an epoch 0 that has changes and no
requests. If that state is empty because history begins there, the epoch is omitted. So an epoch has a
smaller number than the recorded epoch that it replaces, unless the span begins with epoch 0 or 1.
Atoms are numbered from 0, too. There is no log: the directory can be queried, and not run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import pyarrow as pa

from penstock.base.ids import ONLY_PARTITION, EntityKey, Epoch, Lsn, split_entity_key
from penstock.engine.execute import Outcome
from penstock.engine.replay import RequestRow
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.recorded_cascade import sent_of
from penstock.engine.what_if import ReplayPlan
from penstock.journal.api import CHANGES, SCHEMAS, TRANSACTIONS, Commit, Part, PartKind
from penstock.journal.atoms import encode_atom
from penstock.journal.shapes import Shapes
from penstock.model.application import App
from penstock.model.versions.former_class import present_row
from penstock.model.versions.removed_class import removed_versions
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

    Args:
        first: The first recorded epoch that is replaced.
        time_us: The commit time of that state, microseconds since the Unix epoch.
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
        self.shift = epoch_shift(first)
        self._app = app
        directory = DataDirectory(data)
        self._journal = directory.open_journal(app, secret)
        if app.removed:
            removed = {name: removed_versions(each) for name, each in app.removed.items()}
            Shapes(directory.journal_root, {}).replace(removed)
        self._position = Lsn(0)
        self._atoms: dict[str, int] = {}
        if first > 0:
            # The state before comes as an epoch without requests, so that the journal is complete
            # by itself.
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
        cascades: Sequence[Cascade | None],
        changes: Mapping[EntityKey, bytes | None],
    ) -> None:
        """Write the epoch that replaces a recorded one.

        Args:
            outcomes: Their outcomes; None keeps the recorded one.
            cascades: Their cascades; None for a request that has caused nothing.

        Raises:
            JournalUnavailable: The disk is full or fails.
        """
        number = Epoch(epoch - self.shift)
        if plan.rows:
            self._position = Lsn(plan.rows[-1].lsn + 1)
        transactions = self._transactions(number, plan.rows, outcomes)
        caused = self._caused(number, plan.rows, cascades)
        self._commit(number, transactions + self._changes(number, changes) + caused, time_us)

    def _commit(self, epoch: Epoch, parts: tuple[Part, ...], time_us: int) -> None:
        positions = {ONLY_PARTITION: self._position}
        self._journal.commit(Commit(epoch, positions, parts, time_us, dict(self._atoms)))

    def _transactions(
        self, epoch: Epoch, rows: Sequence[RequestRow], outcomes: Sequence[Outcome | None]
    ) -> tuple[Part, ...]:
        if not rows:
            return ()
        lsns, ids, times, bodies, errors, replies = zip(*rows, strict=True)
        errors, replies = zip(
            *(
                (error, reply) if outcome is None else (outcome.error, outcome.reply)
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
        columns = [entities, keys, list(map(self._present, changes, changes.values()))]
        return self._write(PartKind.CHANGES, CHANGES, epoch, columns)

    def _caused(
        self, epoch: Epoch, rows: Sequence[RequestRow], cascades: Sequence[Cascade | None]
    ) -> tuple[Part, ...]:
        """Write the atoms, the sent requests and the later records of an epoch."""
        ran = [(row, run) for row, run in zip(rows, cascades, strict=True) if run is not None]
        events, sent, appends = [], [], []
        for row, cascade in ran:
            place, time_us = (ONLY_PARTITION, row.lsn), row.time_us
            for atom in cascade.published:
                number = self._atoms.get(atom.stream, 0)
                self._atoms[atom.stream] = number + 1
                size, data = len(atom.events), encode_atom(atom.events)
                events.append((atom.stream, number, *place, atom.step, time_us, size, data))
            for request_id, body, error, reply in sent_of(cascade):
                sent.append((*place, request_id, time_us, body, error, reply))
            for request_id, body, delay_us in cascade.later:
                appends.append((*place, request_id, body, time_us, delay_us))
        written = ((PartKind.EVENTS, events), (PartKind.SENT, sent), (PartKind.APPENDS, appends))
        return tuple(
            part
            for part_kind, lines in written
            if lines
            for part in self._write(
                part_kind, SCHEMAS[part_kind], epoch, list(zip(*lines, strict=True))
            )
        )

    def _present(self, key: EntityKey, row: bytes | None) -> bytes | None:
        """Return a row as the application declares its class: the scratch journal has a single version of it."""
        name, text = split_entity_key(key)
        entity_type = self._app.readable.get(name)
        return row if row is None or entity_type is None else present_row(entity_type, text, row)

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
