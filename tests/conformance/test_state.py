"""The state port: one suite that every adapter passes, and the further properties of stores."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, bucket_of, partition_of
from penstock.errors import StateUnavailable
from penstock.state import stores
from penstock.state.api import Change, State
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.environment import DATA_FILE
from penstock.state.examine import is_sound
from penstock.state.lmdb import LmdbState
from penstock.state.lmdb_reader import LmdbReader
from penstock.state.partition_spec import PartitionSpec
from penstock.state.stores import owned_mask
from tests.memory_state import MemoryState

BOOT = "boot-1"
Opener = Callable[[], State]


def key(text: str) -> EntityKey:
    return EntityKey(f"Item/{text}")


@pytest.fixture(params=["memory", "lmdb"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[State]:
    opened: State = (
        MemoryState()
        if request.param == "memory"
        else LmdbState(tmp_path / "store", "journal", boot_id=BOOT)
    )
    yield opened
    opened.close()


def content(state: State) -> dict[EntityKey, bytes]:
    with state.reader() as reader:
        return dict(reader.items())


def test_new_state_is_empty_and_before_the_first_epoch(state: State) -> None:
    """A store that has applied nothing is at epoch -1 and knows no entity."""
    assert state.epoch == BEFORE_FIRST
    assert content(state) == {}
    with state.reader() as reader:
        assert reader.get(key("a")) is None


def test_apply_stores_changes_with_their_epoch(state: State) -> None:
    """After an apply, entities and epoch are as given."""
    state.apply(Epoch(0), [(key("b"), b"2"), (key("a"), b"1")], BEFORE_FIRST)
    assert state.epoch == 0
    with state.reader() as reader:
        assert reader.epoch == 0
        assert (reader.get(key("a")), reader.get(key("b"))) == (b"1", b"2")
        assert list(reader.items()) == [(key("a"), b"1"), (key("b"), b"2")]


def test_apply_removes_what_was_deleted(state: State) -> None:
    """A change to None removes an entity, and removing an unknown entity is allowed."""
    state.apply(Epoch(0), [(key("a"), b"1"), (key("b"), b"2")], BEFORE_FIRST)
    state.apply(Epoch(1), [(key("a"), None), (key("unknown"), None)], Epoch(0))
    assert content(state) == {key("b"): b"2"}


def test_the_last_change_to_an_entity_counts(state: State) -> None:
    """Several changes to one entity in one apply leave the last one."""
    changes: list[Change] = [(key("a"), b"1"), (key("b"), b"x"), (key("a"), b"2"), (key("b"), None)]
    state.apply(Epoch(0), changes, BEFORE_FIRST)
    assert content(state) == {key("a"): b"2"}


def test_apply_at_an_unexpected_epoch_writes_nothing(state: State) -> None:
    """The slower of two writers of one epoch changes neither entities nor epoch."""
    state.apply(Epoch(0), [(key("a"), b"first")], BEFORE_FIRST)
    state.apply(Epoch(0), [(key("a"), b"second")], BEFORE_FIRST)
    state.apply(Epoch(5), [(key("a"), b"third")], Epoch(4))
    assert state.epoch == 0
    assert content(state) == {key("a"): b"first"}


def test_reader_does_not_see_later_writes(state: State) -> None:
    """A reader sees one epoch for as long as it is open."""
    state.apply(Epoch(0), [(key("a"), b"1")], BEFORE_FIRST)
    with state.reader() as reader:
        state.apply(Epoch(1), [(key("a"), b"2"), (key("b"), b"2")], Epoch(0))
        state.apply(Epoch(2), [(key("a"), None)], Epoch(1))
        assert reader.epoch == 0
        assert reader.get(key("a")) == b"1"
        assert dict(reader.items()) == {key("a"): b"1"}
    assert content(state) == {key("b"): b"2"}


def test_clear_forgets_everything(state: State) -> None:
    """A cleared store is like a new one and can be filled again."""
    state.apply(Epoch(0), [(key("a"), b"1")], BEFORE_FIRST)
    state.clear()
    assert state.epoch == BEFORE_FIRST
    assert content(state) == {}
    state.apply(Epoch(0), [(key("b"), b"2")], BEFORE_FIRST)
    assert content(state) == {key("b"): b"2"}


def test_closed_state_refuses_use(state: State) -> None:
    """After `close`, reading and writing raise the operational error."""
    state.close()
    with pytest.raises(StateUnavailable), state.reader():
        pass
    with pytest.raises(StateUnavailable):
        state.apply(Epoch(0), [], BEFORE_FIRST)


def test_keys_of_any_length_and_script_are_kept_in_byte_order(state: State) -> None:
    """Overlong and non-ASCII keys, and empty states, are stored and listed like all others."""
    texts = ["", "é", "z" * 506, "z" * 507, "z" * 3000, "a" * 2000, "😀", "\uffee", "b"]
    states = {key(text): text.encode() for text in texts}
    state.apply(Epoch(0), states.items(), BEFORE_FIRST)
    with state.reader() as reader:
        assert [reader.get(one) for one in states] == list(states.values())
        assert reader.get(key("z" * 2999)) is None
        listed = [one for one, _ in reader.items()]
    assert listed == sorted(states, key=str.encode)
    state.apply(Epoch(1), [(one, None) for one in states], Epoch(0))
    assert content(state) == {}


KEYS = st.sampled_from([key(text) for text in ("a", "b", "c", "long" * 200, "longer" * 200, "é")])
EPOCHS = st.lists(
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=5000)), max_size=8), max_size=6
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(epochs=EPOCHS)
def test_state_is_the_fold_of_its_changes(state: State, epochs: list[list[Change]]) -> None:
    """After any changes, a store holds the same as a dictionary."""
    state.clear()
    expected: dict[EntityKey, bytes] = {}
    for number, changes in enumerate(epochs):
        state.apply(Epoch(number), changes, Epoch(number - 1))
        for one, value in changes:
            expected.pop(one, None)
            if value is not None:
                expected[one] = value
    with state.reader() as reader:
        assert {one: reader.get(one) for one in expected} == expected
        assert digest_of_items(reader.items()) == digest_of_mapping(expected)


def test_store_outlives_its_process_object(tmp_path: Path) -> None:
    """Applied changes are there when the directory is opened again."""
    first = LmdbState(tmp_path / "store", "journal", boot_id=BOOT)
    first.apply(Epoch(0), [(key("a"), b"1")], BEFORE_FIRST)
    first.close()
    second = LmdbState(tmp_path / "store", "journal", boot_id=BOOT)
    assert content(second) == {key("a"): b"1"}
    second.close()


def test_two_objects_of_one_process_share_a_store(tmp_path: Path) -> None:
    """Opening a path twice in a process gives two handles, and either may close first."""
    first = LmdbState(tmp_path / "store", "journal", boot_id=BOOT)
    second = LmdbState(tmp_path / "store", "journal", boot_id=BOOT)
    first.apply(Epoch(0), [(key("a"), b"1")], BEFORE_FIRST)
    first.close()
    assert content(second) == {key("a"): b"1"}
    second.close()


def test_rewritten_store_has_the_same_rows_in_fewer_pages(tmp_path: Path) -> None:
    """Rows that came between those of an earlier epoch leave half-full pages; written again, the store has full ones."""
    path = tmp_path / "store"
    state, other = (LmdbState(path, "journal", boot_id=BOOT) for _ in range(2))
    texts = [f"{number:05}" for number in range(6000)] + ["long" * 200]
    state.apply(Epoch(0), [(key(text), b"0" * 20) for text in texts[::2]], BEFORE_FIRST)
    state.apply(Epoch(1), [(key(text), b"1" * 20) for text in reversed(texts[1::2])], Epoch(0))
    state.apply(Epoch(2), [(key("00007"), None)], Epoch(1))
    expected = content(state)
    before = (path / DATA_FILE).stat().st_size
    with other.reader() as reader:
        state.rewrite()
        assert state.replaced
        assert other.replaced
        assert dict(reader.items()) == expected, "who reads meanwhile has the former file"
    state.rewrite()  # the former file is no store any more, so nothing happens
    state.close()
    again = LmdbState(path, "journal", boot_id=BOOT)
    assert not again.replaced
    assert (again.epoch, content(again)) == (2, expected)
    assert (path / DATA_FILE).stat().st_size < before * 0.7
    again.apply(Epoch(3), [(key("00007"), b"3")], Epoch(2))
    other.close()
    again.close()
    assert (path / "life").read_text() == "clean"
    assert is_sound(path, BOOT)


def test_pages_that_are_laid_out_change_nothing(tmp_path: Path) -> None:
    """A write first puts single empty pages behind the file; a process that is killed then leaves a store that is as before."""
    path = tmp_path / "store"
    state = LmdbState(path, "journal", boot_id=BOOT)
    changes = [(key(f"{number:05}"), b"0" * 80) for number in range(6000)]
    state.apply(Epoch(0), changes, BEFORE_FIRST)
    opened = state._environment
    size = (path / DATA_FILE).stat().st_size
    with opened.begin_write() as txn:
        opened.lay_out(txn, 63)
        assert (path / DATA_FILE).stat().st_size == size, "few pages are left to LMDB"
        opened.lay_out(txn, 100)
        longer = (path / DATA_FILE).stat().st_size
        opened.lay_out(txn, 100)
        assert (path / DATA_FILE).stat().st_size == longer
        txn.abort()
    assert size < longer <= size + 100 * 4096
    assert is_sound(path, BOOT)
    assert content(state) == dict(changes)
    newer = [(name, b"1" * 80) for name, _ in changes]
    state.apply(Epoch(1), newer, Epoch(0))
    assert content(state) == dict(newer)
    state.close()


def test_map_grows_when_it_is_full(tmp_path: Path) -> None:
    """A store takes more than its map, here and in a second process that has it open."""
    reading = """
