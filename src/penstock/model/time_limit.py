"""The time that `@limit(time=…)` declares for a handler; `penstock.model.limit` has the decorator."""

import functools
import re
from collections.abc import Mapping
from datetime import timedelta
from inspect import getattr_static
from typing import Any, Final

from penstock.errors import RequestError

TIME_LIMITS: Final = "__time_limits__"
"""The attribute of a function or class that holds the times which its decorators declare."""

LIMITS: Final = "__limits__"
"""The attribute that holds the limits on requests."""

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
    """Return the milliseconds that a class or a function declares; None if it declares none."""
    times = _times_of(member)
    if len(times) > 1:
        complaints.append(f"{where}: {name}: @limit(time=…) stands twice; remove one")
    try:
        return parse_time(times[0]) if times else None
    except RequestError as error:
        complaints.append(f"{where}: {name}: {error}")
        return None


def refuse_time(function: Any, where: str, what: str, complaints: list[str]) -> None:
    """Complain of a function that declares a time, and that neither a request nor a workflow runs.

    Args:
        what: The function, in words: `stream even of splitter parity`.
    """
    if _times_of(function):
        complaints.append(
            f"{where}: {what} has @limit(time=…), which has no effect here, because it counts for requests and workflows; "
            "remove it, and do long work in a function or a task of a flow"
        )
    refuse_rates(function, where, what, complaints)


def refuse_rates(function: Any, where: str, what: str, complaints: list[str]) -> None:
    """Complain of a function that declares a limit on requests, and that no request calls."""
    complaints += (
        f"{where}: {what} has @limit({text!r}), which has no effect here, because it counts requests; declare it at "
        "the method or function that they call, or limit a stream with the setting gateway.limits"
        for text in _marks_of(function, LIMITS).get(LIMITS, ())
    )


def _times_of(member: Any) -> tuple[Any, ...]:
    """Return the times that decorators of a class or a function have declared."""
    times: tuple[Any, ...] = _marks_of(member, TIME_LIMITS).get(TIME_LIMITS, ())
    return times


def _marks_of(member: Any, name: str) -> Mapping[str, Any]:
    """Return the attributes of the class or function that has a mark, if it is there."""
    while isinstance(member, functools.partial):
        member = member.func
    marks: Mapping[str, Any] = getattr(member, "__dict__", {})  # a class does not inherit it
    if not isinstance(member, type) and name not in marks:
        marks = getattr(getattr_static(type(member), "__call__", None), "__dict__", {})
    return marks


class Interrupted(BaseException):
    """The transaction exceeded a limit; the text says which."""
