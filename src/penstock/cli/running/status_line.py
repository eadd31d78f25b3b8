"""A status line for a process in the foreground."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console


LINE_EVERY_S: Final = 5.0


@contextmanager
def shown(console: "Console") -> Iterator[Callable[[Callable[[], str]], None]]:
    """Give a function that shows a line: live on a terminal, else every few seconds if it has changed."""
    from rich.live import Live
    from rich.text import Text

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
