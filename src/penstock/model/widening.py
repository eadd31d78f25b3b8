"""Widening: the changes of a type after which each stored value still has its meaning.

A widened type reads all values of the former type: `int` becomes `float`, `T` becomes `T | None`, an enumeration grows,
a record gets a field with a default, at any depth.
"""

import typing
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.base.record import (
    Field,
    RecordKind,
    default_of,
    fields_of,
    is_record,
    kind_of,
    tag_of_record,
)
from penstock.base.schema import is_enum, name_of, reference_type
from penstock.base.union import UNIONS
from penstock.model.stored_default import stored_default

_SAME_BYTES: Final = {frozenset: set, deque: list}
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
        present: The type that is declared now.
    """
    return _Comparison().narrowing(former, present)


class _Comparison:
    """Compares types; remembers pairs of records, which may contain themselves."""

    def __init__(self) -> None:
        self._seen: list[tuple[Any, Any]] = []

    def narrowing(self, former: Any, present: Any) -> str | None:
        """Return why a type cannot hold all values of a former type; see the function."""
        if former is present or (former is int and present is float):
            return None
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
        choices = _choices(present)
        for choice in _choices(former):
            if all(self.narrowing(choice, other) is not None for other in choices):
                return f"{name_of(present)} cannot hold {name_of(choice)}"
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
        in_a_row = [kind_of(cls) is RecordKind.NAMED_TUPLE for cls in (former, present)]
        if in_a_row[0] != in_a_row[1] or tag_of_record(former) != tag_of_record(present):
            return _differ(former, present)
        was, now = fields_of(former), fields_of(present)
        if in_a_row[0] and not _extends(was, now):
            return f"{name_of(present)} is stored by position: new fields come last, and none is removed"
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
        for index, (part, holder) in enumerate(zip(inside, holders, strict=True)):
            fixed = was is dict and index == 0 and part is int and holder is float
            why = "keys of a dictionary stay int" if fixed else self.narrowing(part, holder)
            if why is not None:
                return why
        return None


def _choices(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in UNIONS
    return typing.get_args(annotation) if is_union else (annotation,)


def _of_enumerations(former: Any, present: Any) -> str | None:
    values = [[member.value for member in cls.__members__.values()] for cls in (former, present)]
    return _of_values(former, present, *values)


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


def _differ(former: Any, present: Any) -> str:
    return f"{name_of(present)} cannot hold {name_of(former)}"
