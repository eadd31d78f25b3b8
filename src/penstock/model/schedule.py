"""Schedules: functions that run at times, `@every("5m")` and `@cron("30 2 * * *", zone="Europe/Berlin")`.

A tick is a request with the due time as its only argument. Its id consists of the name of the function and the due time
in UTC, so a tick happens once. At changes of summer time, cron expressions follow the rules of Debian's cron.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, Literal, TypeVar, get_args
from zoneinfo import ZoneInfo

import msgspec

from penstock.base.ids import RequestId
from penstock.base.schema import ENCODER
from penstock.errors import DefinitionError
from penstock.model.declaration import caller_place
from penstock.model.handler import check_marked
from penstock.model.request import Request, encode_request

Missed = Literal["latest", "all", "none"]
"""The ticks that run later if no driver ran at their time: the last one, all, or none."""

CATCH_UP: Final = timedelta(days=31)
LATE: Final = timedelta(seconds=60)
"""A tick that is later than this was missed."""

TICKS_MAX: Final = 100
"""The most ticks of a schedule that are appended at once."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PERIOD: Final = re.compile(r"([1-9]\d{0,8})([smhd])")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_CRON_FIELDS: Final = 5

F = TypeVar("F", bound=Callable[..., Any])


class Schedule(msgspec.Struct, frozen=True):
    """The times of a function.

    Attributes:
        name: The function.
        text: The period, such as `5m`, or the cron expression.
        zone: The time zone of a cron expression; empty for a period, which counts from 1970 in UTC.
        missed: The ticks that run later if no driver ran at their time.
        catch_up_s: A missed tick that is older than this does not run.
    """

    name: str
    text: str
    zone: str = ""
    missed: Missed = "latest"
    catch_up_s: float = CATCH_UP.total_seconds()

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the due times after a moment, in UTC, without end; a cron expression ends if it never fires again."""
        if self.zone:
            from cronsim import CronSim  # noqa: PLC0415 -- an application without cron expressions does without it

            for due in CronSim(self.text, moment.astimezone(ZoneInfo(self.zone))):
                yield due.astimezone(UTC)
            return
        period = timedelta(seconds=_seconds(self.text))
        count = (moment - _EPOCH) // period
        while True:
            count += 1
            yield _EPOCH + count * period

    def latest(self, moment: datetime) -> datetime | None:
        """Return the last due time that is not after a moment; None if there was none in fifty years."""
        if self.zone:
            from cronsim import CronSim  # noqa: PLC0415 -- as above

            # It yields times before its start, in whole minutes.
            start = (moment + timedelta(minutes=1)).astimezone(ZoneInfo(self.zone))
            earlier = (each.astimezone(UTC) for each in CronSim(self.text, start, reverse=True))
            return next((each for each in earlier if each <= moment), None)
        period = timedelta(seconds=_seconds(self.text))
        return _EPOCH + (moment - _EPOCH) // period * period

    def due(self, last: datetime, now: datetime) -> list[datetime]:
        """Return the ticks to run now, in order; at most `TICKS_MAX`.

        Args:
            last: Ticks up to this moment have run, or were passed over.
        """
        begin = max(last, now - timedelta(seconds=self.catch_up_s))
        if self.missed == "all":
            return list(islice(_until(self.after(begin), now), TICKS_MAX))
        on_time = list(islice(_until(self.after(max(begin, now - LATE)), now), TICKS_MAX))
        if on_time or self.missed == "none":
            return on_time
        newest = self.latest(now)
        return [newest] if newest is not None and newest > begin else []

    def tick_id(self, due: datetime) -> RequestId:
        """Return the id of a tick, which no caller may choose."""
        return RequestId(f"tick~~{self.name}~~{due.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")

    def body(self, due: datetime) -> bytes:
        """Return the body of the request of a tick."""
        arguments = msgspec.Raw(ENCODER.encode([due.astimezone(UTC)]))
        return encode_request(Request("", None, self.name, arguments, msgspec.Raw(b"\x80")))


def every(
    period: str, *, missed: Missed = "latest", catch_up: timedelta = CATCH_UP
) -> Callable[[F], F]:
    """Run a function in equal periods: `30s`, `5m`, `2h`, `1d`, counted from 1970 in UTC.

    Written above a function with one parameter, the due time: `def sweep(due: datetime) -> None`. The function is a
    transaction, and a member of the `App`. No caller reaches it through a gateway.

    Args:
        missed: The ticks that run later if no driver ran at their time: the last one, all, or none.
        catch_up: A missed tick that is older than this does not run.

    Raises:
        DefinitionError: The period is wrong, or the function does not fit.
    """
    where = caller_place()
    given: object = period
    if not isinstance(given, str):
        raise DefinitionError(
            [f'{where}: @every({given!r}) needs a text: "30s", "5m", "2h" or "1d"']
        )
    if not _PERIOD.fullmatch(given):
        raise DefinitionError(
            [f'{where}: @every("{given}") needs a period such as 30s, 5m, 2h or 1d']
        )
    return _marking("@every", where, Schedule("", period, "", missed, catch_up.total_seconds()))


def cron(
    expression: str, *, zone: str, missed: Missed = "latest", catch_up: timedelta = CATCH_UP
) -> Callable[[F], F]:
    """Run a function at the times of a cron expression with five fields, in a time zone.

    Written above a function as `every` is. A time that a change to summer time leaves out runs right after the change, and
    a time that comes twice runs once, as in Debian's cron.

    Args:
        expression: Minute, hour, day, month and weekday: `30 2 * * *`.
        zone: The name of a time zone: `Europe/Berlin`.
        missed: The ticks that run later if no driver ran at their time: the last one, all, or none.
        catch_up: A missed tick that is older than this does not run.

    Raises:
        DefinitionError: The expression is wrong or never fires, the zone is unknown, or the function does not fit.
    """
    where = caller_place()
    schedule = Schedule("", expression, zone, missed, catch_up.total_seconds())
    complaint = _zone_complaint(zone) or _cron_complaint(schedule)
    if complaint:
        raise DefinitionError([f'{where}: @cron("{expression}", zone="{zone}"): {complaint}'])
    return _marking("@cron", where, schedule)


def schedule_of(function: Callable[..., Any], name: str) -> Schedule | None:
    """Return the schedule of a function; None without one."""
    schedule: Schedule | None = getattr(function, "__schedule__", None)
    return None if schedule is None else msgspec.structs.replace(schedule, name=name)


def _zone_complaint(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (OSError, ValueError, KeyError):  # a name that is a folder, a path, or unknown
        return "this machine does not know the time zone; write a name such as Europe/Berlin or UTC"
    return ""


def _cron_complaint(schedule: Schedule) -> str:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 -- as above

    if len(schedule.text.split()) != _CRON_FIELDS:
        return "it needs five fields: minute, hour, day, month, weekday"
    try:
        times = CronSim(schedule.text, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        return f"{error}; the fields are minute, hour, day, month, weekday"
    if next(iter(times), None) is None:
        return "it never fires: no day of the next fifty years fits"
    return ""


def _marking(mark: str, where: str, schedule: Schedule) -> Callable[[F], F]:
    if schedule.missed not in get_args(Missed):
        raise DefinitionError([f'{where}: missed="{schedule.missed}" must be latest, all or none'])
    if schedule.catch_up_s <= 0:
        raise DefinitionError([f"{where}: catch_up must be longer than no time"])

    def marking(function: F) -> F:
        check_marked(function, mark, where)
        parameters = inspect.signature(function).parameters.values()
        if len(parameters) != 1 or any(each.kind in _UNFIT for each in parameters):
            raise DefinitionError(
                [f"{where}: a function with {mark} has one parameter, the due time: due: datetime"]
            )
        function.__transactional__ = True  # type: ignore[attr-defined]
        function.__internal__ = True  # type: ignore[attr-defined]
        function.__schedule__ = schedule  # type: ignore[attr-defined]
        return function

    return marking


_UNFIT: Final = (
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)


def _until(times: Iterator[datetime], now: datetime) -> Iterator[datetime]:
    for each in times:
        if each > now:
            return
        yield each


def _seconds(text: str) -> int:
    return int(text[:-1]) * _UNITS[text[-1]]
