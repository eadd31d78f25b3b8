"""The threads of a process: when one of Penstock's own dies, the process ends.

The supervisor starts the process again, with all its threads; a process that went on without one of
its threads would look healthy. A clear line in the log comes first. A process that forks has one
thread, so its libraries start none.
"""

import logging
import os
import threading
from typing import Final

_log = logging.getLogger(__name__)

OURS: Final = "penstock-"
"""How the names of such threads begin."""

DIED: Final = 70
"""The exit code."""

_ONE_THREAD: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def end_with_threads() -> None:
    """End this process, from now on, when one of its threads dies of an error."""
    threading.excepthook = _end


def _end(told: threading.ExceptHookArgs) -> None:
    name = "" if told.thread is None else told.thread.name
    if told.exc_value is None or not name.startswith(OURS):
        threading.__excepthook__(told)
        return
    try:
        _log.critical(
            "a thread died; the process ends, to be started again",
            extra={"died": name},
            exc_info=told.exc_value,
        )
    finally:
        os._exit(DIED)


def keep_libraries_single() -> None:
    """Let libraries that are loaded from now on start no thread, so that this process can fork."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
