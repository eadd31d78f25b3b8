"""The standby: a driver that waits, ready to start, until no other driver runs.

The lock of the data directory decides which process is the driver, and with data in an object store also the lease
(`process.driver_claim`). The kernel frees the lock as soon as its holder has ended for any reason. A standby asks for both all the
time, and needs no other signal.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from penstock.cli.running.driver_service import abandoned_at_stop
from penstock.process import presence
from penstock.process.process_limits import lowered
from penstock.process.stop import Stop

if TYPE_CHECKING:
    from rich.console import Console

ROLE: Final = "standby"
WARMING: Final = {"state": "warming"}
READY: Final = {"state": "ready"}

LOOK_S: Final = 0.02
CHECK_S: Final = 20.0
"""The pause between two checks, which keep Spark's workers loaded."""

_PREDECESSOR_S: Final = 30.0


class WarmRuntime(Protocol):
    """A runtime that can prepare its start, such as `SparkRuntime`."""

    def claim(self) -> bool:
        """Get the right to be the driver, if it is free; say whether this runtime has it."""

    def warm_up(self) -> None:
        """Prepare a start that takes no time."""

    def abandon(self) -> None:
        """Let a preparation that runs in another thread fail soon; `stop` is called next."""

    def check_warm(self) -> None:
        """Raise the error that makes a start impossible, if there is one."""

    def follow(self) -> None:
        """Bring the state of this host to the newest epoch that is known, if the driver of another host commits it."""

    def stop(self) -> None:
        """End."""


def stand_by(runtime: WarmRuntime, app: str, data: Path, stop: Stop, console: "Console") -> bool:
    """Return when this process has the right to be the driver; before, prepare the start of the runtime.

    Args:
        runtime: The runtime, which has not started.
        app: The application, as the command line names it.
        console: The place for messages.

    Returns:
        True; False at a request to stop, and then the runtime has ended.
    """
    if runtime.claim():
        return True
    try:
        with presence.present(data, ROLE, app, **WARMING), lowered():
            console.print("another driver runs; this one warms up", highlight=False)
            with abandoned_at_stop(runtime, stop):
                runtime.warm_up()
            stop.listen()  # Spark has installed its own signal handler
        with presence.present(data, ROLE, app, **READY):
            console.print("ready to take over; Ctrl-C stops", highlight=False)
            takes_over = _await_lock(runtime, stop)
    except BaseException:
        runtime.stop()
        raise
    if not takes_over:
        runtime.stop()
        return False
    console.print("takes over", highlight=False)
    _await_end_of_driver(data)
    return True


def _await_lock(runtime: WarmRuntime, stop: Stop) -> bool:
    """Return True when the runtime has the lock, and False at a request to stop."""
    checked = time.monotonic()
    while not stop.wanted.is_set():
        if runtime.claim():
            return True
        if time.monotonic() - checked >= CHECK_S:
            runtime.check_warm()
            checked = time.monotonic()
        runtime.follow()
        stop.wanted.wait(LOOK_S)
    return False


def _await_end_of_driver(data: Path) -> None:
    """Wait until the former driver is gone: a killed process frees the lock a moment before it ends."""
    deadline = time.monotonic() + _PREDECESSOR_S
    while presence.find(data, "driver") and time.monotonic() < deadline:
        time.sleep(LOOK_S)
