"""An application whose handlers wait for a portal, for an entity, and for a portal that waits for an entity."""

from typing import Any

from penstock import (
    App,
    Entity,
    ask,
    flow,
    key,
    portal,
    stream,
)
from penstock.runtime.local.runtime import LocalRuntime
from penstock.testing import Kit as MemoryKit
from tests.streams.two_ways import Kit

numbers = stream("numbers", int)
double = portal("double", int, int)
slow = portal("slow", int, int)


class Shelf(Entity):
    name: str = key()
    pieces: int = 0

    def add(self, more: int) -> int:
        self.pieces += more
        return self.pieces

    def refuse(self) -> int:
        raise ValueError(self.name)


class Doubler:
    asked: int = 0

    def on_event(self, number: int) -> None:
        """Nothing comes here."""

    @double.reply
    def on_double(self, number: int) -> int:
        self.asked += 1
        return number * 2

    @slow.reply
    async def on_slow(self, number: int) -> int:
        self.asked += 1
        return await ask(Shelf.add, Shelf("a"), number) + self.asked


def app_of(task: Any, *, exclusive: bool = False) -> App:
    return App(
        "x",
        Shelf,
        flow("doubler", stream("none", int)).task(Doubler).sink("nothing", int),
        flow("w", numbers).task(task, name="T", exclusive=exclusive).sink("out"),
        flow("keyed", numbers).key(parity).task(task, name="K", exclusive=exclusive).sink("outs"),
    )


def parity(number: int) -> int:
    return number % 2


def running(task: Any, *, exclusive: bool = False) -> Kit:
    kit = Kit(app_of(task, exclusive=exclusive))
    kit.call.Shelf.create("a")
    return kit


def events(kit: MemoryKit, name: str = "out") -> list[Any]:
    return [event for atom in kit.atoms(name) for event in atom]


def waiting_rows(runtime: LocalRuntime) -> list[str]:
    return [name for name in runtime.state if name.startswith("$")]
