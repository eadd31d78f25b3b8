"""The rows of published tables, as rows of the state: what the subscribers of each table know.

A table keeps the rows of each entity, as the events that have put them. So a change is the difference between these and
the rows that the present code makes, also after a deployment; a scan that finds no difference publishes nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, entity_key
from penstock.engine.streams.cascade import Cascade, Delivery, LaterRecord
from penstock.engine.streams.system_rows import SCANNED, TABLE, system_key
from penstock.model.context import Read
from penstock.model.streams.flow import Workflow
from penstock.model.streams.published_table import PublishedTable
from penstock.model.streams.stream import Atom
from penstock.model.streams.topology import Topology
from penstock.model.table_scan import TableScan, encode_scan


class ScanProgress(msgspec.Struct, array_like=True, frozen=True):
    """The progress of the newest scan of a class, or of a workflow.

    Attributes:
        number: The number of the scan.
        piece: The number of the next piece.
        after: The last key that was taken.
    """

    number: int
    piece: int
    after: str
    is_done: bool


_encode: Final = Encoder().encode
decode_progress: Final = msgspec.msgpack.Decoder(ScanProgress).decode
decode_rows: Final = msgspec.msgpack.Decoder(list[bytes]).decode
"""Reads the row of `row_key`: the encoded `Put` of each row of an entity, in order."""

Made = tuple[str, list[bytes]]
"""The text of the key of an entity, and its rows."""


def row_prefix(table: str) -> str:
    """Return the beginning of the keys of a table's rows; the text of an entity's key follows."""
    return f"{TABLE}/{table}/"


def row_key(table: str, text: str) -> EntityKey:
    """Return the key of the rows of an entity in a table."""
    return entity_key(TABLE, f"{table}/{text}")


def progress_key(subject: str) -> EntityKey:
    """Return the key of the row with the progress of a scan; see `TableScan.subject`."""
    return system_key(SCANNED, subject)


def first_pieces(topology: Topology, number: int) -> list[TableScan]:
    """Return the first piece, without keys, of each scan that a deployment may need.

    Args:
        number: The number of the scans: that of the first epoch of the deployment.
    """
    tables: dict[str, list[str]] = {}
    for name, table in topology.tables.items():
        assert table.source is not None, "an application was built with the table"
        tables.setdefault(table.source.stored_name, []).append(name)
    pieces = [
        TableScan(entity, "", number, 0, (f"{entity}/", *map(row_prefix, names)))
        for entity, names in tables.items()
    ]
    for name, workflow in topology.copies.items():
        prefixes = (row_prefix(workflow.source.name),)
        pieces.append(TableScan("", name, number, 0, prefixes))
    return pieces


def lacking_piece(first: TableScan, row: bytes | None) -> TableScan | None:
    """Return the next piece of a scan that is not complete, without keys; None if nothing is left to do.

    Args:
        first: The first piece, if the scan has not begun.
        row: The row of its progress; None without one.
    """
    if row is None:
        return first
    progress = decode_progress(row)
    if first.entity and progress.number != first.number:  # another deployment
        return first
    if progress.is_done:
        return None
    return msgspec.structs.replace(
        first, number=progress.number, piece=progress.piece, after=progress.after
    )


def ended_scan(first: TableScan) -> bytes:
    """Return the row of a scan that found nothing and has ended."""
    return _encode(ScanProgress(first.number, 1, "", is_done=True))


class PublishedRows:
    """The rows of an application's tables, over one state."""

    def __init__(
        self,
        topology: Topology,
        read: Read,
        apply: Callable[[dict[EntityKey, bytes | None]], None],
    ) -> None:
        self._topology = topology
        self._read = read
        self._apply = apply

    def change(self, table: PublishedTable[Any], made: Iterable[Made]) -> Atom:
        """Keep the rows of entities as they are now, and return the events that change the former ones into them."""
        events: list[bytes] = []
        writes: dict[EntityKey, bytes | None] = {}
        for text, rows in made:
            key = row_key(table.name, text)
            row = self._read(key)
            former = [] if row is None else decode_rows(row)
            if former == rows:
                continue
            events += [
                event for place, event in enumerate(rows) if former[place : place + 1] != [event]
            ]
            events += [table.removed(text, place) for place in range(len(rows), len(former))]
            writes[key] = _encode(rows) if rows else None
        if writes:
            self._apply(writes)
        return tuple(events)

    def scan(self, cascade: Cascade, piece: TableScan) -> Delivery | None:
        """Note the progress of a scan, and cause the next record.

        The record of a piece that is not the next one changes nothing, nor does that of a workflow that is gone.

        Returns:
            The step of the workflow that takes the rows of the piece, as one atom; None if there are none.
        """
        key = progress_key(piece.subject)
        row = self._read(key)
        known = None if row is None else decode_progress(row)
        if piece.piece:
            is_next = known is not None and (known.number, known.piece) == (
                piece.number,
                piece.piece,
            )
        else:
            is_next = known is None or known.number < piece.number
        if not is_next:
            return None
        workflow = self._topology.copies.get(piece.flow)
        if piece.flow and workflow is None:
            self._apply({key: None})  # if the workflow comes back, its scan begins again
            return None
        following = piece.following()
        progress = ScanProgress(piece.number, following.piece, following.after, piece.is_last)
        self._apply({key: _encode(progress)})
        if not piece.is_last:
            cascade.later.append(LaterRecord(following.record, encode_scan(following), 0))
        return None if workflow is None else self._given(workflow, piece)

    def _given(self, workflow: Workflow[Any], piece: TableScan) -> Delivery | None:
        """Return the step of a workflow that takes the rows of a piece, as they are now."""
        table = workflow.source.name
        rows = (self._read(row_key(table, text)) for text in piece.keys)
        events = [event for row in rows if row is not None for event in decode_rows(row)]
        return Delivery(workflow, table, tuple(events)) if events else None
