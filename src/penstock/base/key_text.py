"""Keys: the types that identify entities, and the text of each key.

The text of a key is in paths, in references and in the journal; equal keys have equal texts. A `str` is its own
text, an `Enum` has the text of its value, a tuple is a JSON array, and other keys are JSON without quotes. A part of
a tuple may be a tuple. The key of a task may be a reference, which has the text of the key that it refers to.
"""

import enum
import typing
from datetime import UTC, date, datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from penstock.base.class_caches import cached_by_class
from penstock.base.record import RecordKind, fields_of, kind_of
from penstock.base.schema import is_enum, name_of, reference_type, shown
from penstock.errors import Unencodable

KEY_BYTES_MAX: Final = 400
MEMBERS_NAMED: Final = 8
"""The most members of an enumeration that a message names."""
_SCALARS: Final = frozenset({int, str, date, datetime, UUID})


def is_key_type(annotation: Any, around: tuple[Any, ...] = ()) -> bool:
    """Say whether values of a type can be keys; `around` are the tuples of which it is a part."""
    parts = key_parts(annotation)
    if parts is not None:
        within = (*around, annotation)
        return (
            bool(parts)
            and annotation not in around
            and all(is_key_type(part, within) for part in parts)
        )
    choices = key_choices(annotation)
    if choices is not None:
        return set(map(type, choices)) in ({int}, {str})
    return annotation in _SCALARS


def unfit_part(annotation: Any) -> Any:
    """Return the first type in a tuple that cannot be part of a key, or None."""
    for part in key_parts(annotation) or []:
        if part is not annotation and not is_key_type(part):
            return unfit_part(part) or part
    return None


def key_parts(annotation: Any) -> list[Any] | None:
    """Return the types of the parts of a tuple or a `NamedTuple`; None for a key without parts."""
    if kind_of(annotation) is RecordKind.NAMED_TUPLE:
        return [field.annotation for field in fields_of(annotation)]
    return list(typing.get_args(annotation)) if typing.get_origin(annotation) is tuple else None


def have_same_parts(former: Any, present: Any) -> bool:
    """Say whether keys of two types have equally many parts at any depth; else their texts differ."""
    was, now = key_parts(former) or [], key_parts(present) or []
    return len(was) == len(now) and all(map(have_same_parts, was, now))


def key_choices(annotation: Any) -> list[Any] | None:
    """Return the values of an `Enum` or a `Literal`; None for a type without a list of values, as a `Flag`."""
    if is_enum(annotation):
        is_flag = issubclass(annotation, enum.Flag)
        return None if is_flag else [member.value for member in annotation]
    return list(typing.get_args(annotation)) if typing.get_origin(annotation) is Literal else None


_stored_parts: Final = cached_by_class(key_parts)
"""`key_parts` for the types of declared keys, which are hashable: every use of a reference needs the text of its key."""


def wire_key_type(annotation: Any) -> Any:
    """Return the type of a key as it is in SQL: that of an `Enum`'s values, and a plain tuple of such parts."""
    parts = key_parts(annotation)
    if parts is not None:
        return tuple[tuple(map(wire_key_type, parts))]  # type: ignore[misc]
    choices = key_choices(annotation)
    return type(choices[0]) if choices else annotation


def encode_key(value: object, annotation: Any) -> str:
    """Return the text of a key.

    Raises:
        Unencodable: The value does not fit the annotation, or exceeds `KEY_BYTES_MAX`.
    """
    try:
        reference = reference_type(annotation)
        plain = _plain(value, annotation) if reference is None else reference.text_of(value)
        text = plain if isinstance(plain, str) else msgspec.json.encode(plain).decode().strip('"')
        size = len(text.encode())
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError, OverflowError) as error:
        limit = " of 64 bits" if annotation is int else ""
        raise Unencodable(
            f"{shown(value)} cannot be a key of type {name_of(annotation)}{limit}"
        ) from error
    if not 0 < size <= KEY_BYTES_MAX:
        raise Unencodable(f"a key takes 1 to {KEY_BYTES_MAX} bytes as text, not {size}")
    return text


def _plain(value: object, annotation: Any) -> Any:
    """Return a checked key, or a part of a key, as a scalar, or a tuple as a list: equal keys give equal results."""
    parts = _stored_parts(annotation)
    if annotation is tuple and isinstance(value, tuple):  # a client without the application
        parts = [type(part) for part in value]
    if parts is not None:
        if not isinstance(value, tuple) or len(value) != len(parts):
            raise TypeError
        return [_plain(item, part) for item, part in zip(value, parts, strict=True)]
    # msgspec does not convert the members of an `Enum` of numbers.
    is_member = is_enum(annotation) and type(value) is annotation
    checked: Any = value if is_member else msgspec.convert(value, annotation)
    if isinstance(checked, enum.Enum):
        return checked.value
    if isinstance(checked, datetime):
        if checked.utcoffset() is None:
            raise Unencodable(
                f"{value!r} has no time zone, so it cannot be a key of type datetime; "
                "add a time zone, as in datetime(…, tzinfo=UTC)"
            )
        return checked.astimezone(UTC)
    if annotation is int and not -(1 << 63) <= checked < 1 << 64:
        raise OverflowError
    return str.__str__(checked) if annotation is str else checked  # plain, also of a subclass


def decode_key(text: str, annotation: Any) -> Any:
    """Return the key with this text.

    Raises:
        Unencodable: The text is not a key of this type, or `encode_key` writes this key differently.
    """
    try:
        reference = reference_type(annotation)
        if reference is not None:
            value: Any = reference.of_text(text)
        elif annotation is str:
            value = text
        elif _stored_parts(annotation) is not None:
            value = msgspec.json.decode(text, type=annotation)
        else:
            value = msgspec.convert(text, annotation, strict=False)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise Unencodable(f"{text!r} is not a key of type {_described(annotation)}") from error
    written = encode_key(value, annotation)
    if written != text:
        raise Unencodable(
            f"{text!r} is not how a key of type {name_of(annotation)} is written; write {written!r}"
        )
    return value


def _described(annotation: Any) -> str:
    """Return the name of a key's type; of an enumeration also the texts of its members."""
    name, choices = name_of(annotation), key_choices(annotation)
    if choices is None or typing.get_origin(annotation) is Literal:  # whose name has its values
        return name
    texts = [repr(str(choice)) for choice in choices]
    more = ["…"] if len(texts) > MEMBERS_NAMED else []
    return f"{name}: {', '.join([*texts[:MEMBERS_NAMED], *more])}"
