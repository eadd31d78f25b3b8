"""The kinds of parts for streams: every adapter keeps them through all operations, as it keeps the others."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.journal.api import SCHEMAS, Commit, CompactionPolicy, Journal, PartKind
from penstock.journal.copy_prefix import keep_prefix
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import Inventory
from tests.conformance.roots import ADAPTERS, root_of
from tests.memory_journal import MemoryJournal

SMALL = CompactionPolicy(newest=2, epochs=4, grace_s=0)
NEW_KINDS = (PartKind.EVENTS, PartKind.SENT, PartKind.APPENDS)
EPOCHS = 11
Shown = list[tuple[Commit, list[pa.Table]]]


@pytest.fixture(params=ADAPTERS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    """Return an empty journal of each adapter."""
    if request.param == "memory":
        return MemoryJournal()
    return DeltaJournal(root_of(request, tmp_path), "shop")


def rows_of(part_kind: PartKind, epoch: int, count: int) -> pa.Table:
    """Return rows of a kind; every cell of a row is different."""
    schema = SCHEMAS[part_kind]
    columns = [
        [epoch] * count if field.name == "epoch" else _cells(field.type, epoch, place, count)
        for place, field in enumerate(schema)
    ]
    return pa.table(
        [pa.array(cells, field.type) for cells, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _cells(cell_type: pa.DataType, epoch: int, place: int, count: int) -> list[object]:
    numbers = [1_000 * epoch + 10 * place + index for index in range(count)]
    if pa.types.is_integer(cell_type):
        return [*numbers]
    texts = [f"cell {number}" for number in numbers]
    return [*texts] if pa.types.is_string(cell_type) else [text.encode() for text in texts]


def grow(journal: Journal, epochs: int) -> None:
    """Commit epochs; of the new kinds, an epoch has none, one or two rows."""
    last = journal.last()
    for epoch in range(0 if last is None else last.epoch + 1, epochs):
        parts = [
            journal.write(kind, rows_of(kind, epoch, (epoch + place) % 3), "0-0")
            for place, kind in enumerate(PartKind)
        ]
        parts.append(journal.write(PartKind.EVENTS, rows_of(PartKind.EVENTS, epoch, 1), "1-0"))
        atoms = {} if epoch == 0 else {"lines": 2 * epoch, "counts.failed": epoch}
        journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(epoch)}, (*parts,), epoch, atoms))


def shown(journal: Journal, upto: int = EPOCHS) -> Shown:
    """Return everything that a journal shows up to an epoch."""
    return [
        (commit, [journal.read(part) for part in commit.parts])
        for commit in journal.commits(BEFORE_FIRST, Epoch(upto))
    ]


def ranged(journal: Journal, first: int = 0) -> list[pa.Table]:
    """Return the rows of all epochs from `first` on, by kind."""
    return [
        pa.concat_tables(
            rows
            for _, rows in journal.rows(
                kind, Epoch(first - 1), Epoch(EPOCHS - 1), SCHEMAS[kind].names
            )
        )
        for kind in PartKind
    ]


def test_all_kinds_read_back_as_written(journal: Journal) -> None:
    """Commits have the numbers of atoms, and parts their rows, by epoch and as a range."""
    grow(journal, EPOCHS)
    for epoch, (commit, tables) in enumerate(shown(journal)):
        assert commit.atoms.get("lines", 0) == 2 * epoch
        for place, kind in enumerate(PartKind):
            assert tables[place].equals(rows_of(kind, epoch, (epoch + place) % 3))
    for kind, table in zip(PartKind, ranged(journal), strict=True):
        read = [
            rows
            for commit, tables in shown(journal)
            for part, rows in zip(commit.parts, tables, strict=True)
            if part.kind is kind
        ]
        assert table.equals(pa.concat_tables(read))


def test_compaction_and_forgetting_keep_all_kinds(journal: Journal) -> None:
    """Merged epochs show the same; of forgotten epochs nothing is left, of the others everything."""
    grow(journal, EPOCHS)
    before, rows = shown(journal), ranged(journal)
    journal.compact(SMALL)
    journal.checkpoint()
    assert shown(journal) == before
    assert ranged(journal) == rows
    first = journal.forget(Epoch(4))
    assert shown(journal) == before[first:]
    for kind, table in zip(PartKind, ranged(journal, first), strict=True):
        assert table.schema.equals(SCHEMAS[kind])
        assert min(table["epoch"].to_pylist()) >= first


@pytest.mark.parametrize("upto", [2, 5, EPOCHS - 1])
def test_copied_prefix_has_all_kinds(tmp_path: Path, upto: int) -> None:
    """A copy of the inventory's files, cut at an epoch, shows the original up to there."""
    source, target = tmp_path / "source", tmp_path / "target"
    journal = DeltaJournal(source, "shop")
    grow(journal, EPOCHS)
    journal.compact(SMALL)
    inventory = Inventory(source)
    files = inventory.head()
    for unit in inventory.units(Epoch(upto)):
        files += inventory.files(unit)
    for file in files:
        (target / file.path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / file.path, target / file.path)
    keep_prefix(target, "shop", Epoch(upto))
    copied = DeltaJournal(target, "shop")
    assert shown(copied) == shown(journal, upto)
    grow(copied, EPOCHS)
    assert [commit.atoms for commit, _ in shown(copied)] == [c.atoms for c, _ in shown(journal)]


def test_delta_readers_see_the_rows_of_all_kinds(tmp_path: Path) -> None:
    """To delta-rs the rows of each kind are in the table, merged or not."""
    journal = DeltaJournal(tmp_path, "shop")
    grow(journal, EPOCHS)
    for _ in range(2):
        for kind, rows in zip(PartKind, ranged(journal), strict=True):
            seen = DeltaTable(tmp_path).to_pyarrow_table(filters=[("kind", "=", str(kind))])
            names = SCHEMAS[kind].names
            assert sorted(map(str, seen.select(names).to_pylist())) == sorted(
                map(str, rows.to_pylist())
            )
        journal.compact(SMALL)


def former_journal(path: Path) -> DeltaJournal:
    """Return a journal as an earlier version has left it: without directories for streams."""
    journal = DeltaJournal(path, "shop")
    for epoch in range(6):
        part = journal.write(PartKind.CHANGES, rows_of(PartKind.CHANGES, epoch, 2), "0-0")
        journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(epoch)}, (part,), epoch))
    for kind in NEW_KINDS:
        (path / f"kind={kind}").rmdir()
    log = "".join(file.read_text() for file in (path / "_delta_log").glob("*.json"))
    assert "atoms" not in log
    return DeltaJournal(path, "shop")


def test_journal_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Epochs with streams follow epochs of a version that did not know them."""
    journal = former_journal(tmp_path)
    before = shown(journal)
    assert all(not commit.atoms for commit, _ in before)
    journal.compact(SMALL)
    grow(journal, EPOCHS)
    everything = shown(journal)
    assert everything[:6] == before
    assert everything[-1][0].atoms["lines"] == 2 * (EPOCHS - 1)
    journal.compact(SMALL)
    assert shown(DeltaJournal(tmp_path, "shop")) == everything
    journal.forget(Epoch(4))
    assert shown(journal) == everything[journal.first() :]


def test_prefix_of_an_earlier_version_can_be_cut(tmp_path: Path) -> None:
    """A journal without directories for streams is shortened as every journal."""
    before = shown(former_journal(tmp_path), 3)
    keep_prefix(tmp_path, "shop", Epoch(3))
    assert shown(DeltaJournal(tmp_path, "shop")) == before
