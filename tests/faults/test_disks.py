"""A disk that is full, and processes that are stopped: under load, checked from outside.

`scripts/faults` repeats these tests, and those of `test_power_cuts`, with fresh seeds for as long as it is told.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.faults.disk import Disk, missing_for_disks
from tests.faults.driver_process import DriverProcess
from tests.faults.history import Watch
from tests.faults.load import Bank, Load, Shop
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

MEGABYTES = 96


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if missing := missing_for_disks():
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(missing)
        pytest.skip(missing)
    with Disk(tmp_path, MEGABYTES) as mounted:
        yield mounted


def test_a_full_disk_refuses_and_goes_on_when_it_has_space(disk: Disk, seed: int) -> None:
    """While nothing can be written, nothing is acknowledged; afterwards everything is answered, without a restart."""
    bank = Bank()
    watch = Watch(bank.app, disk.path, bank.conserved)
    with (
        Load(bank, disk.path, seed, most=300) as load,
        DriverProcess(bank.spec, disk.path) as driver,
    ):
        load.finish()
        for _ in range(2):
            disk.fill()
            load.send_until_refused()
            watch.check(load.acknowledged)
            disk.make_space()
            load.send(100)
            wait_for(load.is_all_committed, "an answer to everything")
            assert driver.alive
        driver.stop()
    watch.check(load.acknowledged, all_answered=True)


def test_stopped_processes_go_on_or_are_replaced(tmp_path: Path, seed: int) -> None:
    """A driver that is stopped and continued loses nothing; one that ends has a successor, and before that has none."""
    shop, data = Shop(), tmp_path / "data"
    watch = Watch(shop.app, data, shop.conserved)
    with ExitStack() as stack:
        load = stack.enter_context(Load(shop, data, seed))
        active = stack.enter_context(DriverProcess(shop.spec, data))
        standby = DriverProcess(shop.spec, data, standby=True)
        stack.push(standby)  # it starts when the other driver has ended
        wait_for(partial(standby.has, "ready"), "a standby")
        load.wait_for_more(active, 200)
        for whole in (False, True):
            stopped = [*active.below(""), *([active.process] if whole else [])]
            for process in stopped:
                send(process, signal.SIGSTOP)
            watch.check(dict(load.acknowledged))  # more are acknowledged meanwhile
            wait_for(load.is_full, "a backlog while nothing runs")
            # A driver may end by itself while its Java is stopped; a stopped driver cannot.
            assert not standby.has("started") or not active.alive, "the stopped driver has the lock"
            for process in stopped:
                send(process, signal.SIGCONT)
            goal = (
                load.committed + 200
            )  # Java may not survive a long stop: then the standby goes on
            wait_for(partial(reached, load, goal), "the end of the backlog")
            if not active.alive:
                break
        if active.alive:
            send(active.process, signal.SIGSTOP)
        active.kill()
        wait_for(partial(standby.has, "started"), "the takeover")
        load.wait_for_more(standby, 200)
        load.stop()
        wait_for(load.is_all_committed, "an answer to everything")
        standby.stop()
    watch.check(load.acknowledged, all_answered=True)


def reached(load: Load, goal: int) -> bool:
    return load.committed >= goal


def send(process: psutil.Process, signal_number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):  # an idle worker may end meanwhile
        process.send_signal(signal_number)
