"""The ticker: a thread of the driver that appends the ticks of schedules when they are due.

`ticks.json` in the shared root has the last due time of each schedule. It is written after the append: after a crash in
between, the same tick has the same id, and the log drops it. A schedule that is new, or whose times have changed, begins
now, and so does one whose last tick is ahead of the clock: the clock was set back. The file also has the due times of the ticks
that have run, so they do not run again when the clock comes to them again, and the log has forgotten their ids. While a schedule is
paused, its ticks are passed over.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

import msgspec

from penstock.files.durable import storage
from penstock.files.layout import TICKS
from penstock.files.roots import shared_root
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.log.regular_look import RegularLook
from penstock.model.schedule import Schedule

PERIOD_S: Final = 0.2
"""Between two looks; the longest delay of a tick while the log can be written."""

_AHEAD_MAX_US: Final = 60_000_000
"""A last tick may be so far ahead of the clock: the driver before may have run on another host."""

_STRETCHES_MAX: Final = 20
"""The most stretches of ticks that are known for a schedule. One begins when the clock jumps, or when ticks were missed."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Ticked(msgspec.Struct, frozen=True):
    """How far a schedule has come.

    Attributes:
        last_us: Ticks up to this time have been appended, or were passed over; microseconds since the Unix epoch.
        times: The text and the zone of the schedule.
        ran: The first and the last tick of each stretch of ticks that have been appended, or were passed over, in their order.
    """

    last_us: int
    times: str
    ran: list[tuple[int, int]] = []

    def has_run(self, due_us: int) -> bool:
        """Say whether a tick has been appended, or was passed over."""
        return any(first_us <= due_us <= last_us for first_us, last_us in self.ran)

    def and_then(self, schedule: Schedule, due: Sequence[datetime]) -> Self:
        """Return how far the schedule has come with further ticks."""
        ran = self.ran
        for each in due:
            due_us = _us(each)
            before = [stretch for stretch in ran if stretch[0] <= due_us]
            behind, first_us = ran[len(before) :], due_us
            if before and next(schedule.after(_moment(before[-1][1])), each) >= each:
                first_us, last_us = before.pop()
                due_us = max(last_us, due_us)
            ran = [*before, (first_us, due_us), *behind]
        return type(self)(_us(due[-1]), self.times, ran[-_STRETCHES_MAX:])


def read_ticks(data: Path) -> dict[str, Ticked]:
    """Return how far each schedule has come; nothing if the file is missing or damaged."""
    try:
        return msgspec.json.decode(shared_root(data).get(TICKS), type=dict[str, Ticked])
    except (FileNotFoundError, msgspec.MsgspecError):
        return {}


class Ticker(RegularLook):
    """Appends ticks.

    Args:
        paused: Returns the names of the schedules that are paused.
    """

    def __init__(
        self,
        data: Path,
        log: Log,
        paused: Callable[[], Collection[str]],
        on_damage: Callable[[Exception], None],
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        super().__init__("schedules", PERIOD_S, on_damage)
        self._data = data
        self._log = log
        self._paused = paused
        self._clock_us = clock_us
        self._schedules: tuple[Schedule, ...] = ()
        self._ticked: dict[str, Ticked] | None = None

    def use(self, schedules: Sequence[Schedule]) -> None:
        """Obey the schedules of the code that runs from now on."""
        self._schedules = tuple(schedules)

    def look(self) -> None:
        """Append the ticks that are due.

        Raises:
            OperationalError: The log or the disk fails; the next look tries again.
        """
        if not self._schedules:
            return
        now_us = self._clock_us()
        with storage("read how far schedules have come"):
            before = read_ticks(self._data) if self._ticked is None else self._ticked
        after, due = self._due(before, now_us)
        # The pauses may be in an object store: no look at them without a tick.
        paused = self._paused() if due else ()
        entries = [
            Entry(schedule.tick_id(each), schedule.body(each), b"", now_us)
            for schedule, each in due
            if schedule.name not in paused
        ]
        if entries:
            self._log.append(entries, limited=False)
        if after != before:
            with storage("note how far schedules have come"):
                shared_root(self._data).replace(TICKS, msgspec.json.encode(after))
        self._ticked = after

    def _due(
        self, before: dict[str, Ticked], now_us: int
    ) -> tuple[dict[str, Ticked], list[tuple[Schedule, datetime]]]:
        """Return how far the schedules have come with the ticks that are due, and these ticks."""
        now = _moment(now_us)
        after: dict[str, Ticked] = {}
        every: list[tuple[Schedule, datetime]] = []
        for schedule in self._schedules:
            times, known = f"{schedule.text} {schedule.zone}".strip(), before.get(schedule.name)
            is_set_back = known is not None and known.last_us > now_us + _AHEAD_MAX_US
            if known is None or known.times != times or is_set_back:
                ran = known.ran if known is not None and known.times == times else []
                after[schedule.name] = Ticked(now_us, times, ran)
                continue
            due = schedule.due(_moment(known.last_us), now)
            every += [(schedule, each) for each in due if not known.has_run(_us(each))]
            after[schedule.name] = known.and_then(schedule, due) if due else known
        return after, every


def _moment(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)


def _us(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
