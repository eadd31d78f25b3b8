"""The values of attributes: every declared type survives unchanged, and other values are refused."""

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from penstock import Aborted, App, Entity, emit, key, readonly, stream
from penstock.base.lowering import place_in
from penstock.errors import RequestError, Unencodable
from penstock.model.call import Call
from penstock.testing import Kit


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Mood(StrEnum):
    GOOD = "good"


@dataclass
class Address:
    street: str
    tags: set[str] = field(default_factory=set)
    owner: "Thing | None" = None


@dataclass
class HomeAddress(Address):
    floor: int = 0


@dataclass
class Tree:
    value: float
    children: "list[Tree]" = field(default_factory=list)


class Thing(Entity):
    thing_id: str = key()
    integer: int = 0
    number: float = 0.0
    text: str = ""
    flag: bool = False
    data: bytes = b""
    nothing: None = None
    moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    day: date = date(2026, 1, 1)
    clock: time = time(1, 2, 3)
    span: timedelta = timedelta(0)
    money: Decimal = Decimal("0.00")
    uuid: UUID = UUID(int=0)
    colour: Colour = Colour.RED
    size: Size = Size.SMALL
    mood: Mood = Mood.GOOD
    choice: Literal["a", "b"] = "a"
    numbers: list[float] = []
    words: dict[str, list[int]] = {}
    grid: dict[tuple[int, int], str] = {}
    pair: tuple[int, str] = (0, "")
    bag: set[int] = set()
    frozen: frozenset[str] = frozenset()
    maybe: int | None = None
    either: int | str | None = None
    address: Address | None = None
    tree: Tree | None = None
    anything: Any = None
    loose: list = []  # type: ignore[type-arg]
    colours: dict[Colour, int] = {}
    moments: dict[tuple[datetime, int], set[datetime]] = {}

    def put(self, name: str, index: int) -> None:
        setattr(self, name, CASES[name][index])

    def put_wrong(self, name: str, index: int) -> None:
        setattr(self, name, WRONG[name][index])

    def at(self, moment: datetime | None = None) -> datetime:
        return moment or NAIVE

    def check(self, name: str, index: int) -> bool:
        value, expected = getattr(self, name), CASES[name][index]
        if isinstance(expected, float) and math.isnan(expected):
            return isinstance(value, float) and math.isnan(value)
        if isinstance(expected, datetime):
            return bool(value == expected.astimezone(UTC)) and value.tzinfo is UTC
        return bool(value == expected) and type(value) is type(expected)

    @readonly
    def look(self) -> None:
        for name in CASES:
            getattr(self, name)


NAIVE = datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=UTC).replace(tzinfo=None)
BERLIN = ZoneInfo("Europe/Berlin")
WEST = timezone(timedelta(hours=-1))
FOLDED = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)  # for the second time that night
CASES: dict[str, list[Any]] = {
    "integer": [5, -(2**63), 2**64 - 1],
    "number": [1.5, -0.0, math.inf, math.nan, 1e-320],
    "text": ["é🔑\n\0", "x" * 10_000],
    "flag": [True],
    "data": [bytes(range(256))],
    "nothing": [None],
    "moment": [datetime(1, 1, 1, tzinfo=UTC), FOLDED],
    "day": [date(9999, 12, 31)],
    "clock": [time(23, 59, 59, 999_999)],
    "span": [timedelta(days=-1, microseconds=1)],
    "money": [Decimal("10.00"), Decimal("-1E+20")],
    "uuid": [UUID(int=2**128 - 1)],
    "colour": [Colour.BLUE],
    "size": [Size.LARGE],
    "mood": [Mood.GOOD],
    "choice": ["b"],
    "numbers": [[1.5, 2.5], []],
    "words": [{"b": [1], "a": []}],
    "grid": [{(2, 1): "x", (1, 2): "y"}],
    "pair": [(1, "x")],
    "bag": [{3, 1, 2}, set()],
    "frozen": [frozenset({"b", "a"})],
    "maybe": [3, None],
    "either": [3, "x", None],
    "address": [
        Address("s", {"y", "x"}, Thing("a")),
        Address("s"),
    ],
    "tree": [Tree(1.0, [Tree(2.0), Tree(3.0, [Tree(4.0)])])],
    "anything": [{"a": [1, {"b": None}]}, "x", {1: 2, "x": 3}],
    "loose": [[1, "x", [2]]],
    "colours": [{Colour.RED: 1, Colour.BLUE: 2}],
    "moments": [{(datetime(2026, 1, 1, tzinfo=BERLIN), 1): {datetime(2026, 7, 1, tzinfo=BERLIN)}}],
}
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
WRONG: dict[str, list[Any]] = {
    "integer": ["5", 5.0, True, None, 2**64, -(2**63) - 1, Decimal(5)],
    "number": ["1.5", True, None, Decimal("1.5")],
    "text": [5, b"x", None, date(2026, 1, 1), UUID(int=1), Decimal(1), Colour.RED, "\ud800"],
    "flag": [1, "true", None],
    "data": ["x", None, [1]],
    "moment": [
        "2026-01-01T00:00:00Z",
        date(2026, 1, 1),
        5,
        NAIVE,
        datetime.max.replace(tzinfo=WEST),
    ],
    "clock": [time(1, tzinfo=UTC), time(1, tzinfo=BERLIN), "01:00:00"],
    "day": ["2026-01-02", NAIVE, datetime(2026, 1, 1, tzinfo=UTC)],
    "money": [1, 1.5, "1.5", Decimal("NaN"), Decimal("sNaN")],
    "uuid": [str(UUID(int=1)), 1],
    "colour": ["blue", None, Size.SMALL],
    "size": [7],
    "choice": ["c"],
    "numbers": [(1.5,), {1.5}, ["x"], "x", None, ENDLESS, iter([1.5])],
    "words": [{"a": "x"}, {1: [1]}, [("a", [1])], {"a": (1,)}],
    "grid": [{"a": "x"}, {(1,): "x"}],
    "pair": [(1,), [1, "x"], (1, "x", 2), ("x", 1)],
    "bag": [[1], {"x"}, {1: 1}, None],
    "maybe": ["x"],
    "either": [1.5, []],
    "address": [{"street": "s"}, HomeAddress("s"), Address(5), Tree(1.0)],  # type: ignore[arg-type]
    "tree": [Tree("x")],  # type: ignore[arg-type]
    "anything": [NAIVE, object(), Thing("a"), 2**70, ENDLESS, {"a": {Thing("a")}}, Colour.RED],
    "loose": [None, [object()], (1,)],
    "colours": [{"red": 1}],
    "moments": [{(NAIVE, 1): set()}, {(FOLDED, 1): {NAIVE}}],
}

