"""Widening: the changes of a type after which each stored value still has its meaning.

A widened type reads each value of the former type as the same value: `T` becomes `T | None`, `int` becomes `int | float`,
an enumeration grows, a record gets a field with a default, at any depth. `int` does not become `float`, which rounds whole
numbers above 2**53. Members of an enumeration are compared by name and value.
"""

import typing
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.base.annotations import UNIONS
from penstock.base.lowering import lower_of
from penstock.base.record import (
    Field,
    RecordKind,
    default_of,
    fields_of,
    is_record,
    kind_of,
    tag_of_record,
)
from penstock.base.schema import ENCODER, is_enum, name_of, reason_of, reference_type

_SAME_BYTES: Final = {frozenset: set, deque: list}
ROUNDED: Final = "float would round whole numbers above 2**53"
_TOLD_MAX: Final = 5
_BARE: Final[dict[Any, tuple[Any, ...]]] = {
    list: (Any,),
    set: (Any,),
    dict: (Any, Any),
    tuple: (Any, ...),
}


def narrowing(former: Any, present: Any) -> str | None:
    """Return why a type cannot hold all values of a former type; None if it can.

    Args:
        former: The type of stored values, as the resolver returns types.
    """
    return _Comparison().narrowing(former, present)


def misreading(former: Any, present: Any) -> str | None:
    """Return why values of a former type would be read as other values; None if they are read as they are, or not at all.

    Args:
        former: The type of values that wait: arguments of requests, or events.
    """
    return _Misreading().of(former, present)


class _Comparison:
    """Compares types; remembers pairs of records, which may contain themselves."""

    def __init__(self) -> None:
        self._seen: list[tuple[Any, Any]] = []

    def narrowing(self, former: Any, present: Any) -> str | None:
        """Return why a type cannot hold all values of a former type; see the function."""
        if former is present:
            return None
        if former is int and present is float:
            return ROUNDED
        return self._comparison_of(former, present)(former, present)

    def _comparison_of(self, *both: Any) -> Callable[[Any, Any], str | None]:
        """Return the method that compares two types of this sort."""
        origins = [typing.get_origin(annotation) for annotation in both]
        if any(origin in UNIONS for origin in origins):
            return self._of_unions
        if any(reference_type(annotation) is not None for annotation in both):
            return self._of_references
        if all(map(is_record, both)):
            return self._of_records
        if all(map(is_enum, both)):
            return _of_enumerations
        return _of_literals if typing.Literal in origins else self._of_collections

    def _of_unions(self, former: Any, present: Any) -> str | None:
        """Compare types of which at least one is a union."""
        choices = choices_of(present)
        for choice in choices_of(former):
            reasons = [self.narrowing(choice, other) for other in choices]
            if None not in reasons:
                plain = [_differ(choice, other) for other in choices]
                told = next((why for why in reasons if why not in plain), None)
                return told or f"{name_of(present)} cannot hold {name_of(choice)}"
        return None

    def _of_references(self, former: Any, present: Any) -> str | None:
        was: Any = reference_type(former)
        now: Any = reference_type(present)
        if was is None or now is None or was.stored_name != now.stored_name:
            return _differ(former, present)
        return self.narrowing(was.key_annotation, now.key_annotation)

    def _of_records(self, former: Any, present: Any) -> str | None:
        if (former, present) in self._seen:
            return None
        self._seen.append((former, present))
        why = self._of_new_records(former, present)
        if why is not None:  # another member of a union may have the same records
            self._seen.remove((former, present))
        return why

    def _of_new_records(self, former: Any, present: Any) -> str | None:
        in_a_row = [kind_of(cls) is RecordKind.NAMED_TUPLE for cls in (former, present)]
        if in_a_row[0] != in_a_row[1] or tag_of_record(former) != tag_of_record(present):
            return _differ(former, present)
        was, now = fields_of(former), fields_of(present)
        if in_a_row[0] and not _extends(was, now):
            return _by_position(present)
        return self._of_fields(present, was, now)

    def _of_fields(self, present: Any, was: list[Field], now: list[Field]) -> str | None:
        before = {field.member.wire: field for field in was}
        after = {field.member.wire for field in now}
        removed = sorted(before.keys() - after)
        if removed and _refuses_unknown(present):
            return f"{name_of(present)} refuses unknown fields, and {removed[0]} is stored"
        for member, annotation in now:
            place = f"{name_of(present)}.{member.name}"
            known = before.get(member.wire)
            if (known is None or known.member.is_optional) and not member.has_default:
                return f"{place} is new and has no default"
            if known is None and not member.is_optional:
                try:
                    stored_default(partial(default_of, present, member.name), annotation)
                except ValueError as error:
                    return f"{place} is new, and its default cannot be stored: {error}"
            why = None if known is None else self.narrowing(known.annotation, annotation)
            if why is not None:
                return f"{place}: {why}"
        return None

    def _of_collections(self, former: Any, present: Any) -> str | None:
        was, inside = _taken_apart(former)
        now, holders = _taken_apart(present)
        if was is not now or len(inside) != len(holders) or not inside:
            return _differ(former, present)
        for part, holder in zip(inside, holders, strict=True):
            why = self.narrowing(part, holder)
            if why is not None:
                return why
        return None


