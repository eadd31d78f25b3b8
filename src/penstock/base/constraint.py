"""Constraints: the limits that `Annotated` adds to a type.

msgspec enforces `Meta`, such as `Annotated[str, Meta(min_length=2)]`, where it decodes a value; pydantic enforces the
constraints of the fields of a model. Texts and objects that mean nothing to a validator are documentation. Constraints of other
libraries would be accepted and not be enforced, so they are refused.
"""

import re
import typing
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.record import RecordKind, constraints_in, kind_of, record_hints, simplified

_LIBRARIES: Final = ("annotated_types", "pydantic", "pydantic_core", "beartype", "typeguard")
_ALTERNATIVES: Final = {
    "Gt": "Meta(gt=…)",
    "Ge": "Meta(ge=…)",
    "Lt": "Meta(lt=…)",
    "Le": "Meta(le=…)",
    "Interval": "Meta(ge=…, le=…)",
    "MultipleOf": "Meta(multiple_of=…)",
    "MinLen": "Meta(min_length=…)",
    "MaxLen": "Meta(max_length=…)",
    "Len": "Meta(min_length=…, max_length=…)",
    "FieldInfo": "Meta(ge=…, min_length=…, pattern=…)",
    "StringConstraints": "Meta(min_length=…, pattern=…)",
}
_MINE: Final = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")


def has_constraints(annotation: Any) -> bool:
    """Say whether a type has a constraint of msgspec, at any depth."""
    if constraints_in(annotation):
        return True
    is_literal = typing.get_origin(annotation) is typing.Literal
    return not is_literal and any(map(has_constraints, typing.get_args(annotation)))


def without_constraints(annotation: Any) -> Any:
    """Return a type without its constraints; a type alias that contains itself stays, and `complaints_of` names it."""
    try:
        return simplified(annotation)
    except RecursionError:
        return annotation


def constraint_complaints(annotation: Any, *, in_model: bool = False) -> list[str]:
    """Return the reasons why constraints of a type would not be enforced; empty without such a reason.

    Args:
        in_model: Whether it is the type of a field of a pydantic model, where pydantic enforces constraints.
    """
    added = list(_added_to(annotation))
    if in_model:
        limits = [each for each in added if isinstance(each, msgspec.Meta) and _limits_in(each)]
        return [
            f"pydantic does not enforce {each!r}; write Field({_limits_in(each)})"
            for each in limits
        ]
    return [
        f"{_text_of(each)} is not enforced; {_remedy_for(each)}"
        for each in added
        if _is_foreign(each)
    ]


def constrained_fields(annotation: Any) -> dict[str, Any]:
    """Return the types of the fields of a record as they are written."""
    cls = typing.get_origin(annotation) or annotation
    if kind_of(cls) is not RecordKind.PYDANTIC:
        return record_hints(annotation)
    return {
        name: typing.Annotated[(field.annotation, *field.metadata)]
        if field.metadata
        else field.annotation
        for name, field in cls.model_fields.items()
    }


def constraint_text(annotation: Any) -> str:
    """Return the constraints of a type, each with its place, also in records: `[].pieces: ge=1`; empty without any."""
    places = _limits_at(annotation, "", [])
    return ", ".join({f"{path}: {limits}".removeprefix(": "): None for path, limits in places})


def _limits_at(annotation: Any, path: str, seen: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield places and their limits; `seen` are the records around the place."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal or annotation in seen:
        return
    if origin is typing.Annotated:
        texts = filter(None, map(_limit_text, annotation.__metadata__))
        yield from ((path, text) for text in texts)
        arguments = arguments[:1]
    elif kind_of(annotation) is not None:
        for name, hint in constrained_fields(annotation).items():
            inner = simplified(hint, annotation, constrained=True)
            # Of a pydantic model, whose limits are no constraints of msgspec.
            kept = hint if typing.get_origin(hint) is typing.Annotated else inner
            yield from _limits_at(kept, f"{path}.{name}", [*seen, annotation])
        return
    inside = path if origin in (typing.Annotated, *UNIONS) else f"{path}[]"
    for part in arguments:
        yield from _limits_at(part, inside, seen)


def _limit_text(added: Any) -> str:
    """Return the text of a constraint of msgspec, or of one that pydantic enforces in a model; empty for other objects."""
    if isinstance(added, msgspec.Meta):
        return _limits_in(added)
    is_limit = type(added).__module__ == "annotated_types" or "Metadata" in type(added).__name__
    return repr(added) if is_limit else ""


def _added_to(annotation: Any) -> Iterator[Any]:
    """Yield the objects that `Annotated` adds to a type, at any depth, also behind the names of types."""
    if isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    origin = typing.get_origin(annotation) or annotation
    if type(origin).__name__ == "TypeAliasType":
        yield from _added_to(origin.__value__)
    if typing.get_origin(annotation) is typing.Annotated:
        yield from annotation.__metadata__
        annotation = annotation.__origin__
        yield from _added_to(annotation)
    elif typing.get_origin(annotation) is not typing.Literal:
        for part in typing.get_args(annotation):
            yield from _added_to(part)


def _is_foreign(added: Any) -> bool:
    if isinstance(added, FunctionType | re.Pattern | slice):
        return True
    return type(added).__module__.partition(".")[0] in _LIBRARIES


def _text_of(added: Any) -> str:
    if isinstance(added, FunctionType):
        return f"the function {added.__name__} in Annotated"
    return f"{added!r} in Annotated"


def _remedy_for(added: Any) -> str:
    known = _ALTERNATIVES.get(type(added).__name__)
    return f"use msgspec.{known}" if known else "check the value in the method"


def _limits_in(meta: msgspec.Meta) -> str:
    limits = {name: getattr(meta, name) for name in _MINE}
    return ", ".join(f"{name}={value!r}" for name, value in limits.items() if value is not None)
