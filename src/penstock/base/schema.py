"""Annotations: what can be stored and sent, and how it is decoded.

What may be annotated with what is decided here, and how keys are written. Promised: decoding checks
types strictly, and a reference travels as its key's text, only where the annotation says which
entity it is. How values get their one encoding is left to `lowering`. Which classes are entities is
not decided here: a class is a reference type when it carries `__reference__`.
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
_PLACE: Final = re.compile(r"`\$\[(\d+)\](.*)`")
_EXACT: Final = frozenset({int, str, bool, bytes, type(None), UUID})
KEY_SCALARS: Final = frozenset({int, str, date, datetime, UUID})


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
        members = tuple(wire_type(one) for one in arguments)
        return typing.Union[members]  # noqa: UP007 -- the members are known only now
    if origin in (list, dict, tuple, set, frozenset):
        inner = tuple(one if one is Ellipsis else wire_type(one) for one in arguments)
        return types.GenericAlias(list if origin in (set, frozenset) else origin, inner)
    return annotation


def entities_in(annotation: Any, seen: tuple[type, ...] = ()) -> list[type]:
    """Return the entity classes that an annotation names, at any depth."""
    if reference_type(annotation) is not None:
        return [annotation]
    inner = list(typing.get_args(annotation))
    if is_record(annotation) and annotation not in seen:
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


def reason_of(error: Exception) -> str:
    """Return what an error says of a value, without what depends on where in the stack it was."""
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def shown(value: object) -> str:
    """Return how a recorded message names a value: the same in every process, and no user code.

    A set's text is in hash order, and that of another object is whatever its class says.
    """
    kind = type(value)
    return repr(value) if kind in SCALARS else f"a value of type {kind.__qualname__}"


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
        if origin in (dict, set, frozenset) and not found:
            found = _misfit(annotation, origin, arguments[0])
    elif is_record(annotation):
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


def _misfit(annotation: Any, origin: type, inside: Any) -> list[str]:
    """Say why a dictionary cannot have such keys, or a set such members."""
    found = _unhashable(inside, of=origin)
    if found or origin is dict:
        return found
    return [f"{name_of(annotation)}: {why}" for why in _unordered(inside)]


def _unhashable(annotation: Any, of: type) -> list[str]:
    """Say which part of the type of a dictionary's keys, or a set's members, can be none."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (tuple, typing.Union, types.UnionType):
        return [why for one in arguments if one is not Ellipsis for why in _unhashable(one, of)]
    kind = origin or annotation
    if of is dict:
        refused = kind in (list, dict, set, frozenset) or is_record(kind)
        hint = "; use a scalar, a reference, or a tuple of them"
    else:
        refused = kind in (list, dict, set) or (is_record(kind) and kind.__hash__ is None)
        hint = "; a dataclass can, when it is frozen" if is_record(kind) else ""
    what = "the key of a dictionary" if of is dict else "the member of a set"
    return [f"{name_of(annotation)} cannot be {what}{hint}"] if refused else []


def _unordered(annotation: Any, seen: tuple[type, ...] = ()) -> list[str]:
    """Say why a set of such members has another order in each process: hashes that are addresses."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None) or (origin is typing.Literal and None in arguments):
        return ["None in a set lets it iterate differently in each process; use a list or a dict"]
    if origin in (tuple, typing.Union, types.UnionType):
        return [why for one in arguments if one is not Ellipsis for why in _unordered(one, seen)]
    if not is_record(annotation) or annotation in seen:
        return []
    if annotation.__hash__ is object.__hash__:
        return [f"{name_of(annotation)} compares by address, so no set of them has an order"]
    members = typing.get_type_hints(annotation).values()
    return [why for one in members for why in _unordered(one, (*seen, annotation))]


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


def _is_enum(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def name_of(annotation: Any) -> str:
    """Return an annotation as a person writes it."""
    plain = isinstance(annotation, type) and typing.get_origin(annotation) is None
    return annotation.__qualname__ if plain else str(annotation)


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
        if isinstance(checked, datetime):
            if checked.utcoffset() is None:
                raise Unencodable(
                    f"{value!r} has no time zone, so it cannot be a key of type datetime; "
                    "say which, as in datetime(…, tzinfo=UTC)"
                )
            checked = checked.astimezone(UTC)  # one instant is one key, wherever it was noted
        if annotation is int and not -(1 << 63) <= checked < 1 << 64:
            raise OverflowError
        if annotation is str:
            text = str.__str__(checked)  # of a subclass, too: the text itself
        else:
            text = msgspec.json.encode(checked).decode().strip('"')
        size = len(text.encode())
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError, OverflowError) as error:
        limit = " of 64 bits" if annotation is int else ""
        raise Unencodable(
            f"{shown(value)} cannot be a key of type {name_of(annotation)}{limit}"
        ) from error
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
