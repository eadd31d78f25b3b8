"""The rows of cascades in one epoch of the journal, as the records caused them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.engine.streams.cascade import LaterRecord, PublishedAtom
from penstock.engine.streams.recorded_cascade import RecordedAtom, RecordedCascade, SentRequest
from penstock.journal.api import Commit, Journal, PartKind
from penstock.journal.atoms import decode_atom
from penstock.journal.rows import epoch_rows

_COLUMNS: Final = {
    PartKind.EVENTS: ("lsn", "stream", "atom", "step", "events"),
    PartKind.SENT: ("lsn", "request_id", "request", "error", "reply"),
    PartKind.APPENDS: ("lsn", "request_id", "request", "delay_us"),
}


def recorded_cascades(journal: Journal, commit: Commit) -> Mapping[Lsn, RecordedCascade]:
    """Return the cascades of an epoch, by the positions of their records in the log.

    Records that caused nothing are left out.

    Raises:
        Corrupt: A part is damaged.
    """
    atoms: dict[Lsn, list[RecordedAtom]] = {}
    sent: dict[Lsn, list[SentRequest]] = {}
    later: dict[Lsn, dict[RequestId, LaterRecord]] = {}
    for lsn, stream, number, step, events in _rows(journal, commit, PartKind.EVENTS):
        atom = PublishedAtom(stream, step, decode_atom(events))
        atoms.setdefault(lsn, []).append(RecordedAtom(number, atom))
    for numbered in atoms.values():  # the requests and the workflow steps may lie in two parts
        numbered.sort(key=lambda entry: entry.atom.step)
    for lsn, *row in _rows(journal, commit, PartKind.SENT):
        sent.setdefault(lsn, []).append(SentRequest(*row))
    for lsn, *row in _rows(journal, commit, PartKind.APPENDS):
        # If two tasks have cut a cascade, the second one knows both places, and its row comes last.
        record = LaterRecord(*row)
        later.setdefault(lsn, {})[record.request_id] = record
    return {
        lsn: RecordedCascade(
            atoms.get(lsn, ()), sent.get(lsn, ()), tuple(later.get(lsn, {}).values())
        )
        for lsn in dict.fromkeys([*atoms, *sent, *later])
    }


def sender_of(
    journal: Journal, request_id: str, after: Epoch, upto: Epoch
) -> tuple[Epoch, Lsn] | None:
    """Return the epoch and the log position of the record whose cascade has sent a request.

    Args:
        after: The epoch before the first one that is searched.
        upto: The last one.

    Returns:
        Those of the newest such record; None if no epoch has the request.
    """
    sender = None
    columns = ("request_id", "epoch", "lsn")
    for _, rows in journal.rows(PartKind.SENT, after, upto, columns):
        matching = rows.filter(pc.equal(rows["request_id"], request_id))
        if matching.num_rows:
            sender = Epoch(matching["epoch"][-1].as_py()), Lsn(matching["lsn"][-1].as_py())
    return sender


def _rows(journal: Journal, commit: Commit, part_kind: PartKind) -> Iterator[tuple[Any, ...]]:
    """Return rows of one kind in the order in which the cascades caused them."""
    if not commit.parts_of(part_kind):
        return iter(())
    names = _COLUMNS[part_kind]
    rows: pa.Table = epoch_rows(journal, commit, part_kind, names)
    return zip(*(rows[name].to_pylist() for name in names), strict=True)
