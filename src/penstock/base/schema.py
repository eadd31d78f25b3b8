"""Annotations as codecs: one canonical encoding for each annotated type.

A value is lowered to what msgspec encodes canonically, and decoded as its annotation says. Promised:
the same value gives the same bytes, in whatever order its sets and dictionaries were filled (they
are ordered by their encoded keys); decoding checks types strictly; a reference travels as its key's
text, and only where the annotation says which entity it is. What may be annotated with what is
decided here; which classes are entities is not: a class is a reference type when it carries
`__reference__`.
"""

import builtins
import dataclasses
import enum
import re
import types
import typing
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from penstock.errors import Unencodable

SCALARS: Final = frozenset(
    {int, float, str, bool, bytes, type(None), datetime, date, time, timedelta, Decimal, UUID}
)
_PLACE: Final = re.compile(r"`\$\[(\d+)\](.*)`")
_EXACT: Final = frozenset({int, str, bool, bytes, type(None), UUID})
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


def decode_reference(annotation: Any, value: object) -> object:
    """Build a reference from its key's text: msgspec's hook for types that it does not know."""
    if type(value) is str:
        try:
            kind: ReferenceType = annotation.__reference__
        except AttributeError:
            pass
        else:
            return kind.of_text(value)
    raise msgspec.ValidationError(f"Expected `{name_of(annotation)}`, got `{value!r}`")


def wire_type(annotation: Any) -> Any:
    """Return the annotation of a value's lowered form: references are `str`, sets are lists."""
    if reference_type(annotation) is not None:
        return str
    if annotation in (set, frozenset):
        return list
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(wire_type(one) for one in arguments)]
    if origin in (list, dict, tuple, set, frozenset):
        inner = tuple(one if one is Ellipsis else wire_type(one) for one in arguments)
        return types.GenericAlias(list if origin in (set, frozenset) else origin, inner)
    return annotation


