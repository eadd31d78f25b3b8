"""Atoms for a journal: epochs with `events` parts, as a driver commits them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.journal.api import EVENTS, Commit, Journal, PartKind
from penstock.journal.atoms import encode_atom

TIME_US = 1_800_000_000_000_000

Atoms = Mapping[str, Sequence[Sequence[Any]]]
"""The atoms of an epoch by stream: the values of their events."""


def publish(journal: Journal, atoms: Atoms, parts: int = 1) -> Commit:
    """Commit the next epoch with the atoms; they are spread over a number of parts."""
    last = journal.last()
    epoch = (BEFORE_FIRST if last is None else last.epoch) + 1
    counts = {} if last is None else dict(last.atoms)
    rows: list[dict[str, Any]] = []
    for stream, published in atoms.items():
        for events in published:
            number = counts.get(stream, 0)
            counts[stream] = number + 1
            rows.append(_row(epoch, stream, number, events))
    written = tuple(
        journal.write(PartKind.EVENTS, pa.Table.from_pylist(rows[part::parts], EVENTS), f"{part}")
        for part in range(parts)
        if rows[part::parts]
    )
    lsn = Lsn(0 if last is None else last.positions.get(LogPartition(0), 0))
    commit = Commit(Epoch(epoch), {LogPartition(0): lsn}, written, TIME_US + epoch, counts)
    journal.commit(commit)
    return commit


def _row(epoch: int, stream: str, number: int, events: Sequence[Any]) -> dict[str, Any]:
    encoded = encode_atom([msgspec.msgpack.encode(event) for event in events])
    return {
        "epoch": epoch,
        "stream": stream,
        "atom": number,
        "partition": 0,
        "lsn": number,
        "step": 0,
        "time_us": TIME_US + number,
        "count": len(events),
        "events": encoded,
    }
