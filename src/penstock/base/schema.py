"""Annotations as codecs: one canonical encoding for each annotated type.

A `Codec` turns a value into MessagePack and back. It promises that equal values of one annotation
give equal bytes (sets and dictionaries are ordered by their encoded keys), that decoding checks
types strictly, and that a reference travels as its key's text only where the annotation says which
entity it is. What may be annotated with what is decided here; which classes are entities is not:
a class is a reference type when it carries `__reference__`.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Hashable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from penstock.errors import Unencodable

SCALARS: Final = frozenset(
    {int, float, str, bool, bytes, type(None), datetime, date, time, timedelta, Decimal, UUID}
)
KEY_SCALARS: Final = frozenset({int, str, date, datetime, UUID})

Lower = Callable[[Any], Any]
"""Turns a value into one that msgspec encodes canonically."""


class ReferenceType(Protocol):
    """How a codec handles references to one class of entities."""

    def text_of(self, value: object) -> str:
        """Return the key's text, or raise `Unencodable` when `value` is no such reference."""

    def of_text(self, text: str) -> object:
        """Return the reference with this key."""


def reference_type(annotation: object) -> ReferenceType | None:
    """Return the reference type of an entity class, or None for any other annotation."""
    found: ReferenceType | None = getattr(annotation, "__reference__", None)
    return found if isinstance(annotation, type) else None


def decode_reference(annotation: type, value: object) -> object:
    """Build a reference from its key's text: msgspec's hook for types that it does not know."""
    reference = reference_type(annotation)
    if reference is None or not isinstance(value, str):
        raise msgspec.ValidationError(f"Expected `{annotation.__name__}`, got `{value!r}`")
    return reference.of_text(value)


def wire_type(annotation: Any) -> Any:
    """Return the annotation of a value's lowered form: references replaced by `str`."""
    if reference_type(annotation) is not None:
        return str
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(wire_type(one) for one in arguments)]
    if origin in (list, dict, tuple, set, frozenset):
        inner = tuple(one if one is Ellipsis else wire_type(one) for one in arguments)
        return types.GenericAlias(origin, inner)
    return annotation


def refuse(value: object) -> object:
    """Say that a value cannot be stored: msgspec's hook for objects that it cannot encode."""
    if reference_type(type(value)) is not None:
        raise Unencodable(f"{value!r} is a reference, and the annotation here names no entity")
    raise Unencodable(f"a value of type {type(value).__qualname__} cannot be stored or sent")


