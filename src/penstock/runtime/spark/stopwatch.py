"""Stopwatch: the time of each phase of an epoch."""

import time


class Stopwatch:
    """Splits an epoch into phases; the time since `before` is the phase `rest`."""

    def __init__(self, before: float) -> None:
        self._at = time.perf_counter()
        self.phases_ms = {"rest": (self._at - before) * 1e3}

    @property
    def total_s(self) -> float:
        """The seconds of all phases but `rest`."""
        return (sum(self.phases_ms.values()) - self.phases_ms["rest"]) / 1e3

    def lap(self, phase: str, write_ms: float = 0.0) -> None:
        """End a phase; count `write_ms` of it as the phase `write`."""
        now = time.perf_counter()
        spent = (now - self._at) * 1e3
        self.phases_ms[phase] = self.phases_ms.get(phase, 0.0) + spent - write_ms
        if write_ms:
            self.phases_ms["write"] = self.phases_ms.get("write", 0.0) + write_ms
        self._at = now
