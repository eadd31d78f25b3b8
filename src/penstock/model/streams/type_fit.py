"""Whether events of one type can be events of another, where an application is built."""

import typing
from typing import Any

from penstock.base.union import UNIONS
from penstock.model.streams.stream import UNKNOWN


def fits(given: Any, wanted: Any) -> bool:
    """Say whether events of one type can be events of another; an unknown type is checked later."""
    if given == wanted or Any in (given, wanted) or UNKNOWN in (given, wanted):
        return True
    if typing.get_origin(given) in UNIONS:
        return all(fits(member, wanted) for member in typing.get_args(given))
    if typing.get_origin(wanted) in UNIONS:
        return any(fits(given, member) for member in typing.get_args(wanted))
    cls = typing.get_origin(given) or given
    is_class = isinstance(cls, type) and isinstance(wanted, type)
    return (given is int and wanted is float) or (is_class and issubclass(cls, wanted))
