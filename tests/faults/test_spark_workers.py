"""Workers, Java and drivers die or sleep in the middle of their work; nothing is lost, and nothing happens twice.

`scripts/faults` repeats this with fresh seeds.
"""

import random
import signal
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.core.context import SparkContext

from penstock.errors import Fenced
from penstock.journal.api import Commit
from penstock.journal.delta import DeltaJournal
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.runtime import SparkRuntime
from tests.faults.driver_process import GAVE_UP, DriverProcess
from tests.faults.history import Watch
from tests.faults.load import Bank, Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

SEVERAL_TASKS: dict[str, Any] = {"small_epoch": 0, "epoch_records_max": 150}
ONE_TASK: dict[str, Any] = {}  # epochs run in the resident task


@pytest.mark.turns(1, "runtime", "process", "engine", of="faults of an application under load")
def test_the_dead_and_the_stopped_are_replaced(tmp_path: Path, seed: int) -> None:
    """Two processes wait for the lock, each of them is the driver once, and all requests happen once.

    Meanwhile, the workers of both are killed, and stopped for a while or for ever; the first one is stopped and continued
    with all that runs below it, and then killed. Beside the second one a third is refused; it stops when its next epoch
    exists already.
    """
    workload, data, draw = Bank(), tmp_path / "data", random.Random(seed)
    watch = Watch(workload.app, data, workload.conserved)
    with ExitStack() as stack:
        drivers = [
            stack.push(DriverProcess(workload.spec, data, standby=True, stuck_s=2, **settings))
            for settings in (SEVERAL_TASKS, ONE_TASK)
        ]
        for waits in drivers:
            wait_for(partial(waits.has, "ready"), f"a standby: {waits.errors()[-3_000:]}")
        with Load(workload, data, seed) as load:
            (first,) = wait_for(partial(started, drivers), "a driver")
            hurt_workers(first, load, draw, of_several=first is drivers[0])
            watch.check(dict(load.acknowledged))
            for whole in (False, True):
                stop_for_a_while(first, load, drivers, watch, whole=whole)
            sleepers = first.workers()  # none if it has ended
            for one in [*sleepers, *([first.process] if first.alive else [])]:
                send(one, signal.SIGSTOP)
            first.kill()
            wait_for(
                lambda: not any(one.is_running() for one in sleepers),
                "the end of the processes that a dead driver left stopped",
            )
            (second,) = wait_for(partial(started, drivers), "the takeover")
            hurt_workers(second, load, draw, of_several=second is drivers[0])
            load.stop()
            wait_for(load.is_all_committed, "the answer to everything")
            load.send_again()
            watch.check(load.acknowledged, all_answered=True)
            assert str(second.pid) in refused_beside(workload.spec, data)
            assert second.alive
            with closing(DataDirectory(data).open_journal_of(workload.app.name)) as journal:
                commit_for_another(journal)
            load.send(5)
            assert second.wait_end() == GAVE_UP
            assert second.last("failed")["code"] == Fenced.code


def refused_beside(spec: str, data: Path) -> str:
    """Start a runtime beside the driver; return why it is refused, before Spark starts."""
    runtime = SparkRuntime(spec, Config(data, cores=2, partitions=2))
    try:
        with pytest.raises(Fenced) as error:
            runtime.start()
    finally:
        runtime.stop()
    assert SparkContext._active_spark_context is None
    return str(error.value)


def commit_for_another(journal: DeltaJournal) -> None:
    """Commit the next epoch, as a driver of another machine does."""
    last = journal.last()
    assert last is not None
    journal.commit(Commit(type(last.epoch)(last.epoch + 1), last.positions, (), last.time_us))


def hurt_workers(
    driver: DriverProcess, load: Load, draw: random.Random, *, of_several: bool
) -> None:
    """Kill and stop workers; the others go on, and one that is continued in time lives."""
    if of_several:
        for _ in range(5):
            load.wait_for_more(driver, 100)
            signal_one(driver, draw, signal.SIGKILL)
        load.wait_for_more(driver, 100)
        sleeper = signal_one(driver, draw, signal.SIGSTOP)
        wait_for(lambda: named(driver, sleeper, "makes no progress"), "the watchdog's warning")
        sleeper.send_signal(signal.SIGCONT)
        load.wait_for_more(driver, 100)
        wait_for_end(signal_one(driver, draw, signal.SIGSTOP))
    else:
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP):
            load.wait_for_more(driver, 100)
            wait_for_end(signal_one(driver, draw, number))
    load.wait_for_more(driver, 100)


def stop_for_a_while(
    driver: DriverProcess,
    load: Load,
    drivers: Sequence[DriverProcess],
    watch: Watch,
    *,
    whole: bool,
) -> None:
    """Stop what runs below a driver, and perhaps the driver, until requests wait; then the backlog is processed."""
    if not driver.alive:
        return
    stopped = [*driver.below(""), *([driver.process] if whole else [])]
    for process in stopped:
        send(process, signal.SIGSTOP)
    watch.check(dict(load.acknowledged))  # more are acknowledged meanwhile
    wait_for(load.is_full, "a backlog while nothing runs")
    # A driver may end by itself while its Java is stopped; a stopped driver cannot.
    others = [one for one in drivers if one is not driver and one.has("started")]
    assert not others or not driver.alive, "the stopped driver has the lock"
    for process in stopped:
        send(process, signal.SIGCONT)
    goal = load.committed + 200  # Java may not survive a long stop: then another driver goes on
    wait_for(lambda: load.committed >= goal, "the end of the backlog")


def started(drivers: Iterable[DriverProcess]) -> list[DriverProcess]:
    """Return the processes that are alive, and process requests or have processed them."""
    return [driver for driver in drivers if driver.alive and driver.has("started")]


def send(process: psutil.Process, signal_number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):  # an idle worker may end meanwhile
        process.send_signal(signal_number)


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
