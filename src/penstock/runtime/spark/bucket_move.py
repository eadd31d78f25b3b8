"""The executor of `Move`: it changes the number of partitions at the place of a control record.

Tasks bring the stores of the new number to the epoch before the record: they copy the rows from the present stores,
unless another process has copied them before. The commit of the epoch names the new number. Stores that no commit
names are a cache, so a crash at any step loses nothing.
"""

import logging
from pathlib import Path

from penstock.base.cause import cause_text
from penstock.base.ids import BUCKETS, Epoch
from penstock.errors import ConfigError, PenstockError
from penstock.files.layout import STATE
from penstock.model.control import Move
from penstock.runtime.spark.control import ControlEffect, Refused
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.messages import ApplyEpoch
from penstock.state.environment import DATA_FILE
from penstock.state.partition_spec import PartitionSpec, name_of

_log = logging.getLogger(__name__)


class BucketMove:
    """Executes the control records that move buckets."""

    def __init__(self, data: Path, jobs: Jobs) -> None:
        self._stores = data / STATE
        self._jobs = jobs

    def execute(self, move: Move, epoch: Epoch) -> ControlEffect:
        """Build the stores of the new number; see `penstock.runtime.spark.control.Executor`.

        Raises:
            Refused: The number is out of range.
            PenstockError: The environment fails.
        """
        partitions = move.partitions
        if not 1 <= partitions <= BUCKETS:
            wrong = f"partitions = {partitions}: must be from 1 to {BUCKETS}"
            raise Refused(ConfigError(wrong))
        if partitions != self._jobs.partitions:
            self._build(partitions, Epoch(epoch - 1))
        return ControlEffect(switch=lambda: self._use(partitions), partitions=partitions)

    def _build(self, partitions: int, epoch: Epoch) -> None:
        """Bring the stores of a number to an epoch.

        Copied stores lack a few epochs only, so the resident task takes them all: a job would take longer to start.
        """
        every = list(range(partitions))
        former = self._jobs.partitions
        names = [name_of(PartitionSpec(each, partitions)) for each in every]
        are_copied = all((self._stores / name / DATA_FILE).exists() for name in names)
        groups = [every] if are_copied else [[each] for each in every]
        try:
            self._jobs.run([ApplyEpoch(group, epoch, partitions, former) for group in groups])
        except PenstockError:
            raise
        except Exception as error:  # noqa: BLE001 -- a damaged store may have killed the workers
            extra = {"cause": cause_text(error)}
            _log.warning("stores cannot be copied, and are built from the journal", extra=extra)
            self._jobs.run([ApplyEpoch([each], epoch, partitions) for each in every])

    def _use(self, partitions: int) -> None:
        """Let the next epoch use the stores of a number, and at most as many tasks."""
        self._jobs.partitions = partitions
