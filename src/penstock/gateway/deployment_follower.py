"""`DeploymentFollower`: it lets a gateway serve each deployment of the application from its commit on.

It looks at the journal's file of deployments after each epoch, which costs a `stat`. The code comes from the archive of
the deployment, and not from the source files of this machine. If a deployment cannot be loaded, the gateway goes on
with the version that it has, tells of the failure in `/readyz` and in its log, and tries again.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.base.ids import Epoch
from penstock.errors import PenstockError, TimedOut
from penstock.files.layout import JOURNAL
from penstock.journal.deployments import NAME, Deployment, Deployments, deployment_at
from penstock.journal.tail import AsyncJournalTail

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
"""The longest time between two looks: a driver that starts records a deployment without an epoch."""

RETRY_S: Final = 5.0
"""The pause before a deployment that could not be loaded is tried again."""

Take = Callable[[Deployment], Awaitable[None]]
"""Serves a deployment from now on; raises `PenstockError` if that is not possible."""


class DeploymentFollower:
    """Follows the deployments of one application.

    Attributes:
        served: The deployment that the gateway serves; None if it serves the source, and nothing else was deployed.
        problem: Why the newest deployment is not served; empty if it is.
    """

    def __init__(
        self,
        data: Path,
        tail: AsyncJournalTail,
        take: Take,
        served: Deployment | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the version that the gateway serves.

        Args:
            data: The data directory.
            tail: The journal tail, which knows the newest epoch.
            take: Serves a deployment.
            served: The newest deployment when the present version was loaded.
            clock: Returns seconds that never go back.
        """
        self.served = served
        self.problem = ""
        self._deployments = Deployments(data / JOURNAL)
        self._path = data / JOURNAL / NAME
        self._tail = tail
        self._take = take
        self._clock = clock
        self._every: tuple[Deployment, ...] = ()
        self._stamp: tuple[int, ...] = ()
        self._retry_s = 0.0
        self._failed: Deployment | None = None

    async def run(self) -> None:
        """Follow until the task is cancelled."""
        while True:
            await self.look()
            with suppress(TimedOut):
                await self._tail.until(Epoch(self._tail.epoch + 1), _LOOK_S)

    async def look(self) -> None:
        """Serve the deployment that executes the next epoch, unless the gateway serves it already."""
        try:
            wanted = self._in_force()
        except PenstockError as error:
            self._tell(f"the deployments cannot be read: {error}")
            return
        if wanted is None or _same(wanted, self.served):
            self._tell("")
            return
        if wanted == self._failed and self._clock() < self._retry_s:
            return
        try:
            await self._take(wanted)
        except Exception as error:  # noqa: BLE001 -- the code of the application may raise everything
            self._failed, self._retry_s = wanted, self._clock() + RETRY_S
            self._tell(f"deployment {wanted.number} cannot be served: {error}")
            return
        self.served, self._failed = wanted, None
        self._tell("")

    def _in_force(self) -> Deployment | None:
        """Return the deployment that executes the epoch after the newest one."""
        try:
            facts = self._path.stat()
        except OSError:
            return None
        stamp = facts.st_ino, facts.st_mtime_ns, facts.st_size
        if stamp != self._stamp:
            self._every = self._deployments.every()
            self._stamp = stamp
        return deployment_at(self._every, Epoch(self._tail.epoch + 1))

    def _tell(self, problem: str) -> None:
        """Log a problem that is new."""
        if problem and problem != self.problem:
            _log.error("the gateway goes on with the code that it has: %s", problem)
        self.problem = problem


def _same(wanted: Deployment, served: Deployment | None) -> bool:
    """Say whether two deployments are the same: a deployment without epochs may be replaced under its number."""
    return served is not None and (wanted.number, wanted.code) == (served.number, served.code)
