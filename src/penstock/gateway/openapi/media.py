"""Media: the possible forms of a result at an application's own paths."""

import enum
import typing
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from penstock.base.schema import reference_type
from penstock.base.union import UNIONS


def media_of(annotation: Any) -> frozenset[str]:
    """Return the possible forms of a result at an application's own path.

    The forms are `text`, `bytes` and `json`; a value that is a string in JSON is returned as text.
    """
    known = _MEDIA_OF.get(annotation)
    if known is not None:
        return known
    inside = typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _media_of_values([member.value for member in annotation])
    if typing.get_origin(annotation) is typing.Literal:
        return _media_of_values(inside)
    if typing.get_origin(annotation) in UNIONS:
        return frozenset().union(*map(media_of, inside))
    return _AS_TEXT if reference_type(annotation) is not None else _AS_JSON


_AS_TEXT: Final = frozenset({"text"})
_AS_JSON: Final = frozenset({"json"})
_MEDIA_OF: Final[Mapping[Any, frozenset[str]]] = {
    Any: frozenset({"text", "bytes", "json"}),
    bytes: frozenset({"bytes"}),
    datetime: frozenset({"text", "json"}),  # a time with a zone is JSON, one without is a string
    **dict.fromkeys((str, UUID, Decimal, date, time, timedelta), _AS_TEXT),
}


def _media_of_values(values: Iterable[object]) -> frozenset[str]:
    return frozenset("text" if isinstance(value, str) else "json" for value in values)
