"""Shapes: text that describes how the entities of a class are stored.

A shape has a line with name and type for the key and for each attribute, in order. Lines for the
fields of records (dataclasses and the like) and the members of enumerations follow, at any depth. Defaults, methods and modules
do not matter. Equal shapes store equal values as equal bytes. A row begins with the tag of its shape, so
a reader notices a row of another shape.
"""

import typing
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import xxhash

from penstock.base.annotations import UNIONS
from penstock.base.record import RecordKind, fields_of, is_record, kind_of, tag_of_record
from penstock.base.schema import is_enum, name_of, reference_type

KEY_MARK: Final = ", the key"
PERSONAL_MARK: Final = " of a person"
_TAG_BITS: Final = 0x7FFFFFFF
_TAG_LOWEST: Final = 0x80000000
_PLAIN: Final[dict[Any, str]] = {
    Any: "Any",
    type(None): "None",
    list: "list[Any]",
    set: "set[Any]",
    frozenset: "frozenset[Any]",
    deque: "list[Any]",
    dict: "dict[Any, Any]",
    tuple: "tuple[Any, ...]",
}


class Shape(msgspec.Struct, frozen=True):
    """The stored shape of a class.

    Attributes:
        tag: The first element of its rows: 32 bits with the highest bit set, so it takes five bytes.
        lines: The description; the tag is a hash of it.
    """

    tag: int
    lines: tuple[str, ...]


def shape_of(
    name: str, key: tuple[str, Any], attributes: Mapping[str, Any], *, personal: bool = False
) -> Shape:
    """Return the shape of a class.

    Args:
        attributes: The attributes with their types, in order.
        personal: Whether the rows are encrypted.
    """
    describing = _Describing()
    what = f"{KEY_MARK}{PERSONAL_MARK}" if personal else KEY_MARK
    lines = [f"{key[0]}: {describing.text(key[1])}{what}"]
    lines += [
        f"{attribute}: {describing.text(annotation)}"
        for attribute, annotation in attributes.items()
    ]
    lines += describing.rest()
    digest = xxhash.xxh3_64_intdigest("\n".join((name, *lines)).encode())
    return Shape(digest & _TAG_BITS | _TAG_LOWEST, tuple(lines))


def records_of(key: Any, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records that the shape of a class describes, by their labels in its lines.

    Args:
        attributes: The attributes with their types, in order.
    """
    describing = _Describing()
    for annotation in (key, *attributes.values()):
        describing.text(annotation)
    describing.rest()
    return describing.records()


def field_place(label: str, wire: str, index: int | None) -> str:
    """Return the place of a field in the lines of a shape: `Depot.size`, or `Box[1].height`.

    Args:
        index: Its place in a record that is stored by position; None in others.
    """
    return f"{label}.{wire}" if index is None else f"{label}[{index}].{wire}"


def described(annotation: Any) -> tuple[str, ...]:
    """Return the description of a type: equal for types whose values have equal bytes."""
    describing = _Describing()
    return (describing.text(annotation), *describing.rest())


def tag_of(row: bytes) -> int | None:
    """Return the tag of a row; None if the row has no tag."""
    try:
        values = msgspec.msgpack.decode(row)
    except msgspec.MsgspecError:
        return None
    first = values[0] if isinstance(values, list) and values else None
    return first if isinstance(first, int) and first >= _TAG_LOWEST else None


def attribute_names(shape: Shape) -> tuple[str, ...]:
    """Return the names of the attributes in the order of a row, without the key."""
    names = (line.partition(": ")[0] for line in shape.lines[1:])
    return tuple(name for name in names if name.isidentifier())  # lines of records have a dot


def is_personal(shape: Shape) -> bool:
    """Say whether the rows of a shape are encrypted."""
    return shape.lines[0].endswith(PERSONAL_MARK)


class _Describing:
    """Writes types as text, and collects the records and enumerations in them."""

    def __init__(self) -> None:
        self._labels: dict[Any, str] = {}
        self._waiting: list[Any] = []

    def text(self, annotation: Any) -> str:
        """Return a type as text; the types that it consists of follow in `rest`."""
        reference: Any = reference_type(annotation)
        if reference is not None:
            return f"{reference.stored_name}({self.text(reference.key_annotation)})"
        if is_record(annotation) or is_enum(annotation):
            return self._label(annotation)
        if typing.get_origin(annotation) is not None:
            return self._composed(typing.get_origin(annotation), typing.get_args(annotation))
        return _PLAIN.get(annotation) or name_of(annotation)

    def _composed(self, origin: Any, arguments: tuple[Any, ...]) -> str:
        if origin in UNIONS:
            every = sorted(map(self.text, arguments), key=lambda text: (text == "None", text))
            return " | ".join(every)
        if origin is typing.Literal:
            return f"Literal[{', '.join(sorted(map(repr, arguments)))}]"
        inner = ["..." if part is Ellipsis else self.text(part) for part in arguments]
        name = "list" if origin is deque else origin.__name__  # they have the same bytes
        return f"{name}[{', '.join(inner)}]"

    def records(self) -> dict[str, Any]:
        """Return the records that were described, by their labels."""
        return {label: cls for cls, label in self._labels.items() if not is_enum(cls)}

    def rest(self) -> list[str]:
        """Return a line for each field and member of the collected types, at any depth."""
        lines: list[str] = []
        for cls in self._waiting:  # which grows while fields are described
            label = self._labels[cls]
            if is_enum(cls):
                members = sorted(cls.__members__.items())
                lines += [f"{label}.{name} = {member.value!r}" for name, member in members]
            else:
                lines += self._fields(cls, label)
        return lines

    def _fields(self, annotation: Any, label: str) -> list[str]:
        """Return a line for each field of a record; records with the same bytes have the same lines."""
        tag = tag_of_record(annotation)
        lines = [] if tag is None else [f"{label}.{tag[0]} = {tag[1]!r}, the tag"]
        in_a_row = kind_of(annotation) is RecordKind.NAMED_TUPLE
        for index, (member, hint) in enumerate(fields_of(annotation)):
            place = field_place(label, member.wire, index if in_a_row else None)
            optional = ", optional" if member.is_optional else ""
            lines.append(f"{place}: {self.text(hint)}{optional}")
        return lines

    def _label(self, cls: Any) -> str:
        """Return the name of a class; a second class with the same name gets a number."""
        if cls not in self._labels:
            name = _class_of(cls).__name__
            same = sum(_class_of(labelled).__name__ == name for labelled in self._labels)
            self._labels[cls] = f"{name}#{same + 1}" if same else name
            self._waiting.append(cls)
        return self._labels[cls]


def _class_of(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation
