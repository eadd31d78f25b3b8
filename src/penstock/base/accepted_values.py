"""The values that an Enum or a Literal accepts, added to the message of msgspec, which names the wrong value only."""

import re
import typing
from collections.abc import Iterator
from enum import Enum, Flag
from typing import Any, Final

from penstock.base.misfit import misfit_of
from penstock.base.record import fields_of, kind_of, simplified
from penstock.base.union import UNIONS

_WRONG_MEMBER: Final = "Invalid enum value"
_STEP: Final = re.compile(r"\.(?P<name>\w+)|\[(?P<index>[^]]*)\]")
_KEY: Final = " (a key)"
_NAMED_MAX: Final = 10


def with_accepted(complaint: str, annotation: Any) -> str:
    """Return a message of msgspec with the values that the place of the wrong value accepts.

    Args:
        complaint: The message.
        annotation: The type that the whole value does not fit.

    Returns:
        The message, such as ``Invalid enum value 'green'; accepted are 'red', 'blue' - at `$.colour` ``. It is unchanged
        if the value is no member of an Enum or a Literal.
    """
    if not complaint.startswith(_WRONG_MEMBER):
        return complaint
    path = misfit_of(complaint).path
    types = _alternatives(annotation)
    for step in _STEP.finditer(path.removesuffix(_KEY)):
        types = [inner for outer in types for inner in _inside(outer, step)]
    if path.endswith(_KEY):
        types = [inner for outer in types for inner in _alternatives(_first_part(outer))]
    accepted = list(dict.fromkeys(repr(value) for each in types for value in _values(each)))
    if not accepted:
        return complaint
    more = ", …" if len(accepted) > _NAMED_MAX else ""
    mistake, at, place = complaint.partition(" - at ")
    return f"{mistake}; accepted are {', '.join(accepted[:_NAMED_MAX])}{more}{at}{place}"


def _alternatives(annotation: Any) -> list[Any]:
    """Return the members of a union, or the type itself."""
    meant = simplified(annotation)
    if typing.get_origin(meant) not in UNIONS:
        return [meant]
    return [each for part in typing.get_args(meant) for each in _alternatives(part)]


def _inside(annotation: Any, step: re.Match[str]) -> Iterator[Any]:
    """Yield the types of the values at one step of a path."""
    index = step["index"]
    cls = typing.get_origin(annotation) or annotation
    if isinstance(cls, type) and kind_of(cls) is not None:
        for number, field in enumerate(fields_of(annotation)):
            if step["name"] == field.member.wire or index == str(number):
                yield from _alternatives(field.annotation)
        return
    parts = typing.get_args(annotation)
    if index is None or not parts:
        return
    if cls is tuple and index.isdecimal() and Ellipsis not in parts:
        yield from _alternatives(parts[min(int(index), len(parts) - 1)])
    else:
        yield from _alternatives(parts[1] if issubclass(cls, dict) else parts[0])


def _first_part(annotation: Any) -> Any:
    """Return the type of the keys of a dictionary; `Any` for another type."""
    parts = typing.get_args(annotation)
    return parts[0] if parts else Any


def _values(annotation: Any) -> Iterator[Any]:
    """Yield the accepted values of an Enum or a Literal; the members of a Flag can be added, so they are not listed."""
    if typing.get_origin(annotation) is typing.Literal:
        yield from typing.get_args(annotation)
        return
    is_enum = isinstance(annotation, type) and issubclass(annotation, Enum)
    if is_enum and not issubclass(annotation, Flag):
        yield from (member._value_ for member in annotation)
