"""Constraints: `Annotated[str, Meta(min_length=2)]` holds for every new value, or is refused by name."""

import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import annotated_types
import msgspec
import pydantic
import pytest
from msgspec import Meta

from penstock import (
    Aborted,
    App,
    DefinitionError,
    Emit,
    Entity,
    RequestError,
    emit,
    flow,
    key,
    portal,
    readonly,
    send_after,
    stream,
)
from penstock.base.ids import entity_key
from penstock.base.schema import complaints_of
from penstock.runtime.local.runtime import LocalRuntime
from penstock.snapshots.table import tables_of
from penstock.testing import Kit

Name = Annotated[str, Meta(min_length=2)]
Positive = NewType("Positive", Annotated[int, Meta(gt=0)])


@dataclass
class Line:
    sku: Name
    pieces: Annotated[int, Meta(ge=1), "how many"] = 1


class Order(Entity):
    number: Annotated[str, Meta(pattern="^o")] = key()
    name: Name = "nobody"
    amount: Positive = 1  # type: ignore[assignment]
    tags: list[Name] = []
    lines: list[Line] = []
    note: Annotated[str, "only for people"] = ""

    def put(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def take(self, name: Name, amount: Positive = 1, *more: Name, **named: Positive) -> None:  # type: ignore[assignment]
        self.name = name

    def take_all(self, names: list[Name], by_name: dict[str, Name]) -> None: ...

    def put_line(self, sku: str) -> None:
        self.lines.append(Line(sku))

    @readonly
    def called(self, name: str) -> Name:
        return name

    def make(self, number: str) -> None:
        Order.create(number)

    def publish(self, text: str) -> None:
        emit(names, text)


names = stream("names", Name)
words = stream("words", str)
pairs = stream("pairs", tuple[int, Name])
names_of = portal("names_of", str, Name)


class Shorten:
    last: Name = "none"

    async def on_event(self, event: str, out: Emit[Name]) -> None:
        if event == "state":
            self.last = "x"
        out(await names_of.ask(event) if event.startswith("ask") else event[:3])


class Naming:
    def on_event(self, event: str) -> None: ...

    @names_of.reply
    def name_of(self, request: str) -> Name:
        return request[3:]


shortened = flow("shorten", words).task(Shorten).sink("short")
sunk = flow("sunk", words).filter(bool).sink("sunk_names", Name)
app = App(
    "orders",
    Order,
    names,
    pairs,
    shortened,
    sunk,
    flow("naming", words).task(Naming).sink("n", int),
)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Order.create("o1")
    return kit


@pytest.mark.parametrize(
    ("arguments", "named", "what"),
    [
        (["x"], {}, "name: Expected `str` of length >= 2"),
        (["xx", 0], {}, "amount: Expected `int` >= 1"),
        (["xx", 1, "yy", "z"], {}, "more: Expected `str` of length >= 2"),
        ([], {"name": "x"}, "name: Expected `str` of length >= 2"),
        ([], {"name": "xx", "extra": 0}, "extra: Expected `int` >= 1"),
    ],
)
def test_arguments(kit: Kit, arguments: list[Any], named: dict[str, Any], what: str) -> None:
    """An argument that breaks a constraint is refused, from Python and from JSON, and as a word."""
    order = kit.call.Order("o1")
    with pytest.raises(RequestError, match=re.escape(what)):
        order.take(*arguments, **named)
    take = app.signature("Order", "take")
    with pytest.raises(RequestError, match=re.escape(what)):
        take.of_json(msgspec.json.encode(named or arguments))
    if not named:
        with pytest.raises(RequestError, match="Expected"):
            take.parse([*map(str, arguments)])
    order.take("xx", 5, "yy", extra=1)


def test_constraints_inside_of_arguments(kit: Kit) -> None:
    """The path leads to the part."""
    with pytest.raises(RequestError, match=r"names\[1\]: Expected `str` of length >= 2"):
        kit.call.Order("o1").take_all(["xx", "y"], {})
    with pytest.raises(RequestError, match=r"by_name\[...\]: Expected `str` of length >= 2"):
        kit.call.Order("o1").take_all([], {"a": "y"})


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("name", "x", "Order.name: Expected `str` of length >= 2"),
        ("amount", 0, "Order.amount: Expected `int` >= 1"),
        ("tags", ["xx", "y"], "Order.tags[1]: Expected `str` of length >= 2"),
        ("lines", "x", "Order.lines[0].sku: Expected `str` of length >= 2"),
    ],
)
def test_attributes(kit: Kit, name: str, value: Any, what: str) -> None:
    """An attribute keeps to its constraint at the end of the transaction."""
    order = kit.call.Order("o1")
    with pytest.raises(Aborted, match=re.escape(what)):
        order.put_line(value) if name == "lines" else order.put(name, value)
    entity = kit.entity("Order", "o1")
    assert entity is not None
    assert entity[name] in ("nobody", 1, [])


