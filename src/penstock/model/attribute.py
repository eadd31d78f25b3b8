"""Attributes: what a class says about an attribute in the place of its default."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import MISSING
from typing import Any

import msgspec


class ReferenceMarker(msgspec.Struct, frozen=True):
    """The value of `reference(…)`, which says more about an attribute with references."""

    exists: bool
    default: Any


class UniqueMarker(msgspec.Struct, frozen=True):
    """The value of `unique()`, which says that no two entities have the same value of an attribute."""

    default: Any
    where: str


class DeclaredIndex(msgspec.Struct, frozen=True):
    """The value of `index(…)`, or of `unique(…)` about named attributes."""

    attributes: tuple[str, ...]
    order: str | None
    is_unique: bool
    where: str


class FormerName(msgspec.Struct, frozen=True):
    """The value of `was(…)`, which names the attribute that had the values before."""

    name: str
    default: Any


class DefaultFactory(msgspec.Struct, frozen=True):
    """A default from `field(default_factory=…)`: `create` calls it for each entity without a value."""

    make: Callable[[], Any]


def reference(*, exists: bool, default: Any = MISSING) -> Any:
    """Declare that the references in an attribute must exist when a transaction ends.

    Written as the attribute's default: `owner: User = reference(exists=True)`. A transaction that leaves a
    reference to an entity that does not exist is undone with the code `dangling-reference`. The check covers each
    entity that the transaction changed and, after a deletion, each entity that it touched.

    Args:
        exists: Whether each entity that the attribute refers to, at any depth, must exist.
        default: The default of the attribute, such as None or an empty list; without it, `create` needs a value.
    """
    return ReferenceMarker(exists, default)


def was(former: str, *, default: Any = MISSING) -> Any:
    """Declare the former name of an attribute, so that stored entities keep its values.

    Written as the attribute's default: `price: int = was("cost")`. It has an effect when the changed class is deployed,
    and may stay in the code.

    Args:
        former: The name that the attribute had.
        default: The default of the attribute; also `field(…)` or `reference(…)`.
    """
    return FormerName(former, default)


def new_value(default: Any) -> Any:
    """Return the value of a default for a new entity; entities share no mutable value."""
    return default.make() if type(default) is DefaultFactory else deepcopy(default)
