"""Damage to local state: it is a cache, so the journal restores it after any damage.

A damaged file may kill the process that reads it. So all reading of damaged files happens in
children; the parent acts as a runtime: it examines, rebuilds, and reads again.
"""

import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from penstock.base.ids import Epoch, entity_key
from penstock.errors import Corrupt, Diverged, StateUnavailable
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.examine import SOUND, damaged_of, is_sound
from penstock.state.examine import main as examine
from penstock.state.lmdb import LmdbState
from penstock.state.stores import Stores
from tests.faults.state_cases import (
    BOOT,
    LAST,
    NOTICED,
    PAGE,
    RIGHT,
    VANISHED,
    WRONG,
    content,
    in_child,
    journal_of,
    states_at,
)
from tests.memory_journal import MemoryJournal

pytestmark = [pytest.mark.long, pytest.mark.faults]


@pytest.fixture(scope="module")
def journal() -> MemoryJournal:
    return journal_of(LAST + 1)


@pytest.fixture
def directory(journal: MemoryJournal, tmp_path: Path) -> Path:
    """Return a directory with one sound store that is not open."""
    stores = Stores(tmp_path, journal, 1, boot_id=BOOT)
    for epoch in range(LAST + 1):
        stores.catch_up_one(0, Epoch(epoch))
    stores.close()
    return tmp_path


def read_everything(path: Path, identity: str) -> int:
    """Read as a task does: each entity by its key, and some that do not exist."""
    expected = states_at(LAST)
    try:
        state = LmdbState(path, identity, boot_id=BOOT)
        with state.reader() as reader:
            if reader.epoch != LAST:
                return NOTICED  # the catch-up starts over from the journal
            found = [reader.get(one) for one in expected]
            absent = [reader.get(entity_key("Item", f"no-{n}")) for n in range(50)]
    except (Corrupt, Diverged, StateUnavailable):
        return NOTICED
    if any(absent) or any(
        one not in (None, right) for one, right in zip(found, expected.values(), strict=True)
    ):
        return WRONG
    return VANISHED if None in found else RIGHT


def used_pages(data: Path) -> int:
    return data.stat().st_size // PAGE


def flipped_bits(data: Path, rng: random.Random) -> list[int]:
    """Choose bits anywhere, and as many in page headers, where they do most harm."""
    pages = used_pages(data)
    anywhere = [rng.randrange(pages * PAGE * 8) for _ in range(80)]
    headers = [8 * PAGE * rng.randrange(pages) + rng.randrange(8 * 40) for _ in range(80)]
    return anywhere + headers


def test_bit_flip_is_never_silently_wrong(
    directory: Path, journal: MemoryJournal, seed: int
) -> None:
    """With any bit flipped, `get` never gives a wrong state, and examining finds vanished ones."""
    path = directory / "partition-0-of-1"
    data = path / "data.mdb"
    sound = data.read_bytes()
    outcomes: set[int] = set()
    for position in flipped_bits(data, random.Random(seed)):
        damaged = bytearray(sound)
        damaged[position // 8] ^= 1 << position % 8
        data.write_bytes(damaged)
        outcome = in_child(lambda: read_everything(path, journal.identity))
        assert outcome != WRONG, f"bit {position}"
        if outcome == VANISHED:
            assert in_child(lambda: examine(BOOT, [str(path)])) != SOUND, f"bit {position}"
        outcomes.add(outcome)
    assert {RIGHT, NOTICED} <= outcomes


@pytest.mark.parametrize("keep", [0, 1, 4096, 8193, 0.5, -1])
def test_truncated_file_is_rebuilt(directory: Path, journal: MemoryJournal, keep: float) -> None:
    """However short the file has become, the stores give the right content again."""
    data = directory / "partition-0-of-1" / "data.mdb"
    size = data.stat().st_size
    os.truncate(data, int(keep * size) if 0 < keep < 1 else int(keep) % size)
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))


