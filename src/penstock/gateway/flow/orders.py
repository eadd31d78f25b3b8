"""Orders of flow control: pauses and resumes of operators, and the state in force."""

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace

from penstock.errors import RequestError
from penstock.gateway.flow.limit_table import check_target, limits_in_force, targets_of
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.limit import EVERYTHING
from penstock.orders.order import Place, Report, Way
from penstock.orders.paused_workflows import (
    WORKFLOWS,
    PausedWorkflow,
    paused_workflows,
    resume_workflow,
    workflow_named,
)
from penstock.orders.pauses import (
    EFFECTIVE_S,
    TEXT_MAX,
    PauseAction,
    PauseFile,
    Pauses,
    target_text,
)
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


class FlowState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits and pauses in force, and the requests under way.

    Attributes:
        targets: The targets that can be paused.
        standing: The limits, pauses and paused workflows.
        under_way: The number of admitted requests that no epoch has committed.
        drained: Whether everything is paused, all gateways obey, and no request is under way.
        resumed: The workflow, as it was paused, which an order has resumed.
    """

    targets: list[str]
    standing: FlowStanding
    under_way: int
    drained: bool
    resumed: PausedWorkflow | None = None


def flow_state(place: Place) -> FlowState:
    """Show limits and pauses."""
    app, settings = place.loaded()
    standing = flow_standing(app, settings)
    obeyed_us = wall_clock_us() - int(EFFECTIVE_S * 1_000_000)
    closed = any(
        action.target == EVERYTHING and action.time_us <= obeyed_us for action in standing.paused
    )
    left = under_way(settings.data, app.name)
    targets = [EVERYTHING, *targets_of(app)]
    return FlowState(targets, standing, left, drained=closed and not left)


STATE: Final = Report(
    path="/flow",
    name="flow.show",
    answer=FlowState,
    text="The limits and pauses in force.",
    at=flow_state,
)


class PauseOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pause or resume requests.

    The target is a class, `Class.method`, a function, `streams/NAME`, or `*` for everything; a
    resume takes a workflow, too. All gateways obey within a second.

    Attributes:
        skip: Whether the failed atom of a workflow is set aside.
    """

    kind: Literal["pause", "resume"]
    target: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    reason: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)] = ""
    skip: bool = False

    way: ClassVar[Way] = Way(
        noun="a change of the pauses",
        path="/flow",
        name="flow.order",
        result=FlowState,
        text="The limits and pauses in force.",
        example='{"kind": "pause", "target": "Order"}',
        needs_key=False,
        is_awaited=False,
    )

    def carry_out(self, place: Place, _timeout_s: float = 0.0) -> FlowState:
        """Pause or resume a target durably, and return the state in force then. No driver is waited for."""
        app, settings = place.loaded()
        now_us, resumed = wall_clock_us(), None
        if self.kind == "pause":
            check_target(app, self.target)
            PauseFile(settings.data).pause(self.target, place.by, self.reason, now_us)
        else:
            action = PauseAction("resume", self.target, now_us, place.by, self.reason)
            resumed = self._resumed(app, settings, action)
        return replace(flow_state(place), resumed=resumed)

    def _resumed(self, app: App, settings: Config, action: PauseAction) -> PausedWorkflow | None:
        """End the pause of a target; return the workflow as it was paused, None if the target is not a workflow."""
        file = PauseFile(settings.data)
        name = workflow_named(app, self.target, file.pauses().in_force)
        if name is None:
            if self.skip:
                raise RequestError(
                    f"{target_text(self.target)} is not a workflow; only the resume of a workflow can skip an atom"
                )
            file.resume(action.target, action.by, action.reason, action.time_us)
            return None
        workflow = resume_workflow(app, settings, name, skip=self.skip)
        action_kind: Literal["resume", "skip"] = "skip" if self.skip else "resume"
        file.note(replace(action, kind=action_kind, target=f"{WORKFLOWS}{name}"))
        return workflow
