"""`Pace`: how often the queries of a view's SQL tables are asked, and for how long the view rests between them."""

import time
from collections.abc import Iterable
from typing import Final

from penstock.model.views.view import QueryTable, ShownTable

ANSWERS: Final = "answers"
"""The folder of the last answers, in that of the view."""


class Pace:
    """Not more often than `every`, and not above the share of a core; a view without SQL tables never waits.

    Attributes:
        took_s: How long the last questions took, with their difference; None before the first.
        rests: Whether the share makes the view wait longer than `every`.
    """

    def __init__(self, percent: int) -> None:
        self.took_s: float | None = None
        self.rests = False
        self._every_s = 0.0
        self._share = percent / 100
        self._began = self._rested = float("-inf")

    def keep(self, tables: Iterable[ShownTable]) -> None:
        """Keep the pace of these tables of a view; they are asked together, so the longest `every` counts."""
        every = [each.every.total_seconds() for each in tables if isinstance(each, QueryTable)]
        self._every_s = max(every, default=0.0)
        if not every:
            self.took_s, self.rests = None, False

    def spent(self, began: float, ended: float) -> None:
        """Note when the last questions began, and when their difference was known; seconds of `time.monotonic`."""
        # The time, and not that of the processor, which other processes spend: on a busy machine the view rests longer.
        self.took_s = ended - began
        span_s = self.took_s / self._share
        self.rests = span_s > self._every_s
        self._began, self._rested = began, began + span_s

    def due_in(self) -> float:
        """Return the seconds until the queries may be asked again."""
        return max(self.rest_in(), self._began + self._every_s - time.monotonic())

    def rest_in(self) -> float:
        """Return the seconds until the share allows it, without regard to `every`."""
        return max(0.0, self._rested - time.monotonic())
