"""Annotations: the types that can be stored and sent, and the decoding of their values.

This module decides which annotations are allowed, and how keys are written as text. Decoding checks types
strictly. A reference is encoded as the text of its key, and only if the annotation names its class.
`lowering` encodes values. A class is a reference type if it has the attribute `__reference__`.
"""

import dataclasses
import enum
import re
import types
import typing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from penstock.errors import Unencodable

SCALARS: Final = frozenset(
    {int, float, str, bool, bytes, type(None), datetime, date, time, timedelta, Decimal, UUID}
)
"""The types of immutable values without parts."""

_PLACE: Final = re.compile(r"`\$\[(\d+)\](.*)`")
_EXACT: Final = frozenset({int, str, bool, bytes, type(None), UUID})
KEY_SCALARS: Final = frozenset({int, str, date, datetime, UUID})
UNENCODABLE: Final = (
    Unencodable,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    AttributeError,
)
"""The errors of lowering and encoding a value."""


class ReferenceType(Protocol):
    """Encodes and decodes the references to a class of entities."""

    def text_of(self, value: object) -> str:
        """Return the text of the key; raise `Unencodable` if `value` is not such a reference."""

    def of_text(self, text: str) -> object:
        """Return the reference with this key."""


def reference_type(annotation: object) -> ReferenceType | None:
    """Return the reference type of an entity class, or None for any other annotation."""
    reference: ReferenceType | None = getattr(annotation, "__reference__", None)
    return reference if isinstance(annotation, type) else None


def decode_reference(annotation: Any, value: object) -> object:
    """Return the reference with the text of a key; msgspec calls this for types that it does not know."""
    if type(value) is str:
        try:
            reference: ReferenceType = annotation.__reference__
        except AttributeError:
            pass
        else:
            return reference.of_text(value)
    raise msgspec.ValidationError(f"Expected `{name_of(annotation)}`, got `{value!r}`")


def wire_type(annotation: Any) -> Any:
    """Return the annotation of lowered values: references are `str`, sets are lists."""
    if reference_type(annotation) is not None:
        return str
    if annotation in (set, frozenset):
        return list
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = tuple(map(wire_type, arguments))
        return typing.Union[members]  # noqa: UP007 -- the members are known only now
    if origin in (list, dict, tuple, set, frozenset):
        inner = tuple(part if part is Ellipsis else wire_type(part) for part in arguments)
        return types.GenericAlias(list if origin in (set, frozenset) else origin, inner)
    return annotation


