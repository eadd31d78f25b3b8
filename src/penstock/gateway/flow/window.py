"""`Window`: the number of requests that a gateway lets into the log before further ones wait for their turn.

The smallest window that keeps the driver busy is best: a request of a quiet principal waits for the epoch that runs, and
so for half of its time. Each epoch has a fixed time, so many small epochs are slow. The window therefore holds the
requests of one epoch of a given time, or of `FIXED_TIMES` times the fixed time if that is longer. Both times come from the last
epochs, as a line through their sizes and times (least squares, with older epochs counting less).

Several gateways share the log without a protocol: each has the part of the window that is its part of the committed
requests, and at least an equal part. So a gateway that starts to send gets its part, and all windows together are at
most twice as large as that of a single gateway.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

SIZE_MIN: Final = 2
SIZE_MAX: Final = 10_000
"""By default, an epoch takes no more requests."""

SIZE_FIRST: Final = 250
"""The size before an epoch is known."""

FIXED_TIMES: Final = 4
"""An epoch of so many times its fixed time spends three quarters of it on requests."""

TIME_MAX_S: Final = 1.0
"""The longest epoch that a long fixed time can cause."""

_KEPT: Final = 0.95
"""The weight of an epoch, relative to the epoch after it."""

_PROBE_EVERY: Final = 16
_PROBE: Final = 4
"""Every 16th window is four times as large. Small epochs alone would hide how fast large ones are: while a small one
runs, the gateways use the same processors for the requests after it."""

_GROWTH_MAX: Final = 1.5
"""The window grows or shrinks at most by this factor after an epoch; a single slow epoch changes little."""

_SPREAD_MIN: Final = 0.1
"""Sizes that differ less, relative to their mean, say nothing about the fixed time."""


class Progress(NamedTuple):
    """The progress of the driver, as a gateway sees it.

    Attributes:
        epoch: The newest epoch.
        committed: The log position after it.
        own: The number of committed requests that this gateway has appended.
        now_s: The time, in seconds that never go back.
    """

    epoch: int
    committed: int
    own: int
    now_s: float


class Window:
    """The window of one gateway.

    Attributes:
        size: The number of requests, at least `SIZE_MIN`.
    """

    def __init__(self, time_s: float, gateways: int = 1) -> None:
        """Let the log hold the requests of one epoch.

        Args:
            time_s: The time of the epoch; 0 sets no bound.
        """
        self.size = SIZE_FIRST
        self._time_s = time_s
        self._part_min = 1 / gateways
        self._line = _Line()
        self._whole = float(SIZE_FIRST)
        self._resizes = 0
        self._busy_since: Progress | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound."""
        return self._time_s > 0

    def note(self, progress: Progress, *, busy: bool) -> None:
        """Take the progress of the driver after an epoch.

        Args:
            busy: Whether more requests waited then, in the log or in this gateway. Only the time between two
                epochs that followed each other without a pause shows the driver's rate.
        """
        before = self._busy_since
        self._busy_since = progress if busy else None
        if (
            before is None
            or progress.committed <= before.committed
            or progress.now_s <= before.now_s
        ):
            return
        epochs = max(1, progress.epoch - before.epoch)
        own, count = progress.own - before.own, progress.committed - before.committed
        self._line.add(epochs, count, progress.now_s - before.now_s, own)
        self._resize()

    def _resize(self) -> None:
        line = self._line
        fixed_s, each_s = line.times()
        time_s = max(self._time_s, min(FIXED_TIMES * fixed_s, TIME_MAX_S))
        wanted = (time_s - fixed_s) / each_s if each_s > 0 else SIZE_MAX
        bounded = min(max(wanted, self._whole / _GROWTH_MAX), self._whole * _GROWTH_MAX)
        self._whole = min(max(SIZE_MIN, bounded), SIZE_MAX)
        self._resizes += 1
        probe = 1 if self._resizes % _PROBE_EVERY else _PROBE
        part = max(self._part_min, line.own_part())
        self.size = max(SIZE_MIN, round(probe * part * self._whole))


@dataclass(slots=True)
class _Line:
    """A line through the sizes and times of the last epochs; sums with weights."""

    epochs: float = 0.0
    counts: float = 0.0
    times_s: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    own: float = 0.0
    fixed_s: float = 0.0

    def add(self, epochs: int, count: int, time_s: float, own: int) -> None:
        """Add epochs.

        Args:
            time_s: Their time in seconds.
        """
        kept = _KEPT**epochs
        self.epochs = kept * self.epochs + epochs
        self.counts = kept * self.counts + count
        self.times_s = kept * self.times_s + time_s
        self.squares = kept * self.squares + count * count / epochs
        self.products = kept * self.products + count * time_s / epochs
        self.own = kept * self.own + own

    def times(self) -> tuple[float, float]:
        """Return the fixed time of an epoch, and the time of each request, in seconds."""
        count, time_s = self.counts / self.epochs, self.times_s / self.epochs
        variance = self.squares / self.epochs - count * count
        if variance > (_SPREAD_MIN * count) ** 2:
            slope = (self.products / self.epochs - count * time_s) / variance
            self.fixed_s = time_s - slope * count
        self.fixed_s = min(max(self.fixed_s, 0.0), time_s)
        return self.fixed_s, (time_s - self.fixed_s) / count

    def own_part(self) -> float:
        """Return the part of the requests that this gateway has appended."""
        return min(1.0, self.own / self.counts)
