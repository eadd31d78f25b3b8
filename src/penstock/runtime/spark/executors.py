"""The executor of each type of control record."""

from collections.abc import Callable, Mapping

from penstock.model.control import Deploy, Erase, Move, Subscribe
from penstock.process.config import Config
from penstock.runtime.spark.bucket_move import BucketMove
from penstock.runtime.spark.control import Executor
from penstock.runtime.spark.deploying import DeployExecutor
from penstock.runtime.spark.erasing import Eraser
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.late_subscribers import LateSubscribers


def executors_of(
    config: Config,
    jobs: Jobs,
    late: LateSubscribers,
    published: Callable[[], Mapping[str, int]],
    eraser: Eraser,
) -> dict[type, Executor]:
    """Return the executors for the driver of epochs.

    Args:
        published: Returns the number of atoms of each stream.
    """
    return {
        Deploy: DeployExecutor(config.data, jobs, late),
        Move: BucketMove(config.data, jobs).execute,
        Erase: eraser.prepare,
        Subscribe: late.executor(published),
    }