def test_damaged_record_is_noticed_and_rebuilt(directory: Path, journal: MemoryJournal) -> None:
    """A flipped bit in a state makes `get` raise, and after `rebuild` the content is right."""
    data = directory / "partition-0-of-1" / "data.mdb"
    key = entity_key("Item", "item-1004")
    damaged = data.read_bytes().replace(b"4:%d" % 1004**2, b"5:%d" % 1004**2)
    data.write_bytes(damaged)
    stores = Stores(directory, journal, 1, boot_id=BOOT)
    with stores.at(LAST) as reader, pytest.raises(Corrupt, match="item-1004"):
        reader.get(key)
    stores.rebuild(stores.partition_of(key))
    with stores.at(LAST) as reader:
        assert reader.get(key) == states_at(LAST)[key]
        assert digest_of_items(reader.items()) == digest_of_mapping(states_at(LAST))
    stores.close()


def test_file_that_kills_its_reader_is_rebuilt(directory: Path, journal: MemoryJournal) -> None:
    """When a damaged file ends a worker by a signal, examining finds it and it is rebuilt."""
    path = directory / "partition-0-of-1"

    def work() -> int:
        state = LmdbState(path, journal.identity, boot_id=BOOT)
        with state.reader() as reader:
            os.truncate(path / "data.mdb", 2 * PAGE)
            return RIGHT if list(map(reader.get, states_at(LAST))) else WRONG

    assert in_child(work) == -signal.SIGBUS
    assert not is_sound(path, BOOT)
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))


def test_file_of_garbage_pages_is_rebuilt(directory: Path, journal: MemoryJournal) -> None:
    """Pages whose content is garbage behind sound headers are found and rebuilt."""
    data = directory / "partition-0-of-1" / "data.mdb"
    damaged = bytearray(data.read_bytes())
    for page in range(2, used_pages(data)):
        damaged[page * PAGE + 16 : (page + 1) * PAGE] = b"\xf0" * (PAGE - 16)
    data.write_bytes(damaged)
    assert not is_sound(directory / "partition-0-of-1", BOOT)
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))


def test_damaged_stores_hide_no_other(directory: Path) -> None:
    """Of several stores, those that kill their reader or contradict themselves are named, wherever they stand; the others are not."""
    sound = directory / "partition-0-of-1"
    killing, torn, missing = (directory / name for name in ("killing", "torn", "missing"))
    for path in (killing, torn):
        shutil.copytree(sound, path)
    os.truncate(killing / "data.mdb", 2 * PAGE)
    (torn / "data.mdb").write_bytes(b"\xff" * 20_000)
    assert damaged_of([sound, missing, sound], BOOT) == set()
    assert damaged_of([killing, sound, torn, sound, killing], BOOT) == {killing, torn}
    assert damaged_of([sound, killing, torn], BOOT) == {killing, torn}


@pytest.mark.parametrize("garbage", [b"", b"no database", b"\0" * 8192, b"\xff" * 20000])
def test_file_that_is_no_store_is_rebuilt(
    directory: Path, journal: MemoryJournal, garbage: bytes
) -> None:
    """A store that cannot be opened is replaced."""
    (directory / "partition-0-of-1" / "data.mdb").write_bytes(garbage)
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))


def test_lost_directory_is_rebuilt_while_it_is_open(
    directory: Path, journal: MemoryJournal
) -> None:
    """A directory that vanishes under an open store is noticed at the next epoch."""
    stores = Stores(directory, journal, 1, boot_id=BOOT)
    stores.catch_up_one(0, LAST)
    shutil.rmtree(directory)
    with stores.at(LAST) as reader:
        assert dict(reader.items()) == states_at(LAST)
    stores.close()


def test_store_of_another_journal_is_rebuilt(
    directory: Path, journal: MemoryJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that another journal has fed is not believed, and a warning says so."""
    other = journal_of(2)
    stores = Stores(directory, other, 1, boot_id=BOOT)
    with stores.at(Epoch(1)) as reader:
        assert dict(reader.items()) == states_at(1)
    stores.close()
    assert [vars(one)["partition"] for one in caplog.records] == [0]
    assert other.identity in vars(caplog.records[0])["reason"]


def test_store_ahead_of_the_journal_is_rebuilt(directory: Path, journal: MemoryJournal) -> None:
    """A store at an epoch that the journal does not have goes back to the journal's epoch."""
    ahead = LmdbState(directory / "partition-0-of-1", journal.identity, boot_id=BOOT)
    ahead.apply(Epoch(9), [(entity_key("Item", "never"), b"was")], LAST)
    ahead.close()
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))
