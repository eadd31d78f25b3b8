"""One switch that kills this process at a named step; off by default, for tests and demonstrations.

`Config.fault` is `step@count`: at the `count`-th time that a process reaches `step`, it dies as by
`kill -9`. Nothing else in the code knows of faults.
"""

import os
import signal
from typing import Final

STEPS: Final = (
    "offsets-planned",  # driver: Spark has written the batch's offsets, nothing ran yet
    "log-read",  # driver: touches read, tasks spread
    "in-round",  # worker: in the middle of a round's transactions
    "after-round",  # driver: a round is over and not validated
    "between-parts",  # worker: one of its two part files is written
    "before-commit",  # driver: all parts are written
    "after-commit",  # driver: the Delta commit is durable, nobody has heard of it
    "before-spark-commit",  # driver: the epoch is over, Spark's commit log is not written
    "in-apply",  # worker: local state is about to be caught up
)
"""Every step, in the order of an epoch."""


class Fault:
    """Counts how often each step was reached."""

    def __init__(self, setting: str) -> None:
        """Read `step@count`; an empty setting switches everything off."""
        self._step, _, count = setting.partition("@")
        self._left = int(count or 1)

    def reached(self, step: str) -> None:
        """Die here, if this is the step and the time."""
        if step != self._step:
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
