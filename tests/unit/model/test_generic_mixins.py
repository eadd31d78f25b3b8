"""Generic classes whose attributes and methods entities and tasks inherit: `class Numbers(Holder[int], Entity)`."""

import importlib
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar

import pytest
from typing_extensions import TypeVar as DefaultedTypeVar

from penstock import (
    Aborted,
    App,
    DefinitionError,
    Emit,
    Entity,
    PerTask,
    RequestError,
    flow,
    key,
    portal,
    stream,
)
from penstock.testing import Kit

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")
N = TypeVar("N", bound=int)
C = TypeVar("C", int, bytes)
D = DefaultedTypeVar("D", default=int)


class Holder(Generic[T]):
    items: list[T] = []

    def add(self, item: T) -> int:
        self.items.append(item)
        return len(self.items)

    def add_any(self, item: Any) -> None:
        self.items.append(item)

    def last(self) -> T:
        return self.items[-1]


class Keyed(Generic[K, T], Holder[list[T]]):
    name: K = key()
    by_name: "dict[str, T]" = {}


class Counted(Generic[N, C, D]):
    number: N
    choice: C
    defaulted: D

    def set_default(self, value: D) -> None:
        self.defaulted = value


class Numbers(Holder[int], Entity):
    name: str = key()


class Nested(Keyed[int, int], Entity):
    """`T` is another type in each class of its lineage."""


class Friends(Holder["Numbers"], Entity):
    name: str = key()


class Bare(Counted, Entity):  # type: ignore[type-arg]
    name: str = key()


class Given(Counted[bool, bytes, str], Entity):
    name: str = key()


def attributes_of(cls: type) -> dict[str, Any]:
    entity_type = vars(cls)["__reference__"]
    return {entity_type.key_name: entity_type.key_annotation, **entity_type.attributes}


app = App("generic", Numbers, Nested, Friends, Bare, Given)


def test_types_of_attributes() -> None:
    """A variable has the type that the inheriting class gives it, else its default, its constraints, or its bound."""
    assert attributes_of(Numbers) == {"name": str, "items": list[int]}
    assert attributes_of(Nested) == {
        "name": int,
        "items": list[list[int]],
        "by_name": dict[str, int],
    }
    assert attributes_of(Friends) == {"name": str, "items": list[Numbers]}
    assert attributes_of(Bare) == {
        "name": str,
        "number": int,
        "choice": int | bytes,
        "defaulted": int,
    }
    assert attributes_of(Given) == {"name": str, "number": bool, "choice": bytes, "defaulted": str}


def test_types_of_parameters_and_results() -> None:
    """They follow the class that inherits the method."""
    assert app.signature("Numbers", "add").parameters["item"].annotation is int
    assert app.signature("Numbers", "last").returns is int
    assert app.signature("Nested", "add").parameters["item"].annotation == list[int]
    assert app.signature("Friends", "last").returns is Numbers
    assert app.signature("Bare", "set_default").parameters["value"].annotation is int
    assert app.signature("Given", "set_default").parameters["value"].annotation is str


def test_values_are_checked() -> None:
    """A value of another type is refused, as an argument and as an attribute."""
    kit = Kit(app)
    kit.call.Numbers.create("n")
    with pytest.raises(RequestError, match=r"Numbers\.add: item: Expected `int`, got `str`"):
        kit.call.Numbers("n").add("text")
    with pytest.raises(Aborted, match=r"Numbers.items\[0\]: Expected `int`, got `str`"):
        kit.call.Numbers("n").add_any("text")
    assert kit.call.Numbers("n").add(5) == 1
    friends = kit.call(Friends.create, "f")
    kit.call(Friends.add, friends, Numbers("n"))
    assert kit.call(Friends.last, friends) == Numbers("n")


def test_a_task_inherits_from_a_generic_class() -> None:
    """Its attributes, its events and its portals have the types that it gives to the variables."""
    numbers = stream("numbers", int)
    totals = portal("totals", int, int)

    class Summing(Generic[T, U]):
        sums: list[T] = []
        shared: PerTask[list[T]] = []

        def on_event(self, event: T, out: Emit[U]) -> None:
            self.sums.append(event)
            self.shared.append(event)
            out(str(event))  # type: ignore[arg-type]

    class Texts(Summing[int, str]):
        @totals.reply
        def total(self, request: int) -> int:
            return request

    class Swapped(Summing[int, int]):
        pass

    keyed = flow("f", numbers).key(lambda number: number % 2).task(Texts).sink("texts")
    kit = Kit(App("tasks", keyed))
    kit.append(numbers, [1, 2, 3])
    assert kit.atoms(keyed) == [["1", "2", "3"]]
    task = kit.runtime.app.topology.tasks["f.Texts"]
    assert task.rows.attributes == {"sums": list[int]}
    assert task.shared is not None
    assert task.shared.attributes == {"shared": list[int]}
    assert task.event is not None
    assert task.event.annotation is int
    assert task.output is not None
    assert task.output.annotation is str
    wrong = Kit(App("wrong", flow("f", numbers).task(Swapped).sink("out")))
    wrong.append(numbers, [1], check=False)
    assert "int" in wrong.atoms("f-failed")[0][0].message


def test_generic_records() -> None:
    """A dataclass that derives from a generic one has its types; a TypedDict that does so is refused."""

    @dataclass
    class Box(Generic[T]):
        content: T

    @dataclass
    class Boxes(Box[list[U]], Generic[U]):
        more: U | None = None

    @dataclass
    class IntBoxes(Boxes[int]):
        pass

    class Sketch(TypedDict, Generic[T]):
        content: T

    class IntSketch(Sketch[int]):
        name: str

    class Store(Entity):
        name: str = key()

        def put(self, box: IntBoxes) -> None: ...

        def draw(self, sketch: Sketch[int]) -> None: ...

    kit = Kit(App("records", Store))
    put, draw = (
        kit.runtime.app.signature("Store", "put"),
        kit.runtime.app.signature("Store", "draw"),
    )
    assert put.of_json(b'[{"content": [1], "more": 2}]') == ([IntBoxes([1], 2)], {})
    for wrong in (b'[{"content": ["a"]}]', b'[{"content": [], "more": "a"}]'):
        with pytest.raises(RequestError, match="Expected `int"):
            put.of_json(wrong)
    with pytest.raises(RequestError, match="Expected `int"):
        draw.of_json(b'[{"content": "a"}]')

    class Gallery(Entity):
        name: str = key()
        sketch: IntSketch | None = None

    with pytest.raises(
        DefinitionError, match=r"IntSketch inherits from the generic .*Sketch\[int\]"
    ):
        App("gallery", Gallery)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax of PEP 695")
def test_type_parameters_in_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`class Holder[T]` is such a class, also with annotations that are text."""
    monkeypatch.syspath_prepend(tmp_path)
    source = """
        from __future__ import annotations
        from penstock import App, Entity, key

        class Holder[T]:
            items: list[T] = []

            def add(self, item: T) -> T:
                self.items.append(item)
                return item

            def same[U](self, item: U) -> U:
                return item

        class Numbers(Holder[int], Entity):
            name: str = key()

        app = App("numbers", Numbers)
    """
    (tmp_path / "bracketed.py").write_text(textwrap.dedent(source))
    bracketed: Any = importlib.import_module("bracketed")
    assert attributes_of(bracketed.Numbers) == {"name": str, "items": list[int]}
    add = bracketed.app.signature("Numbers", "add")
    assert (add.parameters["item"].annotation, add.returns) == (int, int)
    assert bracketed.app.signature("Numbers", "same").returns is Any
