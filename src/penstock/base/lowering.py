"""Lowering: values in a form that msgspec encodes, so that equal values give equal bytes.

Sets and dictionaries are ordered by their encoded keys. A reference becomes the text of its key, if the
annotation names its class. A value whose class decoding would change is refused. A `datetime` is an
instant: it is stored in UTC, and a `datetime` without a time zone is refused. A `time` is a time of day,
and a `time` with a time zone is refused. So a stored value is read back unchanged, and SQL shows different
values differently. `schema` decides the meaning of annotations; decoding checks that a value fits.
"""

import types
import typing
from collections import deque
from collections.abc import Callable, Hashable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.base.record import (
    RecordKind,
    fields_of,
    is_record,
    kind_of,
    members_of,
    tag_of_record,
)
from penstock.base.schema import ENCODER, UNENCODABLE, name_of, reference_type, refuse, shown
from penstock.errors import Unencodable

Lower = Callable[[Any], Any]
"""Returns a value in a form that msgspec encodes canonically."""

_IN_ORDER: Final[dict[str, Any]] = {"order": "deterministic", "enc_hook": refuse}
_PLAIN: Final = frozenset({int, str, bool, float, bytes, type(None)})
_SCALARS: Final = frozenset({int, str, bool, bytes, type(None)})
_NATIVE: Final = (bytes, datetime, date, time, timedelta, Decimal, UUID)


_pack: Final = ENCODER.encode


def _first_packed(pair: tuple[Any, Any]) -> bytes:
    return _pack(pair[0])


def lower_any(value: Any) -> Any:
    """Lower a value by its own types, for an annotation that does not name the types inside."""
    return _lower_inside(value, lower_any)


def place_in(value: Any) -> str:
    """Return the path of the first part that cannot be stored, such as `.at` or `[2].at`; empty if it is the value itself.

    Only for messages: a part that needs its annotation, or user code that raises, ends the path before it.
    """
    try:
        for step, part in _parts_of(value):
            if not _is_storable(part):
                return step + place_in(part)
    except UNENCODABLE:  # also of a property of a record
        return ""
    return ""


def _is_storable(value: Any) -> bool:
    try:
        _pack(lower_reply(value))
    except (
        Unencodable,
        OverflowError,
        UnicodeEncodeError,
    ):  # an integer of over 64 bits, half of a surrogate pair
        return False
    return True


def _parts_of(value: Any) -> list[tuple[str, Any]]:
    if type(value) is dict:
        return [(f"[{shown(key)}]", item) for key, item in value.items()]
    if type(value) in (list, tuple, deque):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if is_record(type(value)):
        return [
            (f".{member.name}", getattr(value, member.name)) for member in members_of(type(value))
        ]
    return []


def lower_reply(value: Any) -> Any:
    """Lower a result by its own types; references become the text of their keys."""
    reference = reference_type(type(value))
    return _lower_inside(value, lower_reply) if reference is None else reference.text_of(value)


def lower_instant(value: Any) -> Any:
    """Lower a `datetime` to UTC; return any other value as it is.

    Raises:
        Unencodable: The value has no time zone, or lies outside of the years 1 to 9999 in UTC.
    """
    if not isinstance(value, datetime) or value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise Unencodable(
            f"{value!r} has no time zone, so its instant is unknown; add a time zone, as in "
            "datetime(…, tzinfo=UTC), or as in 2026-01-31T12:00:00Z in JSON"
        )
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Unencodable(f"{value!r} lies outside of the years 1 to 9999 in UTC") from None


def _lower_time(value: Any) -> Any:
    if isinstance(value, time) and value.tzinfo is not None:
        raise Unencodable(
            f"{value!r} is a time of day with a time zone, which is not stored; store "
            "value.replace(tzinfo=None), and the zone in another attribute"
        )
    return value


