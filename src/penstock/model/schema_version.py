"""Schema versions: the stored shapes that a class has had, and how a row of one becomes a row of the next.

A journal keeps the versions of each class (`journal.shapes`). A version says for each attribute where its value comes
from in a row of the version before. So an upcast needs neither the code of former versions nor the present defaults.
"""

from typing import Any

import msgspec

from penstock.model.shape import Shape


class Origin(msgspec.Struct, frozen=True):
    """The place from which an attribute gets its value in a row of the version before.

    Attributes:
        former: The name of the attribute there; None if the attribute is new.
        default: The value of a new attribute, encoded as in a row; empty if `former` is set.
    """

    former: str | None = None
    default: bytes = b""


class SchemaVersion(msgspec.Struct, frozen=True):
    """A version of the stored form of a class.

    Attributes:
        number: 1 for the first.
        since: The first epoch that may have rows of it.
        shape: The stored shape.
        attributes: The names of the attributes, in the order of a row, without the key.
        origins: The origin of each attribute; empty in version 1.
        migrated: Whether the function that `@migrate(…, since=number)` marks makes its rows. `origins` is empty then.
    """

    number: int
    since: int
    shape: Shape
    attributes: tuple[str, ...]
    origins: dict[str, Origin] = {}
    migrated: bool = False


Versions = tuple[SchemaVersion, ...]
"""The versions of a class, the oldest first."""


def first_version(shape: Shape, attributes: Any, since: int) -> SchemaVersion:
    """Return the first version of a class whose attributes have these names, in order."""
    return SchemaVersion(1, since, shape, tuple(attributes))
