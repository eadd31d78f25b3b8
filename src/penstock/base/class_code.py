"""Code of the application that runs while values of a type are decoded or encoded.

Such code is `__post_init__`, a validator of pydantic, a factory of defaults, `_missing_` of an
enumeration, or a method such as `__hash__`. It may do anything, and may never return.
"""

import dataclasses
import enum
import typing
from types import FunctionType
from typing import Any, Final

from penstock.base.annotations import EVALUATOR
from penstock.base.record import RecordKind, fields_of, kind_of
from penstock.base.schema import reference_type

_FACTORIES: Final = (list, dict, set, frozenset, tuple)
_GENERATED: Final = "<string>"
"""The file name of functions that `dataclasses` and `NamedTuple` generate."""

_SHOWN_ONLY: Final = frozenset({"__repr__", "__str__", "__format__", "__doc__", "__rich_repr__"})
_LIBRARIES: Final = frozenset(
    {"builtins", "collections", "dataclasses", "enum", "msgspec", "re", "typing"}
)


def has_code(annotation: Any) -> bool:
    """Say whether values of an annotation run code of the application, at any depth.

    A wrong yes costs time only. Records of unknown libraries count as code of the application.
    """
    return _has_code(annotation, [])


def _has_code(annotation: Any, seen: list[Any]) -> bool:
    if annotation in seen or reference_type(annotation) is not None:
        return False
    cls = typing.get_origin(annotation) or annotation
    if cls is typing.Literal:
        return any(_of_class(type(value)) for value in typing.get_args(annotation))
    seen.append(annotation)
    if isinstance(cls, type) and _of_class(cls):
        return True
    if kind_of(annotation) is not None:
        return any(_has_code(field.annotation, seen) for field in fields_of(annotation))
    return any(
        _has_code(part, seen) for part in typing.get_args(annotation) if part is not Ellipsis
    )


def _of_class(cls: type) -> bool:
    """Say whether a class itself has such code."""
    record_kind = kind_of(cls)
    if record_kind is None and not issubclass(cls, enum.Enum):
        return False
    if record_kind is RecordKind.PYDANTIC:
        return True
    if record_kind is RecordKind.DATACLASS and _has_factory(cls):
        return True
    own = [base for base in cls.__mro__ if base.__module__ not in _LIBRARIES]
    return any(_is_hook(name, value) for base in own for name, value in vars(base).items())


def _has_factory(cls: Any) -> bool:
    missing = dataclasses.MISSING
    factories = [field.default_factory for field in dataclasses.fields(cls)]
    return any(factory is not missing and factory not in _FACTORIES for factory in factories)


def _is_hook(name: str, value: object) -> bool:
    """Say whether an attribute of a class is a method that Python or msgspec calls by itself."""
    if not name.startswith("_") or name in _SHOWN_ONLY or name == EVALUATOR:
        return False
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if not isinstance(function, FunctionType):
        return isinstance(value, property)
    is_named = name.endswith("_")
    is_generated = function.__code__.co_filename == _GENERATED
    return is_named and not is_generated and function.__module__ not in _LIBRARIES
