"""Shapes: text that describes how the entities of a class are stored.

A shape has a line with name and type for the key and for each attribute, in order. Lines for the
fields of dataclasses and the members of enumerations follow, at any depth. Defaults, methods and modules
do not matter. Equal shapes store equal values as equal bytes. A row begins with the tag of its shape, so
a reader notices a row of another shape.
"""

import dataclasses
import difflib
import enum
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import xxhash

from penstock.base.schema import is_enum, is_record, name_of, reference_type

_TAG_BITS: Final = 0x7FFFFFFF
_TAG_LOWEST: Final = 0x80000000
_PLAIN: Final[dict[Any, str]] = {
    Any: "Any",
    type(None): "None",
    list: "list[Any]",
    set: "set[Any]",
    frozenset: "frozenset[Any]",
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


def shape_of(name: str, key: tuple[str, Any], attributes: Mapping[str, Any]) -> Shape:
    """Return the shape of a class with this name, key (name and type) and attributes (in order)."""
    describing = _Describing()
    lines = [f"{key[0]}: {describing.text(key[1])}, the key"]
    lines += [
        f"{attribute}: {describing.text(annotation)}"
        for attribute, annotation in attributes.items()
    ]
    lines += describing.rest()
    digest = xxhash.xxh3_64_intdigest("\n".join((name, *lines)).encode())
    return Shape(digest & _TAG_BITS | _TAG_LOWEST, tuple(lines))


def tag_of(row: bytes) -> int | None:
    """Return the tag of a row; None if the row has no tag."""
    try:
        values = msgspec.msgpack.decode(row)
    except msgspec.MsgspecError:
        return None
    first = values[0] if isinstance(values, list) and values else None
    return first if isinstance(first, int) and first >= _TAG_LOWEST else None


def differences(stored: Mapping[str, Shape], declared: Mapping[str, Shape]) -> list[str]:
    """Return lines that show how declared classes differ from the stored classes; empty if equal."""
    lines: list[str] = []
    for name, was in stored.items():
        now = declared.get(name)
        if now is None:
            lines.append(f"{name}: entities of it are stored, and there is no such class any more")
        elif now != was:
            lines += _difference(name, was, now)
    return lines


def _difference(name: str, was: Shape, now: Shape) -> list[str]:
    if sorted(was.lines) == sorted(now.lines):
        return [f"{name}: order changed: {_names(was)} is stored, {_names(now)} is declared"]
    changes = difflib.unified_diff(was.lines, now.lines, n=0, lineterm="")
    lines = [line for line in changes if not line.startswith(("---", "+++", "@@"))]
    return [f"{name}:", *(f"  {line[0]} {line[1:]}" for line in lines)]


def _names(shape: Shape) -> str:
    return ", ".join(line.partition(":")[0] for line in shape.lines if " = " not in line)


class _Describing:
    """Writes types as text, and collects the dataclasses and enumerations in them."""

    def __init__(self) -> None:
        self._labels: dict[type, str] = {}
        self._waiting: list[type] = []

    def text(self, annotation: Any) -> str:
        """Return a type as text; the types that it consists of follow in `rest`."""
        reference: Any = reference_type(annotation)
        if reference is not None:
            return f"{reference.name}({self.text(reference.key_annotation)})"
        if is_record(annotation) or is_enum(annotation):
            return self._label(annotation)
        if typing.get_origin(annotation) is not None:
            return self._composed(typing.get_origin(annotation), typing.get_args(annotation))
        return _PLAIN.get(annotation) or name_of(annotation)

    def _composed(self, origin: Any, arguments: tuple[Any, ...]) -> str:
        if origin in (typing.Union, types.UnionType):
            every = sorted(map(self.text, arguments), key=lambda text: (text == "None", text))
            return " | ".join(every)
        if origin is typing.Literal:
            return f"Literal[{', '.join(sorted(map(repr, arguments)))}]"
        inner = ["..." if part is Ellipsis else self.text(part) for part in arguments]
        return f"{origin.__name__}[{', '.join(inner)}]"

    def rest(self) -> list[str]:
        """Return a line for each field and member of the collected types, at any depth."""
        lines: list[str] = []
        for cls in self._waiting:  # which grows while fields are described
            label = self._labels[cls]
            if issubclass(cls, enum.Enum):
                members = sorted(cls.__members__.items())
                lines += [f"{label}.{name} = {member.value!r}" for name, member in members]
                continue
            hints = typing.get_type_hints(cls)
            fields = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
            lines += [f"{label}.{field}: {self.text(hints[field])}" for field in fields]
        return lines

    def _label(self, cls: type) -> str:
        """Return the name of a class; a second class with the same name gets a number."""
        if cls not in self._labels:
            name = cls.__name__
            same = sum(labelled.__name__ == name for labelled in self._labels)
            self._labels[cls] = f"{name}#{same + 1}" if same else name
            self._waiting.append(cls)
        return self._labels[cls]
