"""The pump: a thread that appends scheduled requests to the log when they are due.

A request is appended soon after its due time, never before. A full disk or a held lock only delays
it. The log guarantees that each request is appended exactly once, also if several pumps run. While
no request is due, a look costs one read of the file.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from penstock.errors import OperationalError
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us

_log = logging.getLogger(__name__)

PERIOD_S: Final = 0.1
"""Between two looks; the longest delay of a request while the log can be written."""


class Pump:
    """Promotes the requests that are due, in its own thread, from `start` to `stop`."""

    def __init__(
        self,
        log: Log,
        on_damage: Callable[[Exception], None],
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """Prepare the thread, which calls `on_damage` with an error that trying again cannot mend."""
        self._log = log
        self._on_damage = on_damage
        self._clock_us = clock_us
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-pump", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the promotion that runs; idempotent, also if the thread was never started."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        failing = False
        while not self._stopping.wait(PERIOD_S):
            try:
                while self._log.promote(self._clock_us()):
                    if self._stopping.is_set():
                        return
                failing = False
            except OperationalError as error:
                if not failing:  # one line only, since the cause may be a full disk
                    _log.warning("scheduled requests are delayed", extra={"cause": str(error)})
                failing = True
            except Exception as error:  # noqa: BLE001 -- `on_damage` must hear of it
                _log.error("scheduled requests are stopped", extra={"cause": str(error)})
                self._on_damage(error)
                return
