"""How a process in the foreground learns that it must end; for threads and for event loops.

The first SIGINT or SIGTERM asks the process to end in good order, and so does the end of standard
input if a supervisor started the process. The second signal ends the process at once. A command that ends by itself is ended by the first one.
"""

import _thread
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import asyncio

AT_ONCE: Final = 130
"""The exit code after a second signal, as shells report Ctrl-C."""

_STOPPED: Final = b"stopped at once; the next start goes on from the last commit\n"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a block as Ctrl-C does, so that it removes what is not complete; for the main thread.

    Raises:
        SystemExit: A signal has come; the exit code is that of a shell, 128 and its number.
    """
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, _frame: FrameType | None) -> None:
        for each in numbers:  # a second one must not end the removal
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as `nohup` wants
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop:
    """A request to stop, for a process whose main thread waits: it sets `wanted`.

    Args:
        supervised: Whether the end of standard input is such a request.
        at_once: Called by the second signal before it ends the process.
    """

    def __init__(self, *, supervised: bool = False, at_once: Callable[[], None] | None = None):
        self.wanted = threading.Event()
        self._supervised = supervised
        self._at_once = at_once
        self._before: dict[signal.Signals, Any] = {}
        self._is_taken = False

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        if self._supervised:
            threading.Thread(target=self._await_end_of_input, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Install the signal handlers; again, if a library has replaced them."""
        for number in _SIGNALS:
            signal.signal(number, self._take)

    def _take(self, _signal: int, _frame: FrameType | None) -> None:
        if self._is_taken or self.wanted.is_set():
            if self._at_once is not None:
                self._at_once()
                with suppress(OSError):  # print could wait for a lock that the stopped code holds
                    os.write(sys.stderr.fileno(), _STOPPED)
            os._exit(AT_ONCE)
        self._is_taken = True
        # This thread may be in the middle of `wanted.wait`, whose lock `set` would wait for without end. The start of a
        # `Thread` takes locks, too.
        _thread.start_new_thread(self.wanted.set, ())

    def _await_end_of_input(self) -> None:
        # Unbuffered: a thread that holds the lock of sys.stdin would block the exit.
        while os.read(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0, 1_024):
            pass
        self.wanted.set()


@asynccontextmanager
async def stop_event(*, supervised: bool) -> "AsyncIterator[asyncio.Event]":
    """Give an event that a request to stop sets, for a process with an event loop.

    Args:
        supervised: Whether the end of standard input is such a request.
    """
    import asyncio  # noqa: PLC0415 -- a driver has no event loop

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, lambda: os._exit(AT_ONCE) if stop.is_set() else stop.set())
    watching = asyncio.create_task(_set_at_end_of_input(stop)) if supervised else None
    try:
        yield stop
    finally:
        if watching is not None:
            watching.cancel()


async def _set_at_end_of_input(stop: "asyncio.Event") -> None:
    import asyncio  # noqa: PLC0415 -- see `stop_event`

    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1_024):
        pass
    stop.set()
