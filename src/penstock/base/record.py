"""Records: classes with named fields that an application may store and send.

A record is a dataclass, a `NamedTuple`, a `TypedDict`, a msgspec `Struct` or a pydantic model. Each is
stored as a map from field names to values; a `NamedTuple` is stored as an array of its values. This module
tells other modules the fields, so that they need not know the kinds. `lowering` encodes records.
`schema` decodes pydantic models; msgspec decodes the others.
"""

import dataclasses
import sys
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.annotations import UNIONS, annotations_of
from penstock.base.class_caches import cached_by_class

_TYPES: Final = "__penstock_types__"
_WRAPPERS: Final = (typing.Annotated, typing.Required, typing.NotRequired)


class RecordKind(Enum):
    """The kinds of records."""

    DATACLASS = "dataclass"
    NAMED_TUPLE = "NamedTuple"
    TYPED_DICT = "TypedDict"
    STRUCT = "msgspec Struct"
    PYDANTIC = "pydantic model"


class RecordMember(NamedTuple):
    """A field of a record, without its type.

    Attributes:
        wire: The name in stored maps, in JSON and in SQL; a `Struct` can rename its fields.
        has_default: Whether a value may be left out when a record is decoded.
        is_optional: Whether a stored record may lack the field: a key of a `TypedDict` that is not required.
    """

    name: str
    wire: str
    has_default: bool
    is_optional: bool = False


class Field(NamedTuple):
    """A field of a record, with its type."""

    member: RecordMember
    annotation: Any


def kind_of(annotation: Any) -> RecordKind | None:
    """Return the kind of a record's class, also of a generic class with arguments; None for other types."""
    cls: Any = typing.get_origin(annotation) or annotation
    return _kind(cls) if isinstance(cls, type) else None


@cached_by_class
def _kind(cls: Any) -> RecordKind | None:
    if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):  # also typing_extensions' own
        return RecordKind.TYPED_DICT
    if dataclasses.is_dataclass(cls):
        return RecordKind.DATACLASS
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return RecordKind.NAMED_TUPLE
    if issubclass(cls, msgspec.Struct):
        return RecordKind.STRUCT
    return RecordKind.PYDANTIC if is_pydantic(cls) else None


def is_pydantic(cls: type) -> bool:
    """Say whether a class is a pydantic model. pydantic is optional: it is never imported here."""
    pydantic: Any = sys.modules.get("pydantic.main")
    model = getattr(pydantic, "BaseModel", None)
    return model is not None and issubclass(cls, model)


def is_record(annotation: Any) -> bool:
    """Say whether an annotation is a record."""
    return kind_of(annotation) is not None


def members_of(annotation: Any) -> tuple[RecordMember, ...]:
    """Return the fields of a record in the order in which they are stored."""
    cls: Any = typing.get_origin(annotation) or annotation
    return _members(cls)


@cached_by_class
def _members(cls: Any) -> tuple[RecordMember, ...]:
    match kind_of(cls):
        case RecordKind.DATACLASS:
            missing = dataclasses.MISSING
            return tuple(
                RecordMember(
                    field.name,
                    field.name,
                    field.default is not missing or field.default_factory is not missing,
                )
                for field in dataclasses.fields(cls)
            )
        case RecordKind.NAMED_TUPLE:
            return tuple(
                RecordMember(name, name, name in cls._field_defaults) for name in cls._fields
            )
        case RecordKind.TYPED_DICT:
            needed = _required_keys(cls)
            return tuple(
                RecordMember(name, name, name not in needed, name not in needed)
                for name in annotations_of(cls)
            )
        case RecordKind.STRUCT:
            return tuple(
                RecordMember(field.name, field.encode_name, not field.required)
                for field in msgspec.structs.fields(cls)
            )
        case RecordKind.PYDANTIC:
            fields = cls.model_fields.items()
            return tuple(
                RecordMember(name, name, not field.is_required()) for name, field in fields
            )
        case _:
            raise TypeError(f"{cls!r} is not a record")


def _required_keys(cls: Any) -> frozenset[str]:
    """Return the keys that a `TypedDict` requires.

    Python itself does not see `Required` and `NotRequired` in annotations that are text, as below
    `from __future__ import annotations`.
    """
    marked: dict[str, list[Any]] = {}
    for name, hint in _resolved(cls).items():
        marked[name] = marks = []
        while typing.get_origin(hint) in _WRAPPERS:
            marks.append(typing.get_origin(hint))
            hint = typing.get_args(hint)[0]
    return frozenset(
        name
        for name, marks in marked.items()
        if typing.Required in marks
        or (name in cls.__required_keys__ and typing.NotRequired not in marks)
    )