app = App("values", Thing)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Thing.create("a")
    return kit


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, index) for name, cases in CASES.items() for index in range(len(cases))],
)
def test_value_survives(kit: Kit, name: str, index: int) -> None:
    """A value that fits is the same, in type too, in the next transaction."""
    kit.call.Thing("a").put(name, index)
    assert kit.call.Thing("a").check(name, index) is True
    before = kit.digest()
    kit.call.Thing("a").look()
    kit.call.Thing("a").put(name, index)
    assert kit.digest() == before


@pytest.mark.parametrize(
    ("name", "index"),
    [(name, index) for name, cases in WRONG.items() for index in range(len(cases))],
)
def test_wrong_value_aborts(kit: Kit, name: str, index: int) -> None:
    """A value that does not fit aborts the transaction, and the attribute is named."""
    before = kit.digest()
    with pytest.raises(Unencodable, match=rf"Thing\.{name}"):
        kit.call.Thing("a").put_wrong(name, index)
    assert kit.digest() == before


def test_integers_widen_to_floats_once(kit: Kit) -> None:
    """An integer in a float attribute is a float for the next transaction, and no change after that."""
    CASES["number"].append(3)
    try:
        kit.call.Thing("a").put("number", len(CASES["number"]) - 1)
        stored = kit.entity("Thing", "a")
        assert stored is not None
        assert (stored["number"], type(stored["number"])) == (3.0, float)
        reply = kit.submit(Call("Thing", "a", "look"))
        assert reply.error is None
    finally:
        CASES["number"].pop()


def test_order_of_filling_does_not_show(kit: Kit) -> None:
    """Sets and dictionaries with the same content are the same state, however they were filled."""
    CASES["words"].append({"a": [], "b": [1]})
    try:
        kit.call.Thing("a").put("words", 0)
        before = kit.digest()
        kit.call.Thing("a").put("words", 1)
        assert kit.digest() == before
    finally:
        CASES["words"].pop()


def test_ambiguous_hour_is_stored_as_an_instant(kit: Kit) -> None:
    """Where clocks are set back, the instant decides, as a value, as a key and inside of a set."""
    CASES["moments"].append({(FOLDED, 1): {FOLDED}})
    try:
        kit.call.Thing("a").put("moments", 1)
    finally:
        CASES["moments"].pop()
    stored = kit.entity("Thing", "a")
    assert stored is not None
    instant = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert stored["moments"] == {(instant, 1): {instant}}


def test_instant_without_zone_says_what_to_do(kit: Kit) -> None:
    """A datetime without a zone, and a time of day with one, are refused with the remedy."""
    with pytest.raises(Aborted, match=r"Thing\.moment: .*no time zone.*tzinfo=UTC"):
        kit.call.Thing("a").put_wrong("moment", WRONG["moment"].index(NAIVE))
    with pytest.raises(Aborted, match=r"Thing\.clock: .*replace\(tzinfo=None\)"):
        kit.call.Thing("a").put_wrong("clock", 0)


