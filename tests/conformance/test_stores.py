"""Stores: all partitions of a host at one epoch, fed by the journal."""

from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.ids import EntityKey, Epoch, entity_key, split_entity_key
from penstock.errors import Diverged, StateUnavailable
from penstock.journal.api import CHANGES, Commit, Journal, PartKind
from penstock.state import newest
from penstock.state.api import Change
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.newest import read_changed
from penstock.state.partition_spec import WHOLE
from penstock.state.stores import Stores, catch_up, remove_former_stores
from tests.memory_journal import MemoryJournal
from tests.memory_state import MemoryState

BOOT = "boot-1"
EPOCHS = 12


def commit(journal: Journal, epoch: int, changes: Sequence[Change]) -> None:
    names = [split_entity_key(one) for one, _ in changes]
    rows = pa.table(
        {
            "epoch": [epoch] * len(names),
            "entity": [name for name, _ in names],
            "key": [text for _, text in names],
            "state": [state for _, state in changes],
        },
        schema=CHANGES,
    )
    half = len(names) // 2
    parts = [
        journal.write(PartKind.CHANGES, rows.slice(0, half), f"{epoch}-0"),
        journal.write(PartKind.CHANGES, rows.slice(half), f"{epoch}-1"),
    ]
    journal.commit(Commit(Epoch(epoch), {}, tuple(parts), 0))


def changes_of(epoch: int) -> list[Change]:
    """Every epoch changes a third of the items, and deletes one of those."""
    changed = [entity_key("Item", f"i{n}") for n in range(epoch % 3, 300, 3)]
    deleted = changed[epoch]
    return [(one, None if one == deleted else b"%d:%b" % (epoch, one.encode())) for one in changed]


def folded(upto: int) -> dict[EntityKey, bytes]:
    states: dict[EntityKey, bytes] = {}
    for epoch in range(upto + 1):
        for one, state in changes_of(epoch):
            states.pop(one, None)
            if state is not None:
                states[one] = state
    return states


def filled(epochs: int = EPOCHS) -> MemoryJournal:
    journal = MemoryJournal()
    for epoch in range(epochs):
        commit(journal, epoch, changes_of(epoch))
    return journal


@pytest.fixture
def journal() -> Iterator[MemoryJournal]:
    opened = filled()
    yield opened
    opened.close()


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_stores_hold_the_fold_of_the_journal(
    journal: MemoryJournal, tmp_path: Path, partitions: int
) -> None:
    """At each requested epoch, every entity is as the journal's changes give it."""
    stores = Stores(tmp_path, journal, partitions, boot_id=BOOT)
    for epoch in (Epoch(-1), Epoch(0), Epoch(4), Epoch(4), Epoch(EPOCHS - 1)):
        expected = folded(epoch)
        with stores.at(epoch) as reader:
            assert reader.epoch == epoch
            assert {one: reader.get(one) for one in expected} == expected
            assert reader.get(entity_key("Item", "never")) is None
            assert digest_of_items(reader.items()) == digest_of_mapping(expected)
    stores.close()


@pytest.mark.parametrize(("few", "looks"), [(1_024, 2), (-1, 6)])
def test_small_changes_are_read_once_for_all_stores(
    journal: MemoryJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, looks: int
) -> None:
    """The first store divides few changes for the others; many changes are read by each store, and give the same state."""
    monkeypatch.setattr("penstock.state.stores._FEW", few)
    read, seen = journal.rows, []

    def rows(kind: PartKind, after: Epoch, *rest: Any) -> Any:
        seen.append(after)
        return read(kind, after, *rest)

    monkeypatch.setattr(journal, "rows", rows)
    stores = Stores(tmp_path, journal, 3, boot_id=BOOT)
    for epoch in (Epoch(0), Epoch(2)):
        with stores.at(epoch) as reader:
            assert dict(reader.items()) == folded(epoch)
    assert len(seen) == looks
    stores.use(2)  # whose shares are others
    with stores.at(Epoch(2)) as reader:
        assert dict(reader.items()) == folded(2)
    stores.close()


def test_one_partition_catches_up_alone(journal: MemoryJournal, tmp_path: Path) -> None:
    """A task can bring one partition to an epoch, and `at` brings the others."""
    told: list[Epoch] = []
    stores = Stores(
        tmp_path, journal, 2, boot_id=BOOT, progress=lambda epoch, changes: told.append(epoch)
    )
    stores.catch_up_one(1, Epoch(5))
    assert told == [5]
    with stores.at(Epoch(5)) as reader:
        assert dict(reader.items()) == folded(5)
    assert told == [5, 5]
    stores.close()


