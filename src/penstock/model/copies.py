"""Copies of attributes, and the question whether only an entity holds its attributes.

A value is *private* to an entity if no other object refers to the value or to a mutable part of it:
then the value cannot change without a touch of the entity. CPython's reference counts tell this
exactly. `is_private` never says yes wrongly; a value of a class that cannot be stored is not private.
"""

import dataclasses
from builtins import id as identity_of  # for one moment of one process, as `deepcopy` does
from collections.abc import Callable, Collection, Iterable
from copy import deepcopy
from datetime import date
from enum import Enum
from itertools import chain
from sys import getrefcount
from typing import Any, Final, NamedTuple
from uuid import UUID
from weakref import getweakrefcount

from penstock.base.schema import SCALARS
from penstock.errors import Unencodable

_EXACT: Final = frozenset({str, bytes, type(None), date, UUID})

_FLAT: Final[dict[type, Callable[[Any], Any]]] = {
    list: list.copy,
    dict: dict.copy,
    set: set.copy,
    tuple: lambda value: value,
    frozenset: lambda value: value,
}
"""How to copy a container that holds only constants."""

Attributes = dict[str, Any]
_get: Final = object.__getattribute__


class _Plain:
    """A class whose instances have only a dictionary, like most dataclasses."""


def _count_of_attributes() -> int:
    """Return the `getrefcount` of an object's attributes if only the object holds them."""
    plain = _Plain()
    values = _get(plain, "__dict__")
    return getrefcount(values)


def _count_in_loop() -> int:
    """Return the `getrefcount`, in a loop, of a value that only one container holds."""
    count = 0
    for value in [_Plain()]:
        count = getrefcount(value)
    return count


def _count_alone() -> int:
    """Return the `getrefcount` of an object that only a local variable holds."""
    plain = _Plain()
    return getrefcount(plain)


ALONE: Final = _count_alone()
_OWN: Final = _count_of_attributes()
_ONCE: Final = _count_in_loop()
_LAYOUT: Final = ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")
_COPY_METHODS: Final = [
    (name, getattr(object, name, None))
    for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__")
]
"""The methods with which a class can define how it is copied, and their defaults."""


def is_private(entity: object) -> bool:
    """Say whether only this entity holds its attributes and their mutable parts."""
    values = _get(entity, "__dict__")
    if getrefcount(values) > _OWN:
        return False
    if all(type(value) in SCALARS for value in values.values()):
        return True
    try:
        return _are_private(values.values())
    except RecursionError:
        return False


def _are_private(values: Iterable[Any]) -> bool:
    for value in values:
        value_type = type(value)
        if is_constant(value_type):
            continue
        if (value_type is tuple or value_type is frozenset) and _is_flat(value):
            continue
        if getrefcount(value) > _ONCE or getweakrefcount(value):
            return False
        inside = _inside(value_type, value)
        if inside is None or not _are_private(inside):
            return False
    return True


def _inside(value_type: type, value: Any) -> Iterable[Any] | None:
    """Return the values in a container or a dataclass; None if they are unknown."""
    if value_type in _FLAT:
        if _is_flat(value):
            return ()
        return chain(value.keys(), value.values()) if value_type is dict else value
    if _is_plain_record(value_type):
        attributes = _get(value, "__dict__")
        return attributes.values() if getrefcount(attributes) <= _OWN else None
    return None


def is_constant(value_type: type) -> bool:
    """Say whether the values of a type are immutable; references are."""
    return (
        value_type in SCALARS
        or hasattr(value_type, "__reference__")
        or issubclass(value_type, Enum)
    )


def _is_flat(value: Collection[Any]) -> bool:
    if not all(map(is_constant, set(map(type, value)))):
        return False
    return type(value) is not dict or all(map(is_constant, set(map(type, value.values()))))


def _is_plain_record(value_type: type) -> bool:
    return (
        dataclasses.is_dataclass(value_type)
        and all(getattr(value_type, name) == getattr(_Plain, name) for name in _LAYOUT)
        and all(getattr(value_type, name, None) is default for name, default in _COPY_METHODS)
    )


class Flat(NamedTuple):
    """A copy of a container that holds only constants.

    Attributes:
        exact: Whether equal constants of these types are stored as equal bytes, unlike 1 and True.
    """

    copy: Any
    exact: bool


def copied(values: Attributes, memo: dict[int, Any], flats: dict[str, Flat]) -> Attributes:
    """Copy attributes; the copy shares no mutable value with the original.

    Args:
        values: The attributes of one entity.
        memo: The memo of `deepcopy`, the same for all entities that are copied at one time.
        flats: The last copies of flat containers by attribute, which make the check of unchanged
            containers cheap; new copies are added.

    Raises:
        Unencodable: A value cannot be copied.
    """
    try:
        return {
            name: value if type(value) in SCALARS else _copied(name, value, memo, flats)
            for name, value in values.items()
        }
    except (TypeError, RecursionError) as error:
        raise Unencodable(f"an attribute cannot be copied at a savepoint: {error}") from error


def _copied(name: str, value: Any, memo: dict[int, Any], flats: dict[str, Flat]) -> Any:
    identity = identity_of(value)
    if identity in memo:
        return memo[identity]
    value_type = type(value)
    if value_type in _FLAT:
        former = flats.get(name)
        if former is not None and type(former.copy) is value_type and former.copy == value:
            exact = former.exact
        elif _is_flat(value):
            exact = _is_exact(value)
        else:
            return deepcopy(value, memo)
        made = memo[identity] = _FLAT[value_type](value)  # `deepcopy` is slow with many
        flats[name] = Flat(made, exact)
        return made
    return deepcopy(value, memo)


def are_same(image: Attributes | None, now: Attributes | None, flats: dict[str, Flat]) -> bool:
    """Say whether attributes are known to be stored as the same bytes as their former copy.

    If the answer is False, the caller must encode both to compare them.
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
    value_types = set(map(type, value.values() if type(value) is dict else value))
    if type(value) is dict:
        value_types.update(map(type, value))
    return all(
        value_type in _EXACT or hasattr(value_type, "__reference__") for value_type in value_types
    )


def fresh(value: Any) -> Any:
    """Return a copy of a default value; it shares no mutable value with the default."""
    return deepcopy(value)