def test_keys(kit: Kit) -> None:
    """The key of a new entity keeps to its constraint; `Order("x")` is only a name."""
    with pytest.raises(RequestError, match=r"Order.number: Expected `str` matching regex"):
        kit.call.Order.create("x")
    with pytest.raises(Aborted, match=r"Order.number: Expected `str` matching regex"):
        kit.call.Order("o1").make("x")
    assert not kit.call(Order.exists, "x")
    with pytest.raises(Aborted, match=r"Order\.number"):
        kit.call.Order.create()  # the derived key is a UUID


def test_results(kit: Kit) -> None:
    """A result that breaks a constraint fails its request."""
    assert kit.call.Order("o1").called("xx") == "xx"
    with pytest.raises(
        Aborted, match=r"the result of Order\.called: Expected `str` of length >= 2"
    ):
        kit.call.Order("o1").called("x")


def test_events(kit: Kit) -> None:
    """Events of handlers, of callers, of tasks and of sinks keep to the constraints of their stream."""
    what = "Expected `str` of length >= 2"
    kit.call.Order("o1").publish("xx")
    with pytest.raises(Aborted, match=what):
        kit.call.Order("o1").publish("x")
    with pytest.raises(RequestError, match=r"events\[1\]: " + what):
        kit.append(names, ["xx", "x"])
    with pytest.raises(RequestError, match=r"events\[0\]\[1\]: " + what):
        kit.append(pairs, [(1, "x")])
    kit.append(words, ["abcd"])
    assert kit.atoms(shortened)[-1] == ["abc"]
    assert kit.atoms(sunk)[-1] == ["abcd"]
    for text in ("x", "state", "askx"):  # the output, an attribute, and a reply
        kit.append(words, [text], check=False)
        assert what in kit.atoms("shorten-failed")[-1][0].message
    assert what in kit.atoms("sunk-failed")[-1][0].message or len(kit.atoms(sunk)) == 4


def test_values_from_before_a_constraint_can_be_read() -> None:
    """A constraint that becomes stricter holds from the next change of the attribute on."""

    def version(annotation: Any) -> App:
        class Note(Entity):
            name: str = key()
            text: annotation = "none"
            reads: int = 0

            @readonly
            def read(self) -> Any:
                return self.text

            def write(self, text: str) -> None:
                self.text = text

            def count(self) -> None:
                self.reads += 1

        return App("notes", Note)

    runtime = LocalRuntime(version(str))
    runtime.call.Note.create("n", text="x")
    runtime.deploy(version(Name))
    assert runtime.call.Note("n").read() == "x"
    runtime.call.Note("n").count()
    with pytest.raises(Aborted, match=r"Note.text: Expected `str` of length >= 2"):
        runtime.call.Note("n").write("y")
    runtime.call.Note("n").write("xx")


class Model(pydantic.BaseModel):
    name: Annotated[str, Meta(min_length=2)]


class FieldModel(pydantic.BaseModel):
    name: Annotated[str, pydantic.Field(min_length=2)]


@dataclass
class Foreign:
    name: Annotated[str, annotated_types.MinLen(2)]


class ForeignDict(TypedDict):
    name: Annotated[str, pydantic.Field(min_length=2)]


class ForeignTuple(NamedTuple):
    name: list[Annotated[str, re.compile("x")]]


def is_fine(value: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("annotation", "complaint"),
    [
        (Annotated[str, annotated_types.MinLen(2)], "MinLen(min_length=2) in Annotated is not enforced; use msgspec.Meta(min_length=…)"),
        (list[Annotated[int, annotated_types.Ge(2)]], "use msgspec.Meta(ge=…)"),
        (Annotated[str, pydantic.Field(min_length=2)], "is not enforced; use msgspec.Meta"),
        (Annotated[str, pydantic.AfterValidator(str.upper)], "is not enforced; check the value in the method"),
        (Annotated[str, is_fine], "the function is_fine in Annotated is not enforced"),
        (NewType("Short", Annotated[str, annotated_types.MaxLen(2)]), "use msgspec.Meta(max_length=…)"),
        (Foreign, "Foreign.name: MinLen(min_length=2) in Annotated is not enforced"),
        (ForeignDict, "ForeignDict.name: FieldInfo"),
        (ForeignTuple, "ForeignTuple.name: re.compile('x') in Annotated is not enforced"),
        (Model, "Model.name: pydantic does not enforce msgspec.Meta(min_length=2); write Field(min_length=2)"),
        (Annotated[Decimal, Meta(ge=0)], "msgspec bounds int, float, str, bytes, list, tuple, set, frozenset and dict alone"),
        (Annotated[int | None, Meta(ge=0)], "let Annotated[…] enclose one of them inside"),
        (Annotated[deque[int], Meta(min_length=1)], "Can only set `min_length` on"),
        (Annotated[Literal["a"], Meta(min_length=1)], "Can only set `min_length` on"),
    ],
)  # fmt: skip
def test_a_constraint_that_nothing_enforces_is_refused(annotation: Any, complaint: str) -> None:
    """The complaint names the constraint and what to write, for attributes, streams and portals."""

    class Holder(Entity):
        name: str = key()
        value: annotation

    for member in (Holder, stream("s", annotation)):
        with pytest.raises(DefinitionError, match=re.escape(complaint)):
            App("x", member)


