"""Stored classes: an entity class that is built again from its stored shape, without its source code.

The lines of a shape name each type in text. From them this module builds types whose rows are decoded and shown as
those of the original class: the same columns in SQL, and the same values. A record becomes a msgspec `Struct`, a
`NamedTuple` or a `TypedDict`, and an enumeration becomes an `Enum`. A reference becomes a `str`, the text of its key.
`list` and `list[Any]` have the same lines, and become `list[Any]`; a `deque` becomes a `list`.
Such a class has no methods and no defaults, so no transaction uses it. `model.shape` writes the lines.
"""

import ast
import collections
import enum
import keyword
import re
import types
import typing
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from penstock.base.schema import ENCODER, SCALARS, decode_reference, name_of
from penstock.errors import Unencodable
from penstock.model.entity_type import EntityType
from penstock.model.personal import PersonalType
from penstock.model.schema_version import SchemaVersion
from penstock.model.shape import KEY_MARK, PERSONAL_MARK, Shape, field_place, is_personal

NO_DEFAULTS: Final[Mapping[str, bytes]] = types.MappingProxyType({})
_TAG: Final = ", the tag"
_OPTIONAL: Final = ", optional"
_STORED: Final = "the stored schemas"
_SCALARS: Final[dict[str, Any]] = {
    "Any": Any,
    **{name_of(scalar): scalar for scalar in sorted(SCALARS, key=name_of)},
}
_COLLECTIONS: Final = {cls.__name__: cls for cls in (list, dict, tuple, set, frozenset)}
_LINE: Final = re.compile(r"(?P<label>[\w#]+)(?:\[\d+\])?\.(?P<rest>.*)", re.DOTALL)
_MEMBER: Final = re.compile(r"(?P<name>\w+) = (?P<value>.*)", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""\s*(?P<token>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+|\.\.\.|\w+(?:\#\d+)?|[\[\](),|])""",
    re.DOTALL,
)


def stored_type(name: str, shape: Shape, fields: Mapping[str, bytes] = NO_DEFAULTS) -> EntityType:
    """Return a class with the given name and shape.

    Args:
        fields: The encoded defaults of fields of records, by their places in the lines of the shape.

    Returns:
        The class. Its attributes have the types of the shape. If the lines of the shape do not determine the types, as with
    two classes that have the name of a scalar, all attributes have the type `Any`.
    """
    made = PersonalType if is_personal(shape) else EntityType
    entity_type = made(type(name, (), {}), shape.lines[0].partition(": ")[0], _STORED)
    reading = _Reading(shape, fields)
    try:
        entity_type.bind(reading.key, reading.attributes())
        entity_type.settle()
    except (ValueError, TypeError, SyntaxError, RecursionError):
        pass
    if entity_type.shape != shape:
        names = [line.partition(": ")[0] for line in shape.lines[1:] if not _LINE.fullmatch(line)]
        entity_type.bind(str, dict.fromkeys(names, Any))
        entity_type.settle(shape)
    return entity_type


def learn(entity_type: EntityType, versions: Sequence[SchemaVersion]) -> None:
    """Let a class read rows of all its versions; a new field of a record has the default of the version that has got it.

    Args:
        versions: Its versions, the oldest first; the last one is its shape.
    """
    makers: dict[int, EntityType] = {}

    def complete(version: SchemaVersion, values: dict[str, Any]) -> dict[str, Any]:
        maker = makers.get(version.shape.tag)
        if maker is None:
            maker = stored_type(entity_type.stored_name, version.shape, version.fields)
            makers[version.shape.tag] = maker
        row = ENCODER.encode((version.shape.tag, *(values[name] for name in version.attributes)))
        try:
            _, *completed = msgspec.msgpack.decode(EntityType.canonical(maker, row))
        except Unencodable:  # values of an earlier version that a later one converts
            return values
        return dict(zip(version.attributes, completed, strict=True))

    entity_type.learn(versions, complete)


class StoredReference(str):
    """A reference of a stored class: the text of the key of an entity."""

    __slots__ = ()


class _StoredReferenceType:
    """The reference type of a class that only the lines of a shape name."""

    def __init__(self, name: str, key_annotation: Any) -> None:
        self.name = self.stored_name = name
        self.key_annotation = key_annotation
        self.cls: type[StoredReference] = type(name, (StoredReference,), {"__reference__": self})

    def text_of(self, value: object) -> str:
        """Return the text of the key."""
        return str.__str__(typing.cast("str", value))

    def of_text(self, text: str) -> object:
        """Return the reference with this text."""
        return self.cls(text)


class _StoredNumbers(enum.Enum):
    """The base of enumerations of numbers: a number without a name is a combination of flags."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if type(value) is not int:
            return None
        member = object.__new__(cls)
        member._name_, member._value_ = str(value), value
        return member


# Functional forms, whose names are known only at run time; type checkers want them as literals.
_named_tuple: Final[Any] = collections.namedtuple
_typed_dict: Final[Any] = typing.TypedDict
_enum: Final[Any] = enum.Enum
_numbers: Final[Any] = _StoredNumbers


class _Reading:
    """The types that the lines of one shape describe."""

    def __init__(self, shape: Shape, fields: Mapping[str, bytes]) -> None:
        self._shape = shape
        self._fields = fields
        self._own: list[tuple[str, str]] = []  # name and type of the key and of each attribute
        self._lines: dict[str, list[str]] = {}  # the lines of each record and enumeration
        for line in shape.lines:
            match = _LINE.fullmatch(line)
            name, _, text = line.partition(": ")
            if match is None:
                self._own.append((name, text))
            else:
                self._lines.setdefault(match["label"], []).append(line)
        self._ranks = {label: rank for rank, label in enumerate(self._lines, 1)}
        self._made: dict[str, Any] = {}
        self._references: dict[str, Any] = {}

    @property
    def key(self) -> Any:
        return self.type_of(self._own[0][1].removesuffix(PERSONAL_MARK).removesuffix(KEY_MARK))

    def attributes(self) -> dict[str, Any]:
        """Return the types of the attributes, in order."""
        return {name: self.type_of(text) for name, text in self._own[1:]}

    def type_of(self, text: str) -> Any:
        """Return the type that a text names.

        Raises:
            ValueError: The text is not a type.
        """
        return _TypeText(text, self).read()

    def rank(self, label: str) -> int:
        """Return the place of a record or enumeration in the order in which the class names them."""
        return self._ranks.get(label, 0)

    def reference(self, name: str, key: Any) -> Any:
        """Return the class of the references to an entity class."""
        if name not in self._references:
            self._references[name] = _StoredReferenceType(name, key).cls
        return self._references[name]

    def named(self, label: str) -> Any:
        """Return a scalar, or the record or enumeration with a label."""
        lines = self._lines.get(label)
        if label in _SCALARS and lines is None:
            return _SCALARS[label]
        if label not in self._made:
            self._make(label, lines or [])
        return self._made[label]

    def _make(self, label: str, lines: list[str]) -> None:
        """Make a record or an enumeration; a record may contain itself, so its fields get types last."""
        name = label.partition("#")[0]
        rests = [line.removeprefix(label) for line in lines]
        in_a_row = any(rest.startswith("[") for rest in rests)
        rests = [rest.partition(".")[2] for rest in rests]
        tag = ""
        if rests and rests[0].endswith(_TAG):
            tag = rests.pop(0).removesuffix(_TAG)
        elif rests and _MEMBER.fullmatch(rests[0]):
            self._made[label] = _enumeration(name, rests)
            return
        texts = dict(_field_of(rest) for rest in rests)
        optional = [wire for wire, text in texts.items() if text.endswith(_OPTIONAL)]
        cls: Any
        if in_a_row:
            cls = _named_tuple(name, list(texts))
            python_names = dict(zip(texts, texts, strict=True))
        elif optional:
            keys = {wire: typing.NotRequired[Any] if wire in optional else Any for wire in texts}
            cls = _typed_dict(name, keys)
            python_names = dict(zip(texts, texts, strict=True))
        else:
            python_names = {wire: _python_name(wire, i) for i, wire in enumerate(texts)}
            places = {
                python: field_place(label, wire, None) for wire, python in python_names.items()
            }
            defaults = {python: self._fields.get(place) for python, place in places.items()}
            cls = _struct(name, python_names, tag, defaults)
        self._made[label] = cls
        cls.__annotations__ = {
            python_names[wire]: self.type_of(text.removesuffix(_OPTIONAL))
            for wire, text in texts.items()
        }
        if in_a_row and self._fields:
            self._add_defaults(cls, label, texts)

    def _add_defaults(self, cls: Any, label: str, texts: Mapping[str, str]) -> None:
        """Give a record that is stored by position the defaults of its last fields.

        msgspec keeps the defaults that a record has at its first use, and the record may be in its own default. So the
        defaults are values of other classes with the same lines.
        """
        others = _Reading(self._shape, NO_DEFAULTS)
        defaults: dict[str, Any] = {}
        for index, (wire, text) in reversed(list(enumerate(texts.items()))):
            encoded = self._fields.get(field_place(label, wire, index))
            if encoded is None:
                break
            defaults[wire] = _decoded(others.type_of(text), encoded)
        ordered = dict(reversed(defaults.items()))
        cls._field_defaults = ordered
        cls.__new__.__defaults__ = tuple(ordered.values())


def _field_of(rest: str) -> tuple[str, str]:
    wire, _, text = rest.partition(": ")
    return wire, text


def _python_name(wire: str, index: int) -> str:
    """Return the name of a field in Python; a stored name can be any text."""
    usable = wire.isidentifier() and not keyword.iskeyword(wire) and not wire.startswith("_")
    return wire if usable else f"_field_{index}"


def _struct(
    name: str, python_names: dict[str, str], tag: str, defaults: Mapping[str, bytes | None]
) -> type:
    """Make a record whose values are stored by name.

    Args:
        python_names: The name of each field in Python, by its stored name.
        tag: The field and the value that mark the record, as in its shape; empty without a mark.
        defaults: The encoded default of each field, by its name in Python; None without a default.
    """
    made: list[type] = []

    def field_of(python_name: str) -> tuple[str, Any, Any]:
        encoded = defaults[python_name]
        if encoded is None:
            return python_name, Any, msgspec.NODEFAULT
        make = partial(_default, made, python_name, encoded)
        return python_name, Any, msgspec.field(default_factory=make)

    tag_field, _, tag_value = tag.partition(" = ")
    struct = msgspec.defstruct(
        name,
        [field_of(python_name) for python_name in python_names.values()],
        rename={python_name: wire for wire, python_name in python_names.items()},
        tag_field=tag_field or None,
        tag=ast.literal_eval(tag_value) if tag else None,
        frozen=True,
        kw_only=True,
    )
    made.append(struct)
    return struct


def _default(made: list[type], name: str, encoded: bytes) -> Any:
    """Return the default of a field of a record that has its types now."""
    return _decoded(made[0].__annotations__[name], encoded)


def _decoded(annotation: Any, encoded: bytes) -> Any:
    return msgspec.msgpack.decode(encoded, type=annotation, dec_hook=decode_reference)


def _enumeration(name: str, lines: list[str]) -> type:
    members: list[tuple[str, Any]] = []
    for line in lines:
        match = _MEMBER.fullmatch(line)
        if match is None:
            raise ValueError(line)
        members.append((match["name"], ast.literal_eval(match["value"])))
    are_numbers = all(type(value) is int for _, value in members)
    made: type = (_numbers if are_numbers else _enum)(name, members)
    return made


class _TypeText:
    """Reads one type from its text: `dict[str, list[Item(str)] | None]`."""

    def __init__(self, text: str, reading: _Reading) -> None:
        self._reading = reading
        self._tokens: list[str] = []
        self._rank = 0  # the highest rank of a label so far
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(text)
            self._tokens.append(match["token"])
            place = match.end()
        self._tokens.reverse()

    def read(self) -> Any:
        """Return the type."""
        annotation = self._union()
        if self._tokens:
            raise ValueError(self._tokens[-1])
        return annotation

    def _take(self, expected: str = "") -> str:
        token = self._tokens.pop() if self._tokens else ""
        if not token or (expected and token != expected):
            raise ValueError(token)
        return token

    def _has(self, token: str) -> bool:
        return bool(self._tokens) and self._tokens[-1] == token

    def _union(self) -> Any:
        """Read a union, whose members are in alphabetical order in the text.

        The original order decided which record the lines describe first, so it is restored.
        """
        members: list[tuple[int, Any]] = []
        highest = self._rank
        while True:
            self._rank = 0
            member = self._member()
            members.append((self._rank, member))
            highest = max(highest, self._rank)
            if not self._has("|"):
                break
            self._take("|")
        self._rank = highest
        if len(members) == 1:
            return members[0][1]
        ordered = tuple(member for _, member in sorted(members, key=lambda ranked: ranked[0]))
        return typing.Union[ordered]  # noqa: UP007 -- the members are known only now

    def _member(self) -> Any:
        name = self._take()
        if name == "Literal":
            return typing.Literal[tuple(map(ast.literal_eval, self._words()))]
        if name in _COLLECTIONS and self._has("["):
            return types.GenericAlias(_COLLECTIONS[name], tuple(self._arguments()))
        if self._has("("):
            self._take("(")
            key = self._union()
            self._take(")")
            return self._reading.reference(name, key)
        self._rank = max(self._rank, self._reading.rank(name))
        return self._reading.named(name)

    def _words(self) -> list[str]:
        """Return the values of a `Literal`."""
        self._take("[")
        words = []
        while not self._has("]"):
            words.append(self._take())
            if self._has(","):
                self._take(",")
        self._take("]")
        return words

    def _arguments(self) -> list[Any]:
        """Return the arguments of a collection."""
        self._take("[")
        arguments: list[Any] = []
        while not self._has("]"):
            if self._has("..."):
                self._take()
                arguments.append(Ellipsis)
            else:
                arguments.append(self._union())
            if self._has(","):
                self._take(",")
        self._take("]")
        return arguments