def entities_in(annotation: Any, seen: tuple[type, ...] = ()) -> list[type]:
    """Return the entity classes that an annotation names, at any depth."""
    if reference_type(annotation) is not None:
        return [annotation]
    inner = list(typing.get_args(annotation))
    if _is_dataclass(annotation) and annotation not in seen:
        inner = list(typing.get_type_hints(annotation).values())
        seen = (*seen, annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return []
    return [found for one in inner for found in entities_in(one, seen)]


def is_exact(annotation: Any) -> bool:
    """Say whether every value that fits is decoded as it was: nothing is widened, as int to float."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, dict, tuple, set, frozenset, typing.Union, types.UnionType):
        return all(one is Ellipsis or is_exact(one) for one in arguments)
    return annotation in _EXACT or reference_type(annotation) is not None


def refuse(value: object) -> object:
    """Say that a value cannot be stored: msgspec's hook for objects that it cannot encode."""
    if reference_type(type(value)) is not None:
        raise Unencodable(f"{value!r} is a reference, and the annotation here names no entity")
    raise Unencodable(f"a value of type {type(value).__qualname__} cannot be stored or sent")


def complaints_of(annotation: Any, seen: tuple[type, ...] = ()) -> list[str]:
    """Say why values of an annotation cannot be stored; empty when they can."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or annotation in SCALARS or reference_type(annotation) is not None:
        return []
    if annotation in (list, dict, tuple, set, frozenset) or annotation in seen:
        return []
    if origin in (list, dict, tuple, set, frozenset, typing.Union, types.UnionType):
        found = [
            why for one in arguments if one is not Ellipsis for why in complaints_of(one, seen)
        ]
    elif _is_dataclass(annotation):
        try:
            fields = typing.get_type_hints(annotation)
        except NameError as error:
            return [f"{name_of(annotation)} has a field of the unknown type {error.name!r}"]
        seen = (*seen, annotation)
        found = [
            f"{name_of(annotation)}.{name}: {why}"
            for name, one in fields.items()
            for why in complaints_of(one, seen)
        ]
    elif origin is typing.Literal or _is_enum(annotation):
        found = []
    else:
        return [f"{name_of(annotation)} is not a type that can be stored"]
    return found or _msgspec_complaints(annotation)


def _msgspec_complaints(annotation: Any) -> list[str]:
    try:
        msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference)
        msgspec.msgpack.Decoder(wire_type(annotation), dec_hook=decode_reference)
    except (TypeError, NotImplementedError) as error:
        return [f"{name_of(annotation)}: {str(error).splitlines()[0]}"]
    return []


def _is_dataclass(annotation: Any) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _is_enum(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def name_of(annotation: Any) -> str:
    """Return an annotation as a person writes it."""
    plain = isinstance(annotation, type) and typing.get_origin(annotation) is None
    return annotation.__qualname__ if plain else str(annotation)


def _pack(value: Any) -> bytes:
    return _ENCODER.encode(value)


def _first_packed(pair: tuple[Any, Any]) -> bytes:
    return _ENCODER.encode(pair[0])


def lower_any(value: Any) -> Any:
    """Lower a value by its own types: where an annotation does not say what is inside."""
    match value:
        case dict():
            pairs = [(_hashable(lower_any(name)), lower_any(one)) for name, one in value.items()]
            return dict(sorted(pairs, key=_first_packed))
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
            pairs = [(_hashable(lower_reply(key)), lower_reply(one)) for key, one in value.items()]
            return dict(sorted(pairs, key=_first_packed))
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


def _lower_list(inner: Lower | None) -> Lower | None:
    if inner is None:
        return None
    return lambda value: [inner(one) for one in value] if isinstance(value, list) else value


def _lower_set(inner: Lower | None) -> Lower:
    def lower(value: Any) -> Any:
        if not isinstance(value, set | frozenset):
            raise Unencodable(f"expected a set, got {type(value).__qualname__}")
        return sorted(map(inner, value) if inner else value, key=_pack)

    return lower


def _lower_dict(key: Lower | None, inner: Lower | None) -> Lower:
    def lower(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        pairs = [
            (_hashable(key(name)) if key else name, inner(one) if inner else one)
            for name, one in value.items()
        ]
        return dict(sorted(pairs, key=_first_packed))

    return lower


def _lower_tuple(arguments: tuple[Any, ...]) -> Lower | None:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = lower_of(arguments[0])
        if inner is None:
            return None
        return lambda value: tuple(map(inner, value)) if isinstance(value, tuple) else value
    each = [lower_of(one) for one in arguments]
    if not any(each):
        return None
    width, first = len(each), each[0]
    if first and not any(each[1:]):  # (Item, int): what orders are made of
        return lambda value: (
            (first(value[0]), *value[1:]) if type(value) is tuple and len(value) == width else value
        )

    def lower(value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != width:
            return value
        return tuple(one(item) if one else item for one, item in zip(each, value, strict=True))

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
            if member is Any or (isinstance(member, type) and isinstance(value, member)):
                return one(value) if one else value
        return value

    return lower


def _lower_dataclass(annotation: Any) -> Lower:
    """Lower a dataclass to its fields; an instance of a subclass would come back as another class."""
    each: dict[str, Lower | None] = {}

    def lower(value: Any) -> Any:
        if type(value) is not annotation:
            raise Unencodable(f"expected {name_of(annotation)}, got {type(value).__qualname__}")
        if not each:  # now, not above: a dataclass may hold itself
            each.update((name, lower_of(one)) for name, one in _fields_of(annotation))
        return {
            name: one(getattr(value, name)) if one else getattr(value, name)
            for name, one in each.items()
        }

    return lower


def _fields_of(annotation: Any) -> Iterator[tuple[str, Any]]:
    hints = typing.get_type_hints(annotation)
    for field in dataclasses.fields(annotation):
        yield field.name, hints[field.name]


def lower_of(annotation: Any) -> Lower | None:
    """Return what must be done to a value before msgspec encodes it; None when nothing."""
    reference = reference_type(annotation)
    if reference is not None:
        return reference.text_of
    if annotation is Any or annotation in (list, tuple):
        return lower_any
    if _is_dataclass(annotation):
        return _lower_dataclass(annotation)
    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation) or annotation:
        case builtins.list:
            return _lower_list(lower_of(arguments[0]))
        case builtins.set | builtins.frozenset:
            return _lower_set(lower_of(arguments[0]) if arguments else lower_any)
        case builtins.dict:
            key, inner = arguments or (Any, Any)
            return _lower_dict(lower_of(key), lower_of(inner))
        case builtins.tuple:
            return _lower_tuple(arguments)
        case typing.Union | types.UnionType:
            return _lower_union(arguments)
        case _:
            return None


def alike(value: Any, stored: Any) -> bool:
    """Say whether a decoded value is the one that was encoded: same types, NaN equal to itself."""
    match stored:
        case float():
            known = isinstance(value, float | int)
            return known and (value == stored or (value != value and stored != stored))
        case list() | tuple():
            return (
                isinstance(value, type(stored))
                and len(value) == len(stored)
                and all(map(alike, value, stored))
            )
        case dict():
            return (
                isinstance(value, dict)
                and value.keys() == stored.keys()
                and all(alike(value[name], one) for name, one in stored.items())
            )
        case _ if dataclasses.is_dataclass(stored):
            return type(value) is type(stored) and all(
                alike(getattr(value, field.name), getattr(stored, field.name))
                for field in dataclasses.fields(stored)
            )
        case set() | frozenset() | bytes():  # as good as their mutable or frozen twins
            return bool(value == stored)
        case _ if reference_type(type(stored)) is not None:  # loaded or not
            return bool(value == stored)
        case _:
            return isinstance(value, type(stored)) and value == stored


def place_of(complaint: str) -> tuple[int | None, str]:
    """Part msgspec's complaint about a row: the index of the value at fault, and what is wrong."""
    what, _, path = complaint.partition(" - at ")
    found = _PLACE.search(path)
    if found is None:
        return None, complaint
    inside = found[2] + (" (a key)" if path.startswith("`key`") else "")
    return int(found[1]), f"{inside}: {what}"


def encode_key(value: object, annotation: Any) -> str:
    """Return a key's text: the text itself for `str`, else its JSON without quotes.

    Raises:
        Unencodable: The value does not fit the annotation, or exceeds `KEY_BYTES_MAX`.
    """
    try:
        checked = msgspec.convert(value, annotation)
        if isinstance(checked, datetime) and checked.tzinfo is not None:
            checked = checked.astimezone(UTC)  # one instant is one key, wherever it was noted
        text = checked if annotation is str else msgspec.json.encode(checked).decode().strip('"')
        size = len(text.encode())
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError, OverflowError) as error:
        raise Unencodable(f"{value!r} cannot be a key of type {name_of(annotation)}") from error
    if not 0 < size <= KEY_BYTES_MAX:
        raise Unencodable(f"a key takes 1 to {KEY_BYTES_MAX} bytes as text, this one {size}")
    return text


def decode_key(text: str, annotation: Any) -> Any:
    """Return the key with this text.

    Raises:
        Unencodable: The text is no key of that type, or not the one that `encode_key` gives it.
    """
    try:
        value = text if annotation is str else msgspec.convert(text, annotation, strict=False)
    except msgspec.ValidationError as error:
        raise Unencodable(f"{text!r} is not a key of type {name_of(annotation)}") from error
    if encode_key(value, annotation) != text:
        raise Unencodable(f"{text!r} is not how a key of type {name_of(annotation)} is written")
    return value


KEY_BYTES_MAX: Final = 400
_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=refuse)
