"""The clock that the retention of request ids is counted by, unless another one is given."""

import time


def wall_clock_us() -> int:
    """Return this machine's time in microseconds since the Unix epoch."""
    return time.time_ns() // 1000
