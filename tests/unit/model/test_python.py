"""Handlers are ordinary Python: all features of the language work in them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from penstock import Aborted, App, Entity, RequestError, key, transactional
from penstock.model.call import Call
from penstock.testing import Kit


class Named:
    """A mixin with an attribute, a method and a property."""

    label: str = "unnamed"
    separator: ClassVar[str] = "-"

    def rename(self, label: str) -> str:
        self.label = label
        return self.title

    @property
    def title(self) -> str:
        return f"{self.separator}{self.label}{self.separator}"


class Counting:
    """A mixin whose method is overridden and called through `super()`."""

    count: int = 0

    def step(self, by: int = 1) -> int:
        self.count += by
        return self.count


def doubled(number: int) -> int:
    return 2 * number


def call_twice(what: Callable[[], Any]) -> None:
    what()
    what()


@contextmanager
def noting(owner: "Machine") -> Iterator[int]:
    owner.log.append("enter")
    try:
        yield owner.count
    finally:
        owner.log.append("leave")


class Machine(Counting, Named, Entity):
    name: str = key()
    log: list[str] = []

    def step(self, by: int = 1, *, twice: bool = False) -> int:
        return super().step(doubled(by) if twice else by)

    @property
    def half(self) -> int:
        return self.count // 2

    @half.setter
    def half(self, value: int) -> None:
        self.count = 2 * value

    @staticmethod
    def _shout(text: str) -> str:
        return text.upper()

    @classmethod
    def _at(cls, name: str) -> "Machine":
        return cls(name)

    def _hidden(self) -> int:
        return self.count

    def factorial(self, number: int) -> int:
        self.count += 1
        return 1 if number <= 1 else number * self.factorial(number - 1)

    def ping(self, other: "Machine", depth: int) -> int:
        self.count += 1
        return depth if depth == 0 else other.ping(self, depth - 1)

    def countdown(self) -> int:
        rounds = 0
        while self.count > 0:
            self.count -= 1
            rounds += 1
            if rounds > 100:
                break
        else:
            self.log.append("done")
        return rounds

    def guarded(self, others: list["Machine"]) -> str:
        try:
            for other in others:
                other.fail()
        except ValueError as error:
            self.log.append(f"caught {error}")
            return "caught"
        else:
            return "fine"
        finally:
            self.log.append("finally")

    def fail(self) -> None:
        self.count += 1
        raise ValueError(f"{self.name} fails")

    def comprehend(self, others: list["Machine"]) -> list[Any]:
        lazy = (other.step() for other in others)
        return [
            [other.step() for other in others if other.count >= 0],
            {other.name: other.step() for other in others},
            sorted({other.step() for other in others}),
            sum(lazy),
            max(others, key=lambda other: other.count).name,
            list(map(Machine.step, others)),
            any(other.count > 3 for other in others),
            [name for name, _ in sorted((other.name, other.count) for other in others)],
        ]

    def collect(self, *amounts: int, factor: int = 1, **named: int) -> int:
        self.count = factor * (sum(amounts) + sum(named.values()))
        return self.count

    def use_everything(self, other: "Machine") -> list[Any]:
        call_twice(other.step)
        with noting(other) as count:
            walrus = (found := other.count) + count
        first, *rest = other.log
        bound = other.step
        del other.log[0]
        other.half = 10
        return [
            walrus,
            found,
            first,
            rest,
            bound(5),
            other.half,
            other.title,
            Machine._at("b").title,
        ]

    def describe(self, other: Any) -> str:
        match other:
            case Machine(name="b", count=count) if count > 1:
                return f"busy b {count}"
            case Machine(name=name):
                return f"machine {name}"
            case [Machine() as first, *_]:
                return f"list of {first!r}"
            case _:
                return "other"

    def describe_all(self, other: "Machine") -> list[str]:
        return [self.describe(one) for one in (self, other, [other, 1], 5)]

    def generate(self, other: "Machine") -> int:
        return sum(self._numbers(other))

    def _numbers(self, other: "Machine") -> Iterator[int]:
        for _ in range(3):
            yield other.step()
        yield from (self.step(), self._hidden())

    def not_a_result(self):  # type: ignore[no-untyped-def]
        return (count for count in [self.count])

    def undeclared(self) -> None:
        self.surprise = 1

    def forget(self) -> None:
        del self.log

    def forget_and_find(self) -> list[str]:
        del self.log
        self.log.append("never")
        return self.log

    def shadow(self) -> int:
        return (lambda: [self.step() for _ in range(2)][-1])()

    def stop(self) -> None:
        self.count = 99
        raise StopIteration("stopped")


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@transactional
def defaults(first: int, second: str = "two", *, third: Point | None = None) -> list[Any]:
    return [first, second, third.x if third else None]


app = App("python", Machine, defaults)


@pytest.fixture
def kit() -> Kit:
    kit = Kit(app)
    kit.call.Machine.create("a")
    kit.call.Machine.create("b")
    return kit


A, B = Machine("a"), Machine("b")


def count_of(kit: Kit, name: str) -> int:
    found = kit.entity("Machine", name)
    assert found is not None
    return int(found["count"])


def test_mixins_properties_and_super(kit: Kit) -> None:
    """Attributes, methods and properties of plain base classes are the entity's own."""
    assert kit.call.Machine("a").rename("x") == "-x-"
    assert kit.call.Machine("a").step(3, twice=True) == 6
    assert kit.entity("Machine", "a") == {"name": "a", "count": 6, "label": "x", "log": []}


def test_recursion_and_mutual_calls(kit: Kit) -> None:
    """A method calls itself, and two entities call each other in turn."""
    assert kit.call.Machine("a").factorial(5) == 120
    assert kit.call.Machine("a").ping(B, 5) == 0
    assert (count_of(kit, "a"), count_of(kit, "b")) == (8, 3)


