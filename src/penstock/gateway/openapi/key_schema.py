"""Schemas of keys: a reference, a path and a dictionary's key have the text of a key."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final
from uuid import UUID

from penstock.base.key_text import KEY_BYTES_MAX, encode_key, key_choices, key_parts, wire_key_type
from penstock.model.entity_type import EntityType

INTEGER_TEXT: Final[dict[str, Any]] = {"type": "string", "pattern": "^(0|-?[1-9][0-9]{0,17})$"}

_SCALARS: Final[Mapping[Any, dict[str, Any]]] = {
    int: INTEGER_TEXT,
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    UUID: {"type": "string", "format": "uuid"},
}
_EXAMPLES: Final[Mapping[Any, object]] = {
    str: "a",
    int: 1,
    date: date(2026, 1, 1),
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    UUID: UUID(int=1),
}


def key_schema(entity: EntityType) -> dict[str, Any]:
    """Return the schema of the text of a key; a reference is this text in JSON."""
    annotation = entity.key_annotation
    if entity.key_is_text:
        return {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX}
    choices = key_choices(annotation)
    if choices is not None:
        return {"type": "string", "enum": list(map(str, choices))}
    if key_parts(annotation) is not None:
        return {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "A JSON array of the parts of the key, without spaces.",
            "pattern": r"^\[.*\]$",
            "maxLength": KEY_BYTES_MAX,
            "examples": [encode_key(_example(annotation), wire_key_type(annotation))],
        }
    return dict(_SCALARS[annotation])


def _example(annotation: Any) -> Any:
    """Return a key of a type, as it is in SQL."""
    parts, choices = key_parts(annotation), key_choices(annotation)
    if parts is not None:
        return tuple(map(_example, parts))
    return _EXAMPLES[annotation] if choices is None else choices[0]