def complaints_of(annotation: Any) -> list[str]:
    """Say why an annotation cannot be a codec; empty when it can."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return complaints_of(arguments[0])
    if annotation is Any or annotation in SCALARS or reference_type(annotation) is not None:
        return []
    if annotation in (list, dict, tuple, set, frozenset) or origin is typing.Literal:
        return []
    if origin in (list, dict, tuple, set, frozenset, typing.Union, types.UnionType):
        inner = [one for one in arguments if one is not Ellipsis]
        found = [complaint for one in inner for complaint in complaints_of(one)]
        return found or _msgspec_complaint(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _msgspec_complaint(annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        found = [f"{name}: {why}" for name, one in hints.items() for why in complaints_of(one)]
        return found or _msgspec_complaint(annotation)
    return [f"{_name(annotation)} is not a type that can be stored"]


def _msgspec_complaint(annotation: Any) -> list[str]:
    try:
        msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference)
    except (TypeError, NotImplementedError) as error:
        return [f"{_name(annotation)}: {str(error).splitlines()[0]}"]
    return []


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _lower_none(_: Any) -> None:
    return None


def _pack(value: Any) -> bytes:
    return _ENCODER.encode(value)


def lower_any(value: Any) -> Any:
    """Lower a value by its own types: for annotations that do not say what is inside."""
    match value:
        case dict():
            items = [(lower_any(key), lower_any(one)) for key, one in value.items()]
            return dict(sorted(items, key=lambda item: _pack(item[0])))
        case set() | frozenset():
            return sorted((lower_any(one) for one in value), key=_pack)
        case list() | tuple():
            return [lower_any(one) for one in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {field.name: lower_any(getattr(value, field.name)) for field in fields}
        case _:
            return value


def lower_reply(value: Any) -> Any:
    """Lower a returned value by its own types; references become their key's text."""
    reference = reference_type(type(value))
    if reference is not None:
        return reference.text_of(value)
    match value:
        case dict():
            items = [(_hashable(lower_reply(key)), lower_reply(one)) for key, one in value.items()]
            return dict(sorted(items, key=lambda item: _pack(item[0])))
        case set() | frozenset():
            return sorted((lower_reply(one) for one in value), key=_pack)
        case list() | tuple():
            return [lower_reply(one) for one in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {field.name: lower_reply(getattr(value, field.name)) for field in fields}
        case _:
            return value


def _hashable(value: Any) -> Hashable:
    return tuple(_hashable(one) for one in value) if isinstance(value, list) else value


def _lower_sequence(inner: Lower | None) -> Lower | None:
    if inner is None:
        return None
    return lambda value: [inner(one) for one in value] if isinstance(value, list) else value


def _lower_set(inner: Lower | None) -> Lower:
    def lower(value: Any) -> Any:
        if not isinstance(value, set | frozenset):
            return value
        return sorted(map(inner, value) if inner else value, key=_pack)

    return lower


def _lower_dict(key: Lower | None, inner: Lower | None) -> Lower:
    def lower(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        items = [
            (_hashable(key(name)) if key else name, inner(one) if inner else one)
            for name, one in value.items()
        ]
        return dict(sorted(items, key=lambda item: _pack(item[0])))

    return lower


def _lower_tuple(arguments: tuple[Any, ...]) -> Lower | None:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = lower_of(arguments[0])
        if inner is None:
            return None
        return lambda value: [inner(one) for one in value] if isinstance(value, tuple) else value
    each = [lower_of(one) for one in arguments]
    if not any(each):
        return None

    def lower(value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != len(each):
            return value
        return [one(item) if one else item for one, item in zip(each, value, strict=True)]

    return lower


def _lower_union(arguments: tuple[Any, ...]) -> Lower | None:
    """Lower by the value's own type; msgspec allows at most one member of each shape."""
    members = [one for one in arguments if one is not type(None)]
    lowers = [(typing.get_origin(one) or one, lower_of(one)) for one in members]
    if not any(lower for _, lower in lowers):
        return None

    def lower(value: Any) -> Any:
        if value is None:
            return None
        for member, one in lowers:
            if isinstance(member, type) and isinstance(value, member):
                return one(value) if one else value
        return lowers[0][1](value) if len(lowers) == 1 and lowers[0][1] else value

    return lower


def _lower_dataclass(annotation: Any) -> Lower | None:
    hints = typing.get_type_hints(annotation)
    each = {name: lower_of(one) for name, one in hints.items()}
    if not any(each.values()):
        return None

    def lower(value: Any) -> Any:
        if not isinstance(value, annotation):
            return value
        return {
            name: one(getattr(value, name)) if one else getattr(value, name)
            for name, one in each.items()
        }

    return lower


def lower_of(annotation: Any) -> Lower | None:
    """Return what must be done to a value before msgspec encodes it; None when nothing."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return lower_of(arguments[0])
    reference = reference_type(annotation)
    if reference is not None:
        return reference.text_of
    if annotation is Any or annotation in (list, tuple):
        return lower_any
    if annotation in (set, frozenset):
        return _lower_set(lower_any)
    if annotation is dict:
        return _lower_dict(lower_any, lower_any)
    if origin is list:
        return _lower_sequence(lower_of(arguments[0]))
    if origin in (set, frozenset):
        return _lower_set(lower_of(arguments[0]))
    if origin is dict:
        return _lower_dict(lower_of(arguments[0]), lower_of(arguments[1]))
    if origin is tuple:
        return _lower_tuple(arguments)
    if origin in (typing.Union, types.UnionType):
        return _lower_union(arguments)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _lower_dataclass(annotation)
    return None


def encode_key(value: object, annotation: Any) -> str:
    """Return a key's text: the text itself for `str`, else its JSON without quotes.

    Raises:
        Unencodable: The value does not fit the annotation, or exceeds `KEY_BYTES_MAX`.
    """
    try:
        checked = msgspec.convert(value, annotation)
        text = checked if isinstance(checked, str) else msgspec.json.encode(value).decode()
        size = len(text.encode())
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError) as error:
        raise Unencodable(f"{value!r} cannot be a key of type {_name(annotation)}") from error
    if not 0 < size <= KEY_BYTES_MAX:
        raise Unencodable(f"a key takes 1 to {KEY_BYTES_MAX} bytes as text, this one {size}")
    return text if isinstance(checked, str) else text.strip('"')


def decode_key(text: str, annotation: Any) -> Any:
    """Return the key with this text.

    Raises:
        Unencodable: The text is no key of that type.
    """
    if annotation is str:
        return text
    try:
        return msgspec.convert(text, annotation, strict=False)
    except msgspec.ValidationError as error:
        raise Unencodable(f"{text!r} is not a key of type {_name(annotation)}") from error


KEY_BYTES_MAX: Final = 400
_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=refuse)
