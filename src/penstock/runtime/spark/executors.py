"""The executor of each type of control record."""

from penstock.model.control import Deploy, Move
from penstock.process.config import Config
from penstock.runtime.spark.bucket_move import BucketMove
from penstock.runtime.spark.control import Executor
from penstock.runtime.spark.deploying import DeployExecutor
from penstock.runtime.spark.jobs import Jobs
from penstock.runtime.spark.parallelism import ParallelismPolicy


def executors_of(
    config: Config, jobs: Jobs, parallelism: ParallelismPolicy
) -> dict[type, Executor]:
    """Return the executors for the driver of epochs.

    Args:
        config: The settings.
        jobs: Runs task commands.
        parallelism: Decides how many tasks an epoch has.
    """
    return {
        Deploy: DeployExecutor(config.data, jobs),
        Move: BucketMove(config.data, jobs, parallelism).execute,
    }
