"""How an application goes: newest epoch, rate and lag, read from its data directory.

Whoever may read the directory can ask; the driver is not disturbed, and need not run.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.base.ids import Epoch, Lsn
from penstock.journal.api import Journal
from penstock.log.api import Log
from penstock.runtime.report import took_ms
from penstock.runtime.reports import ReportReader

LINE_EVERY_S: Final = 5.0
RATE_OVER_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Figures of one moment.

    Attributes:
        epoch: The newest committed one; None before the first.
        log_end: How many requests were ever appended.
        lag: Those that wait for their epoch.
        requests_per_s: What epochs of the last seconds have processed.
        epoch_ms: What the newest epoch took; None where no driver has ever said.
    """

    epoch: Epoch | None
    log_end: int
    lag: int
    requests_per_s: float
    epoch_ms: float | None

    def __str__(self) -> str:
        epoch = "-" if self.epoch is None else str(self.epoch)
        took = "-" if self.epoch_ms is None else f"{self.epoch_ms:.0f}"
        return (
            f"epoch {epoch}  {self.requests_per_s:,.0f} records/s  lag {self.lag:,}  "
            f"last epoch {took} ms"
        )


def standing_of(data: Path, log: Log, journal: Journal, over_s: float = RATE_OVER_S) -> Standing:
    """Return how an application stands; the rate is that of the last `over_s` seconds.

    Raises:
        OperationalError: Log or journal cannot be read.
    """
    last = journal.last()
    ends = {one: log.end(one) for one in log.partitions}
    committed = {} if last is None else last.positions
    reader = ReportReader(data)
    reports = reader.since(time.time_ns() // 1_000 - int(over_s * 1e6))
    newest = reader.newest()
    return Standing(
        epoch=None if last is None else last.epoch,
        log_end=sum(ends.values()),
        lag=sum(end - committed.get(one, Lsn(0)) for one, end in ends.items()),
        requests_per_s=sum(one.records for one in reports) / over_s,
        epoch_ms=None if newest is None else took_ms(newest.phases_ms),
    )


@contextmanager
def shown(console: Console) -> Iterator[Callable[[Callable[[], str]], None]]:
    """Give what shows a line: live on a terminal, else now and then, when it has changed."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda line: live.update(Text(line()), refresh=True)
        return
    last, due = "", 0.0

    def show(line: Callable[[], str]) -> None:
        nonlocal last, due
        now = time.monotonic()
        if now < due:
            return
        due = now + LINE_EVERY_S
        if (text := line()) != last:
            last = text
            console.print(text, highlight=False)

    yield show
