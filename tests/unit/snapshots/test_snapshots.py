"""Snapshots: reads through them equal reads of the journal alone."""

import logging
import signal
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, Epoch, bucket_of, entity_key
from penstock.errors import Corrupt, Diverged, StateUnavailable
from penstock.journal.api import CompactionPolicy
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.snapshot import Manifest, Snapshots
from penstock.snapshots.snapshot_writer import (
    remove_snapshots,
    snapshot_lock,
    write_next_snapshot,
)
from penstock.snapshots.state_as_of import all_states_as_of, state_as_of
from penstock.sql_view.change_batch import journal_batches
from penstock.sql_view.view_store import ViewStore
from penstock.state.partition_spec import WHOLE, PartitionSpec
from penstock.state.stores import Stores, _loaded, catch_up
from tests import forked
from tests.memory_state import MemoryState
from tests.unit.sql_view.gallery_app import Written, app, state_of
from tests.unit.sql_view.test_view_tables import FILLED, HUGE

STEPS = (
    "snapshot-slice",
    "snapshot-written",
    "snapshot-published",
    "snapshot-listed",
    "snapshot-cleaned",
)


class Gallery:
    """A journal in a directory, with its snapshots."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.journal = DataDirectory(data).open_journal_of(app.name)
        self.written = Written(self.journal)
        self.snapshots = Snapshots(data / "snapshots", self.journal.identity)

    def write_snapshot(self, upto: int | None = None) -> Manifest | None:
        epoch = self.written.epoch if upto is None else Epoch(upto)
        return write_next_snapshot(app, self.journal, self.snapshots, epoch)

    def states(self, epoch: int, snapshots: Snapshots | None = None) -> dict[str, bytes]:
        found = all_states_as_of(self.journal, Epoch(epoch), snapshots)
        return {
            f"{row['entity']}/{row['key']}": row["state"]
            for row in found.sort_by([("entity", "ascending"), ("key", "ascending")]).to_pylist()
        }

    def recovered(self, epoch: int, share: PartitionSpec = WHOLE) -> dict[str, bytes]:
        state = MemoryState()
        catch_up(state, self.journal, Epoch(epoch), share, snapshots=self.snapshots)
        with state.reader() as reader:
            return dict(reader.items())


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    """Give a gallery with a few epochs, in which entities are created, changed and deleted."""
    gallery = Gallery(tmp_path)
    gallery.written.painters({1: "Ada", 2: "Bo", 3: "Cy"})
    gallery.written.changes(("Painting", "sea", state_of("Painting", **FILLED)))
    gallery.written.painters({2: None, 3: "Cyd"})
    gallery.written.painters({4: "Di", 3: None})
    gallery.written.changes(("Painting", "sky", state_of("Painting")))
    return gallery


def test_every_epoch_reads_the_same_through_any_snapshot(gallery: Gallery) -> None:
    """Rows, their order and their types do not depend on the snapshots that there are."""
    before = {
        (name, epoch): state_as_of(app, gallery.journal, name, Epoch(epoch))
        for name in app.entities
        for epoch in range(-1, 5)
    }
    states = {epoch: gallery.states(epoch) for epoch in range(-1, 5)}
    for upto in (1, 3, 4):
        gallery.write_snapshot(upto)
        for (name, epoch), expected in before.items():
            found = state_as_of(app, gallery.journal, name, Epoch(epoch), gallery.snapshots)
            assert found.rows.equals(expected.rows)
            assert found.rows.schema.equals(expected.rows.schema)
            assert found.table.wide == expected.table.wide
        for epoch, expected_states in states.items():
            assert gallery.states(epoch, gallery.snapshots) == expected_states
            if epoch >= 0:
                assert gallery.recovered(epoch) == expected_states


def test_other_engines_read_typed_columns(gallery: Gallery) -> None:
    """A Delta reader sees key, attributes, bucket and epoch, with types of its own."""
    gallery.write_snapshot(1)
    gallery.write_snapshot()
    table = DeltaTable(str(gallery.data / "snapshots" / "Painting")).to_pyarrow_table()
    sea, sky = sorted(table.to_pylist(), key=lambda row: row["key"])
    assert (sea["key"], sea["title"], sea["epoch"]) == ("sea", "sea", 4)
    assert sea["bucket"] == bucket_of(entity_key("Painting", "sea"))
    assert sea["price"] == FILLED["price"]
    assert sea["painted"] == FILLED["painted"]
    assert sea["dried"] == FILLED["dried"] // timedelta(microseconds=1)
    assert sea["tags"] == FILLED["tags"]
    assert dict(sea["offers"]) == FILLED["offers"]
    assert sky["frame"] is None
    painters = DeltaTable(str(gallery.data / "snapshots" / "Painter")).to_pyarrow_table()
    assert painters.sort_by("number").select(["number", "name"]).to_pylist() == [
        {"number": 1, "name": "Ada"},
        {"number": 4, "name": "Di"},
    ]


def test_only_columns_that_repeat_have_dictionaries(gallery: Gallery) -> None:
    """Keys and stored states have none, and states no bounds; all other columns have both, also nested ones."""
    gallery.write_snapshot()
    [path] = (gallery.data / "snapshots" / "Painting").glob("*.parquet")
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {
        column.path_in_schema: column for column in map(group.column, range(group.num_columns))
    }
    dictionaries = {name for name, column in columns.items() if column.has_dictionary_page}
    assert {"number", "tags.list.element", "bucket"} <= dictionaries
    assert dictionaries.isdisjoint({"key", "title", "state"})
    assert columns["key"].is_stats_set
    assert not columns["state"].is_stats_set


def test_value_beyond_the_narrow_types_makes_its_class_wide(gallery: Gallery) -> None:
    """A class becomes wide in the snapshot that needs it, and stays so; reads do not change."""
    gallery.write_snapshot()
    gallery.written.changes(("Painting", "vast", state_of("Painting", number=HUGE)))
    wide = gallery.write_snapshot()
    assert wide is not None
    assert wide.classes["Painting"].wide
    table = DeltaTable(str(gallery.data / "snapshots" / "Painting")).to_pyarrow_table()
    assert table.schema.field("number").type == pa.decimal128(38, 0)
    gallery.written.changes(("Painting", "vast", None))
    gallery.write_snapshot()
    assert state_as_of(app, gallery.journal, "Painting", Epoch(5), gallery.snapshots).table.wide
    assert not state_as_of(app, gallery.journal, "Painting", Epoch(6), gallery.snapshots).table.wide


def test_snapshot_that_exists_is_not_taken_again(gallery: Gallery) -> None:
    """A second snapshot of an epoch, or of an earlier epoch, is not taken."""
    assert gallery.write_snapshot(3) is not None
    assert gallery.write_snapshot(3) is None
    assert gallery.snapshots.epochs() == [3]


def test_large_tail_is_taken_in_steps(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    """More changes than one step may hold make a snapshot of an earlier epoch first."""
    monkeypatch.setattr("penstock.snapshots.snapshot_writer.CHANGES_MAX", 4)
    assert [one.epoch for one in iter(gallery.write_snapshot, None)] == [1, 3, 4]
    assert gallery.recovered(4) == gallery.states(4)


def test_slices_together_are_the_whole(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot with other slices than the last snapshot holds every entity once."""
    gallery.write_snapshot(1)
    monkeypatch.setattr("penstock.snapshots.snapshot_writer.SLICE_ROWS", 1)
    gallery.written.painters({number: f"p{number}" for number in range(40)})
    cut = gallery.write_snapshot()
    assert cut is not None
    assert cut.slices == 64
    everything = gallery.states(5)
    assert gallery.states(5, gallery.snapshots) == everything
    shares = [gallery.recovered(5, PartitionSpec(number, 3)) for number in range(3)]
    assert sum(map(len, shares)) == len(everything)
    assert {key: data for one in shares for key, data in one.items()} == everything
    monkeypatch.undo()
    gallery.written.painters({5: None})
    gallery.write_snapshot()
    assert gallery.states(6, gallery.snapshots) == gallery.states(6)