def default_of(annotation: Any, name: str) -> Any:
    """Return the default value of a field of a record that has one; a factory makes a new value."""
    cls: Any = typing.get_origin(annotation) or annotation
    match kind_of(cls):
        case RecordKind.DATACLASS:
            field = cls.__dataclass_fields__[name]
            made = field.default is dataclasses.MISSING
            return field.default_factory() if made else field.default
        case RecordKind.STRUCT:
            (member,) = (each for each in msgspec.structs.fields(cls) if each.name == name)
            made = member.default is msgspec.NODEFAULT
            return member.default_factory() if made else member.default
        case RecordKind.PYDANTIC:
            return cls.model_fields[name].get_default(call_default_factory=True)
        case _:
            return cls._field_defaults[name]


def factory_of(annotation: Any, name: str) -> Callable[..., Any] | None:
    """Return the factory of the default of a record's field; None if it has none."""
    cls: Any = typing.get_origin(annotation) or annotation
    missing: tuple[Any, ...] = (dataclasses.MISSING, msgspec.NODEFAULT)
    factory: Any = None
    match kind_of(cls):
        case RecordKind.DATACLASS:
            factory = cls.__dataclass_fields__[name].default_factory
        case RecordKind.STRUCT:
            fields = {each.name: each for each in msgspec.structs.fields(cls)}
            factory = fields[name].default_factory
        case RecordKind.PYDANTIC:
            factory = cls.model_fields[name].default_factory
        case _:
            pass
    return None if factory in missing else factory


def is_frozen(cls: Any) -> bool:
    """Say whether the fields of a record's class cannot be assigned."""
    match kind_of(cls):
        case RecordKind.DATACLASS:
            return bool(cls.__dataclass_params__.frozen)
        case RecordKind.STRUCT:
            return bool(cls.__struct_config__.frozen)
        case RecordKind.PYDANTIC:
            return bool(cls.model_config.get("frozen"))
        case record_kind:
            return record_kind is RecordKind.NAMED_TUPLE


def tag_of_record(cls: Any) -> tuple[str, str | int] | None:
    """Return the name and value of the tag that a `Struct` adds to its stored form; None without a tag."""
    cls = typing.get_origin(cls) or cls
    if kind_of(cls) is not RecordKind.STRUCT or cls.__struct_config__.tag is None:
        return None
    return cls.__struct_config__.tag_field, cls.__struct_config__.tag


def fields_of(annotation: Any) -> list[Field]:
    """Return the fields of a record with their types.

    The types are `simplified`, and a generic class has its arguments in place of its variables. A field without an
    annotation, as in `collections.namedtuple`, is `Any`.

    Raises:
        NameError: A field has an unknown type.
    """
    hints = record_hints(annotation)
    return [
        Field(member, simplified(hints.get(member.name, Any), annotation))
        for member in members_of(annotation)
    ]


def record_hints(annotation: Any) -> dict[str, Any]:
    """Return the types of the fields; variables of a generic class are replaced by its arguments."""
    cls = typing.get_origin(annotation) or annotation
    if kind_of(cls) is RecordKind.PYDANTIC:
        return {name: field.annotation for name, field in cls.model_fields.items()}
    hints: dict[str, Any] = {}
    for owner, bound in variables_of(annotation).items():
        own = annotations_of(owner)
        resolved = _resolved(owner) if own else {}
        hints |= {name: bind(resolved[name], bound) for name in own}
    return hints


def variables_of(annotation: Any) -> dict[Any, dict[Any, Any]]:
    """Return each class in the lineage of a class, bases first, with the types that its type variables stand for.

    Of `class Numbers(Holder[int])`, where `class Holder(Generic[T])`, the result is `{Holder: {T: int}, Numbers: {}}`. A
    variable without a type has its default, or is missing.
    """
    lineage: dict[Any, dict[Any, Any]] = {}
    _find_variables(annotation, lineage)
    return lineage


