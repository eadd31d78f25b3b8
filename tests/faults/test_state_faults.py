"""Faults of local state: it is a cache, so whatever happens to it, the journal restores it.

A damaged file may kill the process that reads it. So all reading of damaged files happens in
children; the parent does what a runtime does: it examines, rebuilds, and reads again.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, entity_key, split_entity_key
from penstock.errors import Corrupt, Diverged, StateUnavailable
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.journal.memory import MemoryJournal
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.examine import SOUND, is_sound
from penstock.state.examine import main as examine
from penstock.state.lmdb import LmdbState
from penstock.state.stores import Stores

BOOT = "boot-1"
ENTITIES = 2000
LAST = Epoch(4)
DEADLINE_S = 30
PAGE = 4096
RIGHT, NOTICED, VANISHED, WRONG = 0, 10, 20, 30

pytestmark = pytest.mark.faults


def states_at(epoch: int) -> dict[EntityKey, bytes]:
    """Return the state after an epoch; each changes all entities that it does not leave alone."""
    return {
        entity_key("Item", f"item-{n}"): b"%d:%d" % (min(epoch, n % 5), n * n)
        for n in range(ENTITIES)
    }


def journal_of(epochs: int) -> MemoryJournal:
    journal = MemoryJournal()
    for epoch in range(epochs):
        states = states_at(epoch)
        before = states_at(epoch - 1) if epoch else {}
        changed = {one: state for one, state in states.items() if before.get(one) != state}
        names = [split_entity_key(one) for one in changed]
        rows = pa.table(
            {
                "epoch": [epoch] * len(changed),
                "entity": [name for name, _ in names],
                "key": [text for _, text in names],
                "state": list(changed.values()),
            },
            schema=CHANGES,
        )
        part = journal.write(PartKind.CHANGES, rows, f"{epoch}")
        journal.commit(Commit(Epoch(epoch), {}, (part,), 0))
    return journal


@pytest.fixture(scope="module")
def journal() -> MemoryJournal:
    return journal_of(LAST + 1)


@pytest.fixture
def directory(journal: MemoryJournal, tmp_path: Path) -> Path:
    """Return a directory with one sound store that nobody has open."""
    stores = Stores(tmp_path, journal, 1, boot_id=BOOT)
    for epoch in range(LAST + 1):
        stores.catch_up_one(0, Epoch(epoch))
    stores.close()
    return tmp_path


def in_child(work: Callable[[], int]) -> int:
    """Run in a forked child; return its exit status, negative when a signal ended it."""
    child = os.fork()
    if child == 0:
        status = NOTICED
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LMDB writes its last words there
            signal.alarm(DEADLINE_S)
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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


def content(directory: Path, journal: MemoryJournal) -> str:
    """Do what the runtime does after a worker died: examine, then use the stores."""
    stores = Stores(directory, journal, 1, boot_id=BOOT)
    stores.examine()
    with stores.at(LAST) as reader:
        digest = digest_of_items(reader.items())
    stores.close()
    return digest


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
    path = directory / "partition-0"
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
            assert in_child(lambda: examine(path, BOOT)) != SOUND, f"bit {position}"
        outcomes.add(outcome)
    assert {RIGHT, NOTICED} <= outcomes


@pytest.mark.parametrize("keep", [0, 1, 4096, 8193, 0.5, -1])
def test_truncated_file_is_rebuilt(directory: Path, journal: MemoryJournal, keep: float) -> None:
    """However short the file has become, the stores give the right content again."""
    data = directory / "partition-0" / "data.mdb"
    size = data.stat().st_size
    os.truncate(data, int(keep * size) if 0 < keep < 1 else int(keep) % size)
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))


def test_damaged_record_is_noticed_and_rebuilt(directory: Path, journal: MemoryJournal) -> None:
    """A flipped bit in a state makes `get` raise, and after `rebuild` the content is right."""
    data = directory / "partition-0" / "data.mdb"
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
    path = directory / "partition-0"

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
    data = directory / "partition-0" / "data.mdb"
    damaged = bytearray(data.read_bytes())
    for page in range(2, used_pages(data)):
        damaged[page * PAGE + 16 : (page + 1) * PAGE] = b"\xf0" * (PAGE - 16)
    data.write_bytes(damaged)
    assert not is_sound(directory / "partition-0", BOOT)
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))


@pytest.mark.parametrize("garbage", [b"", b"no database", b"\0" * 8192, b"\xff" * 20000])
def test_file_that_is_no_store_is_rebuilt(
    directory: Path, journal: MemoryJournal, garbage: bytes
) -> None:
    """What cannot be opened is replaced."""
    (directory / "partition-0" / "data.mdb").write_bytes(garbage)
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
    """A store at an epoch that the journal does not have goes back to what the journal has."""
    ahead = LmdbState(directory / "partition-0", journal.identity, boot_id=BOOT)
    ahead.apply(Epoch(9), [(entity_key("Item", "never"), b"was")], LAST)
    ahead.close()
    assert content(directory, journal) == digest_of_mapping(states_at(LAST))


def killed(code: str, *arguments: str, after: str) -> None:
    """Run a program and kill it as soon as it has printed a line."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line == after:
                break
        child.kill()
    assert child.returncode == -signal.SIGKILL


