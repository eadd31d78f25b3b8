"""Plans: rows of a class, keys, arguments and results, as the compiled implementation of `penstock.native` takes them.

A class has a plan if all of its attributes have types that the compiled implementation knows, and the arguments of a method
if all of its parameters have. All other rows and arguments, and each value that is not exactly of the type in the plan, are
read and written in Python. No plan runs code of a user: a dataclass with `__post_init__` has none, nor has a pydantic model.
"""

import abc
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.key_text import key_choices, key_parts
from penstock.base.record import RecordKind, fields_of, kind_of, tag_of_record
from penstock.base.schema import is_enum, reference_type
from penstock.base.stored_type import records_have_constraints
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
_encode: Final = msgspec.msgpack.Encoder().encode
_write: Final = msgspec.json.Encoder().encode
_HASHED: Final = frozenset({int, bool, str, bytes, date, datetime, time, timedelta, Decimal, UUID})
"""Types of the keys of dictionaries and of the members of sets: their hashes run no code of a user."""

_HOOKS: Final = frozenset({"__getattribute__", "__getattr__", "__del__", "__post_init__"})
"""Methods by which reading or making a record, or dropping one, would run code of a user."""

_ITERATION: Final = frozenset({"__iter__", "__len__", "__getitem__"})
_COMPARISON: Final = frozenset({"__eq__", "__hash__"})

_CODED: Final[Mapping[Any, tuple[str, Any]]] = {
    date: ("", None),
    datetime: ("tzinfo", UTC),
    time: ("tzinfo", None),
    timedelta: ("", None),
    UUID: ("int", int),
}
"""Types whose bytes msgspec makes, each with the attribute that decides whether a value needs no lowering."""

_STYLES: Final[Mapping[Any, str]] = {
    RecordKind.DATACLASS: "object",
    RecordKind.STRUCT: "struct",
    RecordKind.TYPED_DICT: "dict",
    RecordKind.NAMED_TUPLE: "named",
}
_KEY_WORDS: Final[Mapping[Any, str]] = {
    str: "text",
    int: "int",
    UUID: "uuid",
    date: "coded",
    datetime: "coded",
}
_CHOICES_MAX: Final = 64
_HASHES: Final = (enum.Enum.__hash__, int.__hash__, str.__hash__)
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


def result_plan_of(annotation: Any) -> Any:
    """Return the plan of results of a type; None if Python encodes them."""
    node = None if core is None else _node(annotation, 0, is_result=True)
    return None if core is None or node is None else core.ValuePlan(node)


def event_plan_of(annotation: Any) -> Any:
    """Return the plan of events of a type; None if Python encodes them."""
    node = None if core is None else _node(annotation, 0)
    return None if core is None or node is None else core.ValuePlan(node)


def key_plan_of(annotation: Any) -> Any:
    """Return the plan of keys of a type; None if Python reads and writes their texts."""
    if core is None or reference_type(annotation) is not None:
        return None
    return None if records_have_constraints(annotation) else _key(annotation, 0)


def _key(annotation: Any, depth: int) -> Any:
    """Return the plan of a key, or of a part of a key; None if the compiled implementation does not know the type."""
    assert core is not None, "only a compiled implementation has plans"
    if annotation in _KEY_WORDS:
        codec: Any = (None, None)
        if annotation is UUID:
            codec = (None, _decoder(UUID))
        elif _KEY_WORDS[annotation] == "coded":
            codec = (_write, msgspec.json.Decoder(annotation).decode)
        return core.KeyPlan(_KEY_WORDS[annotation], annotation, codec=codec)
    if is_enum(annotation):
        return _key_of_enum(annotation)
    return None if depth == _DEPTH_MAX else _key_of_parts(annotation, depth + 1)


