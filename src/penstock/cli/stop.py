"""`Stop`: how a process in the foreground learns that it shall end.

The first SIGINT or SIGTERM asks it to end in good order, as does the end of standard input where a
supervisor started it; the second signal ends it at once.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self

from penstock.cli.error_output import INTERRUPTED

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """The wish to stop: `wanted` is set by whatever comes first.

    Args:
        supervised: Whether the end of standard input is such a wish.
        at_once: What the second signal does before it ends the process.
    """

    def __init__(self, *, supervised: bool = False, at_once: Callable[[], None] | None = None):
        self.wanted = threading.Event()
        self._supervised = supervised
        self._at_once = at_once
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {one: signal.getsignal(one) for one in _SIGNALS}
        self.listen()
        if self._supervised:
            threading.Thread(target=self._await_end_of_input, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def listen(self) -> None:
        """Put the handlers in place, again if somebody else took theirs."""
        for one in _SIGNALS:
            signal.signal(one, self._take)

    def _take(self, _signal: int, _frame: FrameType | None) -> None:
        if self.wanted.is_set():
            if self._at_once is not None:
                self._at_once()
            os._exit(INTERRUPTED)
        self.wanted.set()

    def _await_end_of_input(self) -> None:
        # Unbuffered: a thread that holds sys.stdin's lock would be in the way of the exit.
        while os.read(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0, 1_024):
            pass
        self.wanted.set()
