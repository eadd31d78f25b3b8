"""When the driver takes a snapshot."""

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.journal.api import Commit
from penstock.process.config import Config, HistoryConfig
from penstock.runtime.spark.maintenance_scheduler import MaintenanceScheduler
from tests.memory_journal import MemoryJournal

REQUESTS = 10  # of each epoch
SECONDS = 1_000  # from one epoch to the next
NEVER = {"snapshot_epochs": 0, "snapshot_requests": 0, "snapshot_s": 0}


@pytest.mark.parametrize(
    ("setting", "bound", "first_due"),
    [
        ("snapshot_epochs", 3, 3),
        ("snapshot_requests", 5 * REQUESTS, 5),
        ("snapshot_s", 4 * SECONDS, 4),
    ],
)
def test_each_bound_makes_a_snapshot_due(
    tmp_path: Path, setting: str, bound: int, first_due: int
) -> None:
    """A snapshot is due when one bound is reached; a bound of 0 makes none due."""
    history = HistoryConfig(**{**NEVER, setting: bound})
    nothing: Any = None
    config = Config(tmp_path, history=history)
    scheduler = MaintenanceScheduler(config, nothing, MemoryJournal(), nothing)
    began = scheduler._snapshot_s
    due = []
    for count in range(1, 7):
        scheduler._snapshot_s = began - count * SECONDS
        commit = Commit(
            Epoch(BEFORE_FIRST + count), {LogPartition(0): Lsn(count * REQUESTS)}, (), time_us=0
        )
        due.append(scheduler._snapshot_due(commit))
    assert due == [count >= first_due for count in range(1, 7)]
    assert time.monotonic() - began < SECONDS


def test_a_full_disk_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Java's hundred lines about it help nobody; any other failure has its traceback."""
    MaintenanceScheduler._tell(RuntimeError("java.nio.…: No space left on device\\n\\tat org.…"))
    MaintenanceScheduler._tell(RuntimeError("a bug"))
    full, other = caplog.records
    assert (full.__dict__["cause"], full.exc_info) == ("the disk is full; make space", None)
    assert other.exc_info is not None


class PaidJournal(MemoryJournal):
    """Counts what a journal in a store would ask for.

    Attributes:
        asked: The names of these methods.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def known(self) -> Commit | None:
        return super().last()

    def last(self) -> Commit | None:
        self.asked.append("last")
        return super().last()

    def merged(self) -> Epoch:
        self.asked.append("merged")
        return super().merged()


def test_idle_driver_asks_the_journal_for_nothing(tmp_path: Path) -> None:
    """The length of the journal is measured once after each epoch, and the driver knows its own commits."""
    nothing: Any = None
    config = Config(tmp_path, history=HistoryConfig(**NEVER))
    journal = PaidJournal()
    scheduler = MaintenanceScheduler(config, nothing, journal, nothing)
    for epoch in range(2):
        journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(epoch)}, (), time_us=0))
        journal.asked.clear()
        for _ in range(3):
            scheduler._look()
        assert journal.asked == ["merged"]
