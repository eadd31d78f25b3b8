"""`penstock flow` through a gateway: the same orders, for an application on another machine."""

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from penstock.base.http import JSON
from penstock.cli.remote import TIMEOUT_S, RemoteOptions

if TYPE_CHECKING:
    from penstock.gateway.flow.orders import FlowState

_PATH: Final = "/flow"


def state_at(remote: RemoteOptions) -> "FlowState":
    """Return the limits and pauses of a gateway's application; raises as `RemoteOptions.get`."""
    from penstock.gateway.flow.orders import FlowState

    return remote.get(_PATH, FlowState)


def order_at(
    remote: RemoteOptions,
    order: Literal["pause", "resume"],
    target: str,
    reason: str,
    *,
    skip: bool = False,
) -> "FlowState":
    """Pause or resume a target through a gateway, and return what is in force then; raises as `RemoteOptions.post`.

    Args:
        remote: The gateway.
        order: Whether to pause or to resume.
        target: The target.
        reason: Why, for the record.
        skip: Set the failed atom of a workflow aside.
    """
    from penstock.gateway.flow.orders import FlowState, PauseOrder

    body = msgspec.json.encode(PauseOrder(order, target, reason, skip))
    return remote.post(_PATH, body, JSON, FlowState, TIMEOUT_S)
