"""Ways in which a handler misbehaves, and the recorded code and name of each."""

import asyncio
from typing import Any

from penstock.errors import Aborted, Cancelled, Corrupt, Internal, OperationalError
from penstock.model.context import active
from penstock.model.time_limit import Interrupted


def leave(kind: type[BaseException], *arguments: Any) -> Any:
    raise kind(*arguments)


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1


class Rude(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class Silent(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class Text(str):
    """A text whose every method lies."""

    __slots__ = ()

    def __getitem__(self, _: object) -> Any:
        raise RuntimeError

    encode = isascii = __add__ = __len__ = __hash__ = __getitem__  # type: ignore[assignment]


class Lying(Exception):
    def __str__(self) -> str:
        return Text("a text of its own kind")


class Elsewhere(Exception):
    """An exception that says of itself that it is another one, or raises when it is asked."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            raise RuntimeError("asked for its class")
        return super().__getattribute__(name)


class Masked(type):
    """A metaclass whose classes raise at every question."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)

    def __hash__(cls) -> int:
        raise RuntimeError("hash")

    def __instancecheck__(cls, _: object) -> bool:
        raise RuntimeError("instance")


class Disguised(Aborted, metaclass=Masked):
    code = "sold-out"


class SoldOut(Aborted):
    code = 409  # type: ignore[assignment]


class Rotten(Aborted):
    code = "no such code, at all!"


class Own(Aborted):
    code = "sold-out"


class Posing(Aborted):
    code = "corrupt"


class Overworked(OperationalError):
    code = "overworked"


class Addressed(Exception):
    def __init__(self) -> None:
        super().__init__(object())


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def spoil(name: str, value: Any) -> None:
    txn = active()
    assert txn is not None
    setattr(txn, name, value)


WAYS: dict[str, Any] = {
    "spoiled reads": lambda: spoil("before", None),
    "spoiled instances": lambda: spoil("instances", {7: 7}),
    "exit": lambda: leave(SystemExit, 3),
    "generator exit": lambda: leave(GeneratorExit),
    "stop iteration": lambda: leave(StopIteration),
    "recursion": recurse,
    "memory": lambda: leave(MemoryError),
    "rude": lambda: leave(Rude),
    "addressed": lambda: leave(Addressed),
    "long": lambda: leave(ValueError, "x" * 10_000),
    "surrogate": lambda: leave(ValueError, "\ud800"),
    "interrupted": lambda: leave(Interrupted, "ran too long"),
    "object": object,
    "endless": lambda: ENDLESS,
    "big": lambda: 2**64,
    "iterator": lambda: iter([1]),
    "function": lambda: recurse,
    "assertion": lambda: leave(AssertionError),
    "cancelled": lambda: leave(asyncio.CancelledError),
    "keyboard": lambda: leave(KeyboardInterrupt),
    "base": lambda: leave(BaseException, "of no other class"),
    "group": lambda: leave(BaseExceptionGroup, "many", [KeyboardInterrupt()]),
    "silent": lambda: leave(Silent),
    "lying": lambda: leave(Lying),
    "elsewhere": lambda: leave(Elsewhere),
    "disguised": lambda: leave(Disguised),
    "number as code": lambda: leave(SoldOut),
    "sentence as code": lambda: leave(Rotten),
    "own code": lambda: leave(Own, "none left"),
    "posing": lambda: leave(Posing),
    "overworked": lambda: leave(Overworked),
    "corrupt": lambda: leave(Corrupt, "so it says"),
    "cancelled request": lambda: leave(Cancelled, "so it says"),
    "internal": lambda: leave(Internal, "so it says"),
}
EXPECTED = {
    "spoiled reads": ("unhandled", "AttributeError"),
    "spoiled instances": ("unhandled", "AttributeError"),
    "exit": ("unhandled", "SystemExit"),
    "generator exit": ("unhandled", "GeneratorExit"),
    "stop iteration": ("unhandled", "StopIteration"),
    "recursion": ("limit-exceeded", "LimitExceeded"),
    "memory": ("limit-exceeded", "LimitExceeded"),
    "rude": ("unhandled", "Rude"),
    "addressed": ("unhandled", "Addressed"),
    "long": ("unhandled", "ValueError"),
    "surrogate": ("unhandled", "ValueError"),
    "interrupted": ("limit-exceeded", "LimitExceeded"),
    "object": ("unencodable", "Unencodable"),
    "endless": ("unencodable", "Unencodable"),
    "big": ("unencodable", "Unencodable"),
    "iterator": ("unencodable", "Unencodable"),
    "function": ("unencodable", "Unencodable"),
    "assertion": ("unhandled", "AssertionError"),
    "cancelled": ("unhandled", "CancelledError"),
    "keyboard": ("unhandled", "KeyboardInterrupt"),
    "base": ("unhandled", "BaseException"),
    "group": ("unhandled", "BaseExceptionGroup"),
    "silent": ("unhandled", "Silent"),
    "lying": ("unhandled", "Lying"),
    "elsewhere": ("unhandled", "Elsewhere"),
    "disguised": ("sold-out", "Disguised"),
    "number as code": ("aborted", "SoldOut"),
    "sentence as code": ("aborted", "Rotten"),
    "own code": ("sold-out", "Own"),
    "posing": ("aborted", "Posing"),
    "overworked": ("unhandled", "Overworked"),
    "corrupt": ("unhandled", "Corrupt"),
    "cancelled request": ("unhandled", "Cancelled"),
    "internal": ("unhandled", "Internal"),
}