def test_another_number_of_stores_has_the_same_content(
    journal: MemoryJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stores of several numbers lie side by side, and those of each number hold the same state."""
    stores = Stores(tmp_path, journal, boot_id=BOOT)
    for epoch, partitions in enumerate((2, 3, 1, 2)):
        stores.use(partitions)
        with stores.at(Epoch(epoch)) as reader:
            assert digest_of_items(reader.items()) == digest_of_mapping(folded(epoch))
    stores.close()
    assert not caplog.records


@pytest.mark.parametrize(("before", "after"), [(2, 8), (8, 3), (1, 2), (3, 1)])
def test_stores_begin_from_those_of_another_number(
    journal: MemoryJournal, tmp_path: Path, before: int, after: int
) -> None:
    """They are copied without the journal, catch up as others do, and are filled only once."""
    source = Stores(tmp_path, journal, before, boot_id=BOOT)
    told: list[Epoch] = []
    target = Stores(tmp_path, journal, after, boot_id=BOOT, progress=lambda at, _: told.append(at))
    for partition in range(after):
        target.catch_up_one(partition, Epoch(6), before)
        target.catch_up_one(partition, Epoch(6), before)
    with target.at(Epoch(6)) as reader:
        assert dict(reader.items()) == folded(6)
    assert not told, "the journal was not read"
    with target.at(Epoch(9)) as reader:
        assert digest_of_items(reader.items()) == digest_of_mapping(folded(9))
    target.close()
    source.close()


def test_damaged_source_leaves_the_new_store_empty(
    journal: MemoryJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy from damaged stores fails whole; the new store is then built from the journal."""
    source = Stores(tmp_path, journal, 1, boot_id=BOOT)
    with source.at(Epoch(6)):
        pass
    source.close()
    data = tmp_path / "partition-0-of-1" / "data.mdb"
    content = data.read_bytes()
    damaged = content.replace(b"6:Item/i99", b"6:Item/i98")
    assert damaged != content
    data.write_bytes(damaged)
    target = Stores(tmp_path, journal, 2, boot_id=BOOT)
    target.catch_up_one(0, Epoch(6), 1)
    assert caplog.messages == ["a store cannot be copied, and is built from the journal"]
    with target.at(Epoch(6)) as reader:
        assert dict(reader.items()) == folded(6)
    target.close()


def test_former_stores_are_deleted_when_no_process_has_them_open(
    journal: MemoryJournal, tmp_path: Path
) -> None:
    """A reader of a former number of stores keeps them; the stores of the present number stay."""
    reading = Stores(tmp_path, journal, 2, boot_id=BOOT)
    present = Stores(tmp_path, journal, 3, boot_id=BOOT)
    with present.at(Epoch(3)), reading.at(Epoch(3)):
        assert remove_former_stores(tmp_path, 3) == []
    reading.use(3)
    assert remove_former_stores(tmp_path, 3) == ["partition-0-of-2", "partition-1-of-2"]
    for stores in (reading, present):
        with stores.at(Epoch(4)) as reader:
            assert dict(reader.items()) == folded(4)
        stores.close()
    assert len(list(tmp_path.glob("partition-*[0-9]"))) == 3


def test_caller_that_is_late_is_refused(journal: MemoryJournal, tmp_path: Path) -> None:
    """A store never goes back for a task of a past epoch; its content stays."""
    stores = Stores(tmp_path, journal, 1, boot_id=BOOT)
    stores.catch_up_one(0, Epoch(8))
    with pytest.raises(StateUnavailable, match="late"), stores.at(Epoch(7)):
        pass
    with stores.at(Epoch(8)) as reader:
        assert dict(reader.items()) == folded(8)
    stores.close()


def test_epoch_that_the_journal_lacks_is_refused(journal: MemoryJournal, tmp_path: Path) -> None:
    """Catching up beyond the journal's end is an error that names the epoch."""
    stores = Stores(tmp_path, journal, 1, boot_id=BOOT)
    with pytest.raises(Diverged, match=f"no epoch {EPOCHS}"):
        stores.catch_up_one(0, Epoch(EPOCHS))
    stores.close()


def test_rebuilt_partition_has_the_same_content(journal: MemoryJournal, tmp_path: Path) -> None:
    """After `rebuild` the next `at` builds the partition from the journal."""
    stores = Stores(tmp_path, journal, 2, boot_id=BOOT)
    stores.catch_up_one(0, Epoch(3))
    stores.rebuild(stores.partition_of(entity_key("Item", "i1")))
    with stores.at(Epoch(3)) as reader:
        assert dict(reader.items()) == folded(3)
    stores.close()


def test_store_replaced_by_another_process_is_opened_again(
    journal: MemoryJournal, tmp_path: Path
) -> None:
    """A process with an open store notices that another process deleted and rebuilt it."""
    first = Stores(tmp_path, journal, 1, boot_id=BOOT)
    first.catch_up_one(0, Epoch(3))
    other = Stores(tmp_path, journal, 1, boot_id=BOOT)
    other.rebuild(0)
    other.catch_up_one(0, Epoch(5))
    with first.at(Epoch(5)) as reader:
        assert dict(reader.items()) == folded(5)
    first.close()
    other.close()


class Interrupted(BaseException):
    """A death in the middle of a catch-up."""


@pytest.mark.parametrize("writes", range(4))
def test_interrupted_catch_up_converges(journal: MemoryJournal, writes: int) -> None:
    """A catch-up that dies after any write leaves a fold, and repeating it gives the whole one."""
    state = MemoryState()
    reached: list[Epoch] = []

    def die(epoch: Epoch, _changes: int) -> None:
        reached.append(epoch)
        if len(reached) > writes:
            raise Interrupted

    with pytest.raises(Interrupted):
        catch_up(state, journal, Epoch(EPOCHS - 1), WHOLE, die, batch=150)
    with state.reader() as reader:
        assert dict(reader.items()) == folded(reached[-1])
    catch_up(state, journal, Epoch(EPOCHS - 1), WHOLE)
    with state.reader() as reader:
        assert dict(reader.items()) == folded(EPOCHS - 1)


LAST = Epoch(EPOCHS - 1)


def items(count: int) -> Set[EntityKey]:
    return {entity_key("Item", f"i{number}"): number for number in range(count)}.keys()


@pytest.mark.parametrize("count", [1, 250, 301])
@pytest.mark.parametrize("reads_per_epoch", [-100, 100])
def test_rows_that_are_left_out_have_not_changed(
    journal: MemoryJournal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    reads_per_epoch: int,
) -> None:
    """Who has the rows at an earlier epoch, and takes those that are read, has the newest row of each entity."""
    monkeypatch.setattr(newest, "_READS_PER_EPOCH", reads_per_epoch)
    keys, stores = items(count), Stores(tmp_path, journal, 2, boot_id=BOOT)
    expected = {one: folded(LAST).get(one) for one in keys}
    assert read_changed(journal, stores, keys, None) == (LAST, expected)
    for after in range(-1, EPOCHS):
        before = folded(after)
        epoch, rows = read_changed(journal, stores, keys, Epoch(after))
        assert epoch == LAST
        assert {one: before.get(one) for one in keys} | rows == expected
    stores.close()


def test_a_look_reads_the_rows_that_have_changed(
    journal: MemoryJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads all where the changes take more time: after many epochs, after large ones, and for few entities."""
    monkeypatch.setattr(
        newest, "_READS_PER_EPOCH", 100
    )  # and 25 more for the rows of an epoch here
    keys, stores = items(301), Stores(tmp_path, journal, 2, boot_id=BOOT)

    def read(after: int) -> set[EntityKey]:
        return {*read_changed(journal, stores, keys, Epoch(after))[1]}

    assert read(LAST) == set()
    assert read(LAST - 1) == {one for one, _ in changes_of(LAST)}
    assert read(LAST - 2) == {one for epoch in (LAST - 1, LAST) for one, _ in changes_of(epoch)}
    assert read(LAST - 4) == keys
    few = items(2)
    assert read_changed(journal, stores, few, Epoch(LAST - 1))[1].keys() == few
    for size in ("_ROWS_PER_READ", "_BYTES_PER_READ"):
        with monkeypatch.context() as patched:
            patched.setattr(newest, size, 0.1)
            assert read(LAST - 1) == keys
    stores.close()


def test_a_look_reads_all_rows_where_the_changes_are_unknown(
    journal: MemoryJournal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So it is where an epoch is forgotten or a part is damaged, and where the other epoch is none of this journal."""
    keys, stores = items(901), Stores(tmp_path, journal, 2, boot_id=BOOT)
    with stores.at(LAST):  # which needs all parts
        pass
    (last,) = journal.commits(Epoch(LAST - 1))
    journal._parts[last.parts[0].path] = b"damaged"
    assert read_changed(journal, stores, keys, Epoch(LAST - 1))[1].keys() == keys
    journal.forget(LAST)
    assert read_changed(journal, stores, keys, Epoch(LAST - 2))[1].keys() == keys
    assert read_changed(journal, stores, keys, Epoch(EPOCHS))[1].keys() == keys
    assert not caplog.records  # the stores are sound
    stores.close()


def test_a_look_without_changed_entities_leaves_the_stores_alone(
    journal: MemoryJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys in the journal say that there is nothing to read, so no store is brought to the epoch."""
    monkeypatch.setattr(newest, "_READS_PER_EPOCH", -1_000)
    stores = Stores(tmp_path, journal, 2, boot_id=BOOT)
    unchanged = items(300) - {one for one, _ in changes_of(LAST)}
    assert read_changed(journal, stores, unchanged, Epoch(LAST - 1)) == (LAST, {})
    assert stores.reached() == Epoch(-1)
    assert read_changed(journal, stores, items(300), Epoch(LAST - 1))[1].keys() == {
        one for one, _ in changes_of(LAST)
    }
    assert stores.reached() == LAST
    stores.close()


def test_no_epoch_has_no_rows(tmp_path: Path) -> None:
    """Before the first epoch no entity exists."""
    journal, keys = MemoryJournal(), items(3)
    stores = Stores(tmp_path, journal, boot_id=BOOT)
    assert read_changed(journal, stores, keys, Epoch(-1)) == (Epoch(-1), dict.fromkeys(keys))
    stores.close()
