"""A progress bar on standard error, if that is a terminal; it disappears at the end."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from penstock.base.ids import Epoch

if TYPE_CHECKING:
    from rich.progress import Progress

REFRESHES_PER_S: Final = 4


class ProgressBar:
    """Shows how much of a task is done; usable in a `with`."""

    def __init__(self, text: str) -> None:
        self._began_s = time.monotonic()
        self._bar = _bar() if sys.stderr.isatty() else None  # rich takes long to load
        if self._bar is not None:
            self._task = self._bar.add_task(text, total=None, note="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def elapsed_s(self) -> float:
        """How long the task has been running."""
        return time.monotonic() - self._began_s

    def at(self, done: int, total: int, note: str = "") -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, note=note)

    def begin(self, text: str) -> None:
        """Describe the next part of the task, and move the bar to its beginning."""
        if self._bar is not None:
            self._bar.reset(self._task, total=None, description=text)


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        refresh_per_second=REFRESHES_PER_S,
        disable=not console.is_terminal,
        transient=True,
    )


@contextmanager
def epoch_progress(span: tuple[Epoch, Epoch]) -> Iterator[Callable[[Epoch, int], None]]:
    """Show a bar for a range of epochs.

    Yields:
        A function that takes an epoch that is done, and how many requests are done with it.
    """
    first, last = span
    with ProgressBar("epochs") as bar:

        def at(epoch: Epoch, requests: int) -> None:
            rate = f"{requests / bar.elapsed_s:,.0f} requests/s" if bar.elapsed_s else ""
            bar.at(epoch - first + 1, last - first + 1, f"epoch {epoch}  {rate}")

        yield at
