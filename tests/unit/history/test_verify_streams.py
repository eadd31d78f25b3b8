"""Verification of the rows of cascades: what an engine writes passes, and each wrong row is found."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.history.verification import CascadeRows
from penstock.journal.api import SCHEMAS, Commit, PartKind
from penstock.journal.atoms import encode_atom
from tests.memory_journal import MemoryJournal

Rows = dict[PartKind, list[dict[str, Any]]]


def rows_of(epoch: int) -> tuple[Rows, dict[str, int]]:
    """Return the rows of an epoch with two records, and the numbers of atoms after it."""
    first = {"epoch": epoch, "partition": 0, "lsn": 2 * epoch, "time_us": 5}
    second = {**first, "lsn": 2 * epoch + 1}
    atom = {"stream": "lines", "step": 0, "count": 2, "events": encode_atom([b"\x01", b"\x02"])}
    empty = {"stream": "counts", "step": 1, "count": 0, "events": encode_atom([])}
    done = {"request": b"", "error": None, "reply": b"\xc0"}
    rows: Rows = {
        PartKind.EVENTS: [
            {**first, **atom, "atom": 2 * epoch},
            {**first, **empty, "atom": epoch},
            {**second, **atom, "atom": 2 * epoch + 1},
        ],
        PartKind.SENT: [{**first, **done, "request_id": f"r{2 * epoch}~~1"}],
        PartKind.APPENDS: [
            {**second, "request_id": f"r{2 * epoch + 1}~~c1", "request": b"", "delay_us": 0}
        ],
    }
    return rows, {"lines": 2 * epoch + 2, "counts": epoch + 1}


def found(
    change: Callable[[Rows, dict[str, int]], None] | None = None, first: int = 0
) -> list[str]:
    """Return the findings in a journal of three epochs; `change` changes what the epoch 1 has.

    The check begins with epoch `first`, of which the epoch before is not known.
    """
    journal = MemoryJournal()
    for epoch in range(3):
        rows, atoms = rows_of(epoch)
        if change is not None and epoch == 1:
            change(rows, atoms)
        parts = tuple(
            journal.write(kind, pa.Table.from_pylist(given, SCHEMAS[kind]), "0")
            for kind, given in rows.items()
        )
        positions = {LogPartition(0): Lsn(2 * epoch + 2)}
        journal.commit(Commit(Epoch(epoch), positions, parts, epoch, atoms))
    commits = list(journal.commits(Epoch(first - 1)))
    return [finding.what for finding in CascadeRows(journal, commits, None, "here").look()]


def test_rows_of_cascades_pass() -> None:
    """Rows that fit their commits are no findings, also if the epochs before are gone."""
    assert found() == []
    assert found(first=1) == []


def _gap(rows: Rows, _: dict[str, int]) -> None:
    rows[PartKind.EVENTS][2]["atom"] = 7


def _missing_count(_: Rows, atoms: dict[str, int]) -> None:
    del atoms["counts"]


def _other_count(_: Rows, atoms: dict[str, int]) -> None:
    atoms["lines"] -= 1


def _wrong_size(rows: Rows, _: dict[str, int]) -> None:
    rows[PartKind.EVENTS][0]["count"] = 3


def _damaged(rows: Rows, _: dict[str, int]) -> None:
    rows[PartKind.EVENTS][0]["events"] = b"\xc1"


def _atom_of_another_record(rows: Rows, _: dict[str, int]) -> None:
    rows[PartKind.EVENTS][0]["lsn"] = 4


def _sent_by_another_epoch(rows: Rows, _: dict[str, int]) -> None:
    rows[PartKind.SENT][0]["lsn"] = 1


def _appended_by_another_epoch(rows: Rows, _: dict[str, int]) -> None:
    rows[PartKind.APPENDS][0]["lsn"] = 4


def _no_reply(rows: Rows, _: dict[str, int]) -> None:
    rows[PartKind.SENT][0]["reply"] = None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (_gap, "the commits count the atoms 0 to 5 of stream lines, and the rows have others"),
        (_missing_count, "the commits count the atoms 0 to 2 of stream counts"),
        (_other_count, "atoms of stream lines lie in other epochs"),
        (_wrong_size, "an atom has another number of events"),
        (_damaged, "an atom has another number of events"),
        (_atom_of_another_record, "rows of events name records of other epochs"),
        (_sent_by_another_epoch, "rows of sent name records of other epochs"),
        (_appended_by_another_epoch, "rows of appends name records of other epochs"),
        (_no_reply, "1 sent requests have no reply"),
    ],
)
def test_wrong_rows_are_found(change: Callable[[Rows, dict[str, int]], None], what: str) -> None:
    """Each kind of a wrong row is one finding, which names the problem and the epochs."""
    [finding] = found(change)
    assert finding.startswith(what)
    assert finding.endswith("(epochs 0 to 2)")
