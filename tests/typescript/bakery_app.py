"""An application whose names and types are hard for a client in TypeScript."""

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from penstock import Aborted, App, Entity, flow, key, publish, readonly, stream, transactional


class SoldOut(Aborted):
    """The shelf has fewer pieces. */ throw new Error("from a comment"); /*"""

    code = "sold-out"


class TooSweet(Aborted):
    """An error without a code of its own."""


class Kind(Enum):
    BREAD = "bread"
    CAKE = "cake"


@dataclass
class Promise:
    """A type with the name of one of JavaScript's own."""

    pieces: int
    price: Decimal = Decimal("1.50")


class Loaf(Entity):
    loaf_id: str = key()
    pieces: int = 0
    kind: Kind = Kind.BREAD
    promised: list[Promise] = []
    weight: float = 1.0
    by_day: dict[str, int | None] = {}

    def take(self, pieces: int = 1, *, promise: Promise | None = None) -> int:
        """Take pieces.

        Returns those that are left.
        """
        if pieces > self.pieces:
            raise SoldOut(f"only {self.pieces} left")
        self.pieces -= pieces
        if promise is not None:
            self.promised.append(promise)
        return self.pieces

    def sweeten(self) -> None:
        raise TooSweet("enough")

    def weigh(self, grams: float) -> float:
        self.weight = grams
        return grams

    @readonly
    def count(self) -> int:
        return self.pieces

    @readonly
    def grains(self) -> int:
        return 2**60 + 1

    @readonly
    def pair(self, left: int, right: str = "r", /) -> tuple[int, str]:
        return left, right


class Client(Entity):
    """An entity with the name of the client's class, and a key that is a number."""

    number: int = key()


@transactional
def bake(names: list[str], *more: int) -> int:
    for name in names:
        Loaf.create(name, pieces=sum(more) or 10)
    return len(names)


@dataclass
class Baked:
    loaf: Loaf
    at_degrees: int


def shout(baked: Baked) -> str:
    return f"{baked.at_degrees} degrees!"


ovens = stream("oven-runs", Baked)
app = App(
    "bakery",
    Loaf,
    Client,
    bake,
    ovens,
    flow("shouting", ovens).map(shout).sink("shouts"),
    publish(Loaf, "loaves"),
)