class _Misreading:
    """Finds the values that another type reads as other values; remembers pairs of records."""

    def __init__(self) -> None:
        self._seen: list[tuple[Any, Any]] = []

    def of(self, former: Any, present: Any) -> str | None:
        """Return the reason; see `misreading`."""
        if former is present:
            return None
        if former is int and present is float:
            return ROUNDED
        return self._comparison_of(former, present)(former, present)

    def _comparison_of(self, *both: Any) -> Callable[[Any, Any], str | None]:
        """Return the method that compares two types of this sort."""
        if any(typing.get_origin(annotation) in UNIONS for annotation in both):
            return self._of_unions
        if all(reference_type(annotation) is not None for annotation in both):
            return self._of_references
        if all(map(is_record, both)):
            return self._of_records
        return _renumbered if all(map(is_enum, both)) else self._of_parts

    def _of_unions(self, former: Any, present: Any) -> str | None:
        choices = choices_of(present)
        for choice in choices_of(former):
            if any(narrowing(choice, other) is None for other in choices):
                continue
            reasons = (self.of(choice, other) for other in choices)
            why = next(filter(None, reasons), None)
            if why is not None:
                return why
        return None

    def _of_references(self, former: Any, present: Any) -> str | None:
        was: Any = reference_type(former)
        now: Any = reference_type(present)
        if was.stored_name != now.stored_name:
            return f"references to {was.name} would be read as references to {now.name}"
        return self.of(was.key_annotation, now.key_annotation)

    def _of_records(self, former: Any, present: Any) -> str | None:
        if (former, present) in self._seen:
            return None
        self._seen.append((former, present))
        was, now = fields_of(former), fields_of(present)
        kinds = [kind_of(annotation) for annotation in (former, present)]
        if RecordKind.NAMED_TUPLE in kinds:
            if kinds[0] is not kinds[1]:
                return None  # an array is no map
            if not _extends(was, now) and not _extends(now, was):
                return _by_position(present)
        after = {field.member.wire: field.annotation for field in now}
        for member, annotation in was:
            why = self.of(annotation, after[member.wire]) if member.wire in after else None
            if why is not None:
                return f"{name_of(present)}.{member.name}: {why}"
        return None

    def _of_parts(self, former: Any, present: Any) -> str | None:
        was, inside = _taken_apart(former)
        now, holders = _taken_apart(present)
        if not inside or not holders or (was is dict) != (now is dict):
            return None
        if now is set and was is not set:
            return f"equal elements of {name_of(former)} would become one in {name_of(present)}"
        width = max(len(_elements(inside)), len(_elements(holders)))
        pairs = zip(_elements(inside, width), _elements(holders, width), strict=False)
        return next(filter(None, (self.of(*pair) for pair in pairs)), None)


