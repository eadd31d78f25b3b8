"""Instants: microseconds since the Unix epoch as times that people read.

Penstock stores an instant as an integer, under a name such as `time_us`. JSON for people and programs has
both: `time_us`, and `time` as in RFC 3339, in UTC.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

_UNIX_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_UNIT: Final = "_us"
_NAMES: Final = frozenset({"time_us", "due_us", "made_us", "now_us"})
"""The fields that hold instants. Other fields in microseconds, such as `took_us`, hold durations."""


def instant_of(time_us: int) -> datetime:
    """Return an instant as a `datetime` in UTC, which msgspec writes as in RFC 3339.

    The nearest `datetime` stands for an instant outside of the years 1 to 9999.

    Args:
        time_us: Microseconds since the Unix epoch.
    """
    try:
        return _UNIX_EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return _LAST if time_us > 0 else _FIRST


def with_times(value: Any) -> Any:
    """Return structs as dictionaries with a time for each instant; return other values unchanged.

    Only structs and lists of structs are converted, so no value of an application changes.
    """
    if isinstance(value, list):
        return [with_times(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    plain: dict[str, Any] = {}
    for name in value.__struct_fields__:
        item = getattr(value, name)
        plain[name] = with_times(item)
        if name in _NAMES:
            plain[name.removesuffix(_UNIT)] = None if item is None else instant_of(item)
    return plain
