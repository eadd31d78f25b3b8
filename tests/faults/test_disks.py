"""A disk that is full, and a machine that loses its power: under load, checked from outside.

`scripts/faults` repeats this with fresh seeds for as long as it is told.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import Disk, missing_for_disks
from tests.faults.driver_process import DriverProcess
from tests.faults.history import Watch
from tests.faults.load import Bank, Load
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

MEGABYTES = 96
BEGINNING = 300


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if missing := missing_for_disks():
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(missing)
        pytest.skip(missing)
    with Disk(tmp_path, MEGABYTES) as mounted:
        yield mounted


@pytest.mark.turns(
    1,
    *("runtime", "process", "engine", "log", "journal", "state", "files"),
    of="faults of an application under load",
)
def test_a_full_disk_and_a_power_cut_lose_nothing_that_was_acknowledged(
    disk: Disk, seed: int
) -> None:
    """While nothing can be written, nothing is acknowledged; afterwards everything is answered, without a restart.

    What was acknowledged, and what a reader saw, is on the disk when the power is back, and the rest goes on.
    """
    bank, draw = Bank(), random.Random(seed)
    watch = Watch(bank.app, disk.path, bank.conserved)
    with DriverProcess(bank.spec, disk.path) as driver:
        with Load(bank, disk.path, seed, most=BEGINNING) as load:
            load.finish()
            for _ in range(2):
                fill_for_a_while(disk, load, watch)
                assert driver.alive
        acknowledged, first = load.acknowledged, load.sent
        watch.check(acknowledged, all_answered=True)
        with Load(bank, disk.path, seed + 1, first=first, refusable=True) as load:
            load.wait_for_more(driver, draw.randrange(50, 800))
            watch.check(acknowledged | load.acknowledged)
            # Not what is acknowledged during the cut: a flush that runs then may report a success that the disk
            # does not have. See `Disk.cut_power`.
            acknowledged |= load.acknowledged
            disk.cut_power()
            driver.kill()
            load.send_until_refused()
            first = load.sent
    disk.power_up()
    watch.check(acknowledged)
    with DriverProcess(bank.spec, disk.path) as driver:
        with Load(bank, disk.path, seed, most=first + 50, first=first) as load:
            load.finish()
            wait_for(load.is_all_committed, "an answer to everything")
            acknowledged |= load.acknowledged
        driver.stop()
    watch.check(acknowledged, all_answered=True)


def fill_for_a_while(disk: Disk, load: Load, watch: Watch) -> None:
    """Fill the disk until the log refuses; with space, everything is answered."""
    disk.fill()
    load.send_until_refused()
    watch.check(load.acknowledged)
    disk.make_space()
    load.send(100)
    wait_for(load.is_all_committed, "an answer to everything")