def _elements(inside: tuple[Any, ...], width: int = 1) -> tuple[Any, ...]:
    """Return the types of the first elements of a collection whose arguments are given."""
    if len(inside) == 1 or inside[-1] is Ellipsis:  # all elements have one type
        return (inside[0],) * width
    return inside


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; a type that is no union is its only member."""
    is_union = typing.get_origin(annotation) in UNIONS
    return typing.get_args(annotation) if is_union else (annotation,)


def _of_enumerations(former: Any, present: Any) -> str | None:
    values = [[member.value for member in cls.__members__.values()] for cls in (former, present)]
    return _of_values(former, present, *values) or _renumbered(former, present)


def _renumbered(former: Any, present: Any) -> str | None:
    """Return the members whose stored values have other names, or whose names have other values; None without any."""
    was, now = _values_of(former), _values_of(present)
    names = {value: name for name, value in reversed(now.items())}
    kept = {value for name, value in was.items() if now.get(name) == value}
    told = []
    for name, value in was.items():
        if now.get(name) == value or (name not in now and (value in kept or value not in names)):
            continue  # a second name of a member may go, and decoding refuses a value without a name
        then = f"which is {names[value]} now" if value in names else f"and is {now[name][1]!r} now"
        told.append(f"{name} is stored as {value[1]!r}, {then}")
    if not told:
        return None
    more = f" (and {len(told) - _TOLD_MAX} more)" if len(told) > _TOLD_MAX else ""
    return (
        f"{name_of(present)}: {', '.join(told[:_TOLD_MAX])}{more}: give each member the value that it had, and keep the "
        "former name of a renamed member below the new one, with the same value"
    )


def _values_of(enumeration: Any) -> dict[str, tuple[type, Any]]:
    """Return the value of each member of an enumeration by name; 1 differs from True."""
    members = enumeration.__members__.items()
    return {name: (type(member.value), member.value) for name, member in members}


def _of_literals(former: Any, present: Any) -> str | None:
    """Compare types of which at least one is a `Literal`."""
    values = typing.get_args(former) if typing.get_origin(former) is typing.Literal else None
    if values is None:
        return _differ(former, present)
    if typing.get_origin(present) is typing.Literal:
        return _of_values(former, present, values, typing.get_args(present))
    is_plain = all(type(value) is present for value in values)
    return None if is_plain else _differ(former, present)


def _of_values(former: Any, present: Any, was: Any, now: Any) -> str | None:
    """Compare the values of two enumerations or literals."""
    known = {(type(value), value) for value in now}
    missing = [value for value in was if (type(value), value) not in known]
    return f"{name_of(present)} lacks {missing[0]!r} of {name_of(former)}" if missing else None


def _extends(was: list[Field], now: list[Field]) -> bool:
    return [field.member.wire for field in now[: len(was)]] == [field.member.wire for field in was]


def _refuses_unknown(record: Any) -> bool:
    cls = typing.get_origin(record) or record
    match kind_of(record):
        case RecordKind.STRUCT:
            return bool(cls.__struct_config__.forbid_unknown_fields)
        case RecordKind.PYDANTIC:
            return bool(cls.model_config.get("extra") == "forbid")
        case _:
            return False


def _taken_apart(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the collection that a type is stored as, and its arguments."""
    cls = typing.get_origin(annotation) or annotation
    stored: Any = _SAME_BYTES.get(cls, cls)
    return stored, typing.get_args(annotation) or _BARE.get(stored, ())


def _by_position(present: Any) -> str:
    return f"{name_of(present)} is stored by position: new fields come last, and none is removed"


def _differ(former: Any, present: Any) -> str:
    return f"{name_of(present)} cannot hold {name_of(former)}"


def stored_default(make: Callable[[], Any], annotation: Any) -> bytes:
    """Return the default of an attribute or field, encoded as in a row.

    Raises:
        ValueError: The default cannot be stored; the message says why. A factory that returns different values is refused,
            because entities that are only read would change.
    """
    lower = lower_of(annotation) or (lambda value: value)
    try:
        encoded, again = (ENCODER.encode(lower(make())) for _ in range(2))
    except Exception as error:
        raise ValueError(reason_of(error)) from error
    if encoded != again:
        raise ValueError("its factory returns a different value each time")
    return encoded
