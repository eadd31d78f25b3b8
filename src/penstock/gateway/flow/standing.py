"""`FlowStanding`: the limits, pauses and paused workflows of an application, for the command line and the console."""

from pathlib import Path
from typing import Final

import msgspec

from penstock.gateway.flow.limit_table import limits_in_force
from penstock.model.application import App
from penstock.orders.paused_workflows import PausedWorkflow, paused_workflows
from penstock.orders.pauses import PauseAction, PauseFile, Pauses
from penstock.process.config import Config
from penstock.process.metrics import UNDER_WAY, live_sum
from penstock.process.status import status_in

NEWEST: Final = 20
"""The number of pauses and resumes that a standing has."""


class FlowStanding(msgspec.Struct, frozen=True):
    """The limits, pauses and paused workflows of an application.

    Attributes:
        limits: The limits as text, with their targets.
        paused: The pauses in force.
        newest: The newest pauses and resumes, the newest first.
        workflows: The workflows that are paused by a failure.
    """

    limits: list[str]
    paused: list[PauseAction]
    newest: list[PauseAction]
    workflows: list[PausedWorkflow]


def flow_standing(app: App, config: Config) -> FlowStanding:
    """Return the limits, pauses and paused workflows of an application."""
    limits = [str(limit) for limit in limits_in_force(app, config.gateway.limits)]
    actions = PauseFile(config.data).actions()
    return FlowStanding(
        limits,
        list(Pauses(actions).in_force.values()),
        list(actions[: -NEWEST - 1 : -1]),
        paused_workflows(app, config),
    )


def under_way(data: Path, app: str) -> int:
    """Return the number of admitted requests that no epoch has committed.

    The gateways' own count comes first: a request that leaves it afterwards is counted by the log.
    """
    in_gateways = int(live_sum(data, UNDER_WAY))
    return max(in_gateways, status_in(data, app).lag)
