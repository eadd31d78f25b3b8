"""The keeper: decides when history is looked after, and has it done by a Spark job.

The job is one task, in a slot that no epoch needs, and its work runs in a process of low priority
(`history.upkeep`), so that epochs go on beside it. The keeper itself only counts. Promises that a
failure is told and tried again, and never stops an epoch.
"""

import logging
import threading
import time
from contextlib import suppress
from typing import Final

import msgspec
import psutil

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.journal.api import Commit, Journal
from penstock.process.config import Config
from penstock.retention import maintenance_process
from penstock.retention.maintenance import MaintenanceReport, compaction_policy, encode_work
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import RunMaintenance
from penstock.snapshots.snapshot import FOLDER as SNAPSHOTS
from penstock.snapshots.snapshot import Snapshots

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_TEND_S: Final = 60.0
"""So long after the last time history is looked after again, if there are new epochs, however few."""

_PAUSE_S: Final = 30.0
"""After a failure."""

_STOP_S: Final = 10.0
"""A stop waits so long for a job whose work is dead."""


class MaintenanceScheduler:
    """Watches the journal's length in a thread of its own, and starts the jobs."""

    def __init__(self, spec: str, config: Config, journal: Journal, jobs: Jobs) -> None:
        self._spec = spec
        self._config = config
        self._journal = journal
        self._jobs = jobs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="penstock-keeper", daemon=True)
        self._snapshot = BEFORE_FIRST  # the newest one
        self._requests = 0  # that it holds
        self._tended = BEFORE_FIRST  # the newest epoch when history was last looked after
        self._snapshot_s = self._tended_s = time.monotonic()

    def start(self) -> None:
        """Begin to watch."""
        newest = Snapshots(self._config.data / SNAPSHOTS, self._journal.identity).newest()
        if newest is not None:
            self._snapshot = newest.epoch
            for commit in self._journal.commits(Epoch(newest.epoch - 1), newest.epoch):
                self._requests = _requests(commit)
        self._thread.start()

    def stop(self) -> None:
        """End. The work that runs is killed, which harms nothing: the next run goes on with it."""
        self._stopping.set()
        began = time.monotonic()
        while self._thread.is_alive() and time.monotonic() - began < _STOP_S:
            for process in _at_work():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._thread.join(timeout=0.1)

    def _keep(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            try:
                self._look()
            except Exception:  # noqa: BLE001 -- whatever it is, epochs go on
                if not self._stopping.is_set():
                    _log.exception("history could not be looked after; it is tried again")
                    self._stopping.wait(_PAUSE_S)

    def _look(self) -> None:
        last = self._journal.last()
        if last is None:
            return
        snapshot = self._snapshot_due(last)
        if not snapshot and not self._merging_due(last):
            return
        work = encode_work(self._spec, self._config, snapshot=snapshot)
        [report] = self._jobs.run([RunMaintenance(work, self._config.history.nice)])
        done = msgspec.json.decode(report.upkeep, type=MaintenanceReport)
        self._tended, self._tended_s = last.epoch, time.monotonic()
        if done.failure is not None:
            _log.error("upkeep broke off", extra={"cause": done.failure})
            self._stopping.wait(_PAUSE_S)
        elif snapshot:
            self._snapshot, self._requests = done.snapshot, _requests(last)
            self._snapshot_s = time.monotonic()
            _log.info("snapshot", extra={"epoch": done.snapshot, "rows": done.rows})

    def _snapshot_due(self, last: Commit) -> bool:
        settings = self._config.history
        if last.epoch == self._snapshot:
            return False
        reached = (
            (settings.snapshot_epochs, last.epoch - self._snapshot),
            (settings.snapshot_s, time.monotonic() - self._snapshot_s),
            (settings.snapshot_requests, _requests(last) - self._requests),
        )
        return any(bound and value >= bound for bound, value in reached)

    def _merging_due(self, last: Commit) -> bool:
        keep = compaction_policy(self._config)
        if last.epoch - self._journal.merged() >= keep.newest + keep.epochs:
            return True
        return last.epoch > self._tended and time.monotonic() - self._tended_s >= _TEND_S


def _at_work() -> list[psutil.Process]:
    """Return the processes below this one that look after history."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if maintenance_process.MODULE in one.cmdline():
                found.append(one)
    return found


def _requests(commit: Commit) -> int:
    """Return how many requests there were up to a commit."""
    return sum(commit.positions.values())
