"""`EntityPage`: a page of the entities of a class."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from penstock.base.ids import Epoch
from penstock.errors import RequestError
from penstock.model.value_filter import texts_of_filters

T = TypeVar("T")

LIMIT_MAX: Final = 1_000
"""The most entities of a page."""

LIMIT: Final = 100
"""The entities of a page whose caller names no limit."""

PAGE_FIELDS: Final = ("after", "limit", "min_epoch", "timeout")
"""The fields of the query string of a page that are no filters."""

SIZE: Final = "is not the size of a page"
"""What is wrong with a limit."""


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


def page_filters(where: Mapping[str, Any], limit: int) -> dict[str, str]:
    """Return the texts of the filters of a page, by attribute.

    Raises:
        RequestError: No page has such a filter, or such a size.
    """
    if taken := [name for name in where if name in PAGE_FIELDS]:
        raise RequestError(f"no page is filtered by {taken[0]}, which is a field of the page")
    if type(limit) is not int or not 1 <= limit <= LIMIT_MAX:
        raise RequestError(f"limit={limit!r} {SIZE}: a whole number, from 1 to {LIMIT_MAX:,}")
    return texts_of_filters(where)
