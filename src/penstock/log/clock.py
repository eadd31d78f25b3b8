"""The clocks of the log: that of this machine for due times, and the log's own, by which request ids age.

The log's own time never goes back, and goes on by at most `STEP_MAX_S` from one use to the next, whatever the machine's
clock does. So a clock that jumps ahead forgets no id, and a clock that is set back makes no id older. While the log is
not used, its time stands still after this step, so an id is known for longer than the retention, and never for less.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

STEP_MAX_S: Final = 3_600
"""The most seconds of the log's own time between two uses."""

_DIFFERENCE_S: Final = 60
"""Seconds between the machine's clock and a clock without jumps that count as a jump."""


def wall_clock_us() -> int:
    """Return this machine's time in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


def time_after(earlier_us: int, clock_us: Callable[[], int] = wall_clock_us) -> int:
    """Return the machine's time, or the time of something earlier if that is a little later.

    A time that is more than a minute ahead was taken while the clock was wrong, and does not count any more.
    """
    now_us = clock_us()
    return earlier_us if 0 < earlier_us - now_us <= _DIFFERENCE_S * 1_000_000 else now_us


class ClockSteps:
    """The steps of the machine's clock since an earlier look.

    Attributes:
        ahead_us: How far the machine's clock was ahead of a clock without jumps, at the last look.

    Args:
        ahead_us: `ahead_us` of an earlier process, since the same start of the machine; None: the last look is now.
    """

    def __init__(self, ahead_us: int | None = None) -> None:
        self.ahead_us = self._ahead() if ahead_us is None else ahead_us

    def step_us(self) -> int:
        """Return how far the clock has jumped since the last look, negative if it was set back; 0 for a minute or less."""
        before, self.ahead_us = self.ahead_us, self._ahead()
        step_us = self.ahead_us - before
        return step_us if abs(step_us) > _DIFFERENCE_S * 1_000_000 else 0

    @staticmethod
    def _ahead() -> int:
        """Return how far the machine's clock is ahead of a clock without jumps."""
        return wall_clock_us() - time.monotonic_ns() // 1000


def no_jump(_seconds: int) -> None:
    """Do nothing about a jump of the clock."""


class LogTime:
    """The log's own time, in seconds since the Unix epoch, as far as one process knows it.

    Attributes:
        jumps: How often the machine's clock has jumped while this process used the log.

    Args:
        newest_s: The time of the newest append; None for a log without one.
        on_jump: Receives the seconds of each jump.
    """

    def __init__(
        self,
        clock_us: Callable[[], int],
        newest_s: int | None,
        on_jump: Callable[[int], None] = no_jump,
    ) -> None:
        self._clock_us = clock_us
        self._on_jump = on_jump
        self._lock = threading.Lock()
        self._wall_s = clock_us() // 1_000_000 if newest_s is None else newest_s
        self._now_s = self._wall_s
        self._steady_s: float | None = None
        self.jumps = 0

    def now_s(self) -> int:
        """Return the time."""
        with self._lock:
            wall_s, steady_s = self._clock_us() // 1_000_000, time.monotonic()
            ahead = wall_s - self._wall_s
            jump_s = 0.0 if self._steady_s is None else ahead - (steady_s - self._steady_s)
            if abs(jump_s) > _DIFFERENCE_S:
                self.jumps += 1
                _log.warning("log.clock_jumped", extra={"seconds": round(jump_s)})
                self._on_jump(round(jump_s))
            self._now_s += min(max(ahead, 0), STEP_MAX_S)
            self._wall_s, self._steady_s = wall_s, steady_s
            return self._now_s
