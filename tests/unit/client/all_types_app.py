"""An application with one value of every type, for tests of the way over HTTP."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock import App, Entity, key, readonly, transactional


class TornError(Exception):
    """An error that the application itself raises."""


@dataclass
class Fabric:
    name: str
    price: Decimal


Everything = tuple[
    int,
    float,
    str,
    bool,
    bytes,
    int | None,
    datetime,
    date,
    Decimal,
    UUID,
    set[bytes],
    dict[int, str],
]

EVERYTHING: Everything = (
    2**63 - 1,
    0.1,
    'é"\\\u2028',
    True,
    b"\x00\xff",
    None,
    datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC),
    date(2026, 2, 28),
    Decimal("1.10"),
    UUID(int=7),
    {b"a", b"\xff"},
    {-1: "a", 2: "b"},
)


class Coat(Entity):
    number: int = key()
    worn: int = 0
    fabric: Fabric | None = None
    lining: bytes = b""
    twin: "Coat | None" = None

    def wear(self, times: int = 1) -> int:
        if times < 0:
            raise TornError(f"coat {self.number}")
        self.worn += times
        return self.worn

    def line(self, lining: bytes, fabric: Fabric) -> Fabric:
        self.lining, self.fabric = lining, fabric
        return fabric

    def pair(self, other: "Coat") -> "Coat":
        self.twin = other
        return other

    @readonly
    def twin_worn(self) -> int | None:
        return None if self.twin is None else self.twin.worn


class Hook(Entity):
    name: str = key()
    holds: list[Coat] = []


@transactional
def echo(values: Everything) -> Everything:
    return values


@transactional
def anything(value: Any) -> Any:
    return value


@transactional
def hang_up(name: str, coats: list[Coat]) -> Hook:
    hook = Hook.create(name)
    hook.holds = coats
    return hook


app = App("wardrobe", Coat, Hook, echo, anything, hang_up)
