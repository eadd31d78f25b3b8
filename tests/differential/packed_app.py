"""An application whose handlers publish plain events in every way that a handler can: those that fit, and others."""

from collections.abc import Callable
from typing import Any

from penstock import App, Emit, Unencodable, flow, random, stream

words = stream("words", str)
KEPT: list[Emit[Any]] = []
"""The `out` of the first handler; a test clears it."""


class Text(str):
    """A text that is not of the built-in type."""

    __slots__ = ()


def key_of(word: str) -> str:
    """Return one of a few keys."""
    if word == "stop":
        raise StopIteration
    return word[:1]


def refused(out: Emit[Any], event: Any) -> str:
    """Publish an event that does not fit; return the error."""
    try:
        out(event)
    except Unencodable as error:
        return str(error)
    return "fits"


def raised(out: Emit[Any], event: Any) -> None:
    """Publish an event."""
    out(event)


def many(out: Emit[Any], count: int) -> None:
    """Publish many events."""
    for number in range(count):
        out((f"m{number}", number))


def endless(out: Emit[Any]) -> None:
    """Publish without end, and catch the error once."""
    try:
        while True:
            out(("endless", 1))
    except Exception:  # noqa: BLE001 -- the step fails nevertheless
        out(("caught", 1))


def deep(out: Emit[Any]) -> bool:
    """Publish events in the deepest call that can publish at all; return whether a call has."""
    try:
        if deep(out):
            return True
    except RecursionError:
        pass
    try:
        out(("m0", 0))
    except RecursionError:
        return False
    for number in range(1, DEEP_EVENTS):
        out((f"m{number}", number))
    return True


def kept(event: Any) -> None:
    """Publish by the `out` of the first handler of all."""
    KEPT[0](event)


def failed(out: Emit[Any], event: Any) -> None:
    """Fail after an event that does not fit."""
    refused(out, event)
    raise ValueError("later")


WAYS: dict[str, Callable[[Any, str], object]] = {
    "list": lambda out, word: raised(out, [word, 1]),
    "refused-list": lambda out, word: out((refused(out, [word, 1]), 1)),
    "refused-bool": lambda out, word: out((refused(out, (word, True)), 1)),
    "refused-long": lambda out, word: out((refused(out, (word, 1, 2)), 1)),
    "refused-big": lambda out, word: out((refused(out, (word, 1 << 70)), 1)),
    "refused-text": lambda out, word: out((refused(out, (Text(word), 1)), 1)),
    "refused-half": lambda out, word: out((refused(out, ("\ud800", 1)), 1)),
    "refused-inner": lambda out, word: out((refused(out, (word, [1])), 1)),
    "refused-none": lambda out, word: out((refused(out, None), 1)),
    "random": lambda out, word: out((word, random().randrange(1 << 40))),
    "kept": lambda out, word: kept((word, 2)),
    "failed": lambda out, word: failed(out, [word]),
    "fails": lambda out, word: 1 // 0,
    "exit": lambda out, word: exec("raise SystemExit"),
    "many": lambda out, word: many(out, 2_000),
    "endless": lambda out, word: endless(out),
    "returns": lambda out, word: (yield word),
}
DEEP = "deep"
DEEP_EVENTS = 25_000


class Count:
    """Counts the events of a key."""

    total: int = 0

    def on_event(self, word: str, out: Emit[tuple[str, int]]) -> Any:
        """Publish the word and its number so far, or do what the word says."""
        if not KEPT:
            KEPT.append(out)
        self.total += 1
        way = WAYS.get(word)
        if word == DEEP:
            deep(out)
        elif way is None:
            out((word, self.total))
        elif word == "returns":
            return way(out, word)
        else:
            way(out, word)
        return None


class Length:
    """Publishes numbers; every third event of a key publishes none, and others more than one."""

    seen: int = 0

    def on_event(self, word: str, out: Emit[int]) -> None:
        """Publish lengths."""
        self.seen += 1
        for _ in range(self.seen % 3):
            out(len(word))
        if word == "kept":
            kept(len(word))


counts = flow("counts", words).key(key_of).task(Count).sink("counted")
lengths = flow("lengths", words).key(key_of).task(Length).sink("measured")
behind = flow("behind", counts).map(lambda counted: counted[1]).sink("numbers", int)
app = App("packed", counts, lengths, behind)
