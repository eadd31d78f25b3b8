"""The pump: moves requests that are due from the log's schedule into its order.

It promises that a request which is due is appended soon after, never before, and that trouble of
the surroundings (a full disk, a held lock) only delays it. That each is appended exactly once,
whoever else pumps, is the log's promise. While nothing is due, a look costs one read of the file.
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
"""Between two looks; a request is this much late at most while the log can be written."""


class Pump:
    """Promotes what is due, in a thread of its own, from `start` to `stop`."""

    def __init__(
        self,
        log: Log,
        on_damage: Callable[[Exception], None],
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """Prepare; `on_damage` hears, in the pump's thread, of what waiting cannot mend."""
        self._log = log
        self._on_damage = on_damage
        self._clock_us = clock_us
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-pump", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, once a promotion that runs is done; idempotent, also where it never began."""
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
                if not failing:  # else a full disk would fill what is left of it
                    _log.warning("scheduled requests are delayed", extra={"cause": str(error)})
                failing = True
            except Exception as error:  # noqa: BLE001 -- nobody watches this thread
                _log.error("scheduled requests are stopped", extra={"cause": str(error)})
                self._on_damage(error)
                return
