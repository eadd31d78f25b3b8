"""The application that the tests of the analysis read, and functions that show its results."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import App, Entity, key, transactional
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.graph import Edge, Plan


class Pair(NamedTuple):
    left: "Leaf"
    right: "Leaf"


@dataclass
class Basket:
    leaves: list["Leaf"] = field(default_factory=list)
    other: "Other | None" = None

    def shake(self) -> None:
        for leaf in self.leaves:
            leaf.grow(1)


class Sums:
    """A plain class whose objects live for one call, or as long as the process."""

    def __init__(self, leaf: "Leaf") -> None:
        self.leaf = leaf
        leaf.touch()

    def go(self, leaf: "Leaf") -> None:
        leaf.grow(1)


class Leaf(Entity):
    name: str = key()
    size: int = 0
    notes: list[str] = []
    twin: "Leaf | None" = None

    def grow(self, amount: int) -> int:
        self.size += amount
        return self.size

    if TYPE_CHECKING:

        def touch(self) -> Any: ...
    else:

        def touch(self):
            return self.twin

    @property
    def double(self) -> int:
        return 2 * self.size

    @staticmethod
    def _both(one: "Leaf", two: "Leaf") -> None:
        one.grow(1)
        two.grow(1)

    @classmethod
    def _named(cls, name: str) -> "Leaf":
        return cls(name)


class Other(Entity):
    number: int = key()

    def shrink(self, amount: int) -> None:
        pass


SINGLETON: Any = object.__new__(Sums)


def pick(leaf: Leaf, depth: int) -> Leaf:
    if depth == 0:
        return leaf
    return pick(leaf, depth - 1)


if TYPE_CHECKING:

    def grow_all(leaves: Iterable[Leaf]) -> None: ...
    def ping(leaf: Leaf, depth: int) -> None: ...
else:  # without annotations, on purpose

    def grow_all(leaves):
        for leaf in leaves:
            leaf.grow(1)

    def ping(leaf, depth):
        leaf.touch()
        pong(leaf, depth)

    def pong(leaf, depth):
        leaf.grow(1)
        if depth:
            ping(leaf, depth - 1)


def generate(leaves: list[Leaf]) -> Iterator[Leaf]:
    yield from leaves


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return inner


class Base:
    def go(self, leaf: Leaf) -> None:
        leaf.touch()


class Middle(Base):
    def go(self, leaf: Leaf) -> None:
        super().go(leaf)


class Derived(Middle, Entity):
    number: int = key()

    def go(self, leaf: Leaf) -> None:
        super().go(leaf)
        leaf.grow(1)


@transactional
def service(leaf: Leaf) -> None:
    leaf.grow(1)


def plan_of(function: Callable[..., Any]) -> Plan:
    return analyze_app(App("test", Leaf, Other, Derived, service, transactional(function)))


def shown(edge: Edge) -> str:
    words = [edge.action.value, edge.target.text, edge.origin.value]
    words += ["loop"] * edge.looped + ["perhaps"] * edge.conditional
    return " ".join(words)


def edges_of(function: Callable[..., Any]) -> set[str]:
    plan = plan_of(function)
    return {shown(edge) for edge in plan.edges if edge.source.operator == function.__name__}


def warnings_of(function: Callable[..., Any]) -> list[str]:
    plan = plan_of(function)
    return [one.message for one in plan.warnings if one.source.operator == function.__name__]
