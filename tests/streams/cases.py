"""The cases that every runtime must pass: small applications of streams, workflows and portals."""

from penstock import (
    App,
    Emit,
    PerTask,
    clear,
    flow,
    states,
    stream,
)


def identity(number: int) -> int:
    return number


def diamond() -> App:
    numbers = stream("numbers", int)
    start = flow("diamond", numbers)
    both = start.map(identity).union(start.map(identity))
    return App("diamond", both.task(Barriers).sink("out"))


class Barriers:
    """Repeats its events, and publishes -1 when an atom is complete."""

    def on_event(self, number: int, out: Emit[int]) -> None:
        out(number)

    def on_atom_complete(self, out: Emit[int]) -> None:
        out(-1)


class CountsOfAtom:
    count: int = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        self.count += 1

    def on_atom_complete(self, out: Emit[tuple[str, int]]) -> None:
        for word, state in states(self):
            out((word, state.count))
        clear(self)


class Count:
    count: int = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> None:
        self.count += 1
        out((word, self.count))


class RunningSum:
    total: int = 0

    def on_event(self, number: int, out: Emit[int]) -> None:
        self.total += number
        out(number)

    def on_atom_complete(self, out: Emit[int]) -> None:
        out(self.total)


class KeyedTotal:
    """Counts per key, and over all keys."""

    count: int = 0
    total: PerTask[int] = 0

    def on_event(self, word: str, out: Emit[tuple[str, int, int]]) -> None:
        self.count += 1
        self.total += 1
        out((word, self.count, self.total))

    def on_atom_complete(self, out: Emit[tuple[str, int, int]]) -> None:
        out(("all", 0, self.total))


class Switch:
    """Changes its own behaviour: it publishes 0 and 1 in turns."""

    is_on: bool = False

    def on_event(self, number: int, out: Emit[int]) -> None:
        if self.is_on:
            self.is_on = False
            out(1)
        else:
            self.is_on = True
            out(0)
