"""The rows of cascades: the atoms that they publish, the requests that they send, and the records that they append."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, LogPartition
from penstock.engine.streams.cascade import Cascade, PublishedAtom
from penstock.journal.api import SCHEMAS, PartKind
from penstock.journal.atoms import decode_atom, encode_atom
from penstock.log.api import Record

POSITION: Final = pa.field("position", pa.uint32())
"""The column with the position of a record in its epoch."""

NO_ATOMS: Final[Mapping[str, int]] = MappingProxyType({})

_Cascades = Sequence[tuple[int, LogPartition, Record, Cascade]]
"""The position of a record, its partition, the record, its cascade."""


def cascade_tables(
    epoch: Epoch, cascades: _Cascades, atoms: Mapping[str, int]
) -> dict[PartKind, pa.Table]:
    """Return the rows of cascades, by kind.

    Args:
        epoch: The epoch.
        cascades: The cascades, in the order of their positions.
        atoms: The number of atoms of each stream before the epoch.
    """
    return {
        PartKind.EVENTS: _events(epoch, cascades, dict(atoms)),
        PartKind.SENT: _sent(epoch, cascades),
        PartKind.APPENDS: _appends(epoch, cascades),
    }


def _events(epoch: Epoch, cascades: _Cascades, reached: dict[str, int]) -> pa.Table:
    rows: list[tuple[Any, ...]] = []
    for position, partition, record, cascade in cascades:
        for atom in cascade.published:
            stream, events = atom.stream, atom.events
            number = reached.get(stream, 0)
            reached[stream] = number + 1
            rows.append(
                (stream, number, partition, record.lsn, atom.step, record.time_us, len(events), events, position)
            )  # fmt: skip
    columns = _columns(rows, 9)
    columns[7] = [encode_atom(events) for events in columns[7]]
    return _table(PartKind.EVENTS, epoch, columns)


def atom_counts(events: pa.Table) -> dict[str, int]:
    """Return the number of atoms of each stream in rows of the kind `events`."""
    counts = pc.value_counts(events["stream"])
    return {str(entry["values"]): int(entry["counts"].as_py()) for entry in counts}


def event_counts(events: pa.Table) -> dict[str, int]:
    """Return the number of events of each stream in rows of the kind `events`."""
    sums = events.group_by("stream").aggregate([("count", "sum")])
    return dict(zip(sums["stream"].to_pylist(), sums["count_sum"].to_pylist(), strict=True))


def size_of(cascade: Cascade) -> int:
    """Return the bytes of the events, replies, changes and records of a cascade."""
    size = sum(sum(map(len, atom.events)) for atom in cascade.published)
    size += sum(len(later.body) for later in cascade.later)
    for _, body, outcome in cascade.completed:
        size += len(body) + len(outcome.reply)
        size += sum(len(data) for data in outcome.writes.values() if data is not None)
    return size


def atoms_of(events: pa.Table) -> list[tuple[int, PublishedAtom]]:
    """Return the atoms of rows of the kind `events`, each with the position of its record."""
    names = ("position", "stream", "step", "events")
    return [
        (position, PublishedAtom(stream, step, decode_atom(data)))
        for position, stream, step, data in zip(
            *(events[name].to_pylist() for name in names), strict=True
        )
    ]


def _sent(epoch: Epoch, cascades: _Cascades) -> pa.Table:
    rows = [
        (
            partition,
            record.lsn,
            sent.request_id,
            record.time_us,
            sent.body,
            sent.outcome.error,
            sent.outcome.reply,
            position,
        )
        for position, partition, record, cascade in cascades
        for sent in cascade.completed
    ]
    return _table(PartKind.SENT, epoch, _columns(rows, 8))


def _appends(epoch: Epoch, cascades: _Cascades) -> pa.Table:
    rows = [
        (partition, record.lsn, later.request_id, later.body, record.time_us, later.delay_us, position)
        for position, partition, record, cascade in cascades
        for later in cascade.later
    ]  # fmt: skip
    return _table(PartKind.APPENDS, epoch, _columns(rows, 7))


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[Any]:
    return list(map(list, zip(*rows, strict=True))) if rows else [[]] * count


def _table(part_kind: PartKind, epoch: Epoch, columns: Sequence[Any]) -> pa.Table:
    """Return the rows of a kind: its columns after `epoch`, in the order of its schema, and the positions."""
    schema = SCHEMAS[part_kind].append(POSITION)
    epochs = np.full(len(columns[-1]), epoch, np.int64)
    arrays = [pa.array(epochs)]
    arrays += [
        pa.array(column, field.type)
        for column, field in zip(columns, list(schema)[1:], strict=True)
    ]
    return pa.table(arrays, schema=schema)