def test_instant_without_zone_is_no_argument_and_no_result(kit: Kit) -> None:
    """A time without a zone is refused in both directions, from Python and as text."""
    with pytest.raises(RequestError, match=r"moment: .*no time zone"):
        kit.call.Thing("a").at(NAIVE)
    with pytest.raises(Aborted, match="no time zone"):
        kit.call.Thing("a").at()
    signature = app.signature("Thing", "at")
    with pytest.raises(RequestError, match="no time zone"):
        signature.encode([signature.of_text("moment", "2026-01-01T00:00:00")], {})
    assert kit.call.Thing("a").at(FOLDED) == FOLDED.astimezone(UTC)


def test_big_integer_is_named(kit: Kit) -> None:
    """An integer beyond 64 bits aborts with the attribute's name and the reason."""
    with pytest.raises(Aborted, match=r"Thing\.integer: .*2\*\*64"):
        kit.call.Thing("a").put_wrong("integer", 4)


def test_place_of_a_refused_part_is_named() -> None:
    """A message about a value with many parts says which of them is meant; user code that raises ends the path."""

    @dataclass
    class Slot:
        at: datetime
        note: str = ""

    class Raising(Slot):
        @property
        def at(self) -> datetime:
            raise AttributeError

        @at.setter
        def at(self, value: datetime) -> None:
            """Keep nothing."""

    fine = datetime(2026, 1, 1, tzinfo=UTC)
    assert place_in(NAIVE) == ""
    assert place_in([fine, NAIVE]) == "[1]"
    assert place_in([Slot(fine), Slot(NAIVE)]) == "[1].at"
    assert place_in({"a": (1, Slot(NAIVE))}) == "['a'][1].at"
    assert place_in([1, Raising(fine), NAIVE]) == ""


@dataclass
class Net:
    amount: Any


@dataclass
class Counted:
    count: int

    def __post_init__(self) -> None:
        self.count += 1


class Shade(Enum):
    DARK = "dark"
    LIGHT = "light"


class Note(Entity):
    name: str = key()
    fields: dict[str, Any] = {}
    events: list[Any] = []
    counts: list[Counted] = []
    weights: dict[float, int] = {}
    day: date = date(2026, 1, 1)
    shades: list[Shade] = []

    def put(self, place: int) -> None:
        setattr(self, *MISFITS[place][:2])

    def publish(self) -> None:
        emit(notes, {"net": {"amount": Decimal("1.5")}})


notes = stream("notes", dict[str, Any])
MISFITS: list[tuple[str, Any, str]] = [
    ("fields", {"x": 1, "net": {"amount": Decimal("1.50")}}, "fields['net']['amount']: dict[str, Any] cannot hold Decimal('1.50')"),
    ("fields", {"x": {2: NAIVE.date()}}, "fields['x'][2]: dict[str, Any] cannot hold datetime.date"),
    ("fields", {"x": (1, 2)}, "fields['x']: dict[str, Any] cannot hold a value of type tuple"),
    ("events", [1, {"net": [Net(1)]}], "events[1]['net'][0]: list[Any] cannot hold a value of type Net"),
    ("counts", [Counted(1)], "counts[0].count: list[Counted] changes 2 to 3 in code that runs at each reading, such as __post_init__"),
    ("weights", {math.nan: 1}, "weights is dict[float, int] and cannot hold NaN as a key or a member"),
    ("day", NAIVE.replace(tzinfo=UTC), "day: Expected `date`, got `datetime`; value.date() is its day"),
    ("events", ["a\ud800", 2], "events[0]: it has '\\ud800' at position 1, which is half of a surrogate pair; "),
    ("events", [{"n": 2**64}], "events[0]['n']: an int has 64 bits, from -2**63 to 2**64 - 1; declare str or Decimal for a larger one"),
    ("shades", ["grey"], "shades[0]: Invalid enum value 'grey'; accepted are 'dark', 'light'"),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(MISFITS)))
def test_a_part_that_would_come_back_changed_is_named(place: int) -> None:
    """A value inside of `Any` that decoding changes is named with its path."""
    kit = Kit(App("notes", Note, notes))
    kit.call.Note.create("n")
    with pytest.raises(Aborted, match=re.escape("Note." + MISFITS[place][2])):
        kit.call.Note("n").put(place)


def test_a_part_of_an_event_is_named() -> None:
    """So is a part of an event."""
    kit = Kit(App("notes", Note, notes))
    kit.call.Note.create("n")
    where = re.escape("cannot hold Decimal('1.5') at ['net']['amount']")
    with pytest.raises(Aborted, match=where):
        kit.call.Note("n").publish()
