"""JSON Schemas (2020-12) of an application's types, as the gateway reads and writes them.

Promises that every value in a response fits the schema of its annotation, and that a call accepts
every JSON value that fits the schema of a parameter, as far as a schema can express it. The same
application gives the same schemas in the same order. `base.schema` defines the allowed annotations.
"""

import enum
import inspect
import re
import typing
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from inspect import Parameter
from typing import Any, Final
from uuid import UUID

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.constraint import constrained_fields
from penstock.base.http import JSON
from penstock.base.json_keys import as_text, json_bytes
from penstock.base.key_text import KEY_BYTES_MAX, encode_key, key_choices, key_parts, wire_key_type
from penstock.base.lowering import lower_of
from penstock.base.record import (
    RecordKind,
    constraints_in,
    fields_of,
    is_record,
    kind_of,
    members_of,
    simplified,
    tag_of_record,
)
from penstock.base.schema import SCALARS, UNENCODABLE, reference_type
from penstock.engine.failure import code_of
from penstock.errors import Aborted
from penstock.gateway.route import reference_to
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.signature import Signature

Schema = dict[str, Any]

_ENCODE: Final = msgspec.json.Encoder(enc_hook=as_text).encode

_SIMPLE: Final[Mapping[Any, Schema]] = {
    **SCALARS,
    Any: {},
    list: {"type": "array"},
    deque: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array"},
    frozenset: {"type": "array"},
    dict: {"type": "object"},
}
_READ: Final[Mapping[Any, Schema]] = {
    **_SIMPLE,
    Decimal: {
        "anyOf": [
            {**SCALARS[Decimal], "pattern": r"^[-+]?\d+(\.\d+)?([eE][-+]?\d{1,4})?$"},
            {"type": "number"},
        ]
    },
}


def _at_most(limit: int) -> str:
    """Return a pattern of the positive numbers up to a limit, in digits."""
    digits = str(limit)
    ways = [f"[1-9][0-9]{{0,{len(digits) - 2}}}"]
    for index, digit in enumerate(digits):
        least = 0 if index else 1
        if int(digit) > least:
            rest = f"[0-9]{{{len(digits) - index - 1}}}"
            ways.append(f"{digits[:index]}[{least}-{int(digit) - 1}]{rest}")
    return "|".join([*ways, digits])


INTEGER_TEXT: Final[dict[str, Any]] = {"type": "string", "pattern": "^(0|-?[1-9][0-9]{0,17})$"}
"""Numbers that surely have 64 bits, for the keys of entities: people read this pattern."""

_ANY_INTEGER: Final[Schema] = {
    "type": "string",
    "pattern": f"^(0|{_at_most(2**64 - 1)}|-({_at_most(2**63)}))$",
}
_KEY_TEXT: Final[Mapping[Any, Schema]] = {
    int: _ANY_INTEGER,
    bool: {"type": "string", "enum": ["true", "false"]},
    float: {"type": "string"},
    bytes: _SIMPLE[bytes],
    Decimal: SCALARS[Decimal],
}
_FORMS: Final[Mapping[Any, frozenset[str]]] = {
    Any: frozenset({"text", "bytes", "json"}),
    bytes: frozenset({"bytes"}),
    datetime: frozenset({"text", "json"}),  # a time with a zone is JSON, one without is a string
}
OWN_ERROR: Final = "x-penstock-error"
"""Marks the schema of an error of the application."""

READS: Final = "Reads the newest committed epoch and is not recorded."
"""Begins what the document says of each call that reads."""

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_ANSWERED: Final = ".Answer"


_SCALARS: Final[Mapping[Any, dict[str, Any]]] = {
    int: INTEGER_TEXT,
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    UUID: {"type": "string", "format": "uuid"},
}
_EXAMPLES: Final[Mapping[Any, object]] = {
    str: "a",
    int: 1,
    date: date(2026, 1, 1),
    datetime: datetime(2026, 1, 1, tzinfo=UTC),
    UUID: UUID(int=1),
}


def key_schema(entity: EntityType) -> dict[str, Any]:
    """Return the schema of the text of a key; a reference is this text in JSON."""
    annotation = entity.key_annotation
    if entity.key_is_text:
        return {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX}
    choices = key_choices(annotation)
    if choices is not None:
        return {"type": "string", "enum": list(map(str, choices))}
    if key_parts(annotation) is not None:
        return {
            "type": "string",
            "contentMediaType": "application/json",
            "description": "A JSON array of the parts of the key, without spaces.",
            "pattern": r"^\[.*\]$",
            "maxLength": KEY_BYTES_MAX,
            "examples": [encode_key(_example(annotation), wire_key_type(annotation))],
        }
    return dict(_SCALARS[annotation])


