"""The default clock of the log: for the retention of request ids, and for due times."""

import time


def wall_clock_us() -> int:
    """Return this machine's time in microseconds since the Unix epoch."""
    return time.time_ns() // 1000
