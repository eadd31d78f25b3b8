"""Waiting for a condition, with a deadline: the only way in which tests wait; and work that goes on meanwhile."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

DEADLINE_S = 300.0
"""A start of Spark takes six seconds, and more than 120 on a machine with 18 times as much work as processors."""
LOOK_S = 0.02


def wait_for(
    condition: Callable[[], Any],
    what: str,
    deadline_s: float = DEADLINE_S,
    look_s: float = LOOK_S,
) -> Any:
    """Return the first true value of a condition.

    Args:
        condition: Is called again and again until its value is true.
        what: The event; the message of a failure names it.
        deadline_s: Seconds until the test fails.
        look_s: Seconds between two calls.
    """
    deadline = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {deadline_s} s"
        threading.Event().wait(look_s)
    return value


@contextmanager
def meanwhile(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run work in a thread until the block ends; then its event is set, and the thread has to end."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
