"""`DeploymentFollower`: it lets a gateway serve each deployment of the application from its commit on.

It looks at the deployments after each epoch. If a deployment cannot be loaded, the gateway goes on with the version
that it has, tells of the failure in `/readyz` and in its log, and tries again.
"""

import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from penstock.base.ids import Epoch
from penstock.deployment.version_loader import VersionLoader
from penstock.errors import BY_CODE, PenstockError, TimedOut
from penstock.journal.deployments import Deployment
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
        problem: Why the newest deployment is not served; empty if it is.
        on_served: Is called with each deployment from which on the gateway serves it.
    """

    def __init__(
        self,
        loader: VersionLoader,
        tail: AsyncJournalTail,
        take: Take,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with the version that the gateway serves.

        Args:
            loader: Knows the deployments.
            tail: The journal tail, which knows the newest epoch.
            take: Serves a deployment.
            clock: Returns seconds that never go back.
        """
        self.problem = ""
        self.on_served: Callable[[Deployment], None] = _ignore
        self._loader = loader
        self._tail = tail
        self._take = take
        self._clock = clock
        self._retry_s = 0.0
        self._failed: Deployment | None = None

    @property
    def served(self) -> Deployment | None:
        """The deployment that the gateway serves; None if nothing was deployed."""
        return self._loader.served

    def is_behind(self) -> bool:
        """Say whether a newer deployment than the served one is in force."""
        try:
            return self._loader.wanted(Epoch(self._tail.epoch + 1)) is not None
        except PenstockError:
            return True

    async def run(self) -> None:
        """Follow until the task is cancelled."""
        while True:
            await self.look()
            with suppress(TimedOut):
                await self._tail.until(Epoch(self._tail.epoch + 1), _LOOK_S)

    async def look(self) -> None:
        """Serve the deployment that executes the next epoch, unless the gateway serves it already."""
        try:
            wanted = self._loader.wanted(Epoch(self._tail.epoch + 1))
        except PenstockError as error:
            self._tell(f"the deployments cannot be read: {error}")
            return
        if wanted is None:
            self._tell("")
            return
        if wanted == self._failed and self._clock() < self._retry_s:
            return
        try:
            await self._take(wanted)
        except Exception as error:  # noqa: BLE001 -- the code of the application may raise everything
            self._failed, self._retry_s = wanted, self._clock() + RETRY_S
            self._tell(f"deployment {wanted.number} cannot be served: {_text_of(error)}")
            return
        self._loader.served, self._failed = wanted, None
        self.on_served(wanted)
        self._tell("")

    def _tell(self, problem: str) -> None:
        """Log a problem that is new."""
        if problem and problem != self.problem:
            _log.error("the gateway goes on with the code that it has: %s", problem)
        self.problem = problem


def _text_of(error: Exception) -> str:
    """Return the text of an error, whose class may be the application's: its `__str__` may raise."""
    if type(error) in BY_CODE.values():
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()


def _ignore(_deployment: Deployment) -> None:
    """Tell no process of a deployment."""
