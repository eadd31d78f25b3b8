"""The protection of a worker, tried without Spark: the guard, the notes, the lock, the watchdog."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from penstock.errors import Fenced
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.quarantine import (
    NextNote,
    Quarantine,
    condemned_in,
    deaths_noted,
    read_note,
)
from penstock.runtime.spark.watchdog import Watchdog
from tests.checkout import TOP
from tests.waiting import wait_for

pytestmark = pytest.mark.faults

LOCAL = """
import sys
from penstock.engine.execute import Limits
from penstock.model.call import Call
from penstock.runtime.local.runtime import LocalRuntime
from tests.faults.poison import app

runtime = LocalRuntime(app, limits=Limits(time_ms=100))
one = runtime.call.Account.create("one")
print(runtime.submit(Call("Account", "one", "poison", (sys.argv[1], one))).error, flush=True)
"""

NOTED = """
import sys, time
from pathlib import Path
from penstock.engine.limits import TimeLimit
from penstock.runtime.spark.quarantine import Quarantine

with Quarantine(Path(sys.argv[1])) as quarantine:
    quarantine.now[0] = 7
    if len(sys.argv) > 2:
        quarantine.note_due(TimeLimit(50, 60_000), *map(int, sys.argv[2:]))
    print("noted", flush=True)
    while True:
        time.sleep(1_000) if len(sys.argv) < 3 else None
"""


GUARDED = """
import sys
from pathlib import Path
from penstock.base.ids import RequestId
from penstock.engine.execute import Executor, Limits
from penstock.process.guard import Guard
from penstock.runtime.spark.quarantine import Quarantine
from tests.faults.poison import app

limits, state = Limits(time_ms=200, wall_ms=2_000), {}
executor = Executor(app, state.get, limits)
one = app.entities["Account"].of_text("one")

def run(method, *arguments):
    body, _ = app.request("Account", "one", method, arguments)
    outcome = executor.run(RequestId(method), body, 0)
    state.update(outcome.writes)
    return outcome.error

with Quarantine(Path(sys.argv[1])) as quarantine:
    for position in range(10):
        quarantine.now[0] = position
        with Guard(executor, limits, note_due=quarantine.note_due):
            match position:
                case 0:
                    run("create")
                case 7 if position not in quarantine.poisoned:
                    run("poison", sys.argv[2], one)
                case _:
                    assert run("add", 1) is None
    print(*quarantine.poisoned, flush=True)
"""


@contextmanager
def noted(path: Path, *due_ms: int) -> Iterator["subprocess.Popen[str]"]:
    """Give a process that has noted position 7 and waits; with the times by which it must have ended, it works."""
    command = [sys.executable, "-c", NOTED, str(path), *map(str, due_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "noted\n"
        try:
            yield process
        finally:
            process.kill()


def run_local(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOCAL, how],
        capture_output=True,
        check=False,
        cwd=TOP,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("how", ["loop", "loop_and_catch", "hoard", "recurse"])
def test_handler_that_can_be_interrupted_costs_itself_only(how: str) -> None:
    """A loop, also one that swallows the interrupt, an allocation and a recursion are undone, and the process goes on."""
    ended = run_local(how)
    assert (ended.returncode, ended.stdout) == (0, "limit-exceeded\n")


def test_note_outlives_its_process_and_two_deaths_accuse(tmp_path: Path) -> None:
    """A request that ran at one death runs again; a request that ran at two is poisonous."""
    path = tmp_path / "e1-r1-t0.running"
    for deaths in (1, 2):
        with noted(path) as process:
            process.kill()
        with Quarantine(path) as quarantine:
            assert quarantine.poisoned.keys() == (set() if deaths == 1 else {7})
            assert read_note(path) is None
    assert not path.exists()
    assert deaths_noted(tmp_path) > 0


def test_a_note_that_was_made_before_its_task_is_as_good(tmp_path: Path) -> None:
    """It shows what runs, is idle between tasks, and is removed by the next one; an earlier or a removed one is not used."""
    ready = NextNote()
    for epoch in (1, 2, 3):
        path = tmp_path / f"e{epoch}-r1-t0.running"
        ready.make(path)
        assert list(tmp_path.iterdir()) == [path]
        assert read_note(path) is None
        for attempt in range(2):
            if epoch == 3:
                path.unlink(missing_ok=True)
            with Quarantine(path, ready=ready) as quarantine:
                quarantine.now[0] = 7
                note = read_note(path)
                assert note is not None
                assert (note.position, note.pid) == (7, os.getpid())
            assert path.exists() == (epoch < 3 and not attempt)
    other = tmp_path / "e4-r1-t0.running"
    with Quarantine(other, ready=ready) as quarantine:
        quarantine.now[0] = 7
        assert read_note(other) is not None
    assert not other.exists()


def test_a_note_that_was_made_before_hides_no_death(tmp_path: Path) -> None:
    """Another process has run the task meanwhile, and died: its note is read, and not the one that was made."""
    path = tmp_path / "e1-r1-t0.running"
    for deaths in (1, 2):
        ready = NextNote()
        ready.make(path)
        with noted(path) as process:
            process.kill()
        with Quarantine(path, ready=ready) as quarantine:
            assert quarantine.careful
            assert quarantine.poisoned.keys() == (set() if deaths == 1 else {7})
        assert not path.exists()


@pytest.mark.parametrize(("kills_a_death", "accused"), [(1, 7), (0, 9)])
def test_a_death_for_want_of_memory_accuses_what_grew(
    tmp_path: Path, kills_a_death: int, accused: int
) -> None:
    """The system kills a large process while a small request runs in it; that request is innocent."""
    path = tmp_path / "e1-r1-t0.running"
    kills, held = [0], []
    for _ in range(2 + kills_a_death):
        quarantine = Quarantine(path, lambda: sum(kills)).__enter__()
        assert quarantine.poisoned == {}
        for position in (6, 7, 8):
            quarantine.now[0] = position
            if position == 7:
                held.append(b"x" * (128 << 20))
            if quarantine.careful:
                quarantine.measure()
        quarantine.now[0] = 9  # where it dies
        kills.append(kills_a_death)
    with Quarantine(path, lambda: sum(kills)) as quarantine:
        assert quarantine.poisoned.keys() == {accused}


def test_watchdog_names_and_then_ends_what_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A note that stays the same is named with its task, and then its process is killed."""
    caplog.set_level(logging.WARNING)
    watchdog = Watchdog(tmp_path, stuck_s=0.2)
    with noted(tmp_path / "e4-r2-t1.running") as process:
        watchdog.start()
        assert process.wait(120) == -signal.SIGKILL
    watchdog.stop()
    warning = caplog.records[0]
    assert warning.getMessage() == "a task makes no progress"
    facts = {"epoch": 4, "round": 2, "task": 1, "position": 7, "worker": process.pid}
    assert facts.items() <= vars(warning).items()


