"""The values that an Enum or a Literal accepts: the messages of msgspec name the wrong value only."""

import re
import typing
from collections.abc import Iterator
from enum import Enum, Flag
from typing import Any, Final

from penstock.base.record import fields_of, kind_of, members_of, simplified
from penstock.base.union import UNIONS

_STEP: Final = re.compile(r"\.(?P<name>\w+)|\[(?P<index>[^]]*)\]")
_NAMED_MAX: Final = 10


def accepted_at(annotation: Any, path: str, *, is_key: bool) -> str:
    """Return the values that an Enum or a Literal accepts at a place.

    Args:
        annotation: The type of the whole value.
        path: The place in the value, such as `.parts[0].colour`.
        is_key: Whether the place is a key of the dictionary at the path.

    Returns:
        The first ten values, such as `'red', 'blue'`; empty if there is no Enum and no Literal at this place.
    """
    types = _types_at(annotation, path)
    if is_key:
        types = [inner for outer in types for inner in _alternatives(_first_part(outer))]
    accepted = list(dict.fromkeys(repr(value) for each in types for value in _values(each)))
    named = ", ".join(accepted[:_NAMED_MAX] + ["…"] * (len(accepted) > _NAMED_MAX))
    return f"{named}, and their sums" if any(map(_is_flag, types)) else named


def fields_at(annotation: Any, path: str) -> str:
    """Return the names of the fields of the record at a place, such as `sku, n`; empty if there is none."""
    names: dict[str, None] = {}
    for each in _types_at(annotation, path):
        cls = typing.get_origin(each) or each
        if isinstance(cls, type) and kind_of(cls) is not None:
            names |= dict.fromkeys(member.wire for member in members_of(each))
    return ", ".join(names)


def _types_at(annotation: Any, path: str) -> list[Any]:
    types = _alternatives(annotation)
    for step in _STEP.finditer(path):
        types = [inner for outer in types for inner in _inside(outer, step)]
    return types


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
    if index is None or not parts or not isinstance(cls, type):  # a Literal has parts, too
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
    """Yield the accepted values of an Enum or a Literal; those of a Flag can be added."""
    if typing.get_origin(annotation) is typing.Literal:
        yield from typing.get_args(annotation)
        return
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (member._value_ for member in annotation)


def _is_flag(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Flag)
