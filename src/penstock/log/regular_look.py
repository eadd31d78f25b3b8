"""A thread of the driver that looks at regular times whether the log must get something, and outlives failures of the disk."""

import logging
import threading
from collections.abc import Callable

from penstock.errors import OperationalError


class RegularLook:
    """Looks in its own thread, from `start` to `stop`; a subclass says what it looks for.

    Args:
        subject: The requests that it appends, for the log output: `scheduled requests`.
        period_s: The pause between two looks.
        on_damage: Takes an error that another try cannot mend.
    """

    def __init__(
        self, subject: str, period_s: float, on_damage: Callable[[Exception], None]
    ) -> None:
        self._subject = subject
        self._period_s = period_s
        self._on_damage = on_damage
        self._output = logging.getLogger(
            type(self).__module__
        )  # lines name the pump, or the ticker
        self._stopping = threading.Event()
        name = f"penstock-{type(self).__name__.lower()}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def look(self) -> None:
        """Append what is due.

        Raises:
            OperationalError: The log or the disk fails; the next look tries again.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the look that runs; idempotent, also if the thread was never started."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        failing = False
        while not self._stopping.wait(self._period_s):
            try:
                self.look()
                failing = False
            except OperationalError as error:
                if not failing:  # one line only, since the cause may be a full disk
                    self._output.warning(
                        "%s are delayed", self._subject, extra={"cause": str(error)}
                    )
                failing = True
            except Exception as error:  # noqa: BLE001 -- `on_damage` must hear of it
                self._output.error("%s are stopped", self._subject, extra={"cause": str(error)})
                self._on_damage(error)
                return
