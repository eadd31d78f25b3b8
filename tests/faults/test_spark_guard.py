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
from penstock.runtime.spark.quarantine import Quarantine, deaths_noted, read_note
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
from penstock.runtime.spark.quarantine import Quarantine

with Quarantine(Path(sys.argv[1])) as quarantine:
    quarantine.now[0] = 7
    print("noted", flush=True)
    time.sleep(1_000)
"""


@contextmanager
def noted(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Give a process that has noted position 7 and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", NOTED, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "noted\n"
        yield process
        process.kill()


def run_local(how: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOCAL, how],
        capture_output=True,
        check=False,
        cwd=TOP,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("how", ["loop_in_c", "loop_and_catch"])
def test_handler_that_cannot_be_interrupted_ends_its_process(how: str) -> None:
    """A loop in C, or one that swallows the interruption, dies with a traceback that shows it."""
    ended = run_local(how)
    assert ended.returncode == -signal.SIGPROF
    assert how in ended.stderr


@pytest.mark.parametrize("how", ["loop", "hoard", "recurse"])
def test_handler_that_can_be_interrupted_costs_itself_only(how: str) -> None:
    """A loop, an allocation and a recursion without end are undone, and the process goes on."""
    ended = run_local(how)
    assert (ended.returncode, ended.stdout) == (0, "limit-exceeded\n")


def test_note_outlives_its_process_and_two_deaths_accuse(tmp_path: Path) -> None:
    """A request that ran at one death runs again; a request that ran at two is poisonous."""
    path = tmp_path / "e1-r1-t0.running"
    for deaths in (1, 2):
        with noted(path) as process:
            process.kill()
        with Quarantine(path) as quarantine:
            assert quarantine.poisoned == (frozenset() if deaths == 1 else {7})
            assert read_note(path) is None
    assert not path.exists()
    assert deaths_noted(tmp_path) > 0


@pytest.mark.parametrize(("kills_a_death", "accused"), [(1, 7), (0, 9)])
def test_a_death_for_want_of_memory_accuses_what_grew(
    tmp_path: Path, kills_a_death: int, accused: int
) -> None:
    """The system kills a large process while a small request runs in it; that request is innocent."""
    path = tmp_path / "e1-r1-t0.running"
    kills, held = [0], []
    for _ in range(2 + kills_a_death):
        quarantine = Quarantine(path, lambda: sum(kills)).__enter__()
        assert quarantine.poisoned == frozenset()
        for position in (6, 7, 8):
            quarantine.now[0] = position
            if position == 7:
                held.append(b"x" * (128 << 20))
            if quarantine.careful:
                quarantine.measure()
        quarantine.now[0] = 9  # where it dies
        kills.append(kills_a_death)
    with Quarantine(path, lambda: sum(kills)) as quarantine:
        assert quarantine.poisoned == {accused}


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


def test_watchdog_warns_before_it_kills(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A watchdog that could not look for long warns first, because it has not seen the process hang."""
    watchdog = Watchdog(tmp_path, stuck_s=10.0)
    with noted(tmp_path / "e4-r2-t1.running") as process:
        watchdog._look(0.0)
        watchdog._look(60.0)
        assert process.poll() is None
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        watchdog._look(61.0)
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