import sys
from pathlib import Path
from penstock.state.lmdb import LmdbState
state = LmdbState(Path(sys.argv[1]), "journal", boot_id=sys.argv[2], map_size=1 << 20)
print(state.epoch, flush=True)
sys.stdin.readline()
with state.reader() as reader:
    print(reader.epoch, sum(1 for _ in reader.items()), flush=True)
"""
    path = tmp_path / "store"
    state = LmdbState(path, "journal", boot_id=BOOT, map_size=1 << 20)
    with subprocess.Popen(
        [sys.executable, "-c", reading, str(path), BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "-1\n"
        state.apply(Epoch(0), [(key(str(n)), b"x" * 3000) for n in range(2000)], BEFORE_FIRST)
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "0 2000\n"
        other.stdin.close()
    assert other.returncode == 0
    state.close()


def test_map_does_not_grow_under_a_reader_of_this_process(tmp_path: Path) -> None:
    """Moving the map would pull it from under a reader, so the apply is refused and harmless."""
    state = LmdbState(tmp_path / "store", "journal", boot_id=BOOT, map_size=1 << 20)
    large: list[Change] = [(key(str(n)), b"x" * 3000) for n in range(1000)]
    with state.reader() as reader:
        with pytest.raises(StateUnavailable, match="must grow"):
            state.apply(Epoch(0), large, BEFORE_FIRST)
        assert reader.get(key("1")) is None
    state.apply(Epoch(0), large, BEFORE_FIRST)
    assert len(content(state)) == 1000
    state.close()


def test_forked_child_opens_the_store_anew(tmp_path: Path) -> None:
    """A child does not use the inherited store: it opens the store itself, and the parent's lives."""
    path = tmp_path / "store"
    state = LmdbState(path, "journal", boot_id=BOOT)
    state.apply(Epoch(0), [(key("a"), b"1")], BEFORE_FIRST)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            own = LmdbState(path, "journal", boot_id=BOOT)
            own.apply(Epoch(1), [(key("b"), b"2")], Epoch(0))
            own.close()
            with pytest.raises(StateUnavailable, match="before a fork"):
                state.apply(Epoch(2), [], Epoch(1))
            state.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    state.apply(Epoch(2), [(key("c"), b"3")], Epoch(1))
    assert sorted(content(state)) == [key("a"), key("b"), key("c")]
    state.close()


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 1024])
def test_shares_divide_the_keys(partitions: int) -> None:
    """Every key belongs to exactly one share, the owner of its bucket."""
    keys = [key(str(number)) for number in range(200)]
    owners = [partition_of(bucket_of(one), partitions) for one in keys]
    for partition in set(owners):
        mask = owned_mask(keys, PartitionSpec(partition, partitions))
        assert mask.tolist() == [owner == partition for owner in owners]


