"""Deaths, races and a full disk around local state: it is never half of an epoch."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, entity_key
from penstock.errors import StateUnavailable
from penstock.state import environment
from penstock.state.digest import digest_of_mapping
from penstock.state.examine import is_sound
from penstock.state.lmdb import LmdbState
from penstock.state.partition_spec import WHOLE
from penstock.state.stores import Stores, catch_up
from tests.faults.state_cases import (
    BOOT,
    LAST,
    PAGE,
    RIGHT,
    WRONG,
    content,
    ended,
    in_child,
    journal_of,
    started,
    states_at,
)
from tests.memory_journal import MemoryJournal

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def journal() -> MemoryJournal:
    return journal_of(LAST + 1)


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


READING = """
import os, sys
from pathlib import Path
from penstock.state.lmdb import LmdbState
state = LmdbState(Path(sys.argv[1]), "journal", boot_id=sys.argv[2])
with state.reader():
    print(flush=True)
    sys.stdin.readline()
"""


def test_killed_reader_pins_nothing(tmp_path: Path) -> None:
    """The slot of a reader that was killed is freed by the next apply."""
    path = tmp_path / "store"
    state = LmdbState(path, "journal", boot_id=BOOT)
    with subprocess.Popen(
        [sys.executable, "-c", READING, str(path), BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "\n"
        slots = state._environment._lmdb.readers
        assert f" {child.pid} " in slots()
        child.kill()
    assert f" {child.pid} " in slots()
    state.apply(Epoch(0), [], BEFORE_FIRST)
    assert f" {child.pid} " not in slots()
    state.close()


@pytest.mark.parametrize("writes", range(3))
def test_catch_up_killed_again_and_again_converges(
    journal: MemoryJournal, tmp_path: Path, writes: int
) -> None:
    """Processes that die after any write of a catch-up leave a store that the next one completes."""

    def work() -> int:
        left = writes

        def die(_epoch: Epoch, _changes: int) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        state = LmdbState(tmp_path / "partition-0-of-1", journal.identity, boot_id=BOOT)
        catch_up(state, journal, LAST, WHOLE, die, batch=1)
        return RIGHT

    deaths = 0
    while in_child(work) == -signal.SIGKILL:
        deaths += 1
        assert deaths <= LAST + 1
    assert deaths >= 2
    assert content(tmp_path, journal) == digest_of_mapping(states_at(LAST))


def test_processes_that_catch_up_at_once_agree(journal: MemoryJournal, tmp_path: Path) -> None:
    """Several processes may bring the same stores to an epoch at once; each sees all of it."""

    def work() -> int:
        stores = Stores(tmp_path, journal, 2, boot_id=BOOT)
        with stores.at(LAST) as reader:
            return RIGHT if dict(reader.items()) == states_at(LAST) else WRONG

    children = [started(work) for _ in range(4)]
    statuses = [ended(child) for child in children]
    assert statuses == [RIGHT] * 4


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


def mixed_store(path: Path) -> dict[EntityKey, bytes]:
    """Make a store whose rows came in two epochs, and return them."""
    rows = {entity_key("Item", f"{n:04}"): b"%d" % n for n in range(4000)}
    state = LmdbState(path, "journal", boot_id=BOOT)
    state.apply(Epoch(0), list(rows.items())[::2], BEFORE_FIRST)
    state.apply(Epoch(1), list(rows.items())[1::2], Epoch(0))
    state.close()
    return rows


@pytest.mark.parametrize("step", ["_gate", "copy_to", "_write_life", "_move_away", "_take_place"])
def test_killed_rewriting_leaves_a_store(tmp_path: Path, step: str) -> None:
    """After the death of a process that rewrites a store, behind any step, the store has all rows, and no file of it is left."""
    path = tmp_path / "store"
    rows = mixed_store(path)

    def work() -> int:
        state = LmdbState(path, "journal", boot_id=BOOT)
        owner = environment.Environment if step == "copy_to" else environment
        original = getattr(owner, step)

        def dying(*arguments: object) -> object:
            result = original(*arguments)
            if step == "_gate":
                return result  # the folder is made inside of it, and the copy begins behind it
            os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, step, dying)
        if step == "_gate":
            environment.Environment.copy_to = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        state.rewrite()
        return WRONG

    assert in_child(work) == -signal.SIGKILL
    state = LmdbState(path, "journal", boot_id=BOOT)
    with state.reader() as reader:
        assert (reader.epoch, dict(reader.items())) == (1, rows)
    state.rewrite()
    state.close()
    assert sorted(each.name for each in tmp_path.iterdir()) in (
        ["store", "store.gate"],
        ["store", "store.gate", "store.rewritten.gate"],
    )
    assert is_sound(path, BOOT)


def test_full_disk_leaves_the_former_store(tmp_path: Path) -> None:
    """A rewriting that finds no space raises the operational error, leaves nothing behind, and the store goes on."""
    path = tmp_path / "store"
    rows = mixed_store(path)

    def work() -> int:
        state = LmdbState(path, "journal", boot_id=BOOT)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 * PAGE, hard))
        try:
            state.rewrite()
        except StateUnavailable:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        else:
            return WRONG
        state.apply(Epoch(2), [(entity_key("Item", "new"), b"new")], Epoch(1))
        with state.reader() as reader:
            found = dict(reader.items())
        left = (tmp_path / "store.rewritten").exists()
        is_right = found == {**rows, entity_key("Item", "new"): b"new"} and not left
        return RIGHT if is_right and not state.replaced else WRONG

    assert in_child(work) == RIGHT
    assert is_sound(path, BOOT)


def test_stores_go_on_when_space_returns(journal: MemoryJournal, tmp_path: Path) -> None:
    """A catch-up that met a full disk raises the operational error, and works once there is space."""

    def work() -> int:
        stores = Stores(tmp_path, journal, 1, boot_id=BOOT)
        stores.catch_up_one(0, BEFORE_FIRST)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 * PAGE, hard))
        try:
            stores.catch_up_one(0, LAST)
        except StateUnavailable:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        else:
            return WRONG
        with stores.at(LAST) as reader:
            return RIGHT if dict(reader.items()) == states_at(LAST) else WRONG

    assert in_child(work) == RIGHT
    assert content(tmp_path, journal) == digest_of_mapping(states_at(LAST))