@pytest.mark.parametrize(
    ("due_ms", "setting"), [((1, 1 << 60), "time_ms = 50"), ((1 << 60, 1), "wall_ms = 60000")]
)
def test_a_clock_that_has_decided_needs_no_second_death(
    tmp_path: Path, due_ms: tuple[int, int], setting: str
) -> None:
    """A handler that is overdue for a second dies once; no task of its epoch runs it again, and its failure says why."""
    watchdog = Watchdog(tmp_path, stuck_s=1_000)
    with noted(tmp_path / "e4-r1-t1.running", *due_ms) as process:
        for look in range(1, 5):
            assert process.poll() is None
            watchdog.look(look)
        assert process.wait(60) == -signal.SIGPROF
    for name in ("e4-r1-t1", "e4-r2-t0"):
        with Quarantine(tmp_path / f"{name}.running") as quarantine:
            assert quarantine.poisoned.keys() == {7}
            assert setting in quarantine.poisoned[7].message
    with Quarantine(tmp_path / "e5-r1-t1.running") as quarantine:
        assert not quarantine.poisoned
    assert condemned_in(tmp_path, 4) == 1


@pytest.mark.parametrize("how", ["loop_in_c", "hang"])
def test_a_worker_of_a_handler_in_c_dies_once(tmp_path: Path, how: str) -> None:
    """The guard notes when the handler must have ended, and the watchdog ends it; the next attempt goes on without it."""
    path = tmp_path / "e4-r1-t1.running"
    watchdog = Watchdog(tmp_path, stuck_s=1_000)
    watchdog.start()
    command = [sys.executable, "-c", GUARDED, str(path), how]
    codes = [
        subprocess.run(command, cwd=TOP, check=False, timeout=300).returncode for _ in range(2)
    ]
    watchdog.stop()
    assert codes[0] in (-signal.SIGPROF, -signal.SIGKILL)
    assert codes[1] == 0
    assert not path.exists()
    assert condemned_in(tmp_path, 4) == 1


def test_a_handler_in_its_time_is_not_stuck(tmp_path: Path) -> None:
    """A task whose handler may run for long makes progress, however long its note stays the same; a stopped one hangs."""
    watchdog = Watchdog(tmp_path, stuck_s=1)
    with noted(tmp_path / "e4-r1-t1.running", 1 << 60, 1 << 60) as process:
        for look in range(0, 100, 10):
            watchdog.look(look)
        assert process.poll() is None
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, "a stop")
        for look in range(100, 200, 10):
            watchdog.look(look)
        assert process.wait(120) == -signal.SIGKILL


def test_watchdog_warns_before_it_kills(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A watchdog that could not look for long warns first, because it has not seen the process hang."""
    watchdog = Watchdog(tmp_path, stuck_s=10.0)
    with noted(tmp_path / "e4-r2-t1.running") as process:
        watchdog.look(0.0)
        watchdog.look(60.0)
        assert process.poll() is None
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        watchdog.look(61.0)
        assert process.wait(120) == -signal.SIGKILL


def test_watchdog_spares_strangers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A process that is not below the driver is named and never killed."""
    stranger = psutil.Process().parent()
    assert stranger is not None
    path = tmp_path / "e0-r1-t0.running"
    with Quarantine(path) as quarantine:
        quarantine.now[0] = 3
        note = path.read_bytes()
        path.write_bytes(note[:8] + stranger.pid.to_bytes(8, sys.byteorder) + note[16:])
        watchdog = Watchdog(tmp_path, stuck_s=0.1)
        watchdog.start()
        wait_for(lambda: caplog.records, "a warning")
        threading.Event().wait(0.5)
        watchdog.stop()
    assert stranger.is_running()
    assert len(caplog.records) == 1


def test_second_owner_is_fenced_until_the_first_lets_go(tmp_path: Path) -> None:
    """A data directory has one owner at a time, and the error names its process."""
    directory = DataDirectory(tmp_path)
    first = directory.claim()
    with pytest.raises(Fenced, match=str(psutil.Process().pid)):
        directory.claim()
    os.close(first)
    os.close(directory.claim())
