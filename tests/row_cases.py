"""Random classes, keys, attributes, rows, arguments and results, for the comparison of both implementations.

Most values are exactly of their types. The others are what a handler could put in their place: values of another type or of
a subclass, numbers beyond 64 bits, texts that are no UTF-8.
"""

import dataclasses
import inspect
import math
import random
import typing
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from types import GenericAlias, NoneType
from typing import Any, Final, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec

from penstock import App, Entity, Unencodable, key
from penstock.base.annotations import UNIONS
from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId
from penstock.base.key_text import decode_key, encode_key
from penstock.base.lowering import lower_reply
from penstock.base.schema import refuse
from penstock.model import entity
from penstock.model.context import Transaction, activate
from penstock.model.entity_type import EntityType
from penstock.model.row_plan import event_plan_of, key_plan_of, result_plan_of
from penstock.model.signature import NONE_BY_NAME, Signature
from penstock.model.streams.event_type import EventType
from penstock.native.choice import core

INTS: Final = (
    0,
    1,
    31,
    32,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
SIZES: Final = (0, 1, 3, 15, 16, 31, 32, 255, 256, 700, 65_536)
SCALARS: Final = (int, float, bool, str, bytes, NoneType)
T = TypeVar("T")


class Place(NamedTuple):
    """A tuple with names."""

    row: int
    name: str


class Spot(NamedTuple):
    """A tuple with a tuple inside, and with another equality."""

    place: Place
    depth: int = 1

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


class Shelf(Entity):
    """A class to refer to."""

    name: str = key()


class Corner(Entity):
    """A class to refer to whose key has parts."""

    place: Place = key()


app = App("rows", Shelf, Corner)


@dataclass
class Line:
    """A record with a default and a reference."""

    shelf: Shelf
    price: Decimal
    count: int = 1


@dataclass(frozen=True, slots=True)
class Money:
    """A record without a dictionary."""

    cents: int
    currency: str


@dataclass
class Box(Generic[T]):
    """A record of any type."""

    inner: T
    names: list[str]


class Entry(TypedDict):
    """A dictionary with declared keys."""

    title: str
    moment: datetime
    note: NotRequired[str | None]


class Part(msgspec.Struct, tag="part", rename="camel"):
    """A Struct with a tag and other names."""

    part_size: int
    of_box: Money | None = None


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A Struct whose fields are given by name."""

    right: float = 0.5
    left: Any = None


class Colour(Enum):
    """An Enum of numbers."""

    RED = 1
    BLUE = 300


class Size(StrEnum):
    """An Enum of texts."""

    SMALL = "s"
    LARGE = "l"


HASHED: Final[tuple[Any, ...]] = (
    *(
        int,
        bool,
        str,
        bytes,
        date,
        datetime,
        timedelta,
        Decimal,
        UUID,
        Colour,
        Size,
        Shelf,
        Corner,
        Place,
    ),
    tuple[int, Place],
    tuple[str, ...],
)
KEYS: Final[tuple[Any, ...]] = (int, str, UUID, date, datetime, Colour, Size, Place, Spot)
RECORDS: Final[tuple[Any, ...]] = (
    *(Line, Money, Box[int], Box[Line], Entry, Part, Pair, Place, Spot),
)
CODED: Final = (datetime, date, time, timedelta, Decimal, UUID, Colour, Size, Literal["a", "b", 3])
MOMENT: Final = datetime(2026, 1, 31, 12, 30, 15, 123_456, tzinfo=UTC)


class Text(str):
    """A text that is not exactly one."""

    __slots__ = ()


class Several(list[Any]):
    """A list that is not exactly one."""

    __slots__ = ()


WRONG: Final[tuple[Callable[[], Any], ...]] = (
    lambda: 2**64,
    lambda: -(2**63) - 1,
    lambda: "\ud800",
    lambda: Text("a"),
    lambda: Several([1]),
    lambda: object(),
    lambda: None,
    lambda: True,
    lambda: 1,
    lambda: 1.5,
    lambda: "a",
    lambda: (),
    list,
    dict,
    lambda: set(),
    lambda: frozenset({1}),
    lambda: bytearray(b"a"),
    lambda: MOMENT,
    lambda: MOMENT.replace(tzinfo=None),
    lambda: MOMENT.astimezone(timezone(timedelta(hours=1))),
    lambda: MOMENT.timetz(),
    lambda: MOMENT.date(),
    lambda: Decimal("NaN"),
    lambda: Decimal("1.50"),
    lambda: Colour.RED,
    lambda: Size.SMALL,
    lambda: "c",
    lambda: 3,
    lambda: Money(1, Text("EUR")),
    lambda: Cheap(1, "EUR"),
    lambda: without(Line(Shelf("a"), Decimal(1)), "price"),
    lambda: without(Money(1, "EUR"), "cents"),
    lambda: Place(Place(1, "a"), "b"),  # type: ignore[arg-type]
    lambda: (1, "a"),
    lambda: {"title": "a", "moment": MOMENT, "more": 1},
    lambda: {Text("title"): "a", "moment": MOMENT},
    lambda: {1: 2},
    lambda: [[], {"a": {}}, -1],
    lambda: nested(40),
    lambda: Shelf("a"),
    lambda: Corner(Place(1, "a")),
    lambda: UUID(int=7),
    lambda: broken_uuid(),
)


class Cheap(Money):
    """A record that is not exactly one."""


def without(record: Any, name: str) -> Any:
    """Return a record that has lost a field."""
    object.__delattr__(record, name)
    return record


def nested(depth: int) -> list[Any]:
    """Return a list in a list in a list."""
    return [nested(depth - 1)] if depth else []


def broken_uuid() -> UUID:
    """Return a UUID that a handler has reached into."""
    made = UUID(int=7)
    object.__setattr__(made, "int", -1)
    return made


def draw_type(draw: random.Random, depth: int = 0) -> Any:
    """Return a type that plans know."""
    if depth > 2 or draw.random() < 0.5:
        return draw.choice((*SCALARS, *CODED, *RECORDS, Shelf, Corner, Any))
    return draw.choice(COMPOUND)(draw, depth + 1)


def _optional(draw: random.Random, depth: int) -> Any:
    inner = draw_type(draw, depth)
    return inner if inner is NoneType or is_optional(inner) else inner | None


def _tuple(draw: random.Random, depth: int) -> Any:
    parts = tuple(draw_type(draw, depth) for _ in range(draw.randrange(1, 4)))
    return GenericAlias(tuple, parts)


COMPOUND: Final[tuple[Callable[[random.Random, int], Any], ...]] = (
    _optional,
    _tuple,
    lambda draw, depth: GenericAlias(list, (draw_type(draw, depth),)),
    lambda draw, depth: GenericAlias(tuple, (draw_type(draw, depth), ...)),
    lambda draw, depth: GenericAlias(dict, (draw.choice(HASHED), draw_type(draw, depth))),
    lambda draw, _: GenericAlias(set, (draw.choice(HASHED),)),
    lambda draw, _: GenericAlias(frozenset, (draw.choice(HASHED),)),
    lambda draw, depth: make_dataclass("Made", [("a", draw_type(draw, depth)), ("b", int)]),
)


def is_optional(annotation: Any) -> bool:
    """Say whether a type is a union with None."""
    return typing.get_origin(annotation) in UNIONS


def draw_value(draw: random.Random, annotation: Any, wrong: float = 0.0) -> Any:
    """Return a value of a type; with the probability `wrong`, each part is a value of another type."""
    if draw.random() < wrong:
        return draw.choice(WRONG)()
    if annotation in VALUES:
        return VALUES[annotation](draw)
    if annotation in FIELDS or dataclasses.is_dataclass(annotation):
        return draw_record(draw, annotation, wrong)
    if is_optional(annotation):
        inner = next(part for part in annotation.__args__ if part is not NoneType)
        return None if draw.random() < 0.3 else draw_value(draw, inner, wrong)
    return _collection(draw, annotation.__origin__, annotation.__args__, wrong)


def draw_record(draw: random.Random, annotation: Any, wrong: float) -> Any:
    """Return a record."""
    cls, *bound = FIELDS.get(annotation) or (
        annotation,
        *map(_type_of, dataclasses.fields(annotation)),
    )
    names = [*cls.__annotations__]
    values = {
        name: draw_value(draw, part, wrong)
        for name, part in zip(names, bound, strict=True)
        if name != "note" or draw.random() < 0.5
    }
    return cls(**values)


def _type_of(field: "dataclasses.Field[Any]") -> Any:
    return field.type


FIELDS: Final[dict[Any, tuple[Any, ...]]] = {
    Line: (Line, Shelf, Decimal, int),
    Money: (Money, int, str),
    Box[int]: (Box, int, list[str]),
    Box[Line]: (Box, Line, list[str]),
    Entry: (Entry, str, datetime, str | None),
    Part: (Part, int, Money | None),
    Pair: (Pair, float, Any),
    Place: (Place, int, str),
    Spot: (Spot, Place, int),
}
"""The class of each record, and the types of its fields."""


def _any(draw: random.Random, depth: int = 0) -> Any:
    """Return a value that is read back as it is, where no type is declared."""
    match draw.randrange(10 if depth < 3 else 8):
        case 8:
            return [_any(draw, depth + 1) for _ in range(draw.choice(SIZES[:4]))]
        case 9:
            return {
                str(draw.random()): _any(draw, depth + 1) for _ in range(draw.choice(SIZES[:4]))
            }
        case _:
            return VALUES[draw.choice(SCALARS)](draw)


def _collection(draw: random.Random, origin: Any, arguments: tuple[Any, ...], wrong: float) -> Any:
    """Return a value of a collection; the keys of a dictionary and the members of a set are never wrong."""
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(draw_value(draw, part, wrong) for part in arguments)
    count = draw.choice(SIZES[:4] if draw.random() < 0.98 else SIZES[4:7])
    if origin is dict:
        pairs = [
            [draw_value(draw, part, wrong * (part is not arguments[0])) for part in arguments]
            for _ in range(count)
        ]
        return dict(pairs)
    if origin in (set, frozenset):
        wrong = 0.0
    return origin([draw_value(draw, arguments[0], wrong) for _ in range(count)])


def _int(draw: random.Random) -> int:
    number = draw.choice(INTS)
    return number if draw.random() < 0.6 or number > 2**63 else -number


def _size(draw: random.Random) -> int:
    return draw.choice(SIZES[:6] if draw.random() < 0.97 else SIZES)


VALUES: Final[dict[Any, Callable[[random.Random], Any]]] = {
    int: _int,
    float: lambda draw: draw.choice((0.0, -0.0, 1.5, 1e300, math.inf, math.nan, draw.random())),
    bool: lambda draw: draw.random() < 0.5,
    str: lambda draw: "".join(draw.choice("abz é€😀\0") for _ in range(_size(draw))),
    bytes: lambda draw: draw.randbytes(_size(draw)),
    NoneType: lambda draw: None,
    datetime: lambda draw: (
        MOMENT + timedelta(days=draw.randrange(-700_000, 2_900_000) * (draw.random() < 0.5))
    ),
    date: lambda draw: date.fromordinal(draw.randrange(1, date.max.toordinal())),
    time: lambda draw: time(
        draw.randrange(24), draw.randrange(60), 1, draw.choice((0, 5, 999_999))
    ),
    timedelta: lambda draw: timedelta(draw.randrange(-9, 9), draw.randrange(9), draw.randrange(9)),
    Decimal: lambda draw: Decimal(draw.choice(("0", "-0", "1.50", "1E+5", "-7e-20", "Infinity"))),
    UUID: lambda draw: UUID(int=draw.getrandbits(128)),
    Colour: lambda draw: draw.choice([*Colour]),
    Size: lambda draw: draw.choice([*Size]),
    CODED[-1]: lambda draw: draw.choice(("a", "b", 3)),
    Any: _any,
    Corner: lambda draw: Corner(Place(_int(draw) >> 8, draw.choice(("", "a b")))),
    Shelf: lambda draw: Shelf(
        "".join(draw.choice("abcé/") for _ in range(1 + min(_size(draw), 90)))
    ),
}


def draw_key_type(draw: random.Random, depth: int = 0) -> Any:
    """Return a type of keys."""
    if depth > 1 or draw.random() < 0.5:
        return draw.choice(KEYS)
    parts = tuple(draw_key_type(draw, depth + 1) for _ in range(draw.randrange(1, 4)))
    return GenericAlias(tuple, parts)


def check_key(draw: random.Random, wrong: float) -> bool:
    """Compare the text of a key, and the key of a text; return whether the compiled implementation has written the text."""
    assert core is not None, "the caller has looked"
    annotation = draw_key_type(draw)
    plan = key_plan_of(annotation)
    assert plan is not None, f"no plan for {annotation}"
    value = draw_value(draw, annotation, wrong)
    text = plan.text(value)
    if text is not None:
        expected = encode_key(value, annotation)
        assert (text, type(text)) == (expected, str), f"{value!r} of {annotation}"
    try:
        data = encode_key(value, annotation).encode()
    except Unencodable:
        return text is not None
    given = (damaged(draw, data) if draw.random() < wrong else data).decode(errors="replace")
    found = plan.at(given)
    if found is not None:
        assert shown(found) == shown(decode_key(given, annotation)), f"{given!r} of {annotation}"
    return text is not None and found is not None


def check_result(draw: random.Random, wrong: float) -> bool:
    """Compare the encoding of a result; return whether the compiled implementation has made it."""
    annotation = draw_type(draw)
    plan = result_plan_of(annotation)
    assert plan is not None, f"no plan for {annotation}"
    value = draw_value(draw, annotation, wrong)
    made = plan.encode(value)
    if made is None:
        return False
    expected = ENCODER.encode(lower_reply(value))
    assert made == expected, f"{value!r} of {annotation}: {made!r}, not {expected!r}"
    return True


def check_event(draw: random.Random, wrong: float) -> bool:
    """Compare the encoding of events; return whether the compiled implementation has made it."""
    annotation = draw_type(draw)
    python: EventType[Any] = EventType("the stream", annotation)
    plan = event_plan_of(annotation)
    assert plan is not None, f"no plan for {annotation}"
    values = [draw_value(draw, annotation, wrong) for _ in range(draw.randrange(1, 3))]
    made = plan.encode_all(values)
    if made is None:
        return False
    expected = b"".join(map(python.encode_readable, values))
    assert made == expected, f"{values!r} of {annotation}: {made!r}, not {expected!r}"
    assert [*map(plan.encode, values)] == [*map(python.encode_readable, values)]
    return True


def check_encoded_arguments(draw: random.Random, wrong: float) -> bool:
    """Compare encoded arguments; return whether the compiled implementation has encoded them."""
    signature = draw_signature(draw)
    values = [
        draw_value(draw, parameter.annotation, wrong) for parameter in signature.parameters.values()
    ][: draw.randrange(5)]
    if signature.plan.encode(tuple(values)) is None:
        return False
    made = signature.encode(values, {})
    signature.plan = None
    expected = signature.encode(values, {})
    assert made == expected, f"{values!r} of {signature.parameters}: {made!r}, not {expected!r}"
    return True


def check_creation(draw: random.Random, wrong: float) -> bool:
    """Compare new entities: their attributes in order, and their key; return whether one was made.

    Args:
        wrong: How often an attribute is missing or unknown, or a key is of another type.
    """
    annotation = draw_key_type(draw)
    cls: Any = type("Drawn", (Entity,), {"__annotations__": {"id": annotation}, "id": key()})
    entity_type: EntityType = cls.__reference__
    names = [f"a{index}" for index in range(draw.randrange(4))]
    entity_type.bind(annotation, dict.fromkeys(names, Any))
    entity_type.settle()
    entity_type.creation = Signature("create", print, [], None, "here")
    entity_type.defaults = {
        name: draw.choice((0, None, "d", [1], list)) for name in names if draw.random() < 0.3
    }
    given = [name for name in names if name not in entity_type.defaults or draw.random() < 0.3]
    named = {name: draw.choice((1, None, "b", [2])) for name in given}
    if draw.random() < wrong:
        named["more"] = 1
    name = draw_value(draw, annotation, wrong)
    if draw.random() < 0.5:
        first, second = (_made(each, cls, (name,), named) for each in (entity.made, entity._made))
    else:
        named = {"id": name, **named}
        first, second = (_made(each, cls, (), named) for each in (entity.made, entity._made))
    assert first == second, f"{name!r} and {named!r} of {annotation}"
    return first[0] is list


def _made(
    function: Callable[..., Any], cls: type, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Return what tells of a new entity, or of the error."""
    token = activate(Transaction(RequestId("r"), 0, lambda _: None, {}))
    try:
        of, text, instance = function(cls, arguments, dict(named))
    except Exception as error:  # noqa: BLE001 -- Python says what is wrong, in both
        return [type(error), str(error)]
    finally:
        token.var.reset(token)
    return shown([of.name, text, type(instance) is cls, vars(instance)])


ENCODER: Final = Encoder(refuse)


def draw_class(draw: random.Random) -> EntityType:
    """Return the description of a class with a plan."""
    made = EntityType(type("Drawn", (), {}), "id", "here")
    made.bind(str, {f"a{index}": draw_type(draw) for index in range(draw.randrange(5))})
    made.settle()
    assert made.row_plan is not None, f"no plan for {made.attributes}"
    return made


def attributes_of(draw: random.Random, entity_type: EntityType, wrong: float) -> dict[str, Any]:
    """Return attributes with a key; some are missing, or too many, where values are wrong."""
    values = {"id": "k"} | {
        name: draw_value(draw, annotation, wrong)
        for name, annotation in entity_type.attributes.items()
    }
    if draw.random() < wrong and len(values) > 1:
        del values[draw.choice(list(values))]
    if draw.random() < wrong:
        values["extra"] = 1
    return values


def damaged(draw: random.Random, row: bytes) -> bytes:
    """Return a row with some bytes changed, inserted or cut off."""
    data = bytearray(row)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(data) + 1)
        match draw.randrange(4):
            case 0:
                del data[place:]
            case 1:
                data[place:place] = draw.randbytes(draw.randrange(1, 4))
            case _ if place < len(data):
                data[place] = draw.choice(
                    (data[place] ^ 1 << draw.randrange(8), *b"\x90\xc0\xcf\xdb\xdd\xdf\xff")
                )
    return bytes(data)


