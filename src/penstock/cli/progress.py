"""A bar for work whose size is known: on standard error, when that is a terminal, gone at the end."""

from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

REFRESHES_PER_S: Final = 4


class Bar:
    """Shows how much of a work is done; usable in a `with`."""

    def __init__(self, text: str) -> None:
        """Say what is being done."""
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            refresh_per_second=REFRESHES_PER_S,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(text, total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def at(self, done: int, total: int) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=total)

    def now(self, text: str) -> None:
        """Say what is being done from now on, from its beginning."""
        self._bar.reset(self._task, total=None, description=text)
