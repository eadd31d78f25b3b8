"""An application that has everything the compiler must see through, for the golden files."""

import time
import uuid as unsafe
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock import App, Entity, key, readonly, rows, savepoint, sqlite, transactional, view

SEEN: list[str] = []


@dataclass
class Need:
    """A plain value with a reference in it."""

    part: "Part"
    count: int


class Priced:
    """A mixin: its method reads an attribute that only the entity declares."""

    price: int = 0

    def cost(self, count: int) -> int:
        return self.price * count

    @property
    def is_free(self) -> bool:
        return self.price == 0


class Part(Priced, Entity):
    part_id: str = key()
    stock: int = 0
    made_by: "Machine | None" = None

    def take(self, count: int) -> int:
        if self.stock < count and self.made_by is not None:
            self.made_by.make(self, count)
        self.stock -= count
        return self.stock

    def _put(self, count: int) -> None:
        self.stock += count


class Machine(Entity):
    name: str = key()
    inputs: dict[str, list[Need]] = {}
    next: "Machine | None" = None
    tags: set[str] = set()

    def make(self, part: Part, count: int) -> None:
        for need in self.inputs.get(part.part_id, []):
            need.part.take(need.count * count)
        part._put(count)

    def chain(self) -> list["Machine"]:
        if self.next is None:
            return [self]
        return [self, *self.next.chain()]

    def scrap(self) -> None:
        following, rest = self.next, self.chain()
        if following:
            following.delete()
        for tag in self.tags:
            SEEN[:0] = [tag]
        self.worn = len(rest)


class Job(Entity):
    def __init__(self, number: str, parts: list[tuple[Part, int]]) -> None:
        self.number = number
        self.parts = parts
        self.log: list[str] = []
        self.started: float = 0.0

    def __key__(self) -> str:
        return self.number

    @readonly
    def total(self) -> int:
        return sum(part.cost(count) for part, count in self.parts if not part.is_free)

    def run(self) -> int:
        self.started = time.time()
        self.log.append(str(unsafe.uuid4()))
        for part, count in sorted(self.parts, key=lambda pair: pair[0].price):
            with savepoint():
                _take(part, count, lambda left: self.log.append(f"{left}"))
        return self.total()

    def split(self, at: int) -> "Job":
        head, tail = self.parts[:at], self.parts[at:]
        self.parts = head
        return Job.create(f"{self.number}-rest", tail)


def _take(part: Part, count: int, note: Callable[[int], None]) -> None:
    if count > 0:
        note(part.take(1))
        _take(part, count - 1, note)


def _cheap(parts: Iterator[Part]) -> Iterator[Part]:
    for part in parts:
        if part.price < 10:
            yield part


@transactional
def restock(names: list[str], extra: Any, which: str) -> Any:
    """Parts by name, and things of which nothing is known."""
    found = {name: Part(name) for name in names if Part.exists(name)}
    for part in _cheap(iter(found.values())):
        part._put(1)
    extra.take(2)
    getattr(Part(names[0]), which)()
    return [Machine(f"m-{name}").chain() for name in found]


@dataclass
class Scarce:
    name: str


@rows(Part)
def scarce_parts(part: Part) -> Scarce | None:
    return Scarce(part.part_id)


app = App("workshop", Part, Machine, Job, restock, view("stock", sqlite(), Part, scarce_parts))
