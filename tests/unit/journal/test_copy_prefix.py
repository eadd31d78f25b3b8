"""A copied prefix of a journal has the epochs of the original, under another identity."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import Diverged
from penstock.journal.api import CHANGES, Commit, CompactionPolicy, PartKind
from penstock.journal.copy_prefix import keep_prefix
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import Inventory, newest_listed

EPOCHS = 9
Shown = list[tuple[Commit, list[pa.Table]]]


def grown(path: Path, keep: CompactionPolicy | None, forgotten: int = 0) -> DeltaJournal:
    """Write epochs of no, one and two changes, compact them, forget some."""
    journal = DeltaJournal(path, "shop")
    for epoch in range(EPOCHS):
        row = {"epoch": epoch, "entity": "Item", "key": f"i{epoch}", "state": b"s"}
        rows = pa.Table.from_pylist([row] * (epoch % 3), CHANGES)
        part = journal.write(PartKind.CHANGES, rows, "0-0")
        journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(epoch)}, (part,), epoch))
    if keep is not None:
        journal.compact(keep)
        journal.forget(Epoch(forgotten))
    return journal


def shown(journal: DeltaJournal, upto: Epoch) -> Shown:
    return [
        (commit, [journal.read(part) for part in commit.parts])
        for commit in journal.commits(BEFORE_FIRST, upto)
    ]


def inventoried(source: Path, target: Path, upto: Epoch) -> None:
    """Copy the files of the inventory, by hard links."""
    inventory = Inventory(source)
    files = inventory.head()
    for unit in inventory.units(upto):
        files += inventory.files(unit)
    for folder in ("_delta_log", "_segments", *(f"kind={kind}" for kind in PartKind)):
        (target / folder).mkdir(parents=True, exist_ok=True)
    for file in files:
        assert (source / file.path).stat().st_size == file.size
        os.link(source / file.path, target / file.path)


@settings(max_examples=15)
@given(
    newest=st.integers(0, EPOCHS),
    epochs=st.integers(1, 4),
    grace_s=st.sampled_from([0, 600]),
    forgotten=st.integers(0, EPOCHS),
    upto=st.integers(0, EPOCHS - 1),
)
def test_prefix_is_the_original_up_to_there(
    newest: int, epochs: int, grace_s: int, forgotten: int, upto: int
) -> None:
    """Commits and rows are the same however they lie in files, here and for Delta readers."""
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        journal = grown(
            source, CompactionPolicy(newest=newest, epochs=epochs, grace_s=grace_s), forgotten
        )
        inventoried(source, target, newest_listed(source))
        before = shown(journal, Epoch(EPOCHS - 1))
        if upto < journal.first():
            with pytest.raises(Diverged, match="does not hold epoch"):
                keep_prefix(target, "shop", Epoch(upto))
            return
        identity = keep_prefix(target, "shop", Epoch(upto))
        prefix = DeltaJournal(target, "shop")
        assert prefix.identity == identity != journal.identity
        assert shown(prefix, Epoch(EPOCHS)) == shown(journal, Epoch(upto))
        rows = DeltaTable(target).to_pyarrow_table(columns=["epoch", "key"])
        held = [table for _, parts in shown(prefix, Epoch(upto)) for table in parts]
        assert sorted(rows.to_pylist(), key=str) == sorted(
            pa.concat_tables(held).select(["epoch", "key"]).to_pylist(), key=str
        )
        assert shown(DeltaJournal(source, "shop"), Epoch(EPOCHS)) == before


def test_prefix_goes_on(tmp_path: Path) -> None:
    """The epoch after the prefix can be committed, and another one."""
    grown(tmp_path, CompactionPolicy(newest=2, epochs=3, grace_s=0))
    keep_prefix(tmp_path, "shop", Epoch(4))
    journal = DeltaJournal(tmp_path, "shop")
    journal.commit(Commit(Epoch(5), {}, (), 0))
    journal.compact(CompactionPolicy(newest=0, epochs=3, grace_s=0))
    assert [commit.epoch for commit in journal.commits(BEFORE_FIRST)] == [0, 1, 2, 3, 4, 5]


def test_nothing_can_be_cut_after_the_end(tmp_path: Path) -> None:
    """An epoch that was never committed is refused, and nothing is touched."""
    journal = grown(tmp_path, None)
    with pytest.raises(Diverged, match="does not hold epoch 9"):
        keep_prefix(tmp_path, "shop", Epoch(9))
    assert DeltaJournal(tmp_path, "shop").identity == journal.identity


def test_inventory_names_no_file_that_is_derived(tmp_path: Path) -> None:
    """Checkpoints, leftovers and files that were merged are left out."""
    journal = grown(tmp_path / "a", CompactionPolicy(newest=3, epochs=3, grace_s=600))
    shutil.copy(
        next((tmp_path / "a" / "kind=changes").glob("000000000008-*")),
        tmp_path / "a" / "kind=changes" / "000000000008-leftover-00000000.parquet",
    )
    inventory = Inventory(tmp_path / "a")
    units = inventory.units(Epoch(8))
    assert [unit[:2] for unit in units] == [(0, 2), (3, 5), (6, 6), (7, 7), (8, 8)]
    paths = [file.path for unit in units for file in inventory.files(unit)]
    assert len(paths) == len(set(paths)) == 2 * 2 + 3 * 2
    assert not any("checkpoint" in path or "leftover" in path for path in paths)
    journal.close()