APPLYING = """
import sys
from pathlib import Path
from penstock.state.lmdb import LmdbState
state = LmdbState(Path(sys.argv[1]), "journal", boot_id=sys.argv[2])
epoch = state.epoch
while True:
    value = b"%d" % (epoch + 1)
    state.apply(epoch + 1, [(f"Item/{n}", value) for n in range(3000)], epoch)
    epoch += 1
    with state.reader() as reader:
        reader.get("Item/1")
        print(epoch % 4, flush=True)
"""


def test_killed_writer_leaves_a_whole_epoch(tmp_path: Path) -> None:
    """After kill -9 of a process that applies in a loop, the store is at one epoch altogether."""
    path = tmp_path / "store"
    parent = LmdbState(path, "journal", boot_id=BOOT)
    reached = BEFORE_FIRST
    for round_ in range(5):
        killed(APPLYING, str(path), BOOT, after=f"{round_ % 4}\n")
        with parent.reader() as reader:
            assert reader.epoch > reached
            reached = reader.epoch
            values = {value for _, value in reader.items()}
        assert values == {b"%d" % reached}
        parent.apply(Epoch(reached + 1), parent_changes(reached + 1), reached)
        reached = Epoch(reached + 1)
    parent.close()
    assert is_sound(path, BOOT)


def parent_changes(epoch: int) -> list[tuple[EntityKey, bytes | None]]:
    return [(entity_key("Item", str(n)), b"%d" % epoch) for n in range(3000)]


def test_store_of_another_boot_is_lost_unless_closed_cleanly(tmp_path: Path) -> None:
    """After a power loss nothing on disk is believed; after a clean close everything is."""
    path = tmp_path / "store"
    killed(APPLYING, str(path), "boot-1", after="1\n")
    same = LmdbState(path, "journal", boot_id="boot-1")
    reached = same.epoch
    assert reached >= 1
    same.close()
    clean = LmdbState(path, "journal", boot_id="boot-2")
    assert clean.epoch == reached
    clean.close()
    killed(APPLYING, str(path), "boot-2", after="3\n")
    lost = LmdbState(path, "journal", boot_id="boot-3")
    assert lost.epoch == BEFORE_FIRST
    lost.close()


def test_clean_close_waits_for_the_last_process(tmp_path: Path) -> None:
    """A store is not marked clean while another process still has it open."""
    path = tmp_path / "store"
    holding = APPLYING + "    sys.stdin.readline()\n"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(path), "boot-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "0\n"
        state = LmdbState(path, "journal", boot_id="boot-1")
        state.close()
        assert (path / "life").read_text() == "boot-1"
        child.kill()


def test_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """An apply that cannot be written raises the operational error; later ones succeed."""
    path = tmp_path / "store"

    def work() -> int:
        state = LmdbState(path, "journal", boot_id=BOOT)
        state.apply(Epoch(0), [(entity_key("Item", "a"), b"1")], BEFORE_FIRST)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        large = [(entity_key("Item", str(n)), b"x" * 1000) for n in range(5000)]
        try:
            state.apply(Epoch(1), large, Epoch(0))
        except StateUnavailable:
            pass
        else:
            return WRONG
        with state.reader() as reader:
            if dict(reader.items()) != {entity_key("Item", "a"): b"1"} or reader.epoch != 0:
                return WRONG
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        state.apply(Epoch(1), large, Epoch(0))
        with state.reader() as reader:
            return RIGHT if sum(1 for _ in reader.items()) == 5001 else WRONG

    assert in_child(work) == RIGHT
    assert is_sound(path, BOOT)