def _find_variables(annotation: Any, lineage: dict[Any, dict[Any, Any]]) -> None:
    cls = typing.get_origin(annotation) or annotation
    variables, arguments = getattr(cls, "__parameters__", ()), typing.get_args(annotation)
    bound = (
        dict(zip(variables, arguments, strict=False)) if len(variables) >= len(arguments) else {}
    )
    for variable in variables[len(arguments) :]:
        if getattr(variable, "has_default", lambda: False)():  # PEP 696
            bound[variable] = bind(variable.__default__, bound)
    for base in reversed(vars(cls).get("__orig_bases__", cls.__bases__)):
        base_class = typing.get_origin(base) or base
        if isinstance(base_class, type) and base_class not in (object, typing.Generic):
            _find_variables(bind(base, bound), lineage)
    lineage[cls] = bound


def _resolved(cls: Any) -> dict[str, Any]:
    """Return the types that the annotations of a record's class name, as they were when they had values first."""
    known: dict[str, Any] | None = vars(cls).get(_TYPES)
    if known is None:
        known = typing.get_type_hints(cls, include_extras=True)
        # Python looks names up in `sys.modules`. When two versions of an application are in one process, the module of
        # this name may be that of the other version, or missing. So the class keeps its types, as it does for msgspec.
        setattr(cls, _TYPES, known)
    return known


def bind(hint: Any, bound: Mapping[Any, Any]) -> Any:
    """Return a type with its variables replaced."""
    if isinstance(hint, typing.TypeVar):
        return bound.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if not variables or isinstance(hint, type) or not bound:
        return hint
    return hint[tuple(bound.get(variable, variable) for variable in variables)]


def _without_argument(variable: typing.TypeVar) -> Any:
    """Return the type of a variable that stands for no type: its default, its bound, or one of its constraints."""
    if getattr(variable, "has_default", lambda: False)():
        return variable.__default__  # type: ignore[attr-defined]
    if variable.__constraints__:
        return typing.Union[variable.__constraints__]  # noqa: UP007 -- the members are known only now
    return variable.__bound__ or Any


def simplified(annotation: Any, owner: Any = None, *, constrained: bool = False) -> Any:
    """Return an equal type without the names that only type checkers need.

    A `NewType` and a type alias become the type that they stand for, `Annotated[T, …]` becomes `T`, `None` its type,
    `Self` becomes `owner`, and a class with `__stands_for__`, which declares a part of an entity class, becomes that class.

    Args:
        owner: The class that `Self` stands for.
        constrained: Keep the constraints: `Annotated[T, Meta(…)]` stays as it is.

    Raises:
        RecursionError: A type alias contains itself.
    """
    if annotation is None:  # inside of tuple[int, None] and dict[str, None]
        return type(None)
    if constrained and (kept := constraints_in(annotation)):
        inner = simplified(typing.get_args(annotation)[0], owner, constrained=True)
        return typing.Annotated[(inner, *kept)]
    meant = _meant(annotation, owner)
    if meant is not annotation:
        return simplified(meant, owner, constrained=constrained)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if not arguments or origin is typing.Literal:
        return annotation
    inner = tuple(
        part if part is Ellipsis else simplified(part, owner, constrained=constrained)
        for part in arguments
    )
    return annotation if inner == arguments else _composed(annotation, inner)


def constraints_in(annotation: Any) -> list[msgspec.Meta]:
    """Return the constraints that `Annotated` adds to a type, without those of types inside."""
    if typing.get_origin(annotation) is not typing.Annotated:
        return []
    return [added for added in annotation.__metadata__ if isinstance(added, msgspec.Meta)]


def _meant(annotation: Any, owner: Any) -> Any:  # noqa: PLR0911 -- one line for each name
    """Return the type that a name stands for; any other type as it is."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    match annotation:
        case typing.NewType():
            return annotation.__supertype__
        case typing.TypeVar():
            return _without_argument(annotation)
        case _ if annotation is typing.Self and owner is not None:
            return owner
        case type() if hasattr(annotation, "__stands_for__"):
            return annotation.__stands_for__
        case _ if origin in _WRAPPERS:
            return arguments[0]
        case _ if origin is not None and not hasattr(annotation, "__args__"):  # typing.List
            return origin
        case _ if type(origin or annotation).__name__ == "TypeAliasType":
            value = (origin or annotation).__value__
            return value[arguments] if arguments else value
        case _:
            return annotation


def _composed(annotation: Any, inner: tuple[Any, ...]) -> Any:
    """Return a type with other arguments."""
    origin = typing.get_origin(annotation)
    if origin in UNIONS:
        return typing.Union[inner]  # noqa: UP007 -- the members are known only now
    if isinstance(annotation, types.GenericAlias) and isinstance(origin, type):
        return types.GenericAlias(origin, inner)
    return annotation.copy_with(inner) if hasattr(annotation, "copy_with") else annotation
