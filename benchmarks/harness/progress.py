"""Progress on standard error: a bar on a terminal, a plain line every few seconds elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.harness.measure import Watcher

LINE_EVERY_S: Final = 3.0
REFRESHES_PER_S: Final = 4  # the display must not take processor time from the benchmark


@contextmanager
def watching(console: Console) -> Iterator[Watcher]:
    """Give the display that fits a console."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console, refresh_per_second=REFRESHES_PER_S) as progress:
        yield Bars(progress)


class Bars:
    """One bar for each stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = None if not progress.tasks else progress.tasks[-1].id

    def stage(self, text: str, total: int) -> None:
        """Finish the last bar and begin another."""
        self._finish()
        self._task = self._progress.add_task(text, total=total or None, text="")

    def at(self, done: int, text: str = "") -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, text=text)

    def _finish(self) -> None:
        if self._task is not None:
            done = self._progress.tasks[-1]
            total = done.total or 1
            self._progress.update(self._task, total=total, completed=total)
            self._progress.stop_task(self._task)


class Lines:
    """A line for each stage, and now and then one for how far it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = 0.0
        self._total = 0

    def stage(self, text: str, total: int) -> None:
        """Name the stage."""
        self._console.print(f"{text} …", highlight=False)
        self._total = total
        self._last = time.monotonic()

    def at(self, done: int, text: str = "") -> None:
        """Say how far it is, when nothing was said for a while."""
        now = time.monotonic()
        if self._total and now - self._last >= LINE_EVERY_S:
            self._last = now
            self._console.print(f"  {done * 100 // self._total}% {text}", highlight=False)