def _example(annotation: Any) -> Any:
    """Return a key of a type, as it is in SQL."""
    parts, choices = key_parts(annotation), key_choices(annotation)
    if parts is not None:
        return tuple(map(_example, parts))
    return _EXAMPLES[annotation] if choices is None else choices[0]


def media_of(annotation: Any) -> frozenset[str]:
    """Return the possible forms of a result at an application's own path.

    The forms are `text`, `bytes` and `json`; a value that is a string in JSON is returned as text.
    """
    if (forms := _FORMS.get(annotation)) is not None:
        return forms
    inside = typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _media_of_values([member.value for member in annotation])
    if typing.get_origin(annotation) is typing.Literal:
        return _media_of_values(inside)
    if typing.get_origin(annotation) in UNIONS:
        return frozenset().union(*map(media_of, inside))
    is_text = _SIMPLE.get(annotation, {}).get("type") == "string"
    return frozenset({"text" if is_text or reference_type(annotation) is not None else "json"})


def _media_of_values(values: Iterable[object]) -> frozenset[str]:
    return frozenset("text" if isinstance(value, str) else "json" for value in values)


def docstring_of(thing: Any) -> str:
    """Return the docstring of a class or function; empty if Python generated it."""
    own = thing.__dict__.get("__doc__") if isinstance(thing, type) else thing.__doc__
    if not isinstance(own, str) or (
        isinstance(thing, type) and own.startswith(f"{thing.__name__}(")
    ):
        return ""
    return inspect.cleandoc(own)


