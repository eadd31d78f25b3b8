"""`VersionSwitch`: it lets the gateway serve each deployment of the application from its commit on.

The new version is complete, and a reader of it is ready, before a single assignment gives it the next request. Requests
under way end with the version that began them; connections stay open. If a deployment cannot be served, the gateway goes
on with the version that it has, tells of the failure in `/readyz` and in its log, and tries again. For one event loop.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.base.ids import Epoch
from penstock.deployment.code_in_force import CodeInForce
from penstock.errors import PenstockError, TimedOut
from penstock.gateway.application import Gateway
from penstock.gateway.flow.limit_table import limits_in_force
from penstock.gateway.version import MoreHandlers, ServedVersion, SharedParts, version_of
from penstock.journal.deployments import Deployment

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
"""The longest time between two looks: a driver that starts records a deployment without an epoch."""

READY_S: Final = 60.0
"""How long the first reader of a version may take to load the application."""


class VersionSwitch:
    """Exchanges the version of one gateway.

    Attributes:
        on_retired: Is called when the last request of a former version has its response.
    """

    def __init__(
        self, gateway: Gateway, code: CodeInForce, shared: SharedParts, more: MoreHandlers
    ) -> None:
        self.on_retired: Callable[[], None] = lambda: None
        self._gateway = gateway
        self._code = code
        self._shared = shared
        self._more = more
        self._retiring: dict[asyncio.Task[None], ServedVersion] = {}

    @property
    def present(self) -> ServedVersion:
        """The version that gets new requests."""
        return self._gateway.version

    @property
    def _following(self) -> Epoch:
        return Epoch(self._shared.tail.epoch + 1)

    def is_behind(self) -> bool:
        """Say whether a newer deployment than the served one is in force."""
        try:
            return self._code.wanted(self._following) is not None
        except PenstockError:
            return True

    async def run(self) -> None:
        """Serve the deployment that executes the next epoch, after each epoch, until the task is cancelled."""
        while True:
            if (deployment := self._code.due(self._following)) is not None:
                with self._code.exchange(deployment):
                    await self._take(deployment)
            with suppress(TimedOut):
                await self._shared.tail.until(self._following, _LOOK_S)

    async def _take(self, deployment: Deployment) -> None:
        former = self.present
        config = self._shared.config
        loaded = await asyncio.to_thread(self._code.load, deployment)
        if loaded is None:
            return
        app, spec = loaded.app, loaded.location.spec
        handlers = await asyncio.to_thread(self._more, app)
        limits = limits_in_force(app, config.gateway.limits)
        version = version_of(app, spec, self._shared, handlers)
        try:
            if version.readers is not None:
                await version.readers.ready(READY_S)
        except BaseException:
            await version.close()
            raise
        self._shared.admission.apply_limits(limits)
        self._shared.history.serve(app, spec)
        self._shared.streams.serve(app)
        self._shared.load.serve(app)
        self._gateway.version = version
        _log.info("a deployment is served", extra={"deployment": deployment.number})
        retiring = asyncio.create_task(former.retire())
        self._retiring[retiring] = former
        retiring.add_done_callback(self._retired)

    async def close(self) -> None:
        """End the readers of all versions; no request may be running."""
        retiring = list(self._retiring.items())
        for task, version in retiring:
            task.cancel()
            await asyncio.wait({task})
            await version.close()
        await self.present.close()

    def _retired(self, retiring: asyncio.Task[None]) -> None:
        del self._retiring[retiring]
        if not retiring.cancelled():
            self.on_retired()
