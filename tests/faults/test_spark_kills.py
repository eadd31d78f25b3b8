"""The driver is killed at every named step of an epoch, and its surroundings are damaged meanwhile.

Several kills go one after the other on one data directory: a start of Spark takes seconds.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.process.fault import STEPS
from tests.faults.driver_process import KILLED, DriverProcess
from tests.faults.history import Watch
from tests.faults.load import Bank, Load, Shop, Workload
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(600)]

WORKER_STEPS = ("in-round", "between-parts", "in-apply")
DRIVER_STEPS = tuple(step for step in STEPS if step not in WORKER_STEPS)

MULTI: dict[str, Any] = {"partitions": 2, "small_epoch": 0, "epoch_records_max": 150}
MULTI_3: dict[str, Any] = {"partitions": 3, "small_epoch": 20, "epoch_records_max": 120}
WORKERS = 2  # how many die before their driver does
SMALL: dict[str, Any] = {"partitions": 2, "small_epoch": 400, "epoch_records_max": 200}


def nothing(data: Path) -> None:
    """Leave everything as it is."""


def delete_checkpoint(data: Path) -> None:
    shutil.rmtree(data / "checkpoint")


def cut_checkpoint(data: Path) -> None:
    """Cut the newest file of each of Spark's logs."""
    for name in ("offsets", "commits"):
        files = [one for one in (data / "checkpoint" / name).iterdir() if one.name.isdecimal()]
        newest = max(files, key=lambda one: int(one.name))
        newest.write_bytes(newest.read_bytes()[:5])


def flip_metadata(data: Path) -> None:
    (data / "checkpoint" / "metadata").write_bytes(b"\x00not json")


def flip_state(data: Path) -> None:
    """Flip bits all over a partition's store."""
    files = [one for one in (data / "state" / "partition-0").rglob("*") if one.stat().st_size]
    largest = max(files, key=lambda one: one.stat().st_size)
    content = bytearray(largest.read_bytes())
    for at in range(100, len(content), 997):
        content[at] ^= 0x10
    largest.write_bytes(content)


def delete_state(data: Path) -> None:
    shutil.rmtree(data / "state")


@dataclass(frozen=True)
class Life:
    """One start of a driver, its end, and what happens to its files after that."""

    step: str
    settings: dict[str, Any] = field(default_factory=dict)
    then: Callable[[Path], None] = nothing


def live(workload: Workload, data: Path, seed: int, lives: Sequence[Life]) -> Watch:
    """Run one life after the other under load, and a last one to its graceful end."""
    watch = Watch(workload.app, data, workload.conserved)
    with Load(workload, data, seed) as load:
        for life in lives:
            with DriverProcess(
                workload.spec, data, fault=f"{life.step}@2", **life.settings
            ) as driver:
                if life.step in WORKER_STEPS:
                    driver.wait_for_dead_workers(WORKERS)
                    driver.kill()
                assert driver.wait_end() == KILLED, driver.errors()[-3_000:]
            watch.check(dict(load.acknowledged))
            life.then(data)
        with DriverProcess(workload.spec, data, **lives[0].settings) as driver:
            load.stop()
            wait_for(lambda: load.committed == len(load.acknowledged), "the answer to everything")
            answers = watch.answers
            load.send_again()
            driver.stop()
        watch.check(load.acknowledged, all_answered=True)
        assert {one: watch.answers[one] for one in answers} == answers
    return watch


def test_kill_at_every_step_with_several_tasks(tmp_path: Path, seed: int) -> None:
    """However the driver of a parallel epoch dies, checkouts are neither lost nor doubled."""
    surgery = [delete_checkpoint, flip_state, cut_checkpoint, nothing, delete_state, flip_metadata]
    lives = [Life(step, MULTI, then) for step, then in zip(DRIVER_STEPS, surgery, strict=True)]
    live(Shop(), tmp_path / "data", seed, lives)


def test_kills_of_workers_and_drivers_while_partitions_change(tmp_path: Path, seed: int) -> None:
    """Workers die at their steps, then the driver, and each start has other partitions."""
    settings = (SMALL, MULTI_3, MULTI)
    lives = [Life(step, given) for step, given in zip(WORKER_STEPS, settings, strict=True)]
    live(Bank(), tmp_path / "data", seed, lives)