def entities_in(annotation: Any, seen: tuple[type, ...] = ()) -> list[type]:
    """Return the entity classes that an annotation names, at any depth; `seen` are dataclasses."""
    if reference_type(annotation) is not None:
        return [annotation]
    inner = list(typing.get_args(annotation))
    if is_record(annotation) and annotation not in seen:
        inner = list(typing.get_type_hints(annotation).values())
        seen = (*seen, annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return []
    return [cls for part in inner for cls in entities_in(part, seen)]


def is_exact(annotation: Any) -> bool:
    """Say whether decoding returns every value unchanged, without widening such as int to float."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, dict, tuple, set, frozenset, typing.Union, types.UnionType):
        return all(part is Ellipsis or is_exact(part) for part in arguments)
    return annotation in _EXACT or reference_type(annotation) is not None


def refuse(value: object) -> object:
    """Raise `Unencodable`; msgspec calls this for objects that it cannot encode."""
    if reference_type(type(value)) is not None:
        raise Unencodable(f"{value!r} is a reference, and the annotation here names no entity")
    raise Unencodable(f"a value of type {type(value).__qualname__} cannot be stored or sent")


def reason_of(error: Exception) -> str:
    """Return the message of an error, without parts that depend on the depth of the stack."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def shown(value: object) -> str:
    """Return a value as text for recorded messages, which must be equal in every process.

    Only scalars are shown: the text of a set is in hash order, and other classes define their own text.
    """
    cls = type(value)
    return repr(value) if cls in SCALARS else f"a value of type {cls.__qualname__}"


def complaints_of(annotation: Any, seen: tuple[type, ...] = ()) -> list[str]:
    """Return the reasons why values of an annotation cannot be stored; empty if they can."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or annotation in SCALARS or reference_type(annotation) is not None:
        return []
    if annotation in (list, dict, tuple, set, frozenset) or annotation in seen:
        return []
    if origin in (list, dict, tuple, set, frozenset, typing.Union, types.UnionType):
        parts = [part for part in arguments if part is not Ellipsis]
        complaints = [complaint for part in parts for complaint in complaints_of(part, seen)]
        if origin in (dict, set, frozenset) and not complaints:
            complaints = _misfit(annotation, origin, arguments[0])
    elif is_record(annotation):
        try:
            fields = typing.get_type_hints(annotation)
        except NameError as error:
            return [f"{name_of(annotation)} has a field of the unknown type {error.name!r}"]
        seen = (*seen, annotation)
        complaints = [
            f"{name_of(annotation)}.{name}: {complaint}"
            for name, field in fields.items()
            for complaint in complaints_of(field, seen)
        ]
    elif origin is typing.Literal or is_enum(annotation):
        complaints = []
    else:
        return [f"{name_of(annotation)} is not a type that can be stored"]
    return complaints or _msgspec_complaints(annotation)


def _misfit(annotation: Any, origin: type, inside: Any) -> list[str]:
    """Return the reasons why a dictionary cannot have such keys, or a set such members."""
    complaints = _unhashable(inside, of=origin)
    if complaints or origin is dict:
        return complaints
    return [f"{name_of(annotation)}: {complaint}" for complaint in _unordered(inside)]


def _unhashable(annotation: Any, of: type) -> list[str]:
    """Return the parts of an annotation that cannot be keys of a dictionary, or members of a set."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (tuple, typing.Union, types.UnionType):
        return [
            complaint
            for part in arguments
            if part is not Ellipsis
            for complaint in _unhashable(part, of)
        ]
    cls = origin or annotation
    if of is dict:
        refused = cls in (list, dict, set, frozenset) or is_record(cls)
        hint = "; use a scalar, a reference, or a tuple of them"
    else:
        refused = cls in (list, dict, set) or (is_record(cls) and cls.__hash__ is None)
        hint = "; a dataclass can, when it is frozen" if is_record(cls) else ""
    what = "the key of a dictionary" if of is dict else "the member of a set"
    return [f"{name_of(annotation)} cannot be {what}{hint}"] if refused else []


def _unordered(annotation: Any, seen: tuple[type, ...] = ()) -> list[str]:
    """Return the reasons why a set of such members iterates differently in each process.

    The hash of None and of an object that compares by identity is its address.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None) or (origin is typing.Literal and None in arguments):
        return ["None in a set lets it iterate differently in each process; use a list or a dict"]
    if origin in (tuple, typing.Union, types.UnionType):
        return [
            complaint
            for part in arguments
            if part is not Ellipsis
            for complaint in _unordered(part, seen)
        ]
    if not is_record(annotation) or annotation in seen:
        return []
    if annotation.__hash__ is object.__hash__:
        return [f"{name_of(annotation)} compares by address, so no set of them has an order"]
    members = typing.get_type_hints(annotation).values()
    seen = (*seen, annotation)
    return [complaint for member in members for complaint in _unordered(member, seen)]


def _msgspec_complaints(annotation: Any) -> list[str]:
    try:
        msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference)
        msgspec.msgpack.Decoder(wire_type(annotation), dec_hook=decode_reference)
    except (TypeError, NotImplementedError) as error:
        return [f"{name_of(annotation)}: {str(error).splitlines()[0]}"]
    return []


def is_record(annotation: Any) -> bool:
    """Say whether an annotation is a dataclass."""
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def is_enum(annotation: Any) -> bool:
    """Say whether an annotation is an enumeration."""
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def name_of(annotation: Any) -> str:
    """Return an annotation as a person writes it."""
    plain = isinstance(annotation, type) and typing.get_origin(annotation) is None
    return annotation.__qualname__ if plain else str(annotation)


def place_of(complaint: str) -> tuple[int | None, str]:
    """Return the index of the wrong value in a row, and the mistake, from a message of msgspec."""
    mistake, _, path = complaint.partition(" - at ")
    place = _PLACE.search(path)
    if place is None:
        return None, complaint
    inside = place[2] + (" (a key)" if path.startswith("`key`") else "")
    return int(place[1]), f"{inside}: {mistake}"


def encode_key(value: object, annotation: Any) -> str:
    """Return the text of a key: a `str` as it is, other keys as JSON without quotes.

    Raises:
        Unencodable: The value does not fit the annotation, or exceeds `KEY_BYTES_MAX`.
    """
    try:
        checked = msgspec.convert(value, annotation)
        if isinstance(checked, datetime):
            if checked.utcoffset() is None:
                raise Unencodable(
                    f"{value!r} has no time zone, so it cannot be a key of type datetime; "
                    "add a time zone, as in datetime(…, tzinfo=UTC)"
                )
            checked = checked.astimezone(UTC)  # equal instants are equal keys
        if annotation is int and not -(1 << 63) <= checked < 1 << 64:
            raise OverflowError
        if annotation is str:
            text = str.__str__(checked)  # the plain text, also of a subclass
        else:
            text = msgspec.json.encode(checked).decode().strip('"')
        size = len(text.encode())
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError, OverflowError) as error:
        limit = " of 64 bits" if annotation is int else ""
        raise Unencodable(
            f"{shown(value)} cannot be a key of type {name_of(annotation)}{limit}"
        ) from error
    if not 0 < size <= KEY_BYTES_MAX:
        raise Unencodable(f"a key takes 1 to {KEY_BYTES_MAX} bytes as text, not {size}")
    return text


def decode_key(text: str, annotation: Any) -> Any:
    """Return the key with this text.

    Raises:
        Unencodable: The text is not a key of this type, or `encode_key` writes this key differently.
    """
    try:
        value = text if annotation is str else msgspec.convert(text, annotation, strict=False)
    except msgspec.ValidationError as error:
        raise Unencodable(f"{text!r} is not a key of type {name_of(annotation)}") from error
    if encode_key(value, annotation) != text:
        raise Unencodable(f"{text!r} is not how a key of type {name_of(annotation)} is written")
    return value


KEY_BYTES_MAX: Final = 400
ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=refuse)
"""Encodes lowered values; refuses objects that cannot be stored."""
