"""The processes of an application as a supervisor starts them: driver, SQL view, gateways.

Each is a command of its own that can be run alone, with the same settings.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.cli.supervisor import Child
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.reports import ReportReader

_STOP_S: Final = 60.0
_SLACK_S: Final = 10.0
"""What a gateway may take to end beyond the time it waits for its requests."""


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What a command line said, to be said again to each child.

    Attributes:
        app: The application as it was named.
        config: `--config`.
        assignments: `name=value` of every setting that a flag gave.
        development: Whether gateways serve what only a developer may see and do.
    """

    app: str
    config: Path | None
    assignments: Sequence[str]
    development: bool = False


def children_of(given: ChildOptions, settings: Config) -> list[Child]:
    """Return the processes of an application in the order in which they start."""
    data, settings_of_gateways = settings.data, settings.gateway
    reports = ReportReader(data)

    def newest_epoch() -> object:
        newest = reports.newest()
        return None if newest is None else newest.epoch

    flags = ["--dev"] if given.development else []
    stop_s = settings_of_gateways.drain_ms / 1_000 + _SLACK_S
    gateway = _child("gateway", given, settings, flags=flags, stop_s=stop_s)
    return [
        _child("driver", given, settings, progress=newest_epoch),
        replace(_child("view", given, settings), needed=False),
        *[gateway] * settings_of_gateways.processes,
    ]


def _child(
    role: str,
    given: ChildOptions,
    settings: Config,
    *,
    flags: Sequence[str] = (),
    progress: Callable[[], object] = lambda: None,
    stop_s: float = _STOP_S,
) -> Child:
    def ready(pid: int) -> bool:
        return any(one.pid == pid for one in presence.find(settings.data, role))

    # -P: what lies in the current directory is no part of Penstock, whatever it is called.
    command = [sys.executable, "-P", "-m", "penstock", role, given.app, "--supervised", *flags]
    command += ["--data", str(settings.data)]
    if given.config is not None:
        command += ["--config", str(given.config)]
    for assignment in (*given.assignments, f"gateway.port={settings.gateway.port}"):
        command += ["--set", assignment]
    return Child(role, command, ready, progress, stop_s)