def check_encoding(draw: random.Random, wrong: float) -> bool:
    """Compare the change of an entity; return whether the compiled implementation has done it."""
    assert core is not None, "the caller has looked"
    entity_type = draw_class(draw)
    values = attributes_of(draw, entity_type, wrong)
    befores: list[bytes | None] = [None, b"", b"\x91\x01"]
    try:
        befores.append(entity_type.encode(values))
    except Unencodable:  # a wrong value
        assert wrong, f"{values} of {entity_type.attributes} cannot be encoded"
    before = draw.choice(befores)
    made = entity_type.row_plan.encode_change(values, before)
    if made is core.FALLBACK:
        return False
    expected = entity_type.encode_change(values, before)
    assert made == expected, f"{values} of {entity_type.attributes}: {made!r}, not {expected!r}"
    assert type(made) is type(expected)
    return True


def check_decoding(draw: random.Random, damage: float) -> bool:
    """Compare the attributes of a row; return whether the compiled implementation has read them."""
    assert core is not None, "the caller has looked"
    entity_type = draw_class(draw)
    row = entity_type.encode(attributes_of(draw, entity_type, 0.0))
    if draw.random() < damage:
        row = damaged(draw, row)
    instances: dict[EntityKey, Any] = {}
    made = entity_type.row_plan.decode("k", row, instances)
    if made is core.FALLBACK:
        return False
    txn = Transaction(RequestId("r"), 0, lambda _: None, {})
    token = activate(txn)
    try:
        expected = entity_type.decode("k", row)
    finally:
        token.var.reset(token)
    assert shown(made) == shown(expected), f"{row!r} of {entity_type.attributes}"
    assert list(instances) == list(txn.instances)
    return True