class Counted:
    """The reader of a store, which counts the looks at it; it is a `PartitionReader`."""

    def __init__(self, reader: LmdbReader) -> None:
        self.get, self.rest, self.keys = reader.get, reader.rest, reader.keys
        self.items, self.items_of = reader.items, reader.items_of
        self.fetched: list[bytes] = []
        self._reader = reader

    def fetch(self, raw: bytes) -> bytes | None:
        self.fetched.append(raw)
        return self._reader.fetch(raw)


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_missing_key_is_fetched_once(
    tmp_path: Path, partitions: int, *, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each creation reads a missing key. Found and overlong keys are as they are in the store, compiled or not."""
    if not is_compiled:
        monkeypatch.setattr(stores, "core", None)
    long = key("a" * 600)
    opened = LmdbState(tmp_path / "store", "journal", boot_id=BOOT)
    opened.apply(Epoch(0), [(key("a"), b"1"), (long, b"2")], BEFORE_FIRST)
    with opened.reader() as reader:
        counted = Counted(reader)
        get = stores.partitioned_get([counted] * partitions)
        assert [get(key("a")), get(long), get(key("b" * 600))] == [b"1", b"2", None]
        counted.fetched.clear()
        assert get(key("b")) is None
        if is_compiled or partitions > 1:  # the only store has a `get` of its own
            assert counted.fetched == [b"Item/b"]
    opened.close()
