"""The maintenance scheduler: decides when maintenance is due, and runs it as a Spark job.

The job has one task, in a slot that epochs do not need, and its work runs in a child process of low
priority (`retention.maintenance`), so that epochs continue meanwhile. A failure is logged and tried
again; it never stops an epoch.
"""

import logging
import threading
import time
from contextlib import suppress
from typing import Final

import msgspec
import psutil

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.files.roots import look_pause_s, snapshots_root
from penstock.journal.api import Commit, Journal
from penstock.log.api import Log
from penstock.orders import partitions
from penstock.process.config import Config
from penstock.process.disk_space import tells_of_full_disk
from penstock.retention import maintenance_process
from penstock.retention.maintenance import compaction_policy, encode_work
from penstock.retention.maintenance_report import MaintenanceReport
from penstock.runtime.spark.auto_partitions import AutoPartitions
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import RunMaintenance
from penstock.snapshots.snapshot import Snapshots

_log = logging.getLogger(__name__)

_MODULES: Final = frozenset({maintenance_process.MODULE, partitions.MODULE})
_LOOK_S: Final = 1.0
_INTERVAL_S: Final = 60.0
"""Maintenance is due after this time, if there is a new epoch."""

_PAUSE_S: Final = 30.0
"""The pause after a failure."""

_STOP_S: Final = 10.0
"""The time that `stop` waits for a job whose child process was killed."""


class MaintenanceScheduler:
    """Watches the length of the journal in its own thread, and starts the jobs."""

    def __init__(self, config: Config, log: Log, journal: Journal, jobs: Jobs) -> None:
        self._config = config
        self._partitions = AutoPartitions(config, log, journal, jobs)
        self._journal = journal
        self._jobs = jobs
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="penstock-maintenance", daemon=True
        )
        self._snapshot = BEFORE_FIRST  # epoch of the newest snapshot
        self._requests = 0  # in the log up to that epoch
        self._maintained = BEFORE_FIRST  # the newest epoch at the last maintenance
        self._snapshot_s = self._maintained_s = time.monotonic()
        self._measured = (
            BEFORE_FIRST  # the newest epoch when the length of the journal was measured
        )

    def start(self) -> None:
        """Start the thread."""
        newest = Snapshots(snapshots_root(self._config.data), self._journal.identity).newest()
        if newest is not None:
            self._snapshot = newest.epoch
            for commit in self._journal.commits(Epoch(newest.epoch - 1), newest.epoch):
                self._requests = _requests(commit)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a running child process is killed, and the next run continues its work."""
        self._stopping.set()
        began = time.monotonic()
        while self._thread.is_alive() and time.monotonic() - began < _STOP_S:
            for process in _children():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._thread.join(timeout=0.1)

    def _watch(self) -> None:
        pause_s = look_pause_s(self._config.data, _LOOK_S)
        while not self._stopping.wait(pause_s):
            try:
                self._look()
                self._partitions.look()
            except Exception as error:  # noqa: BLE001 -- epochs continue after any error
                if not self._stopping.is_set():
                    self._tell(error)
                    self._stopping.wait(_PAUSE_S)

    @staticmethod
    def _tell(error: Exception) -> None:
        message = "maintenance failed; it is tried again"
        if tells_of_full_disk(error):  # Java has a hundred lines about it
            _log.error(message, extra={"cause": "the disk is full; make space"})
        else:
            _log.error(message, exc_info=error)

    def _look(self) -> None:
        last = self._journal.known()  # the driver makes all commits, and a look may be paid for
        if last is None:
            return
        snapshot = self._snapshot_due(last)
        if not snapshot and not self._merging_due(last):
            return
        work = encode_work(self._jobs.settings.spec, self._config, snapshot=snapshot)
        [result] = self._jobs.run([RunMaintenance(work, self._config.history.nice)])
        done = msgspec.json.decode(result.maintenance, type=MaintenanceReport)
        self._maintained, self._maintained_s = last.epoch, time.monotonic()
        if done.failure is not None:
            _log.error("maintenance failed", extra={"cause": done.failure})
            self._measured = BEFORE_FIRST
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
        if last.epoch != self._measured:  # without a new epoch, no more of them wait for a merge
            self._measured = last.epoch
            if last.epoch - self._journal.merged() >= keep.newest + keep.epochs:
                return True
        due_s = self._maintained_s + _INTERVAL_S
        return last.epoch > self._maintained and time.monotonic() >= due_s


def _children() -> list[psutil.Process]:
    """Return the child processes that run maintenance, or copy stores."""
    children = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if not _MODULES.isdisjoint(process.cmdline()):
                children.append(process)
    return children


def _requests(commit: Commit) -> int:
    """Return the number of requests in the log up to a commit."""
    return sum(commit.positions.values())
