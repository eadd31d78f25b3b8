"""Deployments through a gateway: the command packs the source, and the gateway stores, checks and deploys it."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from penstock.base.deployment_answers import DeploymentReport, DeploymentResult, Removal, Rollback
from penstock.base.http import JSON
from penstock.cli.remote import RemoteOptions
from penstock.deployment.loading import locate

_ZIP: Final = "application/zip"
_PATH: Final = "/deployments"
_WORK_S: Final = 180.0
"""The gateway reads and checks the code before it waits for the driver."""


def deploy_at(
    remote: RemoteOptions, spec: str, timeout_s: float, drop: Sequence[str]
) -> DeploymentResult:
    """Deploy the present source of an application through a gateway; raises as `RemoteOptions.post`.

    Args:
        remote: The gateway.
        spec: The application.
        timeout_s: How long the gateway waits until the code is in force.
        drop: The stored classes to remove.
    """
    archive, app = _packed(spec)
    query = urlencode({"app": app, "timeout": timeout_s, "drop": ",".join(drop)})
    waits_s = 2 * timeout_s + _WORK_S
    return remote.post(f"{_PATH}?{query}", archive, _ZIP, DeploymentResult, waits_s)


def check_at(
    remote: RemoteOptions, spec: str, epochs: int, drop: Sequence[str]
) -> DeploymentReport:
    """Return the report about the present source of an application from a gateway.

    Args:
        remote: The gateway.
        spec: The application.
        epochs: How many of the newest epochs run again.
        drop: The stored classes to remove.
    """
    archive, app = _packed(spec)
    query = urlencode({"app": app, "check": "true", "epochs": epochs, "drop": ",".join(drop)})
    return remote.post(f"{_PATH}?{query}", archive, _ZIP, DeploymentReport, _WORK_S)


def roll_back_at(
    remote: RemoteOptions, number: int | None, timeout_s: float, drop: Sequence[str]
) -> DeploymentResult:
    """Deploy the code of a former deployment again through a gateway.

    Args:
        remote: The gateway.
        number: The number of the deployment; None: the deployment before.
        timeout_s: How long the gateway waits until the code is in force.
        drop: The stored classes to remove.
    """
    return _ordered_at(remote, Rollback(number, list(drop)), timeout_s)


def remove_at(remote: RemoteOptions, name: str, timeout_s: float) -> DeploymentResult:
    """Remove an application from the deployed set through a gateway.

    Args:
        remote: The gateway.
        name: The module of the application.
        timeout_s: How long the gateway waits until the code is in force.
    """
    return _ordered_at(remote, Removal(name), timeout_s)


def _ordered_at(
    remote: RemoteOptions, order: Rollback | Removal, timeout_s: float
) -> DeploymentResult:
    import msgspec

    body, waits_s = msgspec.json.encode(order), 2 * timeout_s + _WORK_S
    return remote.post(f"{_PATH}?timeout={timeout_s}", body, JSON, DeploymentResult, waits_s)


def _packed(spec: str) -> tuple[bytes, str]:
    """Return the archive of an application's source, and its name in the archive."""
    from penstock.deployment.archives import pack
    from penstock.deployment.source import read_source

    location = locate(spec)
    named = f"{location.name}={location.module}" if location.is_set else location.label
    return pack(read_source(location).files), named
