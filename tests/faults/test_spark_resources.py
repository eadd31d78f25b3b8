"""Full disks and long backlogs: the runtime waits, keeps its size, and goes on."""

import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.driver_process import GAVE_UP, DriverProcess
from tests.faults.history import Watch
from tests.faults.load import Bank, Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

BACKLOG = 10_000
EPOCH = 4_000  # records at most
PYTHON_BYTES_MAX = 600 << 20
JAVA_BYTES_MAX = 2 << 30
RESTARTED = "the query failed and is restarted"
FAILURES = 6  # one more than a failure may repeat if a request could be its cause


@pytest.mark.turns(1, "runtime", "process", "engine", of="faults of an application under load")
def test_backlog_and_full_disk_delay_and_lose_nothing(tmp_path: Path, seed: int) -> None:
    """A driver that starts with a backlog of several epochs answers all, within bounded memory.

    Then workers, Spark or the driver cannot write: nothing is acknowledged, and afterwards all is. In the end its Java
    process is killed: the driver ends in good order, so that its supervisor starts another one.
    """
    bank, data = Bank(), tmp_path / "data"
    watch = Watch(bank.app, data, bank.conserved)
    with Load(bank, data, seed, most=0) as load:
        load.send(BACKLOG)
        largest = {"python": 0, "java": 0}
        # Java writes files only between two micro-batches, so each micro-batch ends with its first epoch.
        with DriverProcess(bank.spec, data, batch_ms=0, epoch_records_max=EPOCH) as driver:

            def caught_up() -> bool:
                assert driver.alive, driver.errors()[-3_000:]
                for process in [psutil.Process(driver.pid), *driver.below("")]:
                    note_size(process, largest)
                return load.committed == len(load.acknowledged)

            wait_for(caught_up, "an answer to everything", 300, look_s=0.25)
            assert max(one["records"] for one in driver.epochs()) <= EPOCH < BACKLOG // 2
            watch.check(load.acknowledged, all_answered=True)
            for whom in (workers_and_parents, java, itself):
                # An open micro-batch needs no file of Java, so its epochs go on after the failure.
                failures = 1 if whom is java else FAILURES
                limit_files(whom(driver), 0)
                load.send(50)
                wait_for_failures(driver, len(driver.logged(RESTARTED)) + failures)
                watch.check(load.acknowledged)
                if whom is not java:
                    assert len(watch.rows) == load.committed == len(load.acknowledged) - 50
                limit_files(whom(driver), resource.RLIM_INFINITY)
                wait_for(
                    lambda: load.committed == len(load.acknowledged), "an answer to everything"
                )
            driver.note_below()
            for process in java(driver):
                process.kill()
            assert driver.wait_end() == GAVE_UP, driver.errors()[-3_000:]
            assert "Java process has ended" in driver.last("failed")["message"]
        watch.check(load.acknowledged, all_answered=True)
        assert 0 < largest["python"] < PYTHON_BYTES_MAX
        assert 0 < largest["java"] < JAVA_BYTES_MAX


def limit_files(processes: Sequence[psutil.Process], size: int) -> None:
    """Let no process write a file beyond a size; those that are forked later inherit it."""
    assert processes
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # an idle worker may end meanwhile
            process.rlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def workers_and_parents(driver: DriverProcess) -> list[psutil.Process]:
    return driver.below("-m penstock.runtime.spark.daemon")


def java(driver: DriverProcess) -> list[psutil.Process]:
    return driver.below("bin/java")


def itself(driver: DriverProcess) -> list[psutil.Process]:
    return [psutil.Process(driver.pid)]


def wait_for_failures(driver: DriverProcess, count: int) -> None:
    def failed() -> bool:
        assert driver.alive, driver.logs()[-10:]
        return len(driver.logged(RESTARTED)) >= count

    wait_for(failed, "repeated failures")


def note_size(process: psutil.Process, largest: dict[str, int]) -> None:
    """Remember the largest private memory seen; mapped stores are shared and can be dropped."""
    try:
        kind = "java" if "java" in process.name() else "python"
        memory = process.memory_info()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return
    largest[kind] = max(largest[kind], memory.rss - memory.shared)
