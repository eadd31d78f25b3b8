"""Orders about captures: pause and resume one, and let it read the tables of its database again.

A capture obeys within a second. No order is a record of the log: it changes what comes in, and not what a record does.
"""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.errors import RequestError
from penstock.files.layout import CAPTURES
from penstock.files.roots import journal_root
from penstock.journal.deployments import Deployments
from penstock.log.clock import wall_clock_us
from penstock.model.application import unknown
from penstock.orders.order import Place, Report, Way
from penstock.orders.pauses import TEXT_MAX
from penstock.process.capture_standing import CaptureStanding, capture_standings
from penstock.process.view_files import ViewOrders, change_orders

CaptureOrderKind: TypeAlias = Literal["pause", "resume", "snapshot"]


class CapturesState(msgspec.Struct, frozen=True):
    """The captures of an application: how each of its streams of changes stands."""

    captures: list[CaptureStanding]


def captures_state(place: Place) -> CapturesState:
    """Show how the streams of changes stand."""
    return CapturesState(capture_standings(place.settings.data))


STATE: Final = Report(
    path="/captures",
    name="captures.list",
    answer=CapturesState,
    text="How each stream of changes stands.",
    at=captures_state,
)


class CaptureOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pause or resume a stream of changes, or read the tables of its database again.

    Its process obeys within a second. To read the tables again drops the replication slot and makes another one; on the
    stream, the change `reset` and then all rows follow.
    """

    kind: CaptureOrderKind
    capture: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    reason: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)] = ""

    way: ClassVar[Way] = Way(
        noun="an order about a stream of changes",
        path="/captures",
        name="captures.order",
        result=CapturesState,
        text="How each stream of changes stands then.",
        example='{"kind": "pause", "capture": "crm"}',
        needs_key=False,
        is_awaited=False,
    )

    def carry_out(self, place: Place, _timeout_s: float = 0.0) -> CapturesState:
        """Note the order durably, and return how the streams stand then."""
        place.directory()  # there is a journal
        data = place.settings.data
        declared = Deployments(journal_root(data)).captures()
        if self.capture not in declared:
            raise RequestError(unknown("stream of changes", self.capture, declared))
        change_orders(data, self.capture, lambda orders: self._changed(orders, place.by), CAPTURES)
        return captures_state(place)

    def _changed(self, orders: ViewOrders, by: str) -> ViewOrders:
        told = replace(orders, by=by, reason=self.reason, time_us=wall_clock_us())
        match self.kind:
            case "pause":
                return replace(told, paused=True)
            case "snapshot":
                # The reason of a pause stays: it is still in force.
                return replace(orders if orders.paused else told, rebuild=orders.rebuild + 1)
            case _ if not orders.paused:
                raise RequestError(f"the stream of changes {self.capture} is not paused")
            case _:
                return replace(told, paused=False)
