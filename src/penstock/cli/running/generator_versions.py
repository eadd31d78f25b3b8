"""`GeneratorVersions`: it lets generators follow the deployments of the application that they append to.

The generators take a deployment when every gateway of the data directory serves it: before that, a gateway could refuse
their events. If a deployment cannot be loaded, the generators go on with the code that they have.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.base.ids import Epoch
from penstock.deployment.code_in_force import CodeInForce
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

    Raises:
        PenstockError: The deployments cannot be read.
    """

    def __init__(self, data: Path, spec: str, tell: Callable[[str], None]) -> None:
        self.number = 0
        self._data = data
        self._code = CodeInForce(
            data,
            spec,
            lambda problem: tell(f"generators go on with the code that they have: {problem}"),
        )
        self._looked = float("-inf")

    def look(self) -> App | None:
        """Return the application of a newer deployment, once; None without such a deployment. Most calls do not look."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return None
        self._looked = now
        deployment, loaded = self._code.due(_NEWEST), None
        if deployment is None or not self._is_served(deployment):
            return None
        with self._code.exchange(deployment):
            loaded = self._code.load(deployment)
            self.number = deployment.number
        return None if loaded is None else loaded.app

    def awaited(self, pause: Callable[[float], bool]) -> App | None:
        """Wait for a deployment that is recorded, and that the gateways do not serve yet; None without such a deployment."""
        deadline = time.monotonic() + _AWAITED_S
        while self._code.due(_NEWEST) is not None and time.monotonic() < deadline:
            if (app := self.look()) is not None:
                return app
            if pause(_LOOK_S):
                break
        return None

    def _is_served(self, deployment: Deployment) -> bool:
        gateways = presence.find(self._data, "gateway")
        numbers = [gateway.details.get("deployment") for gateway in gateways]
        return bool(numbers) and all(number == deployment.number for number in numbers)