def _key_of_parts(annotation: Any, depth: int) -> Any:
    assert core is not None, "only a compiled implementation has plans"
    if kind_of(annotation) is RecordKind.NAMED_TUPLE and not _is_plain_record(annotation):
        return None
    parts = key_parts(annotation)
    plans = tuple(_key(part, depth) for part in parts) if parts else (None,)
    cls = typing.get_origin(annotation) or annotation
    return None if None in plans else core.KeyPlan("parts", cls, parts=plans)


def _key_of_enum(annotation: Any) -> Any:
    assert core is not None, "only a compiled implementation has plans"
    values = key_choices(annotation)
    if not _is_plain(annotation) or not values or len(values) > _CHOICES_MAX:
        return None
    if {type(value) for value in values} not in ({int}, {str}):
        return None
    try:
        texts = [str(value).encode() for value in values]
        choices = (annotation, values, texts, map(_write, values))
        return core.KeyPlan("choice", annotation, choices=tuple(map(tuple, choices)))
    except (UnicodeEncodeError, OverflowError):
        return None  # no key can be such a value


def _node(annotation: Any, depth: int, *, is_result: bool = False) -> Any:
    """Return the node of a type; None if the compiled implementation does not know the type.

    Args:
        is_result: Whether values are lowered by their own types, so that a `TypedDict` is a dictionary.
    """
    assert core is not None, "only a compiled implementation has nodes"
    if annotation is Any or annotation in _SCALARS:
        return core.Node("any" if annotation is Any else _SCALARS[annotation])
    reference = reference_type(annotation)
    if reference is not None:
        # One without this attribute belongs to the former class of stored rows.
        return core.Node("reference", (), reference) if hasattr(reference, "unloaded") else None
    arguments = typing.get_args(annotation)
    is_record = kind_of(annotation) is not None
    if not is_record and (not arguments or typing.get_origin(annotation) is typing.Literal):
        return _coded(annotation, arguments)
    compose = _record if is_record else _compound
    return None if depth == _DEPTH_MAX else compose(annotation, depth + 1, is_result=is_result)


def _record(annotation: Any, depth: int, *, is_result: bool) -> Any:
    """Return the node of a record; None if Python reads and writes it."""
    assert core is not None, "only a compiled implementation has nodes"
    cls, style = typing.get_origin(annotation) or annotation, _STYLES.get(kind_of(annotation))
    if style is None or records_have_constraints(annotation) or not _is_plain_record(annotation):
        return None
    tag = tag_of_record(annotation)
    # Each name and value as it is in a map, without the head of the map.
    fields = [(field, _encode(field.member.wire)) for field in fields_of(annotation)]
    if is_result and style == "dict":
        fields.sort(key=lambda pair: pair[1])
    nodes = []
    for field, _ in fields:
        nodes.append(_node(field.annotation, depth, is_result=is_result))
        if nodes[-1] is None:  # also soon in a record that contains itself
            return None
    record = core.Record(
        cls,
        style,
        tuple(field.member.name for field, _ in fields),
        tuple(head for _, head in fields),
        tuple(field.member.is_optional for field, _ in fields),
        b"" if tag is None else b"".join(map(_encode, tag)),
    )
    return core.Node("named" if style == "named" else "record", tuple(nodes), record=record)


def _is_plain_record(annotation: Any) -> bool:
    """Say whether records are read and made without code of a user."""
    cls: Any = typing.get_origin(annotation) or annotation
    own = {name for base in cls.__mro__ if _is_of_user(base) for name in vars(base)}
    match kind_of(cls):
        case RecordKind.TYPED_DICT:
            return True
        case RecordKind.DATACLASS:
            is_usual = type(cls) in (type, abc.ABCMeta) and cls.__new__ is object.__new__
            return is_usual and not own & _HOOKS and all(map(_is_set, dataclasses.fields(cls)))
        case RecordKind.STRUCT:
            is_usual = type(cls) is type(msgspec.Struct) and "__new__" not in own
            return is_usual and not own & _HOOKS and not cls.__struct_config__.array_like
        case RecordKind.NAMED_TUPLE:
            known = getattr(cls.__new__, "__globals__", {}).get("_tuple_new")
            is_usual = type(cls) is type and cls.__bases__ in ((tuple,), (tuple, typing.Generic))
            return is_usual and known is not None and not own & (_HOOKS | _ITERATION)
        case _:
            return False


