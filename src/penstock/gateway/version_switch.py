"""`VersionSwitch`: it loads the code of a deployment, and lets the gateway serve it instead of the version before.

The new version is complete, and a reader of it is ready, before a single assignment gives it the next request. Requests
under way end with the version that began them; connections stay open. For one event loop.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from starlette.routing import BaseRoute

from penstock.errors import ConfigError, PenstockError
from penstock.gateway.application import Gateway
from penstock.gateway.flow.limit_table import limits_in_force
from penstock.gateway.version import MoreRoutes, ServedVersion, SharedParts, version_of
from penstock.journal.deployments import Deployment
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.process.deployed_code import unpacked
from penstock.process.deploying import code_of
from penstock.process.loading import Location, locate
from penstock.process.side_modules import load_instead

_log = logging.getLogger(__name__)

READY_S: Final = 60.0
"""How long the first reader of a version may take to load the application."""


class VersionSwitch:
    """Exchanges the version of one gateway."""

    def __init__(self, gateway: Gateway, shared: SharedParts, more: MoreRoutes) -> None:
        """Take the gateway, which serves a version.

        Args:
            gateway: The gateway.
            shared: The parts that its versions use.
            more: Returns further routes for a version.
        """
        self._gateway = gateway
        self._shared = shared
        self._more = more
        self._retiring: dict[asyncio.Task[None], ServedVersion] = {}

    async def take(self, deployment: Deployment) -> None:
        """Serve a deployment from now on.

        Raises:
            PenstockError: The deployment cannot be loaded, or its readers do not start; nothing has changed.
        """
        former = self._gateway.version
        config = self._shared.config
        loaded = await asyncio.to_thread(self._loaded, deployment, former.spec)
        if loaded is None:
            return
        app, spec, routes = loaded
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
        self._gateway.version = version
        _log.info("a deployment is served", extra={"deployment": deployment.number})
        retiring = asyncio.create_task(former.retire())
        self._retiring[retiring] = former
        retiring.add_done_callback(self._retiring.pop)

    async def close(self) -> None:
        """End the readers of all versions; no request may be running."""
        retiring = list(self._retiring.items())
        for task, version in retiring:
            task.cancel()
            await asyncio.wait({task})
            await version.close()
        await self._gateway.version.close()

    def _loaded(
        self, deployment: Deployment, former: str
    ) -> tuple[App, str, Sequence[BaseRoute]] | None:
        """Return the application of a deployment, the name for other processes, and further routes.

        None if the gateway serves the very source that was deployed.
        """
        data = self._shared.config.data
        location = locate(former)
        if location.file is not None and _is_deployed(location, deployment):
            return None
        try:
            unpacked_code = unpacked(data, deployment.code)
            app = load_instead(unpacked_code, location)
            with closing(DataDirectory(data).open_journal(app)):
                pass  # its classes know now the rows of all schema versions
            return app, unpacked_code.spec, self._more(app)
        except PenstockError:
            raise
        except BaseException as error:  # the code of the application may raise everything
            raise ConfigError(f"its code raised {type(error).__name__}") from error


def _is_deployed(location: Location, deployment: Deployment) -> bool:
    """Say whether the source files at a location are those of a deployment."""
    code = code_of(location)[0]
    was = deployment.code
    return (code.archive, code.module, code.name) == (was.archive, was.module, was.name)
