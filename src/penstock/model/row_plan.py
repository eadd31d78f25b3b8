"""Plans: rows of a class, and arguments, as the compiled implementation of `penstock.native` reads and writes them.

A class has a plan if all of its attributes have types that the compiled implementation knows, and the arguments of a method
if all of its parameters have. All other rows and arguments, and each value that is not exactly of the type in the plan, are
read and written in Python.
"""

import enum
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import WrapperDescriptorType
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.schema import ENCODER, is_enum, reference_type
from penstock.native.choice import core

_DEPTH_MAX: Final = 16
_SCALARS: Final[Mapping[Any, str]] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "str",
    bytes: "bytes",
    type(None): "none",
}
_KEYS: Final = frozenset({int, bool, str, bytes})
"""Types of the keys of dictionaries and of the members of sets: their hashes run no code of a user."""

_CODED: Final[Mapping[Any, tuple[str, Any]]] = {
    date: ("", None),
    datetime: ("tzinfo", UTC),
    time: ("tzinfo", None),
    timedelta: ("", None),
    UUID: ("int", int),
}
"""Types whose bytes msgspec makes, each with the attribute that decides whether a value needs no lowering."""

_ONE_TYPE: Final[Mapping[Any, str]] = {list: "list", set: "set", frozenset: "frozenset"}


def row_plan_of(entity_type: Any) -> Any:
    """Return the plan of a class whose shape is settled; None if Python reads and writes its rows."""
    if core is None or entity_type.personal or entity_type.has_constraints:
        return None
    nodes = [_node(annotation, 0) for annotation in entity_type.attributes.values()]
    if None in nodes:
        return None
    return core.RowPlan(
        entity_type, entity_type.row_head, tuple(entity_type.attributes), tuple(nodes)
    )


def arguments_plan_of(annotations: Iterable[Any]) -> Any:
    """Return the plan of positional arguments of these types; None if Python reads them."""
    if core is None:
        return None
    nodes = tuple(_node(annotation, 0) for annotation in annotations)
    return None if None in nodes else core.ArgumentsPlan(nodes)


def _node(annotation: Any, depth: int) -> Any:
    """Return the node of a type; None if the compiled implementation does not know the type."""
    assert core is not None, "only a compiled implementation has nodes"
    if annotation in _SCALARS:
        return core.Node(_SCALARS[annotation])
    reference = reference_type(annotation)
    if (
        reference is not None
    ):  # one without this attribute belongs to the former class of stored rows
        return core.Node("reference", (), reference) if hasattr(reference, "unloaded") else None
    arguments = typing.get_args(annotation)
    if not arguments or typing.get_origin(annotation) is typing.Literal:
        return _coded(annotation, arguments)
    return None if depth == _DEPTH_MAX else _compound(annotation, arguments, depth + 1)


def _compound(annotation: Any, arguments: tuple[Any, ...], depth: int) -> Any:
    """Return the node of a type with types inside; None if the compiled implementation does not know it."""
    assert core is not None, "only a compiled implementation has nodes"
    origin, word = typing.get_origin(annotation), ""
    if origin in UNIONS and len(arguments) == 2 and type(None) in arguments:
        word = "optional"
        arguments = tuple(member for member in arguments if member is not type(None))
    elif origin is dict:
        word = "dict" if arguments[0] in _KEYS else ""
    elif origin is tuple:
        word = "array" if arguments[-1] is Ellipsis else "tuple"
        arguments = tuple(part for part in arguments if part is not Ellipsis)
    elif origin in _ONE_TYPE:
        is_known = origin is list or arguments[0] in _KEYS
        word = _ONE_TYPE[origin] if is_known else ""
    inside = tuple(_node(part, depth) for part in arguments) if word else (None,)
    return None if None in inside else core.Node(word, inside)


def _coded(annotation: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the node of a type whose bytes msgspec makes without code of a user; None for other types."""
    assert core is not None, "only a compiled implementation has nodes"
    codec = None
    if annotation in _CODED:
        codec = core.Codec((annotation,), ENCODER.encode, _decoder(annotation), *_CODED[annotation])
    elif annotation is Decimal:
        codec = core.Codec((Decimal,), _encode_decimal, _decoder(Decimal))
    elif arguments and all(type(value) in (int, str) for value in arguments):
        classes = tuple({type(value): None for value in arguments})
        codec = core.Codec(classes, ENCODER.encode, _decoder(annotation), is_closed=True)
    elif is_enum(annotation) and _is_plain(annotation):
        codec = core.Codec((annotation,), ENCODER.encode, _decoder(annotation), is_closed=True)
    return None if codec is None else core.Node("coded", (), None, codec)


def _decoder(annotation: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(annotation).decode


def _encode_decimal(value: Decimal) -> bytes:
    """Encode a number; a value that is not equal to itself is left to Python, which refuses it."""
    if value.is_nan():
        raise ValueError
    return ENCODER.encode(value)


def _is_plain(annotation: type[enum.Enum]) -> bool:
    """Say whether neither reading a member nor finding it by its value runs code of a user."""
    kinds = (enum.Enum, enum.IntEnum, enum.StrEnum)
    return (
        type(annotation) is enum.EnumType
        and type(annotation.__eq__)
        is WrapperDescriptorType  # of C, as Python's own classes have it
        and annotation.__bases__[-1] in kinds
        and all(base in (*kinds, int, str) for base in annotation.__bases__)
        and not {"_missing_", "__getattribute__", "value", "_value_"} & vars(annotation).keys()
        and all(type(member._value_) in (int, str) for member in annotation)
    )
