"""`GeneratorVersions`: it lets generators follow the deployments of the application that they append to.

The generators take a deployment when every gateway of the data directory serves it: before that, a gateway could refuse
their events. If a deployment cannot be loaded, the generators go on with the code that they have.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.base.ids import Epoch
from penstock.deployment.version_loader import VersionLoader
from penstock.errors import PenstockError
from penstock.journal.deployments import Deployment
from penstock.model.application import App
from penstock.process import presence

_LOOK_S: Final = 0.5
_AWAITED_S: Final = 30.0
_NEWEST: Final = Epoch((1 << 62) - 1)


class GeneratorVersions:
    """The versions of one application, for one thread.

    Attributes:
        number: The number of the deployment that was taken last; 0 before.
    """

    def __init__(self, data: Path, spec: str, tell: Callable[[str], None]) -> None:
        """Begin with the application that the process has loaded.

        Args:
            data: The data directory.
            spec: The application, as for `load_app`.
            tell: Takes a message for people.

        Raises:
            PenstockError: The deployments cannot be read.
        """
        self.number = 0
        self._data = data
        self._tell = tell
        self._loader = VersionLoader(data, spec)
        self._looked = float("-inf")
        self._failed: Deployment | None = None

    def look(self) -> App | None:
        """Return the application of a newer deployment, once; None if there is none. Most calls do not look."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return None
        self._looked = now
        wanted = self._wanted()
        if wanted is None or not self._is_served(wanted):
            return None
        try:
            loaded = self._loader.load(wanted)
        except PenstockError as error:
            self._failed = wanted
            self._tell(
                f"generators go on with the code that they have: deployment {wanted.number} "
                f"cannot be loaded: {error}"
            )
            return None
        self._loader.served, self.number = wanted, wanted.number
        return None if loaded is None else loaded.app

    def awaited(self, pause: Callable[[float], bool]) -> App | None:
        """Wait for a deployment that is recorded, and that the gateways do not serve yet; None if there is none."""
        deadline = time.monotonic() + _AWAITED_S
        while self._wanted() is not None and time.monotonic() < deadline:
            if (app := self.look()) is not None:
                return app
            if pause(_LOOK_S):
                break
        return None

    def _wanted(self) -> Deployment | None:
        """Return the newest deployment, if it is not taken and can be loaded."""
        try:
            wanted = self._loader.wanted(_NEWEST)
        except PenstockError:  # it is read again at the next look
            return None
        return None if wanted == self._failed else wanted

    def _is_served(self, deployment: Deployment) -> bool:
        gateways = presence.find(self._data, "gateway")
        numbers = [gateway.details.get("deployment") for gateway in gateways]
        return bool(numbers) and all(number == deployment.number for number in numbers)
