"""Copies of attributes, and whether anybody but their entity holds what is inside them.

A value is *private* to an entity when nothing else refers to it or to a part of it that can change:
then nobody can change it without touching the entity first. CPython counts references, so that is
known exactly. Promised: `is_private` says yes only where it is so. Values of other classes than those
that can be stored are never private.
"""

import dataclasses
from builtins import id as identity_of  # for one moment of one process, as `deepcopy` does
from collections.abc import Callable, Collection, Iterable
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from sys import getrefcount
from typing import Any, Final, NamedTuple
from uuid import UUID
from weakref import getweakrefcount

from penstock.errors import Unencodable

_CONSTANT: Final = frozenset(
    {int, str, bool, float, bytes, type(None), datetime, date, time, timedelta, Decimal, UUID}
)
"""Types of values that nothing can change."""

_EXACT: Final = frozenset({str, bytes, type(None), date, UUID})

_FLAT: Final[dict[type, Callable[[Any], Any]]] = {
    list: list.copy,
    dict: dict.copy,
    set: set.copy,
    tuple: lambda value: value,
    frozenset: lambda value: value,
}
"""How to copy what holds constants alone."""

Attributes = dict[str, Any]
_get: Final = object.__getattribute__


class _Plain:
    """Has a dictionary and nothing else, as most dataclasses."""


def _count_of_attributes() -> int:
    """Return what `getrefcount` says of an object's attributes that only the object holds."""
    plain = _Plain()
    values = _get(plain, "__dict__")
    return getrefcount(values)


def _count_in_loop() -> int:
    """Return what `getrefcount` says in a loop of a value that only one container holds."""
    count = 0
    for value in [_Plain()]:
        count = getrefcount(value)
    return count


_OWN: Final = _count_of_attributes()
_ONCE: Final = _count_in_loop()
_LAYOUT: Final = ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")
_UNTOLD: Final = [
    (name, getattr(object, name, None))
    for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__")
]
"""Methods by which a class says how it is copied, as they are where it says nothing."""


def is_private(entity: object) -> bool:
    """Say whether only this entity holds its attributes and all in them that can change."""
    values = _get(entity, "__dict__")
    if getrefcount(values) > _OWN:
        return False
    if all(type(value) in _CONSTANT for value in values.values()):
        return True
    try:
        return _are_private(values.values())
    except RecursionError:
        return False


def _are_private(values: Iterable[Any]) -> bool:
    for value in values:
        kind = type(value)
        if is_constant(kind):
            continue
        if (kind is tuple or kind is frozenset) and _is_flat(value):
            continue
        if getrefcount(value) > _ONCE or getweakrefcount(value):
            return False
        inside = _inside(kind, value)
        if inside is None or not _are_private(inside):
            return False
    return True


def _inside(kind: type, value: Any) -> Iterable[Any] | None:
    """Return the values in a container or a dataclass; None where nobody knows what it holds."""
    if kind in _FLAT:
        if _is_flat(value):
            return ()
        return chain(value.keys(), value.values()) if kind is dict else value
    if _is_plain_record(kind):
        attributes = _get(value, "__dict__")
        return attributes.values() if getrefcount(attributes) <= _OWN else None
    return None


def is_constant(kind: type) -> bool:
    """Say whether nothing can change values of a type; references are such values."""
    return kind in _CONSTANT or hasattr(kind, "__reference__") or issubclass(kind, Enum)


def _is_flat(value: Collection[Any]) -> bool:
    if not all(map(is_constant, set(map(type, value)))):
        return False
    return type(value) is not dict or all(map(is_constant, set(map(type, value.values()))))


def _is_plain_record(kind: type) -> bool:
    return (
        dataclasses.is_dataclass(kind)
        and all(getattr(kind, name) == getattr(_Plain, name) for name in _LAYOUT)
        and all(getattr(kind, name, None) is untold for name, untold in _UNTOLD)
    )


class Flat(NamedTuple):
    """A copy of a container that holds constants alone.

    Attributes:
        exact: Whether these are such that equal ones are stored as equal bytes, unlike 1 and true.
    """

    copy: Any
    exact: bool


def copied(values: Attributes, memo: dict[int, Any], flats: dict[str, Flat]) -> Attributes:
    """Copy attributes so that nothing in the copy changes with them.

    Args:
        values: The attributes of one entity.
        memo: Shared by all that is copied at one time, so that what they share stays shared.
        flats: Former copies by attribute, which spare looking at each value inside again; the new
            ones are put there.

    Raises:
        Unencodable: A value cannot be copied.
    """
    try:
        return {
            name: value if type(value) in _CONSTANT else _copied(name, value, memo, flats)
            for name, value in values.items()
        }
    except (TypeError, RecursionError) as error:
        raise Unencodable(f"an attribute cannot be copied at a savepoint: {error}") from error


def _copied(name: str, value: Any, memo: dict[int, Any], flats: dict[str, Flat]) -> Any:
    identity = identity_of(value)
    if identity in memo:
        return memo[identity]
    kind = type(value)
    if kind in _FLAT:
        former = flats.get(name)
        if former is not None and type(former.copy) is kind and former.copy == value:
            exact = former.exact
        elif _is_flat(value):
            exact = _is_exact(value)
        else:
            return deepcopy(value, memo)
        made = memo[identity] = _FLAT[kind](value)  # `deepcopy` is slow with many
        flats[name] = Flat(made, exact)
        return made
    return deepcopy(value, memo)


def are_same(image: Attributes | None, now: Attributes | None, flats: dict[str, Flat]) -> bool:
    """Say whether attributes are stored as the same bytes as their former copy, as far as is seen.

    Where it says no, only encoding both tells.
    """
    if image is None or now is None or [*image] != [*now]:
        return False
    for name, value in image.items():
        if value is not now[name]:
            flat = flats.get(name)
            if type(value) not in _FLAT or type(value) is not type(now[name]):
                return False
            exact = flat.exact if flat is not None and flat.copy is value else _is_exact(value)
            if not exact or value != now[name]:
                return False
    return True


def _is_exact(value: Collection[Any]) -> bool:
    kinds = set(map(type, value.values() if type(value) is dict else value))
    if type(value) is dict:
        kinds.update(map(type, value))
    return all(kind in _EXACT or hasattr(kind, "__reference__") for kind in kinds)


def fresh(value: Any) -> Any:
    """Return a copy of a default value that shares nothing with it."""
    return deepcopy(value)