@pytest.mark.parametrize(
    "annotation",
    [
        FieldModel,
        Annotated[str, "text", 5, None],
        Annotated[Decimal, Meta(description="an amount")],
        Annotated[datetime, Meta(tz=True)],
        Annotated[int, Meta(ge=0)] | None,
        Annotated[set[int], Meta(max_length=2)],
        dict[Annotated[str, Meta(min_length=1)], Annotated[list[Line], Meta(max_length=2)]],
    ],
)
def test_other_annotations_are_fine(annotation: Any) -> None:
    """Texts and descriptions are no constraints; pydantic enforces those of its models."""
    assert complaints_of(annotation) == []


def records_with(annotation: Any) -> list[type]:
    """Return a record of each kind with a field of a type."""

    @dataclass
    class Data:
        size: annotation

    class Row(NamedTuple):
        size: annotation

    class Keys(TypedDict):
        size: annotation

    class Packed(msgspec.Struct):
        size: annotation

    limit = {} if annotation is int else {"ge": 0}
    model: Any = pydantic.create_model("Model", size=(int, pydantic.Field(**limit)))  # type: ignore[call-overload]
    return [Data, Row, Keys, Packed, model]


def boxes(record: Any) -> App:  # noqa: C901 -- one line for each method
    """Return an application that stores a record, publishes it, and takes it in a flow."""

    class Box(Entity):
        name: str = key()
        content: record
        contents: list[record]
        touched: int = 0

        def touch(self) -> None:
            self.touched += 1

        def put(self, size: int) -> None:
            self.content = record(size=size)
            emit(sizes, self.content)

        def take(self, content: record) -> None:
            self.content = content

        @readonly
        def first(self) -> record:
            return self.contents[0]

        def made(self, size: int) -> record:
            return record(size=size)

        def late(self, size: int) -> None:
            send_after(timedelta(hours=1), self.take, record(size=size))

    class Last:
        last: record | None = None
        count: int = 0

        def on_event(self, event: record, out: Emit[int]) -> None:
            self.count += 1
            if self.last is None:
                self.last = event
            out(self.count)

    sizes = stream("sizes", record)
    return App("boxes", Box, sizes, flow("last", sizes).task(Last).sink("counts"))


def size_of(value: Any) -> int:
    """Return the only field of a record."""
    size: int = value["size"] if isinstance(value, dict) else value.size
    return size


@pytest.mark.parametrize("kind", range(5))
def test_records_from_before_a_constraint_can_be_read(kind: int) -> None:
    """A constraint in a record holds for what is written, and stops no reader of what is stored."""
    loose, strict = records_with(int)[kind], records_with(Annotated[int, Meta(ge=0)])[kind]
    kit = Kit(boxes(loose))
    kit.call.Box.create("b", content=loose(size=-1), contents=[loose(size=-2)])
    kit.call.Box("b").put(-3)
    kit.call.Box("b").late(-4)
    kit.settle()
    kit.runtime.deploy(boxes(strict))
    box = kit.call.Box("b")
    kit.entity("Box", "b")
    box.touch()  # reads and leaves the others
    assert size_of(kit.atoms("sizes")[0][0]) == -3
    wrong = "Expected `int` >= 0|greater than or equal to 0"
    with pytest.raises(Aborted, match=wrong):
        box.put(-1)
    with pytest.raises(Aborted, match=wrong):
        box.made(-1)
    assert size_of(box.first()) == -2
    given = msgspec.json.encode([[-1] if kind == 1 else {"size": -1}])
    with pytest.raises(RequestError, match=wrong):
        kit.runtime.app.signature("Box", "take").of_json(given)
    box.put(5)
    assert kit.atoms("counts") == [[1], [2]]
    box.touch()
    kit.clock.advance(timedelta(hours=2))
    kit.settle()  # the request that waits fails alone
    assert kit.task("last.Last")["count"] == 2
    data = kit.runtime.state[entity_key("Box", "b")]
    [row] = tables_of(kit.runtime.app)["Box"].rows(["b"], [data]).to_pylist()
    assert (row["content"], row["contents"]) == ({"size": 5}, [{"size": -2}])
