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


class CascadeRows:
    """Collects the rows of the cascades of one run.

    It keeps the values of the rows, because the cascades take more memory.

    Attributes:
        have_steps: Whether one of the cascades may have workflow steps.
    """

    def __init__(self) -> None:
        self._atoms: list[tuple[Any, ...]] = []
        self._sent: list[tuple[Any, ...]] = []
        self._later: list[tuple[Any, ...]] = []
        self.have_steps = False
        self.largest = 0

    def add(self, position: int, partition: LogPartition, record: Record, cascade: Cascade) -> int:
        """Add the results of a cascade, without its writes.

        Returns:
            The bytes of its events, replies, changes and records.
        """
        self.have_steps = self.have_steps or cascade.has_steps
        lsn, time_us, size = record.lsn, record.time_us, 0
        for atom in cascade.published:
            events = encode_atom(atom.events)
            size += len(events)
            count = len(atom.events)
            self.largest = max(self.largest, count)
            self._atoms.append(
                (atom.stream, partition, lsn, atom.step, time_us, count, events, position)
            )
        for request_id, body, outcome in cascade.completed:
            size += len(body) + len(outcome.reply)
            size += sum(len(data) for data in outcome.writes.values() if data is not None)
            self._sent.append(
                (partition, lsn, request_id, time_us, body, outcome.error, outcome.reply, position)
            )
        for later in cascade.later:
            size += len(later.body)
            self._later.append(
                (partition, lsn, later.request_id, later.body, time_us, later.delay_us, position)
            )
        return size

    def tables(self, epoch: Epoch, reached: Mapping[str, int]) -> dict[PartKind, pa.Table]:
        """Return the rows of the kinds that have some.

        Args:
            reached: The number of atoms of each stream before the epoch.
        """
        tables = {}
        if self._atoms:
            streams, *atoms = _columns(self._atoms)
            numbers = _numbers(streams, dict(reached))
            tables[PartKind.EVENTS] = _table(PartKind.EVENTS, epoch, [streams, numbers, *atoms])
        if self._sent:
            tables[PartKind.SENT] = _table(PartKind.SENT, epoch, _columns(self._sent))
        if self._later:
            tables[PartKind.APPENDS] = _table(PartKind.APPENDS, epoch, _columns(self._later))
        return tables


def _numbers(streams: Sequence[str], reached: dict[str, int]) -> list[int]:
    """Return the number of each atom in its stream, for the streams of atoms in order."""
    numbers = []
    for stream in streams:
        number = reached.get(stream, 0)
        reached[stream] = number + 1
        numbers.append(number)
    return numbers


def atom_counts(events: pa.Table) -> dict[str, int]:
    """Return the number of atoms of each stream in rows of the kind `events`."""
    counts = pc.value_counts(events["stream"])
    return {str(entry["values"]): int(entry["counts"].as_py()) for entry in counts}


def event_counts(events: pa.Table) -> dict[str, int]:
    """Return the number of events of each stream in rows of the kind `events`."""
    sums = events.group_by("stream").aggregate([("count", "sum")])
    return dict(zip(sums["stream"].to_pylist(), sums["count_sum"].to_pylist(), strict=True))


def atoms_of(events: pa.Table) -> list[tuple[int, PublishedAtom]]:
    """Return the atoms of rows of the kind `events`, each with the position of its record."""
    names = ("position", "stream", "step", "events")
    return [
        (position, PublishedAtom(stream, step, decode_atom(data)))
        for position, stream, step, data in zip(
            *(events[name].to_pylist() for name in names), strict=True
        )
    ]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    return list(map(list, zip(*rows, strict=True)))


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
