"""Checks of a journal's files and rows, where a whole directory would not get there."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.history.verification import JournalFiles, misplaced
from penstock.journal.api import CHANGES, Commit, CompactionPolicy, Part, PartKind
from penstock.journal.delta import DeltaJournal
from tests.unit.history.copied_shop import made


def test_parts_that_are_merged_meanwhile_are_looked_at_where_they_are(tmp_path: Path) -> None:
    """Files that vanish into a segment are no findings, and damage of the segment is one."""
    data = made(tmp_path)
    merged: list[Path] = []

    def merge(*_: int) -> None:
        """Merge after the first epoch was read, and damage the result."""
        if not merged:
            with closing(DeltaJournal(data / "journal", "shop")) as journal:
                journal.compact(CompactionPolicy(newest=1, epochs=4, grace_s=0))
            merged.extend((data / "journal" / "kind=changes").glob("segment-*"))
            merged[0].write_bytes(merged[0].read_bytes()[:-1])

    files = JournalFiles(data, Epoch(4), merge)
    (found,) = files.look()
    assert found.where == f"journal/kind=changes/{merged[0].name}"
    assert [unit.first for unit in files.sound] == [4]


def test_rows_must_be_of_the_epochs_that_list_them() -> None:
    """A row under another epoch's part is found, however many epochs come in one table."""
    commits = [
        Commit(Epoch(epoch), {}, (Part(PartKind.CHANGES, "p", 2, 0, ""),), 0) for epoch in (3, 4)
    ]

    def found(*epochs: int) -> int:
        rows = [{"epoch": one, "entity": "Item", "key": "i", "state": None} for one in epochs]
        table = pa.Table.from_pylist(rows, CHANGES)
        return len(list(misplaced(table, PartKind.CHANGES, commits, "here")))

    assert found(3, 3, 4, 4) == 0
    assert found(3, 4, 4, 4) == 1
    assert found(3, 3, 4) == 1
