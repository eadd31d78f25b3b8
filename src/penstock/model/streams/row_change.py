"""The events of a published table: rows that are put, and rows that are removed."""

from typing import Generic, TypeVar

import msgspec

R = TypeVar("R")


class Put(msgspec.Struct, Generic[R], frozen=True, tag="put", tag_field="change"):
    """A row of a published table is new, or has changed.

    Attributes:
        key: The text of the key of the entity that the row is made from.
        row: The row as it is now.
        place: The place of the row among those of its entity, from 0.
    """

    key: str
    row: R
    place: int = 0


class Removed(msgspec.Struct, frozen=True, tag="removed", tag_field="change"):
    """A row of a published table is gone; see `Put`."""

    key: str
    place: int = 0