def _lower_decimal(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_nan():
        raise Unencodable(f"{value!r} is not equal to itself and cannot be stored; use None")
    return value


def _lower_inside(value: Any, lower: Lower) -> Any:
    match value:
        case dict():
            pairs = [(_hashable(lower(key)), lower(item)) for key, item in value.items()]
            return dict(sorted(pairs, key=_first_packed))
        case set() | frozenset():
            return sorted(map(lower, value), key=_pack)
        case list() | tuple() | deque():
            return [lower(item) for item in value]
        case _ if type(value) not in _PLAIN and is_record(type(value)):
            cls = type(value)
            tag = tag_of_record(cls)
            lowered: dict[str, Any] = {} if tag is None else dict([tag])
            for member in members_of(cls):
                lowered[member.wire] = lower(getattr(value, member.name))
            return lowered
        case _:
            return _lower_alone(value, lower)


def _lower_alone(value: Any, lower: Lower) -> Any:
    """Lower a value that is neither a collection nor a dataclass."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, msgspec.Raw):  # unchecked bytes, perhaps not MessagePack
        return refuse(value)
    if hasattr(type(value), "__attrs_attrs__"):
        return lower(msgspec.to_builtins(value, builtin_types=_NATIVE, **_IN_ORDER))
    return _lower_time(lower_instant(value))


def _hashable(value: Any) -> Hashable:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _lower_list(inner: Lower | None) -> Lower | None:
    if inner is None:
        return None
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def _lower_deque(inner: Lower | None) -> Lower:
    def lower(value: Any) -> Any:
        if type(value) is not deque:
            raise Unencodable(f"expected a deque, got {type(value).__qualname__}")
        if value.maxlen is not None:
            raise Unencodable(
                f"a deque is stored without its maxlen, which is {value.maxlen}; store deque(value), and "
                "remove old items in the method that adds an item"
            )
        return list(map(inner, value)) if inner else list(value)

    return lower


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
            (_hashable(key(name)) if key else name, inner(item) if inner else item)
            for name, item in value.items()
        ]
        return dict(sorted(pairs, key=_first_packed))

    return lower


def _lower_tuple(arguments: tuple[Any, ...]) -> Lower | None:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = lower_of(arguments[0])
        if inner is None:
            return None
        return lambda value: tuple(map(inner, value)) if isinstance(value, tuple) else value
    lowers = [lower_of(argument) for argument in arguments]
    if not any(lowers):
        return None
    width, first = len(lowers), lowers[0]
    if first and not any(lowers[1:]):  # a fast path, for example for (Item, int)
        return lambda value: (
            (first(value[0]), *value[1:]) if type(value) is tuple and len(value) == width else value
        )

    def lower(value: Any) -> Any:
        if not isinstance(value, tuple) or len(value) != width:
            return value
        return tuple(
            lower(item) if lower else item for lower, item in zip(lowers, value, strict=True)
        )

    return lower


def _lower_union(arguments: tuple[Any, ...]) -> Lower | None:
    """Lower by the type of the value; msgspec allows at most one member of each shape."""
    members = [member for member in arguments if member is not type(None)]
    lowers = [(_class_of(member), lower_of(member)) for member in members]
    if not any(inner for _, inner in lowers):
        return None

    def lower(value: Any) -> Any:
        if value is None:
            return None
        for member, inner in lowers:
            if member is Any or (isinstance(member, type) and isinstance(value, member)):
                return inner(value) if inner else value
        return value

    return lower


def _class_of(annotation: Any) -> Any:
    """Return the class of a type's values."""
    if kind_of(annotation) is RecordKind.TYPED_DICT:
        return dict
    return typing.get_origin(annotation) or annotation


def _lower_record(annotation: Any) -> Lower:
    """Lower a record to its fields; refuse an instance of a subclass, which would change its class."""
    record_kind, cls = kind_of(annotation), typing.get_origin(annotation) or annotation
    if record_kind is RecordKind.TYPED_DICT:
        return _lower_typed_dict(annotation)
    tag = tag_of_record(annotation)
    head = [] if tag is None else [tag]
    fields: list[tuple[str, str, Lower | None]] = []

    def lower(value: Any) -> Any:
        if type(value) is not cls:
            raise Unencodable(f"expected {name_of(annotation)}, got {type(value).__qualname__}")
        if not fields:  # only now, because a record may have fields of its own class
            fields.extend(_lowered_fields(annotation))
        if record_kind is RecordKind.NAMED_TUPLE:
            return [
                inner(item) if inner else item
                for item, (_, _, inner) in zip(value, fields, strict=True)
            ]
        lowered = dict(head)
        for name, wire, inner in fields:
            item = getattr(value, name)
            lowered[wire] = inner(item) if inner else item
        return lowered

    return lower


def _lower_typed_dict(annotation: Any) -> Lower:
    """Lower a dictionary with declared keys, in the order of their declaration."""
    fields: list[tuple[str, str, Lower | None]] = []

    def lower(value: Any) -> Any:
        if type(value) is not dict:
            raise Unencodable(f"expected {name_of(annotation)}, got {type(value).__qualname__}")
        if not fields:
            fields.extend(_lowered_fields(annotation))
        lowered = {
            name: inner(value[name]) if inner else value[name]
            for name, _, inner in fields
            if name in value
        }
        if len(lowered) < len(value):
            extra = next(name for name in value if name not in lowered)
            raise Unencodable(f"{name_of(annotation)} declares no key {shown(extra)}")
        return lowered

    return lower


def _lowered_fields(annotation: Any) -> list[tuple[str, str, Lower | None]]:
    """Return name, stored name and lowering of each field of a record."""
    return [(member.name, member.wire, lower_of(hint)) for member, hint in fields_of(annotation)]


_BY_ORIGIN: Final[dict[Any, Callable[[tuple[Any, ...]], Lower | None]]] = {
    list: lambda arguments: _lower_list(lower_of(arguments[0])),
    deque: lambda arguments: _lower_deque(lower_of(arguments[0]) if arguments else lower_any),
    set: lambda arguments: _lower_set(lower_of(arguments[0]) if arguments else lower_any),
    frozenset: lambda arguments: _lower_set(lower_of(arguments[0]) if arguments else lower_any),
    dict: lambda arguments: _lower_dict(*map(lower_of, arguments or (Any, Any))),
    tuple: _lower_tuple,
    datetime: lambda _: lower_instant,
    time: lambda _: _lower_time,
    Decimal: lambda _: _lower_decimal,
    typing.Union: _lower_union,
    types.UnionType: _lower_union,
}


def lower_of(annotation: Any) -> Lower | None:
    """Return the function that lowers values of an annotation; None if msgspec takes them unchanged."""
    reference = reference_type(annotation)
    if reference is not None:
        return reference.text_of
    if annotation is Any or annotation in (list, tuple):
        return lower_any
    if is_record(annotation):
        return _lower_record(annotation)
    lower = _BY_ORIGIN.get(typing.get_origin(annotation) or annotation)
    return lower(typing.get_args(annotation)) if lower else None


def alike(value: Any, stored: Any) -> bool:
    """Say whether a decoded value equals the encoded value, with the same types; NaN equals NaN."""
    if (
        type(value) is type(stored) and type(stored) in _SCALARS
    ):  # most values: the rest takes ten times as long
        return bool(value == stored)
    match stored:
        case float():
            both_nan = value != value and stored != stored
            same = isinstance(value, float | int) and (value == stored or both_nan)
        case list() | tuple() | deque():
            same = isinstance(value, type(stored)) and len(value) == len(stored)
            same = same and all(map(alike, value, stored))
        case dict():
            same = isinstance(value, dict) and _alike_pairs(value, stored)
        case _ if reference_type(type(stored)) is not None:  # loaded or not
            same = value == stored
        case _ if type(stored) not in _PLAIN and is_record(type(stored)):
            same = type(value) is type(stored) and all(
                alike(getattr(value, member.name), getattr(stored, member.name))
                for member in members_of(type(stored))
            )
        case set() | frozenset() | bytes():  # equal to their mutable or frozen variants
            same = value == stored or _alike_members(value, stored)
        case _:  # in UTC: == between two zones is false around a change of clocks
            same = isinstance(value, type(stored)) and lower_instant(value) == stored
    return bool(same)


def changed_part(value: Any, stored: Any) -> tuple[str, str]:
    """Say which part of a value decoding changes: its path, such as `['net'].amount`, and what its type does with it: `cannot hold 3`.

    Only for messages, of a value and a decoded value that are not `alike`.
    """
    whole = ("", _change(value, stored))
    if type(value) is not type(stored):
        return whole
    try:
        parts, kept = _parts_of(value), dict(_parts_of(stored))
        for step, part in parts:
            if step in kept and not alike(part, kept[step]):
                path, change = changed_part(part, kept[step])
                return step + path, change
    except UNENCODABLE:  # user code of a part
        pass
    return whole


def _change(part: Any, kept: Any) -> str:
    if type(part) is type(kept) and type(part) in _SCALARS:  # a type without code keeps its values
        return f"changes {shown(part)} to {shown(kept)} in code that runs at each reading, such as __post_init__"
    if type(part) in (dict, set, frozenset) and any(map(_is_nan, part)):
        return "cannot hold NaN as a key or a member"
    return f"cannot hold {shown(part)}"


def _is_nan(value: Any) -> bool:
    return type(value) is float and value != value


def _alike_pairs(value: dict[Any, Any], stored: dict[Any, Any]) -> bool:
    if value.keys() != stored.keys():
        value = {_in_utc(name): item for name, item in value.items()}
    if value.keys() != stored.keys():
        return False
    return all(alike(value[name], item) for name, item in stored.items())


def _alike_members(value: Any, stored: Any) -> bool:
    return isinstance(value, set | frozenset) and set(map(_in_utc, value)) == stored


def _in_utc(key: Any) -> Any:
    """Return a key of a dictionary, or a member of a set, with its instants in UTC as after decoding."""
    if isinstance(key, tuple):
        return tuple(map(_in_utc, key))
    return lower_instant(key)
