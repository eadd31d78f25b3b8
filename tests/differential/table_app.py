"""An application that publishes tables, and one that keeps a copy of them, for random programs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from penstock import (
    App,
    Emit,
    Entity,
    Put,
    Removed,
    emit,
    flow,
    key,
    publish,
    registry,
    rows,
    send,
    stream,
)
from penstock.model.call import Call, encoded

NAMES = ("a", "b", "c", "d")
UNLUCKY = 7
notes = stream("notes", str)


class Crate(Entity):
    name: str = key()
    size: int = 3
    other: "Crate | None" = None

    def grow(self, by: int) -> int:
        self.size += by
        if self.size < 0:
            raise ValueError("too small")
        return self.size

    def move(self, to: "Crate", by: int) -> None:
        self.grow(-by)
        to.grow(by)
        emit(notes, self.name)

    def point(self, to: "Crate") -> None:
        self.other = to

    def spread(self, to: "Crate", times: int) -> None:
        self.size += 1
        if times:
            send(Crate.spread, to, self, times - 1)

    def drop(self) -> None:
        self.delete()


@dataclass
class Plank:
    crate: str
    number: int
    points_to: str


@rows(Crate)
def planks(crate: Crate) -> Iterator[Plank]:
    """Make a row for each piece; a crate that points to one named d reads another entity, which is refused."""
    if crate.size == UNLUCKY:
        raise ValueError("unlucky")
    target = "" if crate.other is None else crate.other.name
    if target == "d" and crate.other is not None:
        target += str(crate.other.size)
    for number in range(crate.size % 4):
        yield Plank(crate.name, number, target)


planks_table = publish(planks)
yard = App("yard", Crate, planks_table, publish(Crate, "crates"), notes)
taken = registry.rows("/yard/planks", Plank)


def key_of(change: Put[Plank] | Removed) -> str:
    return change.key


class Copy:
    """Keeps the rows of an entity, by place."""

    planks: dict[int, Plank] = {}

    def on_event(self, change: Put[Plank] | Removed, out: Emit[str]) -> None:
        match change:
            case Put():
                self.planks[change.place] = change.row
            case Removed():
                del self.planks[change.place]
        out(change.key)

    def on_atom_complete(self, out: Emit[str]) -> None:
        out("|")


copies = flow("copies", taken).key(key_of).task(Copy).sink("copied")
names_of = (
    flow("naming", taken).map(key_of).sink("named")
)  # it takes each atom before the copy does
office = App("office", names_of, copies)


names = st.sampled_from(NAMES)
numbers = st.integers(-3, 5)


def body(name: str, method: str, *arguments: Any) -> bytes:
    return encoded(yard, Call("Crate", name, method, arguments))[0]


bodies = st.one_of(
    st.builds(lambda name: body(name, "create"), names),
    st.builds(lambda name, by: body(name, "grow", by), names, numbers),
    st.builds(lambda name, to, by: body(name, "move", Crate(to), by), names, names, numbers),
    st.builds(lambda name, to: body(name, "point", Crate(to)), names, names),
    st.builds(
        lambda name, to, times: body(name, "spread", Crate(to), times),
        names,
        names,
        st.integers(0, 4),
    ),
    st.builds(lambda name: body(name, "drop"), names),
)
