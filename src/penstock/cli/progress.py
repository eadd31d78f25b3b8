"""A progress bar on standard error, if that is a terminal; it disappears at the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from penstock.base.ids import Epoch

REFRESHES_PER_S: Final = 4


class ProgressBar:
    """Shows how much of a task is done; usable in a `with`."""

    def __init__(self, text: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._bar = Progress(
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
        self._task = self._bar.add_task(text, total=None, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @property
    def elapsed_s(self) -> float:
        """How long the task has been running."""
        return self._bar.tasks[0].elapsed or 0.0

    def at(self, done: int, total: int, note: str = "") -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=total, note=note)

    def begin(self, text: str) -> None:
        """Describe the next part of the task, and move the bar to its beginning."""
        self._bar.reset(self._task, total=None, description=text)


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