def test_an_entity_may_be_its_own_argument(kit: Kit) -> None:
    """A reference to the root is the root."""
    assert kit.call.Machine("a").ping(A, 3) == 0
    assert count_of(kit, "a") == 4


def test_loops(kit: Kit) -> None:
    """`while`, `break` and `else` work on attributes."""
    kit.call.Machine("a").step(7)
    assert kit.call.Machine("a").countdown() == 7
    assert kit.entity("Machine", "a") == {
        "name": "a",
        "count": 0,
        "label": "unnamed",
        "log": ["done"],
    }


def test_caught_exceptions_undo_nothing(kit: Kit) -> None:
    """Changes before a caught exception stay; `finally` runs."""
    assert kit.call.Machine("a").guarded([B, B]) == "caught"
    assert count_of(kit, "b") == 1
    assert kit.call.Machine("a").guarded([]) == "fine"
    found = kit.entity("Machine", "a")
    assert found is not None
    assert found["log"] == ["caught b fails", "finally", "finally"]


def test_exceptions_undo_everything(kit: Kit) -> None:
    """An exception that leaves the root undoes all, and tells its class, text and traceback."""
    before = kit.digest()
    with pytest.raises(Aborted, match=r"^ValueError: a fails$") as caught:
        kit.call.Machine("a").fail()
    assert (caught.value.code, caught.value.kind) == ("unhandled", "ValueError")
    assert isinstance(caught.value.__cause__, ValueError)
    assert kit.digest() == before


def test_stop_iteration_aborts_like_any_other(kit: Kit) -> None:
    """`StopIteration` from a handler is an abort, and does not end a loop of the engine."""
    with pytest.raises(Aborted, match="StopIteration: stopped"):
        kit.call.Machine("a").stop()
    assert count_of(kit, "a") == 0


def test_comprehensions_and_generators(kit: Kit) -> None:
    """Entities are called from comprehensions, generators, `map` and `key=` functions."""
    assert kit.call.Machine("a").comprehend([A, B]) == [
        [1, 1], {"a": 2, "b": 2}, [3], 8, "a", [5, 5], True, ["a", "b"],
    ]  # fmt: skip
    assert kit.call.Machine("a").generate(B) == 6 + 7 + 8 + 6 + 6
    assert kit.call.Machine("a").shadow() == 8


def test_arguments_of_every_kind(kit: Kit) -> None:
    """`*args`, `**kwargs`, defaults and keyword-only parameters arrive as in Python."""
    assert kit.call.Machine("a").collect() == 0
    assert kit.call.Machine("a").collect(1, 2, factor=10, x=3) == 60
    assert kit.call.defaults(1) == [1, "two", None]
    assert kit.call.defaults(second="2", first=1, third=Point(7)) == [1, "2", 7]


@pytest.mark.parametrize(
    ("positional", "named", "what"),
    [
        ((), {}, "first"),
        ((1, "2", 3), {}, "too many"),
        (("1",), {}, "first: Expected `int`, got `str`"),
        ((1,), {"second": 2}, "second: Expected `str`, got `int`"),
        ((1,), {"fourth": 2}, "fourth"),
        ((1,), {"first": 2}, "first"),
        ((True,), {}, "first: Expected `int`, got `bool`"),
        ((2**64,), {}, "first"),
        ((1,), {"third": {"x": "1"}}, "third"),
        ((object(),), {}, "first: a value of type object"),
        (("\ud800",), {}, "first"),
        ((A,), {}, "first"),
    ],
)
def test_wrong_arguments_name_the_parameter(
    kit: Kit, positional: tuple[Any, ...], named: dict[str, Any], what: str
) -> None:
    """Arguments that do not fit are refused before anything is appended, by parameter."""
    with pytest.raises(RequestError, match=what):
        kit.call.defaults(*positional, **named)


def test_the_rest_of_the_language(kit: Kit) -> None:
    """Helpers, context managers, bound methods, setters, unpacking and class methods work."""
    assert kit.call.Machine("a").use_everything(B) == [
        4, 2, "enter", ["leave"], 25, 12, "-unnamed-", "-unnamed-",
    ]  # fmt: skip


def test_pattern_matching(kit: Kit) -> None:
    """Entities match class patterns, which load them."""
    kit.call.Machine("b").step(5)
    assert kit.call.Machine("a").describe_all(B) == [
        "machine a", "busy b 5", "list of Machine('b')", "other",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("undeclared", "Machine declares no attribute surprise"),
        ("forget", "Machine lacks its attribute log"),
        ("forget_and_find", "has no attribute 'log'"),
        ("not_a_result", "type generator cannot be stored or sent"),
    ],
)
def test_misuse_aborts_and_says_why(kit: Kit, method: str, what: str) -> None:
    """Undeclared and deleted attributes, and results that cannot be encoded, abort by name."""
    before = kit.digest()
    with pytest.raises(Aborted, match=what):
        getattr(kit.call.Machine("a"), method)()
    kit.call.Machine.create("c")
    assert kit.entity("Machine", "c") == {"name": "c", "count": 0, "label": "unnamed", "log": []}
    kit.call.Machine("c").delete()
    assert kit.digest() == before


@pytest.mark.parametrize(
    "method", ["_hidden", "_shout", "_at", "half", "title", "__init__", "nope"]
)
def test_only_public_methods_are_callable(kit: Kit, method: str) -> None:
    """Requests call public methods of entities only: nothing private, static or computed."""
    with pytest.raises(RequestError, match=method):
        kit.submit(Call("Machine", "a", method))
