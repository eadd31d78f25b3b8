"""The pump: a thread that appends scheduled requests to the log when they are due.

A request is appended soon after its due time, never before. A full disk or a held lock only delays
it. The log guarantees that each request is appended exactly once, also if several pumps run. While
no request is due, a look costs one read of the file.
"""

from collections.abc import Callable
from typing import Final

from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.log.regular_look import RegularLook

PERIOD_S: Final = 0.1
"""Between two looks; the longest delay of a request while the log can be written."""


class Pump(RegularLook):
    """Promotes the requests that are due."""

    def __init__(
        self,
        log: Log,
        on_damage: Callable[[Exception], None],
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        super().__init__("scheduled requests", PERIOD_S, on_damage)
        self._log = log
        self._clock_us = clock_us

    def look(self) -> None:
        """Promote until nothing more is due."""
        while self._log.promote(self._clock_us()):
            if self._stopping.is_set():
                return
