"""Orders of flow control through a gateway: pauses and resumes of operators, and the state in force."""

import time
from typing import Annotated, Literal

import msgspec

from penstock.gateway.flow.limit_table import check_target, targets_of
from penstock.gateway.flow.resuming import resume_target
from penstock.gateway.flow.standing import FlowStanding, flow_standing, under_way
from penstock.model.application import App
from penstock.model.limit import EVERYTHING
from penstock.orders.pauses import EFFECTIVE_S, TEXT_MAX, PauseAction, PauseFile
from penstock.process.config import Config


class PauseOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pause or resume that an operator asks for; `skip` sets the failed atom of a workflow aside."""

    kind: Literal["pause", "resume"]
    target: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    reason: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)] = ""
    skip: bool = False


class FlowState(msgspec.Struct, frozen=True):
    """The limits and pauses in force, and the requests under way.

    Attributes:
        targets: The targets that can be paused.
        standing: The limits, pauses and paused workflows.
        under_way: The number of admitted requests that no epoch has committed.
        drained: Whether everything is paused, all gateways obey, and no request is under way.
    """

    targets: list[str]
    standing: FlowStanding
    under_way: int
    drained: bool


class FlowOrders:
    """Takes the orders for one application."""

    def __init__(self, app: App, config: Config) -> None:
        """Take the application and its settings, which name the data directory."""
        self._app = app
        self._config = config
        self._file = PauseFile(config.data)
        self._targets = [EVERYTHING, *targets_of(app)]

    def state(self) -> FlowState:
        """Return the state in force.

        Raises:
            Corrupt: The file of the pauses is damaged.
            OperationalError: The disk fails.
        """
        standing = flow_standing(self._app, self._config)
        obeyed_us = _now_us() - int(EFFECTIVE_S * 1_000_000)
        closed = any(
            action.target == EVERYTHING and action.time_us <= obeyed_us
            for action in standing.paused
        )
        left = under_way(self._config.data, self._app.name)
        return FlowState(self._targets, standing, left, drained=closed and not left)

    def take(self, order: PauseOrder, by: str) -> FlowState:
        """Pause or resume a target, and return the state in force then.

        Args:
            order: The order.
            by: The name of the operator, for the record.

        Raises:
            RequestError: The application has no such target, or it is not paused.
            OperationalError: The disk fails.
        """
        if order.kind == "pause":
            check_target(self._app, order.target)
            self._file.pause(order.target, by, order.reason, _now_us())
        else:
            action = PauseAction("resume", order.target, _now_us(), by, order.reason)
            resume_target(self._app, self._config, action, skip=order.skip)
        return self.state()


def _now_us() -> int:
    return time.time_ns() // 1_000
