"""Cron expressions in 40 zones over ten years, against a walk through the wall clocks of `zoneinfo`.

Only the days around a change of the clock can differ from plain times, so the walk looks at these: at each of them in all zones.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest

from penstock.model.schedule import Schedule

SEED = 34
FIRST, LAST = datetime(2015, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
STRANGE = (
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Africa/Casablanca",
    "America/Havana",
    "Asia/Gaza",
)
"""Changes of half an hour and of two hours, against the sun, at midnight, and at a time that is told late."""

HALF_HOUR = "Australia/Lord_Howe"
"""cronsim takes one tick of each hour there, also of an hour that has half an hour twice, or lacks one: the pages say so."""

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def changes(zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the minutes, in UTC, with which another offset begins."""
    day = FIRST
    while day < LAST:
        low, high = day, day + DAY
        if low.astimezone(zone).utcoffset() != high.astimezone(zone).utcoffset():
            before = low.astimezone(zone).utcoffset()
            while high - low > MINUTE:
                middle = low + (high - low) // 2 // MINUTE * MINUTE
                if middle.astimezone(zone).utcoffset() == before:
                    low = middle
                else:
                    high = middle
            yield high
        day += DAY


def chosen_zones() -> list[str]:
    """Return 40 zones whose clocks change, always the same ones."""
    draw = random.Random(SEED)
    names = sorted(name for name in available_timezones() if "/" in name and "Etc" not in name)
    picked = list(STRANGE)
    for name in draw.sample(names, len(names)):
        year = datetime(2019, 1, 1, tzinfo=UTC)
        months = (year + timedelta(days=30 * month) for month in range(12))
        if len({month.astimezone(ZoneInfo(name)).utcoffset() for month in months}) > 1:
            picked.append(name)
        if len(picked) == 40:
            break
    return picked


def until(end: datetime, ticks: Iterator[datetime]) -> list[datetime]:
    """Return the ticks before a moment."""
    return [*takewhile(lambda due: due < end, ticks)]


def first_at_or_after(zone: ZoneInfo, wall: datetime) -> datetime:
    """Return the first minute at which the wall clock shows a time, or has passed over it: the rule of Debian's cron."""
    early = wall.replace(tzinfo=zone, fold=0).astimezone(UTC) - timedelta(hours=4)
    while early.astimezone(zone).replace(tzinfo=None) < wall:
        early += MINUTE
    return early


@pytest.mark.parametrize("name", chosen_zones())
def test_clock_changes_follow_the_wall_clock(name: str) -> None:
    """A time of day comes once on each day; a time of each hour comes whenever the wall clock shows it."""
    zone, draw = ZoneInfo(name), random.Random(f"{SEED} {name}")
    for change in changes(zone):
        near = change.astimezone(zone) + draw.choice((-1, 1)) * timedelta(
            minutes=draw.randrange(90)
        )
        hour, minute = near.hour, near.minute
        begin, end = change - 2 * DAY, change + 2 * DAY
        daily = Schedule("f", f"{minute} {hour} * * *", name)
        ticks = until(end, daily.after(begin))
        days = (begin.astimezone(zone).date() + number * DAY for number in range(-1, 6))
        walls = (datetime(day.year, day.month, day.day, hour, minute) for day in days)  # noqa: DTZ001
        wanted = [first_at_or_after(zone, wall) for wall in walls]
        assert ticks == [due for due in wanted if begin < due < end], (name, change, daily.text)
        if name == HALF_HOUR:
            continue
        begin, end = change - timedelta(hours=3), change + timedelta(hours=4)
        hourly = Schedule("f", f"{minute} * * * *", name)
        ticks = until(end, hourly.after(begin))
        minutes = (begin + number * MINUTE for number in range(1, 7 * 60))
        assert ticks == [each for each in minutes if each.astimezone(zone).minute == minute]
