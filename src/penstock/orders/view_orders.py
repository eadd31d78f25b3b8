"""Orders about views: pause, resume, rebuild and remove one; and end the hold of a copied directory.

The appliers obey within a second. No record of the log is needed: an order changes a store outside, and no reply.
"""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.base.ids import BEFORE_FIRST
from penstock.errors import ConfigError, RequestError
from penstock.files.roots import journal_root
from penstock.journal.delta import identity_of
from penstock.journal.deployments import Deployments
from penstock.log.clock import wall_clock_us
from penstock.model.application import unknown
from penstock.orders.order import Place, Report, Way
from penstock.orders.pauses import TEXT_MAX
from penstock.process import presence
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.question import ChildEnded, ask_child
from penstock.process.status import status_in
from penstock.process.view_files import (
    ROLE,
    Held,
    ViewOrders,
    ViewReport,
    change_orders,
    end_hold,
    folder_of,
    forget_view,
    held,
    known_views,
    read_report,
)
from penstock.process.view_standing import ViewStanding, view_standings

_FILES: Final = frozenset({"", "sqlite", "search"})
"""Kinds of targets that may lie in the folder of the view."""


_REMOVAL: Final = "penstock.views.removal"
_REMOVAL_S: Final = 60.0
_KEEP: Final = "--keep-tables (keep_tables over HTTP) removes the files alone"


class TablesOfView(msgspec.Struct, frozen=True):
    """The question to the process that removes the tables of a view.

    Attributes:
        kind: The kind of its target.
        schema: The schema of PostgreSQL that the application named; empty: that with the name of the view.
        folder: The folder of the view.
        journal: The identity of the journal that has filled the tables.
        properties: Properties of librdkafka, for topics of Kafka.
    """

    name: str
    kind: str
    schema: str
    address: str
    folder: str
    journal: str
    properties: dict[str, str] = {}


class ViewsState(msgspec.Struct, frozen=True):
    """The views of an application.

    Attributes:
        views: How each stands.
        held: The hold of the data directory; None if it has none.
        left: The rest of the work, for the operator; usually empty.
    """

    views: list[ViewStanding]
    held: Held | None = None
    left: str = ""


def views_state(place: Place) -> ViewsState:
    """Show how the views stand."""
    data = place.settings.data
    app = DataDirectory(data).app_name
    views = [] if app is None else view_standings(data, status_in(data, app).epoch)
    return ViewsState(views, held(data))


Kind: TypeAlias = Literal["pause", "resume", "rebuild", "remove"]

STATE: Final = Report(
    path="/views",
    name="views.list",
    answer=ViewsState,
    text="How each view stands.",
    at=views_state,
)


class ViewOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pause, resume, rebuild or remove a view.

    Its applier obeys within a second. Only a view that the newest deployment does not declare can be removed.

    Attributes:
        keep_tables: Whether a removal leaves the tables in a database, and removes the files of the view alone.
    """

    kind: Kind
    view: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    reason: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)] = ""
    keep_tables: bool = False

    way: ClassVar[Way] = Way(
        noun="an order about a view",
        path="/views",
        name="views.order",
        result=ViewsState,
        text="How each view stands then.",
        example='{"kind": "rebuild", "view": "reporting"}',
        needs_key=False,
        is_awaited=False,
    )

    def carry_out(self, place: Place, _timeout_s: float = 0.0) -> ViewsState:
        """Note the order durably, or remove a view, and return how the views stand then."""
        place.directory()  # there is a journal
        data, left = place.settings.data, ""
        declared = Deployments(journal_root(data)).views()
        known = known_views(data).union(declared)
        if self.view not in known:
            raise RequestError(unknown("view", self.view, sorted(known)))
        if self.kind == "remove":
            left = self._remove(place, declared)
        elif self.view not in declared:
            raise RequestError(
                f"view {self.view} is not declared any more; penstock view remove {self.view} removes it"
            )
        else:
            change_orders(data, self.view, lambda orders: self._changed(orders, place.by))
        return replace(views_state(place), left=left)

    def _changed(self, orders: ViewOrders, by: str) -> ViewOrders:
        told = replace(orders, by=by, reason=self.reason, time_us=wall_clock_us())
        match self.kind:
            case "pause":
                return replace(told, paused=True)
            case "rebuild":
                # The reason of a pause stays: it is still in force.
                return replace(orders if orders.paused else told, rebuild=orders.rebuild + 1)
            case _ if not orders.paused:
                raise RequestError(f"view {self.view} is not paused")
            case _:
                return replace(told, paused=False)

    def _remove(self, place: Place, declared: tuple[str, ...]) -> str:
        """Remove the tables and the files of a view, and return the rest of the work as text."""
        data = place.settings.data
        if self.view in declared:
            raise RequestError(
                f"the newest deployment declares view {self.view}; deploy code without it first"
            )
        if any(each.details.get("view") == self.view for each in presence.find(data, ROLE)):
            raise RequestError(f"the applier of view {self.view} still runs; it ends soon")
        report = read_report(data, self.view)
        target = "" if report is None else report.target
        left = ""
        if target not in _FILES or _has_address(place.settings, self.view):
            if self.keep_tables:
                left = f"its tables in {target or 'the target'} stay; drop them there when they are not read any more"
            else:
                left = self._without_tables(place, report)
        forget_view(data, self.view)
        return left

    def _without_tables(self, place: Place, report: ViewReport | None) -> str:
        """Remove the tables of a view from its target, and return the rest of the work as text.

        Raises:
            RequestError: They could not be removed.
        """
        if report is None:
            raise RequestError(
                f"no applier has told of view {self.view} here, so its target is not known; {_KEEP}"
            )
        if report.epoch == BEFORE_FIRST:
            return ""  # no fill has ended
        settings, folder = place.settings, folder_of(place.settings.data, self.view)
        journal = identity_of(journal_root(settings.data))
        try:
            target = settings.target_settings(self.view)
            tables = TablesOfView(
                self.view,
                report.target,
                report.schema,
                target.address(),
                str(folder.absolute()),
                journal,
                dict(target.properties),
            )
            return ask_child(_REMOVAL, tables, str, _REMOVAL_S)
        except (RequestError, ConfigError) as error:
            raise RequestError(f"{error}; {_KEEP}") from error
        except (TimeoutError, ChildEnded) as error:
            raise RequestError(
                f"the target of view {self.view} does not answer; {_KEEP}"
            ) from error


class EndOfHold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """End the hold of a restored or forked directory.

    From then on its views write into their targets.
    """

    way: ClassVar[Way] = Way(
        noun="the end of a hold",
        path="/resume",
        name="views.resume",
        result=ViewsState,
        text="How each view stands then.",
        example="{}",
        needs_key=False,
        is_awaited=False,
    )

    def carry_out(self, place: Place, _timeout_s: float = 0.0) -> ViewsState:
        """End the hold durably, and return how the views stand then."""
        place.directory()
        end_hold(place.settings.data)
        return views_state(place)


def _has_address(settings: Config, view: str) -> bool:
    target = settings.target_settings(view)
    return bool(target.url) or target.url_file.name != ""