def test_store_takes_the_files_of_a_snapshot_in_the_order_of_the_keys(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files divide the entities by hashes; a store takes them in the order of the keys, over all classes, and so its pages are full."""
    monkeypatch.setattr("penstock.snapshots.snapshot_writer.SLICE_ROWS", 4)
    gallery.written.painters({number: f"p{number}" for number in range(100)})
    manifest = gallery.write_snapshot()
    assert manifest is not None
    assert len(manifest.classes["Painter"].files) > 4
    folder = tmp_path / "sorted"
    folder.mkdir()
    for share in (WHOLE, PartitionSpec(1, 3)):
        batches = list(_loaded(gallery.snapshots, manifest, share, folder))
        keys = [key for batch in batches for key in batch.raw_keys]
        assert keys == sorted(keys)
        found = {key: state for batch in batches for key, state in batch}
        assert found == gallery.recovered(manifest.epoch, share) != {}
    assert not list(folder.iterdir())
    folder.rmdir()
    with pytest.raises(StateUnavailable, match="cannot be sorted in"):
        list(_loaded(gallery.snapshots, manifest, WHOLE, folder))


def test_journal_that_was_forgotten_is_bridged_by_its_snapshot(gallery: Gallery) -> None:
    """With old epochs gone, states from the snapshot on are as before, and earlier ones refused."""
    truth = {epoch: gallery.states(epoch) for epoch in range(5)}
    gallery.write_snapshot(2)
    for _ in range(3):
        gallery.written.painters({9: "Io"})
    gallery.journal.compact(CompactionPolicy(newest=2, epochs=3, grace_s=0))
    assert gallery.journal.forget(Epoch(3)) == 3
    for epoch in (2, 3, 4):
        assert gallery.states(epoch, gallery.snapshots) == truth[epoch]
        assert gallery.recovered(epoch) == truth[epoch]
    with pytest.raises(Diverged, match="no epoch 0"):
        gallery.states(1, gallery.snapshots)
    stores = Stores(
        gallery.data / "state", gallery.journal, 2, boot_id="boot",
        snapshots=gallery.data / "snapshots",
    )  # fmt: skip
    with stores.at(Epoch(4)) as reader:
        assert dict(reader.items()) == truth[4]
    stores.close()


@pytest.mark.parametrize("victim", ["manifest", "file", "missing"])
def test_damaged_snapshot_is_left_out(
    gallery: Gallery, victim: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the newest snapshot is damaged an older one leads to the same state, with a warning."""
    gallery.write_snapshot(1)
    manifest = gallery.write_snapshot(3)
    assert manifest is not None
    path = gallery.data / "snapshots" / gallery.snapshots.path_of(Epoch(3))
    if victim != "manifest":
        path = gallery.data / "snapshots" / manifest.classes["Painter"].files[0].path
    if victim == "missing":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    with caplog.at_level(logging.WARNING):
        assert gallery.recovered(4) == gallery.states(4)
        assert gallery.states(4, gallery.snapshots) == gallery.states(4)
        found = state_as_of(app, gallery.journal, "Painter", Epoch(4), gallery.snapshots)
    assert found.rows["name"].to_pylist() == ["Ada", "Di"]
    assert "damaged" in caplog.text or "cannot be used" in caplog.text


def test_damaged_snapshot_that_nothing_replaces_is_refused(gallery: Gallery) -> None:
    """Where the journal does not reach back and the only snapshot is damaged, nothing is invented."""
    manifest = gallery.write_snapshot(2)
    assert manifest is not None
    for _ in range(4):
        gallery.written.painters({9: "Io"})
    gallery.journal.compact(CompactionPolicy(newest=1, epochs=3, grace_s=0))
    gallery.journal.forget(Epoch(3))
    (gallery.data / "snapshots" / manifest.classes["Painter"].files[0].path).unlink()
    with pytest.raises(Corrupt, match="is missing"):
        gallery.recovered(8)
    with pytest.raises(Corrupt, match="is missing"):
        gallery.states(8, gallery.snapshots)


def test_removed_snapshots_leave_no_files(gallery: Gallery) -> None:
    """Files that only a removed snapshot had are gone; the others read as before."""
    for upto in (0, 1, 2, 4):
        gallery.write_snapshot(upto)
    remove_snapshots(gallery.snapshots, [Epoch(0), Epoch(2)])
    assert gallery.snapshots.epochs() == [1, 4]
    files = {str(path.relative_to(gallery.data / "snapshots"))
             for path in (gallery.data / "snapshots").glob("*/*.parquet")}  # fmt: skip
    assert files == {file.path for one in gallery.snapshots.every() for file in one.files}
    assert gallery.states(4, gallery.snapshots) == gallery.states(4)


def test_snapshot_of_another_journal_does_not_count(gallery: Gallery, tmp_path: Path) -> None:
    """A directory whose journal was replaced begins with nothing."""
    gallery.write_snapshot()
    other = Snapshots(gallery.data / "snapshots", "another")
    assert other.newest() is None


def test_one_process_at_a_time_takes_snapshots(gallery: Gallery) -> None:
    """The second process gets an error that says so."""
    with snapshot_lock(gallery.snapshots) as first, snapshot_lock(gallery.snapshots) as second:
        assert (first, second) == (True, False)


@settings(max_examples=8, deadline=None)
@given(
    work=st.lists(
        st.one_of(
            st.dictionaries(
                st.integers(0, 5), st.one_of(st.none(), st.text(max_size=2)), min_size=1, max_size=4
            ),
            st.sampled_from(["take", "compact", "huge", "small"]),
        ),
        max_size=14,
    )
)
def test_any_history_reads_the_same_with_and_without_snapshots(
    tmp_path_factory: pytest.TempPathFactory, work: list[dict[int, str | None] | str]
) -> None:
    """For random changes, snapshots and merges, all epochs are as the journal alone says."""
    gallery = Gallery(tmp_path_factory.mktemp("gallery"))
    for one in work:
        if isinstance(one, dict):
            gallery.written.painters(one)
        elif one == "take":
            gallery.write_snapshot()
        elif one == "compact":
            gallery.journal.compact(CompactionPolicy(newest=1, epochs=2, grace_s=0))
        else:
            number = HUGE if one == "huge" else 1
            gallery.written.changes(("Painting", "sea", state_of("Painting", number=number)))
    for epoch in range(-1, gallery.written.epoch + 1):
        expected = gallery.states(epoch)
        assert gallery.states(epoch, gallery.snapshots) == expected
        if epoch > BEFORE_FIRST:
            assert gallery.recovered(epoch) == expected
        for name in app.entities:
            alone_says = state_as_of(app, gallery.journal, name, Epoch(epoch))
            found = state_as_of(app, gallery.journal, name, Epoch(epoch), gallery.snapshots)
            assert found.rows.equals(alone_says.rows)
            assert found.rows.schema.equals(alone_says.rows.schema)


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.snapshots.test_snapshots import Gallery
from tests.unit.sql_view.gallery_app import app
from penstock.base.ids import Epoch
from penstock.snapshots.snapshot_writer import write_next_snapshot

gallery = Gallery(Path(sys.argv[1]))

def reached(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

write_next_snapshot(app, gallery.journal, gallery.snapshots, Epoch(4), reached)
"""


@pytest.mark.parametrize("step", STEPS)
def test_kill_at_any_step_leaves_a_snapshot_or_none(gallery: Gallery, step: str) -> None:
    """A process that dies while it takes a snapshot harms no state, and the next one succeeds."""
    gallery.write_snapshot(1)
    truth = gallery.states(4)
    done = forked.run(_KILLED, gallery.data, step)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert gallery.recovered(4) == truth
    assert gallery.states(4, gallery.snapshots) == truth
    gallery.written.painters({7: "Jo"})
    gallery.write_snapshot()
    assert gallery.states(5, gallery.snapshots) == gallery.states(5)
    files = list((gallery.data / "snapshots").glob("*/*.parquet"))
    assert len(files) == len({file.path for one in gallery.snapshots.every() for file in one.files})
    table = DeltaTable(str(gallery.data / "snapshots" / "Painter"))
    assert sorted(table.to_pyarrow_table()["name"].to_pylist()) == ["Ada", "Di", "Jo"]


def tables_of_view(data: Path, gallery: Gallery, fill: Callable[[ViewStore], None]) -> Any:
    """Return what a new view shows, and its wide classes."""
    data.mkdir()
    with closing(ViewStore(data, app, gallery.journal.identity, ViewConfig())) as store:
        fill(store)
        wide = {name for name, table in store.tables.items() if table.wide}
        sql = store.sealed().sql
        rows = {
            table.name: sql(f"FROM {table.written}").to_arrow_table().sort_by(table.key).to_pylist()
            for table in store.tables.values()
        }
        return rows, wide, store.epoch


@pytest.mark.parametrize("kind", ["narrow", "was wide", "wide", "cut"])
def test_view_from_a_snapshot_shows_what_the_journal_shows(
    gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Rows, types and epoch are equal, also with wide columns, with values that are left out, and from many files."""
    monkeypatch.setattr("penstock.snapshots.snapshot_writer.SLICE_ROWS", 2)
    gallery.written.painters({number: f"p{number}" for number in range(10, 30)})
    if "wide" in kind:
        gallery.written.changes(("Painting", "vast", state_of("Painting", number=HUGE)))
    if kind == "was wide":
        gallery.write_snapshot()
        gallery.written.changes(("Painting", "vast", None))
    manifest = gallery.write_snapshot()
    assert manifest is not None

    def limited(store: ViewStore) -> None:
        if kind == "cut":
            store._cells.bytes_max = 8

    def from_snapshot(store: ViewStore) -> None:
        limited(store)
        store.fill(gallery.snapshots, manifest)

    def from_journal(store: ViewStore) -> None:
        limited(store)
        for batch in journal_batches(gallery.journal, BEFORE_FIRST, gallery.written.epoch):
            store.apply(batch)

    expected = tables_of_view(tmp_path / "replayed", gallery, from_journal)
    assert tables_of_view(tmp_path / "filled", gallery, from_snapshot) == expected
    assert expected[1] == ({"Painting"} if kind in ("wide", "cut") else set())
    assert len(expected[0]["Painter"]) == 22


@pytest.mark.parametrize("has_rows", [False, True])
def test_large_epoch_leaves_one_row_for_each_entity(
    gallery: Gallery, tmp_path: Path, *, has_rows: bool
) -> None:
    """Its rows are inserted if the table is empty before it, and replace others if not, also those of the same batch."""
    first = Epoch(3 if has_rows else gallery.written.epoch + 1)
    gallery.written.painters({number: f"q{number}" for number in range(1, 30)})
    last = gallery.written.epoch

    def fill(store: ViewStore) -> None:
        store.epoch = Epoch(first - 1)
        for batch in journal_batches(
            gallery.journal, Epoch(first - 1), last, rows_max=lambda: 10, in_steps=True
        ):
            assert batch.large
            store.apply(batch)

    rows, _, epoch = tables_of_view(tmp_path / "view", gallery, fill)
    assert epoch == last
    assert rows["Painter"] == [{"number": at, "name": f"q{at}"} for at in range(1, 30)]
