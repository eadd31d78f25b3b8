"""The SQL form of a value by a very simple rule: the twin of `snapshots.table`."""

import dataclasses
import enum
import math
import types
import typing
from collections import deque
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from tests.unit.model.rare_values import Corner, Film, Ring, Stool, Twice


class UnfitError(Exception):
    """No column can show the value: it is NULL."""


def shown(  # noqa: C901, PLR0911, PLR0912 -- a line for each kind of annotation
    annotation: Any, value: Any, *, wide: bool, inside: tuple[Any, ...] = ()
) -> Any:
    """Describe the content of a column: the dumb twin of `snapshots.table`."""

    def one(inner: Any, it: Any) -> Any:
        return shown(inner, it, wide=wide, inside=(*inside, annotation))

    if value is None:
        return None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        alone = len(members) == 1
        return shown(members[0], value, wide=wide, inside=inside) if alone else as_json(value)
    if origin is typing.Literal:
        alone = len({type(option) for option in arguments if option is not None}) == 1
        return value if alone else as_json(value)
    if annotation is Corner:
        return {"x": one(int | None, value.x), "height": one(float, value.height)}
    if annotation is Film:
        return {"title": value["title"], "year": value.get("year")}
    if annotation == Twice[int]:
        return {"first": value.first, "others": value.others}
    if annotation is Stool:
        return {"legCount": value.leg_count, "price": one(Decimal, value.price)}
    if origin in (list, set, deque) or arguments[1:] == (Ellipsis,):
        return [one(arguments[0], it) for it in value]
    if origin is tuple and arguments:
        pairs = zip(arguments, value, strict=True)
        return {f"_{number}": one(*pair) for number, pair in enumerate(pairs, 1)}
    if origin is dict:
        items = [(one(arguments[0], name), one(arguments[1], it)) for name, it in value.items()]
        return items if is_plain_key(arguments[0]) else [{"key": k, "value": v} for k, v in items]
    if dataclasses.is_dataclass(annotation) and annotation not in inside:
        hints = typing.get_type_hints(annotation)
        names = [it.name for it in dataclasses.fields(annotation)]
        return {name: one(hints[name], getattr(value, name)) for name in names}
    return scalar(annotation, value, wide=wide)


def scalar(annotation: Any, value: Any, *, wide: bool) -> Any:  # noqa: C901, PLR0911 -- as above
    match value:
        case enum.Enum():
            return value.value
        case _ if annotation is float:
            return float(value)
        case Decimal() if wide and annotation is Decimal:
            if not value.is_finite() or value.adjusted() > 25:
                raise UnfitError
            return round(value, 12)
        case timedelta() if wide:
            if abs(value) > timedelta(microseconds=(2**63 - 1) // 1_000):
                raise UnfitError
            return value
        case UUID():
            return str(value)
        case _ if annotation in (Any, Ring, tuple[()]) or dataclasses.is_dataclass(value):
            return as_json(value)
        case _:
            return value


def is_plain_key(annotation: Any) -> bool:
    return annotation is not type(None) and not typing.get_args(annotation)


def as_json(value: Any) -> str:  # noqa: C901 -- as above
    def simple(it: Any) -> Any:  # noqa: PLR0911 -- as above
        match it:
            case float() if not math.isfinite(it):
                return "NaN" if math.isnan(it) else f"{'-' if it < 0 else ''}Infinity"
            case dict() if all(isinstance(name, str) for name in it):
                return {name: simple(it[name]) for name in it}
            case dict():
                return [[simple(name), simple(one)] for name, one in it.items()]
            case list() | tuple():
                return [simple(one) for one in it]
            case bytes():
                return "eA==" if it == b"x" else it
            case datetime():
                return it.isoformat().replace("+00:00", "Z")
            case _ if dataclasses.is_dataclass(it):
                return {one.name: simple(getattr(it, one.name)) for one in dataclasses.fields(it)}
            case _:
                return it

    return msgspec.json.encode(simple(value)).decode()
