"""Workers die or sleep in the middle of their work; nothing is lost, and nothing happens twice."""

import random
import signal
from pathlib import Path

import psutil
import pytest

from tests.faults.driver_process import DriverProcess
from tests.faults.history import Watch
from tests.faults.load import Bank, Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

SEVERAL_TASKS = {"small_epoch": 0, "epoch_records_max": 150}


def test_workers_killed_and_stopped_from_outside(tmp_path: Path, seed: int) -> None:
    """SIGKILL and SIGSTOP of workers cost time only, waking up or not; stopping under load loses nothing."""
    workload, data, draw = Bank(), tmp_path / "data", random.Random(seed)
    watch = Watch(workload.app, data, workload.conserved)
    with Load(workload, data, seed) as load:
        with DriverProcess(workload.spec, data, stuck_s=2, **SEVERAL_TASKS) as driver:
            for _ in range(5):
                load.wait_for_more(driver, 100)
                signal_one(driver, draw, signal.SIGKILL)
            load.wait_for_more(driver, 100)
            sleeper = signal_one(driver, draw, signal.SIGSTOP)
            wait_for(lambda: named(driver, sleeper, "makes no progress"), "the watchdog's warning")
            sleeper.send_signal(signal.SIGCONT)
            load.wait_for_more(driver, 100)
            sleeper = signal_one(driver, draw, signal.SIGSTOP)
            wait_for(lambda: not sleeper.is_running(), "the end of the stopped worker")
            load.wait_for_more(driver, 100)
            watch.check(dict(load.acknowledged))
            sleeper = signal_one(driver, draw, signal.SIGSTOP)
            driver.kill()
            wait_for(
                lambda: not sleeper.is_running(),
                "the end of the process that a dead driver left stopped",
            )
        with DriverProcess(
            workload.spec, data, stuck_s=2
        ) as driver:  # epochs run in the resident task
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP):
                load.wait_for_more(driver, 100)
                wait_for_end(signal_one(driver, draw, number))
            load.wait_for_more(driver, 100)
            driver.stop()
        load.stop()
        watch.check(load.acknowledged)


def signal_one(driver: DriverProcess, draw: random.Random, number: int) -> psutil.Process:
    """Send a signal to one of the workers that execute tasks."""
    while True:
        chosen: psutil.Process = draw.choice(wait_for(driver.workers, "a worker"))
        driver.note_below()
        try:
            chosen.send_signal(number)
        except psutil.NoSuchProcess:  # it ended meanwhile
            continue
        return chosen


def wait_for_end(worker: psutil.Process) -> None:
    wait_for(lambda: not worker.is_running(), "the end of the worker")


def named(driver: DriverProcess, process: psutil.Process, words: str) -> bool:
    return any(
        words in one["message"] and one.get("worker") == process.pid for one in driver.logs()
    )
