"""The atoms of a stream: every number once, in order, from any start, while the journal is maintained."""

import random
import threading
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from penstock.base.ids import Epoch
from penstock.errors import Corrupt, Gone, RequestError
from penstock.journal.api import Commit, CompactionPolicy, Journal, Part, PartKind
from penstock.journal.atoms import AtomReader, decode_atom, encode_atom
from penstock.journal.delta import DeltaJournal
from tests.memory_journal import MemoryJournal
from tests.stream_journal import publish

MERGE_ALL = CompactionPolicy(newest=0, epochs=4, grace_s=0)


def grow(journal: Journal, epochs: int) -> int:
    """Publish 0 to 3 atoms of each stream in each epoch; return the number of atoms of `lines`."""
    drawn = random.Random(7)
    count = 0
    for _ in range(epochs):
        lines = [[count + one, "x"][: drawn.randrange(3)] for one in range(drawn.randrange(4))]
        others = [[one] for one in range(drawn.randrange(3))]
        publish(journal, {"others": others, "lines": lines}, parts=drawn.randrange(1, 4))
        count += len(lines)
    return count


def numbers(reader: AtomReader, start: int, stream: str = "lines") -> list[int]:
    return [atom.number for atom in reader.atoms(stream, start)]


def test_atoms_come_once_and_in_order_from_any_number() -> None:
    """From each number of a start, the reader yields each later number exactly once."""
    journal = MemoryJournal()
    count = grow(journal, 60)
    reader = AtomReader(journal)
    assert reader.published("lines") == count
    assert reader.oldest("lines") == 0
    for start in range(count + 1):
        assert numbers(reader, start) == list(range(start, count))


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, (1 << 16) - 1, 1 << 16])
def test_an_encoded_atom_is_the_array_of_its_events(count: int) -> None:
    """The bytes of an atom are those of one MessagePack array, for each form that its length may have."""
    events = [[number, "word"] for number in range(count)]
    encoded = tuple(map(msgspec.msgpack.encode, events))
    assert encode_atom(encoded) == msgspec.msgpack.encode(events)
    assert decode_atom(encode_atom(encoded)) == encoded


def test_an_atom_has_its_events_and_its_place() -> None:
    """An atom has the encoded events in order, their number, the epoch, the position and the time."""
    journal = MemoryJournal()
    commit = publish(journal, {"lines": [["a", {"b": 1}], []]})
    first, second = AtomReader(journal).atoms("lines", 0)
    assert [msgspec.msgpack.decode(event) for event in decode_atom(first.events)] == ["a", {"b": 1}]
    assert (first.epoch, first.position) == (commit.epoch, (0, 0))
    assert decode_atom(second.events) == ()


def test_a_start_beyond_the_newest_atom_is_refused() -> None:
    """The next number is a valid start, and no number after it."""
    journal = MemoryJournal()
    publish(journal, {"lines": [["a"]]})
    reader = AtomReader(journal)
    assert numbers(reader, 1) == []
    assert numbers(reader, 0, "unknown") == []
    with pytest.raises(RequestError, match="stream lines has 1 atoms"):
        numbers(reader, 2)


def test_compaction_changes_no_atom(tmp_path: Path) -> None:
    """A reader yields the same atoms before and after compaction, also if it reads meanwhile."""
    journal = DeltaJournal(tmp_path / "journal", "shop")
    count = grow(journal, 20)
    before = list(AtomReader(journal).atoms("lines", 0))
    reading = AtomReader(journal).atoms("lines", 0)
    started = list(islice(reading, 3))
    assert journal.compact(MERGE_ALL).epochs == 20
    assert started + list(reading) == before
    assert list(AtomReader(journal).atoms("lines", 0)) == before
    assert len(before) == count
    journal.close()


def test_removed_atoms_are_gone(tmp_path: Path) -> None:
    """After retention, an older number is refused with the oldest number, which can be read."""
    journal = DeltaJournal(tmp_path / "journal", "shop")
    count = grow(journal, 20)
    reader = AtomReader(journal)
    late = reader.atoms("lines", 0)
    assert next(late).number == 0
    journal.compact(MERGE_ALL)
    first = journal.forget(Epoch(9))
    held = next(iter(journal.commits(Epoch(first - 1), first)))
    in_first = sum(
        1
        for part in held.parts_of(PartKind.EVENTS)
        for stream in journal.read(part)["stream"].to_pylist()
        if stream == "lines"
    )
    oldest = reader.oldest("lines")
    assert oldest == held.atoms["lines"] - in_first > 0
    assert numbers(reader, oldest) == list(range(oldest, count))
    for start in range(oldest):
        with pytest.raises(Gone, match=f"the oldest atom is {oldest}") as refused:
            numbers(AtomReader(journal), start)
        assert refused.value.oldest == oldest
    with pytest.raises(Gone):
        list(late)
    journal.close()


def test_the_tables_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many epochs with few atoms fill the memory as well: the newest stay, and an older one is read again."""
    monkeypatch.setattr("penstock.journal.atoms._CACHED_BYTES", 10 * (8 << 10))
    journal = MemoryJournal()
    for epoch in range(30):
        publish(journal, {"lines": [[epoch]]})
    reads: list[Part] = []
    read = journal.read

    def counted(part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        reads.append(part)
        return read(part, columns)

    monkeypatch.setattr(journal, "read", counted)
    reader = AtomReader(journal)
    assert numbers(reader, 0) == list(range(30))
    assert numbers(reader, 25) == list(range(25, 30))
    assert len(reads) == 30
    assert numbers(reader, 0) == list(range(30))
    assert len(reads) == 60


def test_a_missing_atom_is_damage() -> None:
    """A commit that counts an atom which no part has is reported, not skipped."""
    journal = MemoryJournal()
    publish(journal, {"lines": [["a"]]})
    last = journal.last()
    assert last is not None
    journal.commit(Commit(Epoch(1), last.positions, (), 0, {"lines": 3}))
    with pytest.raises(Corrupt, match="epoch 1 of the journal lacks atom 1 of stream lines"):
        numbers(AtomReader(journal), 1)


def test_a_follower_gets_each_new_atom() -> None:
    """A follower waits for the atoms that another thread publishes, and misses none."""
    journal = MemoryJournal()
    grow(journal, 5)
    start = AtomReader(journal).published("lines")
    publishing = threading.Thread(
        target=lambda: [publish(journal, {"lines": [[n], [n]], "others": []}) for n in range(20)]
    )
    publishing.start()
    got = list(islice(AtomReader(journal).follow("lines", start), 40))
    publishing.join()
    assert [atom.number for atom in got] == list(range(start, start + 40))
