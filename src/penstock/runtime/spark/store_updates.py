"""Store updates: the stores take each committed epoch while the next one is prepared."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from penstock.base.cause import cause_text
from penstock.base.ids import Epoch
from penstock.errors import OperationalError, PenstockError
from penstock.process.config import Config
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import ApplyEpoch

_log = logging.getLogger(__name__)


class StoreUpdates:
    """Brings the stores to committed epochs, in a thread of its own."""

    def __init__(self, config: Config, jobs: Jobs, scratch: Path) -> None:
        self._config = config
        self._jobs = jobs
        self._scratch = scratch
        self._thread = ThreadPoolExecutor(1, "penstock-apply")
        self._running: Future[None] | None = None

    def recover(self, epoch: Epoch) -> Future[None]:
        """Begin to bring all stores to the newest epoch, which another driver may have committed."""
        self._running = self._thread.submit(self._recover, epoch)
        return self._running

    def begin(self, epoch: Epoch, count: int) -> None:
        """Bring the stores to an epoch of `count` records, and delete its temporary files.

        A small epoch is applied by the resident task, or else by the next epoch's task, which costs
        less than a job.
        """
        is_small = count <= self._config.small_epoch

        def apply() -> None:
            if not is_small:
                self._jobs.run(self._commands(epoch))
            for path in self._scratch.glob(f"e{epoch}-*"):
                path.unlink(missing_ok=True)

        if is_small:
            self._jobs.apply_resident(epoch)
        self._running = self._thread.submit(apply)

    def wait(self) -> None:
        """Wait for the work that was begun last, and raise its error."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def settle(self) -> None:
        """Wait for the work that was begun last; workers that have died leave it to the next epoch.

        Raises:
            PenstockError: The environment fails.
        """
        try:
            self.wait()
        except PenstockError:
            raise
        except Exception as error:  # noqa: BLE001 -- Spark says in its own way that workers have died
            extra = {"cause": cause_text(error)}
            _log.warning("state is not ready; the next epoch brings it up to date", extra=extra)

    def close(self) -> None:
        """Wait for the work, and end the thread."""
        self._thread.shutdown(wait=True)

    def _commands(self, epoch: Epoch) -> Sequence[ApplyEpoch]:
        count = self._jobs.partitions
        return [ApplyEpoch([partition], epoch, count) for partition in range(count)]

    def _recover(self, epoch: Epoch) -> None:
        began = time.perf_counter()
        try:
            self._jobs.run(self._commands(epoch))
        except OperationalError as error:
            _log.warning("state is not ready yet", extra={"cause": str(error)})
            return
        spent_s = round(time.perf_counter() - began, 3)
        _log.info("state is ready", extra={"epoch": epoch, "seconds": spent_s})
