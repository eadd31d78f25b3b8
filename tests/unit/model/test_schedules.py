"""Schedules: due times by the rules of Debian's cron, ticks that were missed, and definitions that are refused."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from penstock import App, Entity, cron, every, key, now, request_id
from penstock.base.ids import Lsn
from penstock.errors import DefinitionError, Forbidden, RequestError
from penstock.log.sqlite import SqliteLog
from penstock.log.ticker import Ticker, read_ticks
from penstock.model.call import Call
from penstock.model.schedule import TICKS_MAX, Schedule
from penstock.orders.order import Place
from penstock.orders.schedules import ScheduleOrder, paused_schedules, schedules_at
from penstock.process.config import Config
from penstock.testing import Kit


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(schedule: Schedule, begin: str, count: int) -> list[str]:
    return [f"{each:%m-%d %H:%M}" for each in islice(schedule.after(at(begin)), count)]


class Sweep(Entity):
    name: str = key()
    ticks: list[str] = []


@every("5m")
def sweep(due: datetime) -> None:
    entity = Sweep("s") if Sweep.exists("s") else Sweep.create("s")
    entity.ticks = [*entity.ticks, f"{due:%H:%M} {request_id()} {now():%H:%M}"]


@cron("30 2 * * *", zone="Europe/Berlin")
def nightly(due: datetime) -> None:
    Sweep.create(f"{due:%Y-%m-%d %H:%M}")


app = App("swept", Sweep, sweep, nightly)


def test_a_period_counts_from_1970() -> None:
    """So two drivers that start at different times have the same ticks."""
    assert times(Schedule("f", "2h"), "2026-01-01T00:59:59", 2) == ["01-01 02:00", "01-01 04:00"]
    assert times(Schedule("f", "5m"), "2026-01-01T00:05", 1) == ["01-01 00:10"]


def test_summer_time_follows_cron_of_debian() -> None:
    """A time that is left out runs right after the change; one that comes twice runs once; each hour still runs each hour."""
    daily = Schedule("f", "30 2 * * *", "Europe/Berlin")
    assert times(daily, "2026-03-28T12:00", 2) == ["03-29 01:00", "03-30 00:30"]
    assert times(daily, "2026-10-24T12:00", 2) == ["10-25 00:30", "10-26 01:30"]
    hourly = Schedule("f", "30 * * * *", "Europe/Berlin")
    assert times(hourly, "2026-10-24T23:31", 3) == ["10-25 00:30", "10-25 01:30", "10-25 02:30"]


@pytest.mark.parametrize(
    ("missed", "expected"),
    [("latest", ["02-01 00:30"]), ("none", []), ("all", ["01-31 00:30", "02-01 00:30"])],
)
def test_a_month_without_a_driver(missed: Any, expected: list[str]) -> None:
    """One tick, all within `catch_up`, or none."""
    schedule = Schedule("f", "30 0 * * *", "UTC", missed, timedelta(days=2).total_seconds())
    due = schedule.due(at("2026-01-01T00:30"), at("2026-02-01T09:00"))
    assert [f"{each:%m-%d %H:%M}" for each in due] == expected


def test_a_backlog_comes_in_bounded_pieces() -> None:
    """A second for each second of a long time would be too many at once."""
    schedule = Schedule("f", "1s", "", "all")
    assert len(schedule.due(at("2026-01-01"), at("2026-01-02"))) == TICKS_MAX


def test_ticks_that_are_a_little_late_all_run() -> None:
    """The last minute is not missed: a driver was slow, and not away."""
    schedule = Schedule("f", "10s")
    assert len(schedule.due(at("2026-01-01T00:00"), at("2026-01-01T00:00:35"))) == 3


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: every("5 minutes"), "needs a period such as 30s"),
        (lambda: every("0m"), "needs a period"),
        (lambda: every(300), r'@every\(300\) needs a text: "30s"'),  # type: ignore[arg-type]
        (lambda: cron("30 2 * *", zone="UTC"), "five fields"),
        (lambda: cron("70 2 * * *", zone="UTC"), "Bad minute"),
        (lambda: cron("0 0 30 2 *", zone="UTC"), "Bad day-of-month|never fires"),
        (lambda: cron("* * */20 * 1L", zone="UTC"), "never fires"),
        (lambda: cron("0 0 * * *", zone="Europe/Berlim"), "does not know the time zone"),
        (lambda: cron("0 0 * * *", zone=""), "does not know the time zone"),
        (lambda: every("5m", missed="last"), "latest, all or none"),  # type: ignore[arg-type]
        (lambda: every("5m")(lambda: None), "one parameter"),
        (lambda: every("5m")(Sweep), "and not the class"),
    ],
)
def test_a_wrong_definition_is_refused_at_its_place(make: Any, text: str) -> None:
    """The message has file and line, and the remedy."""
    with pytest.raises(DefinitionError, match=text) as raised:
        make()
    assert "test_schedules.py:" in str(raised.value)


def test_a_kit_moves_the_time_by_hand() -> None:
    """Each tick runs once, at its due time, with an id that names it."""
    kit = Kit(app, start=at("2026-03-28T20:00"))
    kit.clock.advance(timedelta(minutes=11))
    kit.settle()
    kit.settle()
    entity = kit.entity("Sweep", "s")
    assert entity is not None
    assert entity["ticks"] == [
        "20:05 tick~~sweep~~2026-03-28T20:05:00Z 20:05",
        "20:10 tick~~sweep~~2026-03-28T20:10:00Z 20:10",
    ]
    kit.clock.advance(timedelta(hours=10))
    kit.settle()
    assert kit.entity("Sweep", "2026-03-29 01:00") is not None


class Driven:
    """A ticker without its thread, with a clock that the test moves."""

    def __init__(self, data: Path, retention_s: int = 7 * 86_400) -> None:
        self.data = data
        self.now = at("2026-01-01T00:01")
        self.log = SqliteLog(data / "log.sqlite", retention_s=retention_s, clock_us=self.clock_us)
        self.restart()

    def restart(self) -> None:
        self.ticker = Ticker(
            self.data,
            self.log,
            lambda: paused_schedules(self.data),
            lambda _: None,
            self.clock_us,
        )
        self.ticker.use(list(app.schedules.values()))

    def clock_us(self) -> int:
        return int(self.now.timestamp() * 1_000_000)

    def pass_by(self, **time: float) -> None:
        self.now += timedelta(**time)
        self.ticker.look()

    def ids(self) -> list[str]:
        return [each.request_id for each in self.log.read(Lsn(0), self.log.end())]


def test_a_tick_happens_once(tmp_path: Path) -> None:
    """Also if the driver ends between the append and its note, and if two drivers look."""
    driven = Driven(tmp_path)
    driven.pass_by()
    driven.pass_by(minutes=4)
    note = read_ticks(tmp_path)
    driven.pass_by(minutes=5)
    (tmp_path / "ticks.json").write_bytes(__import__("msgspec").json.encode(note))
    driven.restart()
    driven.pass_by(seconds=1)
    driven.pass_by(seconds=1)
    expected = [f"tick~~sweep~~2026-01-01T00:{minute}:00Z" for minute in ("05", "10")]
    assert driven.ids() == expected
    driven.log.close()


def test_a_clock_that_is_set_right_stops_no_schedule(tmp_path: Path) -> None:
    """It was a year ahead; the ticks of a clock that was set back by an hour happen once, and those behind them at their times."""
    driven = Driven(tmp_path)
    driven.pass_by()
    driven.pass_by(days=365)
    driven.pass_by(days=-365)
    driven.pass_by(minutes=5)
    driven.pass_by(hours=-1)
    for _ in range(13):
        driven.pass_by(minutes=5)
    ticks = [each.partition("sweep~~")[2] for each in driven.ids() if "sweep" in each]
    before = [f"2025-12-31T23:{minute:02}:00Z" for minute in range(10, 60, 5)]
    after = ["2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"]
    assert ticks == ["2027-01-01T00:00:00Z", "2026-01-01T00:05:00Z", *before, *after]
    driven.log.close()


def test_a_tick_happens_once_also_if_the_log_has_forgotten_it(tmp_path: Path) -> None:
    """The clock was set back by more than `retention_s`, twice; a stretch in which it was ahead stands in the way of no other tick."""
    driven = Driven(tmp_path, retention_s=60)
    driven.pass_by()
    driven.pass_by(minutes=5)
    driven.pass_by(days=30)
    for back in (timedelta(), timedelta(days=30, minutes=15), timedelta(minutes=55)):
        driven.now -= back
        for _ in range(12):
            driven.pass_by(minutes=5)
    driven.pass_by(days=29, hours=23, minutes=5)
    driven.restart()
    for _ in range(3):
        driven.pass_by(minutes=5)
    ticks = [each.partition("sweep~~2026-01-")[2][:8] for each in driven.ids() if "sweep" in each]
    ahead = [f"31T{minute // 60:02}:{minute % 60:02}" for minute in range(5, 80, 5)]
    right = [f"01T01:{minute:02}" for minute in range(0, 60, 5)]
    assert ticks == ["01T00:05", *ahead[:13], *right, *ahead[13:]]
    driven.log.close()


def test_a_pause_passes_ticks_over_and_an_order_fires(tmp_path: Path) -> None:
    """A resumed schedule goes on with its next tick; the list shows the pause and the next times."""
    driven = Driven(tmp_path)
    place = Place(Config(tmp_path), app, "ada")
    driven.pass_by()
    ScheduleOrder("pause", "sweep", "new disk").carry_out(place)
    driven.pass_by(minutes=10)
    listed = {each.name: each for each in schedules_at(place)}
    assert (listed["sweep"].paused, listed["nightly"].paused) == (True, False)
    assert len(listed["sweep"].next) == 5
    ScheduleOrder("resume", "sweep").carry_out(place)
    driven.pass_by(minutes=5)
    assert driven.ids() == ["tick~~sweep~~2026-01-01T00:15:00Z"]
    with pytest.raises(RequestError, match="did you mean sweep"):
        ScheduleOrder("pause", "swep").carry_out(place)
    driven.log.close()


def test_other_times_begin_anew(tmp_path: Path) -> None:
    """After a deployment with another expression, no tick of the new times is made up."""
    driven = Driven(tmp_path)
    driven.pass_by()
    driven.ticker.use([Schedule("sweep", "1h", "", "all")])
    driven.pass_by(hours=5)
    driven.pass_by(minutes=60)
    assert driven.ids() == ["tick~~sweep~~2026-01-01T06:00:00Z"]
    driven.log.close()


def test_no_caller_chooses_a_due_time() -> None:
    """A gateway refuses the function, as every internal one."""
    assert app.functions["sweep"].internal
    assert Kit(app).submit(Call("", None, "sweep", (at("2026-01-01"),))).error is None
    assert issubclass(Forbidden, Exception)