def _is_of_user(base: type) -> bool:
    return base.__module__ not in ("builtins", "typing", "abc", "msgspec", "msgspec._core")


def _is_set(field: "dataclasses.Field[Any]") -> bool:
    """Say whether a field is an argument: what else sets it is code of a user."""
    return field.init


def _compound(annotation: Any, depth: int, *, is_result: bool) -> Any:
    """Return the node of a type with types inside; None if the compiled implementation does not know it."""
    assert core is not None, "only a compiled implementation has nodes"
    origin, arguments, word = typing.get_origin(annotation), typing.get_args(annotation), ""
    if origin in UNIONS and len(arguments) == 2 and type(None) in arguments:
        word = "optional"
        arguments = tuple(member for member in arguments if member is not type(None))
    elif origin is dict:
        word = "dict" if _is_hashed(arguments[0]) else ""
    elif origin is tuple:
        word = "array" if arguments[-1] is Ellipsis else "tuple"
        arguments = tuple(part for part in arguments if part is not Ellipsis)
    elif origin in _ONE_TYPE:
        is_known = origin is list or _is_hashed(arguments[0])
        word = _ONE_TYPE[origin] if is_known else ""
    inside = tuple(_node(part, depth, is_result=is_result) for part in arguments) if word else ()
    return None if not word or None in inside else core.Node(word, inside)


def _is_hashed(annotation: Any) -> bool:
    """Say whether the hashes of values, and their comparison, run no code of a user."""
    if is_enum(annotation):
        return _is_plain(annotation) and annotation.__hash__ in _HASHES
    arguments = typing.get_args(annotation)
    if kind_of(annotation) is RecordKind.NAMED_TUPLE:
        if vars(typing.get_origin(annotation) or annotation).keys() & _COMPARISON:
            return False
        arguments = tuple(field.annotation for field in fields_of(annotation))
    elif typing.get_origin(annotation) is not tuple:
        return annotation in _HASHED or reference_type(annotation) is not None
    return all(part is Ellipsis or _is_hashed(part) for part in arguments)


def _coded(annotation: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the node of a type whose bytes msgspec makes without code of a user; None for other types."""
    assert core is not None, "only a compiled implementation has nodes"
    codec = None
    if annotation in _CODED:
        codec = core.Codec((annotation,), _encode, _decoder(annotation), *_CODED[annotation])
    elif (
        annotation is Decimal
    ):  # a value that is not equal to itself is left to Python, which refuses it
        codec = core.Codec((Decimal,), _encode, _decoder(Decimal), without=b"NaN")
    elif arguments and all(type(value) in (int, str) for value in arguments):
        classes = tuple({type(value): None for value in arguments})
        codec = core.Codec(classes, _encode, _decoder(annotation), is_closed=True)
    elif is_enum(annotation) and _is_plain(annotation):
        codec = core.Codec((annotation,), _encode, _decoder(annotation), is_closed=True)
    return None if codec is None else core.Node("coded", (), None, codec)


def _decoder(annotation: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(annotation).decode


def _is_plain(annotation: type[enum.Enum]) -> bool:
    """Say whether neither reading a member nor finding it by its value runs code of a user."""
    kinds = (enum.Enum, enum.IntEnum, enum.StrEnum)
    return (
        type(annotation) is enum.EnumType
        and type(annotation.__eq__)
        is types.WrapperDescriptorType  # of C, as Python's own classes have it
        and annotation.__bases__[-1] in kinds
        and all(base in (*kinds, int, str) for base in annotation.__bases__)
        and not {"_missing_", "__getattribute__", "value", "_value_"} & vars(annotation).keys()
        and all(type(member._value_) in (int, str) for member in annotation)
    )
