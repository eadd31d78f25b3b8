"""`EntityPage`: a page of the entities of a class, and the filters of its question."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.base.ids import Epoch
from penstock.base.ordered_bytes import ordered_by
from penstock.base.schema import reference_type, shown
from penstock.errors import RequestError
from penstock.model.entity_type import EntityType

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


def is_filter(entity: EntityType, name: str) -> bool:
    """Say whether the pages of a class can be filtered by an attribute: its values are single, and its name is free."""
    is_single = not isinstance(ordered_by(entity.attributes[name], has_order=False), str)
    return is_single and name not in PAGE_FIELDS


def texts_of_filters(where: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that stand for the values of filters, by attribute.

    Raises:
        RequestError: No filter can have such a value.
    """
    return {name: _text_of(value) for name, value in where.items()}


def _text_of(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    reference = reference_type(type(value))
    if reference is not None:
        return reference.text_of(value)
    try:
        plain = msgspec.to_builtins(value)
    except (TypeError, ValueError) as error:
        raise RequestError(f"no filter can have {shown(value)}: {error}") from error
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
