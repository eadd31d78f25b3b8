"""The number of partitions that follows the cores and the load, with the setting `auto_partitions`.

The driver looks once a minute, and gives the same order as `penstock rebalance --partitions N`, with the reason.
"""

import logging
import time
from typing import Final

from penstock.errors import PenstockError
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.orders.order import Place
from penstock.orders.partitions import AUTO_LAST_S, PartitionOrder, PartitionPolicy, propose
from penstock.process.config import Config
from penstock.process.reports import ReportReader
from penstock.runtime.spark.jobs import Jobs

_log = logging.getLogger(__name__)

_LOOK_S: Final = 60.0
_WAIT_S: Final = 60.0
"""How long an order waits for its epoch; it takes effect later, too."""


class AutoPartitions:
    """Changes the number of partitions as `PartitionPolicy` says, for the thread of maintenance."""

    def __init__(self, config: Config, log: Log, journal: Journal, jobs: Jobs) -> None:
        self._config = config
        self._log = log
        self._journal = journal
        self._jobs = jobs
        self._policy = PartitionPolicy()
        self._reader = ReportReader(config.data)
        self._waiting = 0
        self._looked_s = time.monotonic()

    def look(self) -> None:
        """Note how many requests wait; once a minute, change the number if that is due."""
        if not self._config.auto_partitions or (last := self._journal.known()) is None:
            return
        end = sum(self._log.end(partition) for partition in self._log.partitions)
        self._waiting = max(self._waiting, end - sum(last.positions.values()))
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s, waiting, self._waiting = time.monotonic(), self._waiting, 0
        cores = self._config.cores if (joined := self._jobs.joined()) is None else joined
        if cores == 0:  # no host is there, which is no reason to change the stores
            return
        reports = self._reader.since(wall_clock_us() - AUTO_LAST_S * 1_000_000)
        proposal = propose(self._jobs.partitions, cores, self._config.small_epoch, reports)
        why = self._policy.decide(proposal, reports, waiting)
        if why is None:
            return
        facts = {"before": proposal.partitions, "partitions": proposal.proposed, "reason": why}
        _log.info("the number of partitions changes", extra=facts)
        try:
            PartitionOrder(proposal.proposed, why).carry_out(Place(self._config), _WAIT_S)
        except PenstockError as error:
            _log.warning("the number of partitions stays", extra={"cause": str(error)})
