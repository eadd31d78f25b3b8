"""Stored values: they are read as their types say, but for the constraints in their records.

msgspec checks `Annotated[int, Meta(ge=0)]` of the field of a record wherever it decodes the record, and pydantic the limits of
a model. A value that was stored before a constraint must still be readable. So where such a type refuses stored data, twins of its
records without constraints read the data, and the records are made of the twins. A type without such records costs nothing.
"""

import typing
from collections import deque, namedtuple
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.constraint import constrained_fields, has_constraints
from penstock.base.record import (
    Field,
    RecordKind,
    default_of,
    fields_of,
    is_record,
    kind_of,
    members_of,
    simplified,
    tag_of_record,
)
from penstock.base.schema import decode_reference

_SERIES: Final = (list, tuple, set, frozenset, deque)


def stored_decoder(annotation: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    """Return the function that reads stored MessagePack of a type, which has no constraints outside of records.

    The function raises `msgspec.ValidationError` for data of another type, as `msgspec.msgpack.Decoder.decode` does.
    """
    exact = msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference).decode
    if not records_have_constraints(annotation, models=True):
        return exact
    lenient: list[_Lenient] = []

    def decode(data: bytes | msgspec.Raw) -> Any:
        try:
            return exact(data)
        except msgspec.ValidationError as error:
            if not lenient:  # most processes never need it
                lenient.append(_Lenient(annotation))
            try:
                return lenient[0].decode(data)
            except msgspec.ValidationError:
                raise error from None

    return decode


def decode_stored(data: bytes | msgspec.Raw, annotation: Any) -> Any:
    """Return one value as `stored_decoder` does."""
    try:
        return msgspec.msgpack.decode(data, type=annotation, dec_hook=decode_reference)
    except msgspec.ValidationError:
        return stored_decoder(annotation)(data)


def records_have_constraints(
    annotation: Any, seen: list[Any] | None = None, *, models: bool = False
) -> bool:
    """Say whether a record in a type, at any depth, has a field with a constraint.

    Args:
        models: Whether each pydantic model counts, which may have validators.
    """
    seen = [] if seen is None else seen
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal or annotation in seen:
        return False
    if is_record(annotation):
        seen.append(annotation)
        if models and kind_of(annotation) is RecordKind.PYDANTIC:
            return True
        hints = constrained_fields(annotation).values()
        if any(has_constraints(simplified(hint, annotation, constrained=True)) for hint in hints):
            return True
        arguments = tuple(field.annotation for field in fields_of(annotation))
    return any(records_have_constraints(part, seen, models=models) for part in arguments)


class _Lenient:
    """Reads a type without the constraints in its records."""

    def __init__(self, annotation: Any) -> None:
        self._twins: dict[Any, Any] = {}
        self._makers: dict[type, Callable[[Any], Any]] = {}
        twin = self._twin(annotation)
        self._decode = msgspec.msgpack.Decoder(twin, dec_hook=decode_reference).decode

    def decode(self, data: bytes | msgspec.Raw) -> Any:
        """Return the value; raises `msgspec.ValidationError` if it does not fit the types."""
        return self._made(self._decode(data))

    def _twin(self, annotation: Any) -> Any:
        """Return the type in which each record is its twin."""
        if is_record(annotation):
            return self._twins.get(annotation) or self._twin_of_record(annotation)
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if not arguments or origin is typing.Literal:
            return annotation
        inner = tuple(part if part is Ellipsis else self._twin(part) for part in arguments)
        if origin in UNIONS:
            return typing.Union[inner]  # noqa: UP007 -- the members are known only now
        return origin.__class_getitem__(inner)

    def _twin_of_record(self, annotation: Any) -> Any:
        fields = fields_of(annotation)
        match kind_of(annotation):
            case RecordKind.TYPED_DICT:  # a dictionary needs no maker
                twin: Any = _new_typed_dict(fields)
            case RecordKind.NAMED_TUPLE:
                # A tuple, and not a Struct: only so it can be the key of a dictionary.
                twin = _new_named_tuple(fields)
                self._makers[twin] = lambda value: self._record(annotation, fields, value)
            case _:
                twin = self._struct(annotation, fields)
                self._makers[twin] = lambda value: self._record(
                    annotation, fields, (getattr(value, name) for name in value.__struct_fields__)
                )
        self._twins[annotation] = twin
        # msgspec reads them when a decoder is made: a record in its own field is known only now.
        names = getattr(twin, "_fields", twin.__annotations__)
        twin.__annotations__ = {
            name: self._twin(field.annotation) for name, field in zip(names, fields, strict=True)
        }
        return twin

    def _struct(self, annotation: Any, fields: list[Field]) -> Any:
        tag_field, tag = tag_of_record(annotation) or (None, None)
        names = [f"field_{index}" for index in range(len(fields))]
        return msgspec.defstruct(
            "Twin",
            [
                (name, Any, msgspec.UNSET) if each.member.has_default else (name, Any)
                for name, each in zip(names, fields, strict=True)
            ],
            rename={name: each.member.wire for name, each in zip(names, fields, strict=True)},
            tag_field=tag_field,
            tag=tag,
            eq=False,  # the member of a set has a hash, whatever its fields are
            kw_only=True,
        )

    def _made(self, value: Any) -> Any:
        """Return a value with its records in place of their twins."""
        cls = type(value)
        if (make := self._makers.get(cls)) is not None:
            return make(value)
        if cls in _SERIES:
            return cls(map(self._made, value))
        if cls is dict:
            return {self._made(key): self._made(inner) for key, inner in value.items()}
        return value

    def _record(self, annotation: Any, fields: list[Field], given: Any) -> Any:
        """Return a record with given values in the order of its fields; UNSET stands for a default."""
        cls = typing.get_origin(annotation) or annotation
        values = {
            field.member.name: self._made(value)
            for field, value in zip(fields, given, strict=True)
            if value is not msgspec.UNSET
        }
        try:
            return _MAKERS[kind_of(cls)](cls, values)
        except (ValueError, TypeError) as error:  # of `__post_init__`; msgspec does the same
            raise msgspec.ValidationError(str(error)) from error


def _new_typed_dict(fields: list[Field]) -> Any:
    hints = {
        each.member.wire: typing.NotRequired[Any] if each.member.has_default else Any
        for each in fields
    }
    return typing.TypedDict("Twin", hints)  # type: ignore[operator]


def _new_named_tuple(fields: list[Field]) -> Any:
    names = [each.member.name for each in fields]
    defaults = [msgspec.UNSET for each in fields if each.member.has_default]
    return namedtuple("Twin", names, defaults=defaults)


def _dataclass(cls: Any, values: dict[str, Any]) -> Any:
    made = cls.__new__(cls)
    for name in (member.name for member in members_of(cls)):
        value = values[name] if name in values else default_of(cls, name)
        object.__setattr__(made, name, value)  # also of a frozen class
    if hasattr(cls, "__post_init__"):
        made.__post_init__()
    return made


def _model(cls: Any, values: dict[str, Any]) -> Any:
    try:
        return cls.model_validate(values, by_name=True, by_alias=False)
    except ValueError:
        return cls.model_construct(**values)


def _called(cls: Any, values: dict[str, Any]) -> Any:
    return cls(**values)


_MAKERS: Final[dict[Any, Callable[[Any, dict[str, Any]], Any]]] = {
    RecordKind.DATACLASS: _dataclass,
    RecordKind.NAMED_TUPLE: _called,
    RecordKind.STRUCT: _called,
    RecordKind.PYDANTIC: _model,
}