class SchemaRegistry:
    """The schemas of one application; named types become components."""

    def __init__(self, app: App, own: Mapping[str, Schema]) -> None:
        self.components: dict[str, Schema] = dict(own)
        self._owners: dict[str, object] = dict.fromkeys(own)
        self._owners |= {
            name: entity.cls for name, entity in app.entities.items() if name not in own
        }
        for entity in app.entities.values():
            self.components[self._name_of(entity.cls)] = self._entity(entity)

    def entity(self, entity: EntityType) -> Schema:
        """Return a reference to the schema of an entity: its key and attributes."""
        return reference_to(self._name_of(entity.cls))

    def shown(self, entity: EntityType, names: tuple[str, ...]) -> Schema:
        """Return the schema of some attributes of an entity; of all if `names` is empty."""
        if not names:
            return self.entity(entity)
        properties = self._attributes(entity)
        return _object({name: properties[name] for name in names})

    def read(self, annotation: Any) -> Schema:
        """Return the schema of a value in a request."""
        return self._of(annotation, written=False)

    def written(self, annotation: Any) -> Schema:
        """Return the schema of a value in a response."""
        return self._of(annotation, written=True)

    def _of(self, annotation: Any, *, written: bool) -> Schema:
        if limits := constraints_in(annotation):
            described = self._of_type(typing.get_args(annotation)[0], written=written)
            for limit in limits:
                described |= _limited(limit, described)
            return described
        return self._of_type(annotation, written=written)

    def _of_type(self, annotation: Any, *, written: bool) -> Schema:
        simple = (_SIMPLE if written else _READ).get(annotation)
        if simple is not None:
            return dict(simple)
        entity = reference_type(annotation)
        if entity is not None:
            assert isinstance(entity, EntityType), "no other class is a reference"
            return {**key_schema(entity), "title": f"Key of {entity.name}"}
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return self._enum(annotation)
        if is_record(annotation):
            return self._record(annotation, written=written)
        return self._composed(annotation, written=written)

    def _composed(self, annotation: Any, *, written: bool) -> Schema:
        """Return the schema of an annotation with arguments in brackets."""
        origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Literal:
            return {"enum": list(inside)}
        if origin is dict:
            return self._mapping(*inside, written=written)
        schemas = [self._of(item, written=written) for item in inside if item is not Ellipsis]
        if origin in UNIONS:
            return {
                "anyOf": [item for index, item in enumerate(schemas) if item not in schemas[:index]]
            }
        if origin is tuple and Ellipsis not in inside:
            return _row(schemas, len(schemas))
        return {"type": "array", "items": schemas[0]}

    def _mapping(self, key: Any, value: Any, *, written: bool) -> Schema:
        described: Schema = {
            "type": "object",
            "additionalProperties": self._of(value, written=written),
        }
        names = self._key_text(key)
        if names != {"type": "string"}:
            described["propertyNames"] = names
        return described

    def _key_text(self, annotation: Any) -> Schema:
        """Return the schema of a dictionary's key, which is always a string in JSON."""
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return {"type": "string", "enum": [str(value.value) for value in annotation]}
        if typing.get_origin(annotation) is typing.Literal:
            return {"type": "string", "enum": [str(value) for value in typing.get_args(annotation)]}
        schema = _KEY_TEXT.get(annotation) or self._of(annotation, written=True)
        if key_parts(annotation) is not None:
            return {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
        return schema if schema.get("type") == "string" else {"type": "string"}

    def _enum(self, annotation: type[enum.Enum]) -> Schema:
        name = self._name_of(annotation)
        if name not in self.components:
            self.components[name] = _choices(annotation) | _described(annotation)
        return reference_to(name)

    def _record(self, annotation: Any, *, written: bool) -> Schema:
        name = self._name_of(annotation)
        name += _ANSWERED if written and _differs(annotation) else ""
        if name not in self.components:
            self.components[name] = {}  # a record may hold itself
            fields = fields_of(annotation)
            hints = constrained_fields(annotation)
            properties = {
                member.wire: self._of(
                    simplified(hints.get(member.name, field), annotation, constrained=True),
                    written=written,
                )
                for member, field in fields
            }
            if kind_of(annotation) is RecordKind.NAMED_TUPLE:
                least = sum(written or not member.has_default for member, _ in fields)
                described = _titled_row(properties, least)
            else:
                needed = [
                    member.wire
                    for member, _ in fields
                    if not member.has_default or (written and not member.is_optional)
                ]
                described = _object(properties, needed) | {"additionalProperties": False}
            tag = tag_of_record(annotation)
            if tag is not None:
                described = _tagged(described, *tag)
            self.components[name] = described | _described(_class_of(annotation))
        return reference_to(name)

    def _entity(self, entity: EntityType) -> Schema:
        return _object(self._attributes(entity)) | _described(entity.cls)

    def _attributes(self, entity: EntityType) -> dict[str, Schema]:
        attributes = {entity.key_name: entity.key_annotation, **entity.attributes}
        return {name: self.written(annotation) for name, annotation in attributes.items()}

    def _name_of(self, annotation: Any) -> str:
        """Return a class's name, or its full one where another class has the short one."""
        cls = _class_of(annotation)
        full = _UNSAFE.sub("_", f"{cls.__module__}.{cls.__qualname__}")
        short = cls.__name__
        for argument in typing.get_args(annotation):
            short += f"_{getattr(argument, '__name__', None) or argument}"
        choices = [_UNSAFE.sub("_", short), full, *(f"{full}_{n}" for n in range(2, 100))]
        for name in choices:
            if self._owners.setdefault(name, annotation) in (annotation,):
                return name
        raise AssertionError("a hundred classes have one full name")

    def error(self, error_type: type[Aborted]) -> Schema:
        """Return a reference to the schema of an exception that the application declares: the error in a response's body."""
        name = self._name_of(error_type)
        fixed = {"code": code_of(error_type), "kind": error_type.__name__}
        properties = {field: {"const": text} for field, text in fixed.items()}
        described = _object({**properties, "message": {"type": "string"}})
        self.components[name] = described | _described(error_type) | {OWN_ERROR: True}
        return reference_to(name)

    def arguments(self, signature: Signature, without: tuple[str, ...] = ()) -> Schema:
        """Return the schema of a call's body: an array by position, or an object by name.

        Args:
            without: Parameters from another source; the rest is then given by name only.
        """
        left = [item for item in constrained_parameters(signature) if item.name not in without]
        forms = [] if without or not _fits_position(left) else [self._by_position(left)]
        if _fits_name(left):
            forms.append(self._by_name(left))
        return forms[0] if len(forms) == 1 else {"oneOf": forms} if forms else {"not": {}}

    def _by_position(self, parameters: list[Parameter]) -> Schema:
        row = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
        rest = next(
            (parameter for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL),
            None,
        )
        least = sum(parameter.default is parameter.empty for parameter in row)
        described = _row([self.parameter(parameter) for parameter in row], least)
        if rest is not None:
            described |= {"items": self.read(rest.annotation)}
            described.pop("maxItems")
        return described | {"title": "By position"}

    def _by_name(self, parameters: list[Parameter]) -> Schema:
        named = [parameter for parameter in parameters if parameter.kind in _NAMED]
        more = next(
            (parameter for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None
        )
        needed = [parameter.name for parameter in named if parameter.default is parameter.empty]
        described = _object(
            {parameter.name: self.parameter(parameter) for parameter in named}, needed
        )
        described["additionalProperties"] = self.read(more.annotation) if more else False
        return described | {"title": "By name"}

    def parameter(self, parameter: Parameter) -> Schema:
        """Return the schema of one parameter, with its default where that says anything."""
        described = self.read(parameter.annotation)
        if any(parameter.default is each for each in (parameter.empty, None, msgspec.UNSET)):
            return described
        try:
            lower = lower_of(simplified(parameter.annotation))
            plain = lower(parameter.default) if lower else parameter.default
            value = msgspec.json.decode(json_bytes(_ENCODE, plain))
        except UNENCODABLE:  # code of the application; a description never stops a process
            return described
        return {**described, "default": value}


def constrained_parameters(signature: Signature) -> list[Parameter]:
    """Return the parameters of a signature with the constraints of their types."""
    return [
        parameter.replace(annotation=signature.constrained[name])
        for name, parameter in signature.parameters.items()
    ]


_LIMITS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "title": "title",
    "description": "description",
    "examples": "examples",
}
_SIZES: Final = {"string": "Length", "array": "Items", "object": "Properties"}


def _limited(limit: msgspec.Meta, described: Schema) -> Schema:
    """Return the keywords of a constraint."""
    given = {word: getattr(limit, name) for name, word in _LIMITS.items()}
    size = _SIZES.get(described.get("type", ""), "Length")
    given |= {f"min{size}": limit.min_length, f"max{size}": limit.max_length}
    words = {word: value for word, value in given.items() if value is not None}
    return words | (limit.extra_json_schema or {})


_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def _choices(annotation: type[enum.Enum]) -> Schema:
    """Return the schema of the values of an enumeration; members of a `Flag` can be added."""
    if not issubclass(annotation, enum.Flag):
        return {"enum": [member.value for member in annotation]}
    members = ", ".join(f"{member.name} = {member.value}" for member in annotation)
    return {"type": "integer", "minimum": 0, "title": f"The sum of {members}"}


def _described(cls: type) -> Schema:
    text = docstring_of(cls)
    return {"description": text} if text else {}


def _object(properties: dict[str, Schema], required: list[str] | None = None) -> Schema:
    needed = list(properties) if required is None else required
    described: Schema = {"type": "object", "properties": properties}
    return described | {"required": needed} if needed else described


def _class_of(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation


def _titled_row(properties: dict[str, Schema], least: int) -> Schema:
    """Return the schema of a `NamedTuple`: an array whose items have the names of the fields."""
    schemas = [
        described if "$ref" in described else {**described, "title": name}
        for name, described in properties.items()
    ]
    return _row(schemas, least)


def _tagged(described: Schema, name: str, tag: str | int) -> Schema:
    """Add the tag of a `Struct` to its schema."""
    properties = {name: {"enum": [tag]}, **described["properties"]}
    return {
        **described,
        "properties": properties,
        "required": [name, *described.get("required", ())],
    }


def _row(schemas: list[Schema], least: int) -> Schema:
    """Return the schema of an array with a schema for each position."""
    described: Schema = {"type": "array", "minItems": least, "maxItems": len(schemas)}
    return described | ({"prefixItems": schemas} if schemas else {}) | {"items": False}


def _fits_position(parameters: list[Parameter]) -> bool:
    """Say whether a call may be made by position alone."""
    return all(
        parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is not parameter.empty
        for parameter in parameters
    )


def _fits_name(parameters: list[Parameter]) -> bool:
    """Say whether a call may be made by name alone."""
    return all(
        parameter.kind is not parameter.POSITIONAL_ONLY or parameter.default is not parameter.empty
        for parameter in parameters
    )


def _differs(annotation: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Say whether an annotation has different schemas in requests and responses."""
    if annotation in (float, Decimal):
        return True
    if annotation in seen:
        return False
    if is_record(annotation):
        seen = (*seen, annotation)
        inside = tuple(inner.annotation for inner in fields_of(annotation))
        if any(inner.has_default for inner in members_of(annotation)):
            return True
    else:
        inside = typing.get_args(annotation)
    return any(_differs(inner, seen) for inner in inside)
