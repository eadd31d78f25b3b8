"""The time that `@limit(time=…)` declares for a handler; `penstock.model.limit` has the decorator."""

import re
from datetime import timedelta
from typing import Any, Final

from penstock.errors import RequestError

TIME_LIMITS: Final = "__time_limits__"
"""The attribute of a function or class that holds the times which its decorators declare."""

TIMES: Final = 'write "500ms", "60s", "2m" or "1h", or a timedelta, of at most a day'
_TIME: Final = re.compile(r"(?P<count>\d{1,9}(\.\d{1,3})?) ?(?P<unit>ms|s|m|h)")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_TIME_MAX: Final = timedelta(days=1)


def parse_time(time: object) -> int:
    """Return the milliseconds of a time.

    Raises:
        RequestError: It is no time, or none that a handler can have; the message lists the forms.
    """
    if isinstance(time, str):
        match = _TIME.fullmatch(time.strip())
        milliseconds = float(match["count"]) * _UNITS_MS[match["unit"]] if match else 0.0
    elif isinstance(time, timedelta):
        milliseconds = time / timedelta(milliseconds=1)
    else:
        milliseconds = 0.0
    if not 1 <= milliseconds <= _TIME_MAX / timedelta(milliseconds=1):
        raise RequestError(f"time={time!r} is not a time; {TIMES}")
    return round(milliseconds)


def time_of(member: Any, where: str, name: str, complaints: list[str]) -> int | None:
    """Return the milliseconds that a class or a function declares; None if it declares none.

    Args:
        member: The class or the function.
        where: Its place, for complaints.
        name: Its name, for complaints.
        complaints: The mistakes that were found so far.
    """
    times = getattr(member, "__dict__", {}).get(TIME_LIMITS, ())  # a class does not inherit it
    if len(times) > 1:
        complaints.append(f"{where}: {name}: @limit(time=…) stands twice; remove one")
    try:
        return parse_time(times[0]) if times else None
    except RequestError as error:
        complaints.append(f"{where}: {name}: {error}")
        return None