def draw_signature(draw: random.Random) -> Signature:
    """Return a function's signature with a plan; no argument is needed."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(f"p{index}", kind, default=None, annotation=draw_type(draw))
        for index in range(1 + draw.randrange(4))
    ]
    made = Signature("drawn", print, parameters, None, "here")
    made.settle()
    assert made.plan is not None, f"no plan for {made.parameters}"
    return made


def check_arguments(draw: random.Random, damage: float) -> bool:
    """Compare decoded arguments; return whether the compiled implementation has decoded them."""
    assert core is not None, "the caller has looked"
    signature = draw_signature(draw)
    values = [draw_value(draw, parameter.annotation) for parameter in signature.parameters.values()]
    data = bytes(signature.encode(values[: draw.randrange(len(values) + 1)], {})[0])
    if draw.random() < damage:
        data = damaged(draw, data)
    instances: dict[EntityKey, Any] = {}
    made = signature.plan.decode(draw.choice((data, msgspec.Raw(data))), instances)
    if made is core.FALLBACK:
        return False
    txn = Transaction(RequestId("r"), 0, lambda _: None, {})
    token = activate(txn)
    try:
        expected, _ = signature.decode(msgspec.Raw(data), NONE_BY_NAME)
    finally:
        token.var.reset(token)
    assert shown(made) == shown(expected), f"{data!r} of {signature.parameters}"
    assert list(instances) == list(txn.instances)
    return True


def shown(value: Any) -> Any:
    """Return a value with the types and the order of all its parts, so that equal results are the same."""
    match value:
        case dict():
            return [dict, *((shown(name), shown(item)) for name, item in value.items())]
        case list() | tuple() | set() | frozenset():
            return [type(value), *map(shown, value)]
        case _ if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value)]
            return [type(value), *(shown(getattr(value, name)) for name in fields)]
        case msgspec.Struct():
            return [type(value), *map(shown, msgspec.structs.astuple(value))]
        case _:
            return (type(value), repr(value))
