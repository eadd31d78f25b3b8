"""A machine that loses its power under load, checked from outside; `scripts/faults` repeats it with fresh seeds."""

import random

import pytest

from penstock.base.ids import Lsn, RequestId
from tests.faults.disk import Disk
from tests.faults.driver_process import DriverProcess
from tests.faults.history import Watch
from tests.faults.load import Load, Shop
from tests.faults.test_disks import disk
from tests.waiting import wait_for

__all__ = ["disk"]

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

CUTS = 1


def test_a_power_cut_loses_nothing_that_was_acknowledged(disk: Disk, seed: int) -> None:
    """What was acknowledged, and what a reader saw, is on the disk after the power is back, and the rest goes on."""
    shop, draw = Shop(), random.Random(seed)
    watch = Watch(shop.app, disk.path, shop.conserved)
    acknowledged: dict[RequestId, Lsn] = {}
    first = 0
    for number in range(CUTS):
        with (
            Load(shop, disk.path, seed + number, first=first, refusable=True) as load,
            DriverProcess(shop.spec, disk.path) as driver,
        ):
            load.wait_for_more(driver, draw.randrange(50, 800))
            watch.check(load.acknowledged | acknowledged)
            # Not what is acknowledged during the cut: a flush that runs then may report a success that the disk
            # does not have. See `Disk.cut_power`.
            acknowledged |= load.acknowledged
            disk.cut_power()
            driver.kill()
            load.send_until_refused()
            first = load.sent
        disk.power_up()
        watch.check(acknowledged)
    with DriverProcess(shop.spec, disk.path) as driver:
        with Load(shop, disk.path, seed, most=first + 50, first=first) as load:
            load.finish()
            wait_for(load.is_all_committed, "an answer to everything")
            acknowledged |= load.acknowledged
        driver.stop()
    watch.check(acknowledged, all_answered=True)
