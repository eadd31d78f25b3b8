"""`EntityPage`: a page of the entities of a class."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from penstock.base.ids import Epoch

T = TypeVar("T")

LIMIT_MAX: Final = 1_000
"""The most entities of a page."""

LIMIT: Final = 100
"""The entities of a page whose caller names no limit."""

PAGE_FIELDS: Final = ("after", "limit", "min_epoch", "timeout")
"""The fields of the query string of a page that are no filters."""


@dataclass(frozen=True, slots=True)
class EntityPage(Generic[T]):
    """Entities of a class that the caller may see, in the order of their keys as text.

    Attributes:
        entities: A copy of each entity.
        epoch: The epoch of all of them.
        after: The text of the key behind which the next page begins; None after the last entity.
    """

    entities: list[T]
    epoch: Epoch
    after: str | None
