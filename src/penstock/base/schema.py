"""Annotations: the types that can be stored and sent, and the decoding of their values.

This module decides which annotations are allowed. Decoding checks types strictly. A reference is encoded as the text of its key, and only if the annotation names its class.
`record` knows the fields of dataclasses and the like, `key_text` writes keys, and `lowering` encodes values. A class is a reference
type if it has the attribute `__reference__`.
"""

import dataclasses
import enum
import sys
import types
import typing
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.case_twins import case_twins
from penstock.base.class_caches import cached_by_class
from penstock.base.constraint import constrained_fields, constraint_complaints, has_constraints
from penstock.base.encoder import Encoder
from penstock.base.misfit import Misfit, misfit_of
from penstock.base.record import RecordKind, fields_of, is_record, kind_of, simplified
from penstock.errors import Unencodable

SCALARS: Final[Mapping[type, dict[str, Any]]] = {
    int: {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1},
    float: {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    bytes: {
        "type": "string",
        "contentEncoding": "base64",
        "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    },
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    time: {
        "type": "string",
        "description": "A time of day, without a time zone.",
        "pattern": r"^([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?$",
        "examples": ["12:00:00"],
    },
    timedelta: {
        "type": "string",
        "description": "An ISO 8601 duration of days and seconds.",
        "pattern": r"^[-+]?P(\d{1,9}D|(\d{1,9}D)?T\d{1,9}(\.\d{1,6})?S)$",
    },
    UUID: {"type": "string", "format": "uuid"},
    Decimal: {"type": "string", "format": "decimal"},
}
"""The types of immutable values without parts, each with the JSON Schema of its values."""

PLAIN: Final = frozenset({int, str, bool, bytes, type(None)})
"""Types whose values fit if they have the type itself; an `int` of over 64 bits cannot be encoded."""

COLLECTIONS: Final = (list, dict, tuple, set, frozenset, deque)
_FORMS_MAX: Final = 50
"""The most different arguments of one generic class in one annotation."""

_WAYS_OUT: Final = {
    "typing.Self": "write the name of the class in place of Self",  # in a record, whose source msgspec reads
    "dict-like": "use msgspec Structs that are declared with tag=True",
    "more than one dataclass": "use msgspec Structs that are declared with tag=True",
    "more than one Struct": "use msgspec Structs that are declared with tag=True",
    "multiple Struct types": "use msgspec Structs that are declared with tag=True",
    "more than one str-like": "use one of them, or a record with an attribute for each of them",
    "more than one array-like": "use one of them, or a record with an attribute for each of them",
    "Enums must contain": "give all members text, or all members whole numbers",
    "at least one item": "declare its members",
    "Integer values": "use smaller numbers, or text",
    "InitVar": "make it a field",
    "Literal may only contain": "use an Enum, or the values of its members",
    "Can only set": "msgspec bounds int, float, str, bytes, list, tuple, set, frozenset and dict alone: let Annotated[…] enclose one "
    "of them inside, or check the value in the method",
}
"""Alternatives to the types that msgspec refuses, by words of its messages."""

_AS_LIST: Final = (set, frozenset, deque)
_EXACT: Final = frozenset({int, str, bool, bytes, type(None), UUID})
UNENCODABLE: Final = (
    Unencodable,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    AttributeError,
)
"""The errors of lowering and encoding a value."""


class ReferenceType(Protocol):
    """Encodes and decodes the references to a class of entities."""

    def text_of(self, value: object) -> str:
        """Return the text of the key; raise `Unencodable` if `value` is not such a reference."""

    def of_text(self, text: str) -> object:
        """Return the reference with this key."""


def reference_type(annotation: object) -> ReferenceType | None:
    """Return the reference type of an entity class, or None for any other annotation."""
    reference: ReferenceType | None = getattr(annotation, "__reference__", None)
    return reference if isinstance(annotation, type) else None


def decode_reference(annotation: Any, value: object) -> object:
    """Return a reference, a deque or a pydantic model; msgspec calls this for types that it does not know.

    Raises:
        ValueError: The value does not fit; the message names the place inside of the value.
    """
    if type(value) is str:
        try:
            reference: ReferenceType = annotation.__reference__
        except AttributeError:
            pass
        else:
            return reference.of_text(value)
    if annotation is deque or typing.get_origin(annotation) is deque:
        return deque(convert_inside(value, list[typing.get_args(annotation) or (Any,)]))  # type: ignore[misc]
    if kind_of(annotation) is RecordKind.PYDANTIC:
        return decode_model(annotation, value, convert_inside)
    if (named := reference_type(annotation)) is not None:
        return _reference_of(named, annotation, value)
    raise msgspec.ValidationError(f"Expected `{name_of(annotation)}`, got {shown(value)}")


def _reference_of(reference: ReferenceType, annotation: Any, value: object) -> object:
    """Return the reference whose key a caller has written in JSON as the number or the array that it is."""
    if type(value) in (int, list) and getattr(reference, "key_annotation", str) is not str:
        return reference.of_text(msgspec.json.encode(value).decode())
    raise msgspec.ValidationError(
        f"Expected `str`, the key of `{name_of(annotation)}`, got {shown(value)}"
    )


def convert_inside(value: object, annotation: Any) -> Any:
    """Convert a decoded value for `decode_reference`.

    Raises:
        ValueError: The value does not fit. Its message has the place in a form that `misfit_of` joins with the place
            of the whole value.
    """
    try:
        return msgspec.convert(value, annotation, dec_hook=decode_reference, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(misfit_of(str(error)).inner_text()) from error


def wire_type(annotation: Any) -> Any:
    """Return the annotation of lowered values: references are `str`, sets and deques are lists."""
    if reference_type(annotation) is not None or annotation in _AS_LIST:
        return list if annotation in _AS_LIST else str
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return typing.Annotated[(wire_type(arguments[0]), *annotation.__metadata__)]
    if origin in UNIONS:
        members = tuple(map(wire_type, arguments))
        return typing.Union[members]  # noqa: UP007 -- the members are known only now
    if origin in COLLECTIONS:
        inner = tuple(part if part is Ellipsis else wire_type(part) for part in arguments)
        return types.GenericAlias(list if origin in _AS_LIST else origin, inner)
    return wire_model(annotation) if kind_of(annotation) is RecordKind.PYDANTIC else annotation


def entities_in(annotation: Any, seen: list[Any] | None = None) -> list[type]:
    """Return the entity classes that an annotation names, at any depth; `seen` are records."""
    seen = [] if seen is None else seen
    if reference_type(annotation) is not None:
        return [annotation]
    if typing.get_origin(annotation) is typing.Literal:
        return []
    if is_record(annotation):
        inner = [] if annotation in seen else [field.annotation for field in fields_of(annotation)]
        seen.append(annotation)
    else:
        inner = list(typing.get_args(annotation))
    return [cls for part in inner for cls in entities_in(part, seen)]


def is_exact(annotation: Any) -> bool:
    """Say whether decoding returns every value unchanged, without widening such as int to float."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if is_record(annotation):
        return False
    if origin in (list, dict, tuple, set, frozenset, *UNIONS):
        return all(part is Ellipsis or is_exact(part) for part in arguments)
    return annotation in _EXACT or reference_type(annotation) is not None


def is_immutable(annotation: Any) -> bool:
    """Say whether the decoded values can never change, so that several handlers can have the same object."""
    if typing.get_origin(annotation) in (tuple, frozenset, *UNIONS):
        return all(part is Ellipsis or is_immutable(part) for part in typing.get_args(annotation))
    return annotation in SCALARS


def refuse(value: object) -> object:
    """Raise `Unencodable`; msgspec calls this for objects that it cannot encode."""
    if reference_type(type(value)) is not None:
        raise Unencodable(f"{value!r} is a reference, and the annotation here names no entity")
    raise Unencodable(f"a value of type {type(value).__qualname__} cannot be stored or sent")


def reason_of(error: Exception) -> str:
    """Return the message of an error, without parts that depend on the depth of the stack."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeEncodeError(reason="surrogates not allowed"):
            half = error.object[error.start]
            return (
                f"it has {half!a} at position {error.start}, which is half of a surrogate pair; "
                'text.encode(errors="replace").decode() puts a ? in its place'
            )
        case OverflowError() if str(error).startswith(
            "can't serialize ints"
        ):  # and none of user code
            return "an int has 64 bits, from -2**63 to 2**64 - 1; declare str or Decimal for a larger one"
        case _:
            return str(error)


def shown(value: object) -> str:
    """Return a value as text for recorded messages, which must be equal in every process.

    Only scalars are shown: the text of a set is in hash order, and other classes define their own text.
    """
    cls = type(value)
    return repr(value) if cls in SCALARS else f"a value of type {cls.__qualname__}"


def complaints_of(annotation: Any) -> list[str]:
    """Return the reasons why values of an annotation cannot be stored, or its constraints not be kept; empty if they can."""
    complaints = constraint_complaints(annotation) or _complaints(simplified(annotation), [])
    constrained = simplified(annotation, constrained=True)
    if complaints or not has_constraints(constrained):
        return complaints
    return _msgspec_complaints(constrained)


def _complaints(annotation: Any, seen: list[Any]) -> list[str]:
    """Return the complaints about an annotation; `seen` are the records that were checked before."""
    if annotation is Any or annotation in SCALARS or reference_type(annotation) is not None:
        return []
    if annotation in COLLECTIONS or annotation in seen:
        return []
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if is_record(annotation):
        complaints = _record_complaints(annotation, seen)
    elif origin in COLLECTIONS or origin in UNIONS:
        parts = [part for part in arguments if part is not Ellipsis]
        complaints = [complaint for part in parts for complaint in _complaints(part, seen)]
        if origin in (dict, set, frozenset) and not complaints:
            complaints = _misfit(annotation, origin, arguments[0])
        elif origin is deque and not complaints:
            complaints = _reference_key_complaints(annotation)
    elif origin is typing.Literal or is_enum(annotation):
        complaints = []
    else:
        return [
            f"{name_of(annotation)} is not a type that can be stored{alternative_to(annotation)}"
        ]
    return complaints or _msgspec_complaints(annotation)


def _record_complaints(annotation: Any, seen: list[Any]) -> list[str]:
    name, cls = name_of(annotation), typing.get_origin(annotation) or annotation
    seen.append(annotation)
    refused = _class_complaint(name, cls)
    if not refused and sum(typing.get_origin(form) is cls for form in seen) > _FORMS_MAX:
        refused = f"{name} contains itself with other arguments each time; use a list of records"
    if refused:
        return [refused]
    is_model = kind_of(cls) is RecordKind.PYDANTIC
    try:
        fields, hints = fields_of(annotation), constrained_fields(annotation)
    except NameError as error:
        return [f"{name} has a field of the unknown type {error.name!r}"]
    complaints = [
        f"{name}.{member.name}: {complaint}"
        for member, field in fields
        for complaint in _complaints(field, seen)
        or constraint_complaints(hints.get(member.name, Any), in_model=is_model)
    ]
    complaints += [
        f"{name}: the fields {earlier} and {later} differ only in case, which SQL ignores; rename a field"
        for earlier, later in case_twins(member.wire for member, _ in fields)
    ]
    return _reference_key_complaints(annotation) if is_model and not complaints else complaints


def _class_complaint(name: str, cls: Any) -> str:
    """Return the reason why records of a class cannot be stored, whatever their fields; empty if they can."""
    record_kind = kind_of(cls)
    if record_kind is RecordKind.PYDANTIC:
        return model_complaint(cls)
    if record_kind is RecordKind.STRUCT and cls.__struct_config__.array_like:
        return f"{name} is declared with array_like=True; leave that out, or use a NamedTuple"
    generic = _generic_base(cls) if record_kind is RecordKind.TYPED_DICT else None
    if generic is None:
        return ""
    return (
        f"{name} inherits from the generic {name_of(generic)}, whose fields would have no type; write these fields in "
        f"{name}"
    )


def _generic_base(cls: Any) -> Any:
    """Return the generic TypedDict from which a TypedDict inherits: neither Python nor msgspec give its fields types."""
    bases = vars(cls).get("__orig_bases__", ())
    return next((base for base in bases if is_record(base) and typing.get_args(base)), None)


def _reference_key_complaints(annotation: Any) -> list[str]:
    """Refuse dictionaries whose keys are references in a value that `convert_inside` converts.

    `msgspec.convert` leaves such keys as text.
    """
    refused = _keyed_by_reference(annotation, [])
    hint = "a dictionary in it has references as keys; use a list of pairs, or the keys' own type"
    return [f"{name_of(annotation)}: {hint}"] if refused else []


def _keyed_by_reference(annotation: Any, seen: list[Any]) -> bool:
    """Say whether a type contains dictionaries whose keys have references; `seen` are records."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal or annotation in seen:
        return False
    if origin is dict and entities_in(arguments[0]):
        return True
    inner = arguments
    if is_record(annotation):
        seen.append(annotation)
        inner = tuple(field.annotation for field in fields_of(annotation))
    return any(_keyed_by_reference(part, seen) for part in inner)


def _misfit(annotation: Any, origin: type, inside: Any) -> list[str]:
    """Return the reasons why a dictionary cannot have such keys, or a set such members."""
    complaints = _unhashable(inside, of=origin)
    if complaints or origin is dict:
        return complaints
    return [f"{name_of(annotation)}: {complaint}" for complaint in _unordered(inside)]


def _unhashable(annotation: Any, of: type) -> list[str]:
    """Return the parts of an annotation that cannot be keys of a dictionary, or members of a set."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    record_kind = kind_of(annotation)
    if record_kind is RecordKind.NAMED_TUPLE:
        inside = [field.annotation for field in fields_of(annotation)]
        return [complaint for part in inside for complaint in _unhashable(part, of)]
    if origin in (tuple, *UNIONS):
        return [
            complaint
            for part in arguments
            if part is not Ellipsis
            for complaint in _unhashable(part, of)
        ]
    cls = origin or annotation
    if of is dict:
        refused = cls in (list, dict, set, frozenset, deque) or record_kind is not None
        hint = "; use a scalar, a reference, or a tuple of them"
    else:
        refused = cls in (list, dict, set, deque) or (
            record_kind is not None and cls.__hash__ is None
        )
        hint = "; a frozen dataclass can" if record_kind else "; use a tuple or a frozenset"
    what = "the key of a dictionary" if of is dict else "the member of a set"
    return [f"{name_of(annotation)} cannot be {what}{hint}"] if refused else []


def _unordered(annotation: Any, seen: tuple[type, ...] = ()) -> list[str]:
    """Return the reasons why a set of such members iterates differently in each process.

    The hash of None and of an object that compares by identity is its address.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None) or (origin is typing.Literal and None in arguments):
        return ["None in a set lets it iterate differently in each process; use a list or a dict"]
    if origin in (tuple, *UNIONS):
        return [
            complaint
            for part in arguments
            if part is not Ellipsis
            for complaint in _unordered(part, seen)
        ]
    if not is_record(annotation) or annotation in seen:
        return []
    complaints = _hash_complaints(annotation)
    for _, field in [] if complaints else fields_of(annotation):
        complaints += _unordered(field, (*seen, annotation))
    return complaints


def _hash_complaints(record: Any) -> list[str]:
    """Return the reasons why the hashes of a record's instances differ in each process."""
    reason = ""
    if (typing.get_origin(record) or record).__hash__ is object.__hash__:
        reason = "compares by address"
    elif kind_of(record) is RecordKind.STRUCT:
        reason = "is a Struct, which has another hash in each process"
    hint = "so no set of them has an order; use a frozen dataclass"
    return [f"{name_of(record)} {reason}, {hint}"] if reason else []


def _msgspec_complaints(annotation: Any) -> list[str]:
    try:
        msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference)
        msgspec.msgpack.Decoder(wire_type(annotation), dec_hook=decode_reference)
    except (TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].partition(" If you need this feature")[0].rstrip(".")
        return [f"{name_of(annotation)}: {reason}{_way_out(annotation, reason)}"]
    return []


def _way_out(annotation: Any, reason: str) -> str:
    """Return the part of a complaint that names an alternative to a type that msgspec refuses."""
    return next((f"; {hint}" for words, hint in _WAYS_OUT.items() if words in reason), "")


def is_enum(annotation: Any) -> bool:
    """Say whether an annotation is an enumeration."""
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum)


def name_of(annotation: Any) -> str:
    """Return an annotation as a person writes it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, type) and origin is None:
        return "None" if annotation is type(None) else annotation.__qualname__
    if not isinstance(origin, type) and origin is not typing.Union:
        return "..." if annotation is Ellipsis else str(annotation).removeprefix("typing.")
    inner = [name_of(argument) for argument in arguments]
    if origin in UNIONS:
        return " | ".join(sorted(inner, key="None".__eq__))  # as people write it
    return f"{name_of(origin)}[{', '.join(inner)}]"


ENCODER: Final = Encoder(refuse)
"""Encodes lowered values; refuses objects that cannot be stored."""


_ALTERNATIVES: Final = {
    "collections.Sequence": "list",
    "collections.MutableSequence": "list",
    "collections.Iterable": "list",
    "collections.Collection": "list",
    "collections.Iterator": "list",
    "collections.Generator": "list",
    "collections.Set": "set",
    "collections.MutableSet": "set",
    "collections.Mapping": "dict",
    "collections.MutableMapping": "dict",
    "collections.defaultdict": "dict",
    "collections.OrderedDict": "dict",
    "collections.Counter": "dict",
    "collections.ChainMap": "dict",
    "collections.Callable": "an Enum that names the function",
    "builtins.bytearray": "bytes",
    "builtins.memoryview": "bytes",
    "builtins.complex": "tuple[float, float]",
    "builtins.range": "tuple[int, int, int]",
    "builtins.object": "Any",
    "fractions.Fraction": "tuple[int, int]",
    "pathlib.Path": "str",
    "pathlib.PurePath": "str",
    "re.Pattern": "str",
    "zoneinfo.ZoneInfo": "str",
    "ipaddress.IPv4Address": "str",
    "ipaddress.IPv6Address": "str",
    "datetime.tzinfo": "str, the name of the zone",
    "datetime.timezone": "str, the name of the zone",
    "builtins.type": "an Enum that names the class",
    "msgspec.UnsetType": "None",
    "msgspec.Raw": "bytes",
    "pydantic.EmailStr": "str",
    "pydantic.NameEmail": "str",
    "pydantic.SecretStr": "str",
    "pydantic.SecretBytes": "bytes",
    "pydantic.HttpUrl": "str",
    "pydantic.AnyUrl": "str",
}
"""By the name of the package and of the class: to import all of these modules would take time."""

_SPECIAL: Final = {
    typing.LiteralString: "str",
    typing.NamedTuple: "a class that derives from NamedTuple",
    typing.TypedDict: "a class that derives from TypedDict",
    typing.Never: "None",
    typing.NoReturn: "None",
    typing.Final: "the type inside of the brackets",
    dataclasses.InitVar: "the type inside of the brackets",
    typing.Unpack: "tuple",
}
_PLAIN: Final = (str, int, float, bytes, list, dict, set)


def alternative_to(annotation: Any) -> str:
    """Return the end of a message, `; use …`, for a type that cannot be stored."""
    if annotation is typing.Self:
        return "; write the name of the class in place of Self"
    cls = typing.get_origin(annotation) or annotation
    special = dataclasses.InitVar if isinstance(cls, dataclasses.InitVar) else cls
    known = _SPECIAL.get(special) if isinstance(special, Hashable) else None
    if known is None and isinstance(cls, type):
        return f"; {_alternative_to_class(cls)}"
    return f"; use {known or 'a class'}"


def _alternative_to_class(cls: type) -> str:
    package = cls.__module__.partition(".")[0]
    known = _ALTERNATIVES.get(f"{package}.{cls.__name__}")
    if known is not None:
        return f"use {known}"
    plain = next((base for base in _PLAIN if issubclass(cls, base)), None)
    if plain is not None:
        return f"use {plain.__name__}, or a NewType of it"
    if package in sys.stdlib_module_names:
        return "use a dataclass of the values that make it"
    return "make it a dataclass, or derive it from Entity"


_ERRORS_SHOWN: Final = 3
_OLDEST: Final = "2.11"


@cached_by_class
def wire_model(model: Any) -> Any:
    """Return the type of a stored model: a dictionary with the names and types of its fields."""
    fields = {
        member.name: typing.NotRequired[hint] if member.has_default else hint
        for member, hint in fields_of(model)
    }
    return typing.TypedDict(model.__name__, fields)  # type: ignore[operator]


def decode_model(model: Any, value: object, convert: Callable[[object, Any], Any]) -> Any:
    """Return a model with these fields, validated by pydantic.

    Args:
        convert: Converts a decoded value to a type.

    Raises:
        ValueError: A field does not fit its type, or pydantic refuses the model.
    """
    fields = convert(value, wire_model(model))
    try:
        return model.model_validate(fields, by_name=True, by_alias=False)
    except ValueError as error:
        raise ValueError(_text_of(error)) from error


def model_complaint(model: Any) -> str:
    """Return the reason why a model cannot be stored; empty if it can."""
    name = model.__qualname__
    if getattr(model, "__pydantic_root_model__", False):
        return f"{name} is a RootModel; use the type of its root, or a model with a field"
    if model.model_config.get("extra") == "allow":
        return f"{name} allows extra fields, which have no type; declare them, or use a dict"
    version = str(getattr(sys.modules.get("pydantic.version"), "VERSION", _OLDEST))
    if tuple(map(int, version.split(".")[:2])) < tuple(map(int, _OLDEST.split("."))):
        return f"{name} needs pydantic {_OLDEST} or newer"
    return ""


def _text_of(error: ValueError) -> str:
    """Return the mistakes that pydantic found, each with its place."""
    details: Any = getattr(error, "errors", None)
    if details is None:
        return str(error)
    mistakes = details(include_url=False, include_context=False, include_input=False)
    misfits = [Misfit(_path_of(each["loc"]), each["msg"]) for each in mistakes[:_ERRORS_SHOWN]]
    if len(mistakes) == 1:
        return misfits[0].inner_text()
    more = len(mistakes) - len(misfits)
    texts = [str(misfit).removeprefix(".") for misfit in misfits]
    return "; ".join([*texts, f"and {more} more"] if more > 0 else texts)


def _path_of(location: Sequence[str | int]) -> str:
    return "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in location)
