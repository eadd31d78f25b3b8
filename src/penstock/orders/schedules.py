"""Schedules of the code in force: their next times, and the orders to pause, to resume and to fire one of them."""

import uuid
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, Literal

import msgspec

from penstock.base.ids import RequestId
from penstock.errors import RequestError
from penstock.log.api import Entry
from penstock.log.clock import wall_clock_us
from penstock.log.ticker import read_ticks
from penstock.model.application import App, unknown
from penstock.orders.order import Place, Report, Way
from penstock.orders.pauses import PauseFile
from penstock.process.data_directory import DataDirectory

FOLDER: Final = "schedules/"
"""The beginning of the target of a pause of a schedule."""

_NEXT: Final = 5


class ListedSchedule(msgspec.Struct, frozen=True):
    """A schedule.

    Attributes:
        name: The function.
        times: The period, or the cron expression.
        zone: The time zone of the cron expression; empty for a period.
        missed: The ticks that run later if no driver ran at their time.
        paused: Whether its ticks are passed over.
        last: The last tick; None before the first.
        next: The next due times, in UTC.
    """

    name: str
    times: str
    zone: str
    missed: str
    paused: bool
    last: datetime | None
    next: list[datetime]


def schedules_at(place: Place) -> list[ListedSchedule]:
    """List the schedules, each with its next five due times."""
    app, settings = place.loaded()
    ticked, now = read_ticks(settings.data), datetime.now(UTC)
    paused = paused_schedules(settings.data)
    listed = []
    for schedule in app.schedules.values():
        known = ticked.get(schedule.name)
        last = None if known is None else schedule.latest(_moment(known.last_us))
        listed.append(
            ListedSchedule(
                schedule.name,
                schedule.text,
                schedule.zone,
                schedule.missed,
                schedule.name in paused,
                last,
                list(islice(schedule.after(now), _NEXT)),
            )
        )
    return listed


SCHEDULES: Final = Report(
    path="/schedules",
    name="schedules.list",
    answer=list[ListedSchedule],
    text="The schedules, in the order of the application.",
    at=schedules_at,
)


class ScheduleResult(msgspec.Struct, frozen=True):
    """The result of an order about a schedule.

    Attributes:
        request_id: The request that an order to fire has appended; empty for the other orders.
    """

    order: str
    name: str
    request_id: str = ""


class ScheduleOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pause, resume or fire a schedule.

    The ticks of a paused schedule are passed over. To fire it runs the function once more, with the present time as its due
    time.

    Attributes:
        order: The order.
        name: The function.
        reason: The reason of a pause.
    """

    order: Literal["pause", "resume", "fire"]
    name: str
    reason: str = ""

    way: ClassVar[Way] = Way(
        noun="an order about a schedule",
        path="/schedules",
        name="schedules.order",
        result=ScheduleResult,
        text="The order is in force, or the request is in the log.",
        example='{"order": "pause", "name": "nightly"}',
        needs_key=False,
        is_awaited=False,
    )

    def carry_out(self, place: Place, _timeout_s: float = 0.0) -> ScheduleResult:
        """Change the file of pauses, or append a request."""
        app, settings = place.loaded()
        if self.name not in app.schedules:
            raise RequestError(unknown("schedule", self.name, app.schedules))
        pauses = PauseFile(settings.data)
        target = f"{FOLDER}{self.name}"
        match self.order:
            case "pause":
                pauses.pause(target, place.by, self.reason, wall_clock_us())
            case "resume":
                pauses.resume(target, place.by, self.reason, wall_clock_us())
            case "fire":
                return ScheduleResult(self.order, self.name, self._fired(app, place))
        return ScheduleResult(self.order, self.name)

    def _fired(self, app: App, place: Place) -> RequestId:
        directory, _ = place.directory()
        now_us = wall_clock_us()
        request_id = RequestId(f"fire~~{self.name}~~{uuid.uuid4().hex}")
        body = app.schedules[self.name].body(_moment(now_us))
        with closing(DataDirectory(directory.path).open_log(place.settings)) as log:
            log.append([Entry(request_id, body, b"", now_us)])
        return request_id


def paused_schedules(data: Path) -> set[str]:
    """Return the names of the schedules that are paused."""
    in_force = PauseFile(data).pauses().in_force
    return {name.removeprefix(FOLDER) for name in in_force if name.startswith(FOLDER)}


def _moment(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)
