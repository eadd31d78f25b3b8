"""`VersionSwitch`: it loads the code of a deployment, and lets the gateway serve it instead of the version before.

The new version is complete, and a reader of it is ready, before a single assignment gives it the next request. Requests
under way end with the version that began them; connections stay open. For one event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from starlette.routing import BaseRoute

from penstock.deployment.version_loader import LoadedVersion, VersionLoader
from penstock.gateway.application import Gateway
from penstock.gateway.flow.limit_table import limits_in_force
from penstock.gateway.version import MoreRoutes, ServedVersion, SharedParts, version_of
from penstock.journal.deployments import Deployment

_log = logging.getLogger(__name__)

READY_S: Final = 60.0
"""How long the first reader of a version may take to load the application."""


class VersionSwitch:
    """Exchanges the version of one gateway.

    Attributes:
        on_retired: Is called when the last request of a former version has its response.
    """

    def __init__(
        self, gateway: Gateway, loader: VersionLoader, shared: SharedParts, more: MoreRoutes
    ) -> None:
        """Take the gateway, which serves a version.

        Args:
            gateway: The gateway.
            loader: Loads the code of a deployment.
            shared: The parts that its versions use.
            more: Returns further routes for a version.
        """
        self.on_retired: Callable[[], None] = lambda: None
        self._gateway = gateway
        self._loader = loader
        self._shared = shared
        self._more = more
        self._retiring: dict[asyncio.Task[None], ServedVersion] = {}

    @property
    def present(self) -> ServedVersion:
        """The version that gets new requests."""
        return self._gateway.version

    async def take(self, deployment: Deployment) -> None:
        """Serve a deployment from now on.

        Raises:
            PenstockError: The deployment cannot be loaded, or its readers do not start; nothing has changed.
        """
        former = self.present
        config = self._shared.config
        loaded = await asyncio.to_thread(self._loaded, deployment)
        if loaded is None:
            return
        (app, spec), routes = loaded
        limits = limits_in_force(app, config.gateway.limits)
        version = version_of(app, spec, self._shared, routes)
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

    def _loaded(self, deployment: Deployment) -> tuple[LoadedVersion, Sequence[BaseRoute]] | None:
        """Return the version of a deployment and its further routes; None if the gateway serves it already."""
        version = self._loader.load(deployment)
        return None if version is None else (version, self._more(version.app))
