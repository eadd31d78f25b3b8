"""The Spark runtime's driver and workers in this process, without Spark: real log, journal, stores.

Orders and reports travel as the bytes that they are on the wire. One thread does the workers' part,
so that objects bound to a thread stay in it.
"""

import math
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.journal.delta import DeltaJournal
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.epoch_report import EpochReport
from penstock.runtime.spark import messages, stage
from penstock.runtime.spark.driver import EpochDriver
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import (
    RunSteps,
    RunTransactions,
    TaskCommand,
    TaskResult,
    WorkerSettings,
    worker_settings,
)
from penstock.runtime.spark.stage import Worker
from tests.waiting import meanwhile

SPEC = "tests.differential.machine:app"
stage.CASCADE_SHARE_S = math.inf  # a busy machine must not decide where these tests cut a cascade
ONLY = LogPartition(0)


class InlineJobs(Jobs):
    """Runs orders one after the other.

    Attributes:
        taken: All orders so far.
        lost: How often workflow steps were to overlap an attempt that has died.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.use(settings)
        self._worker = Worker(settings)
        self._thread = ThreadPoolExecutor(1, "inline-worker")
        self._residents = []
        self.partitions = 1
        self.taken: list[TaskCommand] = []
        self.lost = 0

    def _run_job(self, commands: Sequence[TaskCommand]) -> list[TaskResult]:
        self.taken += commands
        return [self.perform(messages.encode(one)) for one in commands]

    def run_overlapped(self, requests: RunTransactions, steps: RunSteps) -> list[TaskResult]:
        """Run the requests and then the steps, in one thread; in each odd epoch the steps find no requests."""
        is_lost = requests.epoch % 2 == 1
        early = self._run_job([steps]) if is_lost else []
        self.lost += is_lost
        return [*self.run([requests]), *(early or self.run([steps]))]

    def perform(self, order: bytes) -> TaskResult:
        return self._thread.submit(self._perform, order).result()

    def _perform(self, order: bytes) -> TaskResult:
        self._worker.use(self.settings)
        report = self._worker.perform(messages.decode_command(order))
        return messages.decode_result(messages.encode(report))

    def close(self) -> None:
        self._thread.submit(self._worker._stores.close).result()
        self._thread.shutdown()
        assert self._worker._log is not None
        self._worker._log.close()
        self._worker._codes.close()


class Inline:
    """One data directory; `restart` does the same as a crash between two batches.

    Attributes:
        reports: The reports to listeners, each with the journal's epoch at that time.
        in_turn: Whether the rest of a cascade lets other records go first; else it is appended at once.
        driver: The driver of epochs.
    """

    def __init__(
        self,
        folder: Path,
        partitions: int,
        spec: str = SPEC,
        name: str = "machine",
        **settings: Any,
    ) -> None:
        """Open the directory; `since` among the settings is the first epoch of the deployment of the code."""
        self.since = Epoch(settings.pop("since", BEFORE_FIRST))
        # A busy machine must not decide where these tests cut a log.
        chosen = {"cores": 1, "small_epoch": 0, "epoch_time_ms": 0, **settings}
        self.config = Config(data=folder, partitions=partitions, **chosen)
        self.spec = spec
        self.name = name
        self.log = DataDirectory(folder).open_log(self.config)
        self.journal = DeltaJournal(folder / "journal", name)
        self.reports: list[tuple[EpochReport, Epoch]] = []
        self.in_turn = False
        self.start()

    def start(self) -> None:
        config = self.config
        scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=config.data))
        settings = worker_settings(self.spec, config, scratch, self.since)
        self._jobs = InlineJobs(settings)
        self.driver = EpochDriver(config, self.log, self.journal, self._jobs, scratch)
        self.driver.on_epoch.append(self._hear)

    def _hear(self, report: EpochReport) -> None:
        last = self.journal.last()
        self.reports.append((report, Epoch(-1) if last is None else last.epoch))

    def advance(self, end: int) -> None:
        """Process the log up to `end`, as a batch of Spark's says."""
        if not self.in_turn:
            self.driver._later._is_idle = lambda commit: True  # type: ignore[method-assign]
        self.driver.advance({ONLY: Lsn(end)})

    @contextmanager
    def following(self) -> Iterator[None]:
        """Process the log in a thread, as a driver that other processes find."""

        def follow(stop: threading.Event) -> None:
            while not stop.is_set():
                last = self.journal.last()
                assert last is not None
                self.advance(self.log.wait(last.positions[ONLY], 50))

        about = presence.present(self.config.data, "driver", self.name, cores=3)
        with about, meanwhile(follow):
            yield

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        self.log.close()
        self.journal.close()

    def stop(self) -> None:
        self.driver.close()
        self._jobs.close()
