"""An application whose handlers do what no handler should."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from penstock import App, entity, key


def exit_at_once() -> None:
    os._exit(1)


def read_nowhere() -> None:
    ctypes.string_at(0)


def loop_in_c() -> None:
    sum(range(10**12))


def loop() -> None:
    while True:
        pass


def loop_and_catch() -> None:
    """Loop for ever, whatever is raised inside."""
    while True:
        try:
            loop()
        except BaseException:  # noqa: BLE001 -- this is what is wrong with it
            continue


def hang() -> None:
    """Wait for ever, deaf to the signals that limit a handler."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGPROF})
    time.sleep(100_000)


def allocate() -> None:
    bytearray(10 << 30)


def hoard() -> None:
    """Allocate without end, in small pieces."""
    held: list[bytes] = []
    while True:
        held.append(bytes(1 << 20))


def recurse() -> None:
    recurse()


def leave() -> None:
    sys.exit(3)


def fail() -> None:
    raise KeyError("a plain failure")


KILLERS: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (exit_at_once, read_nowhere, loop_in_c, loop_and_catch, hang)
}
"""They end their worker's process, or leave it no other end."""

OTHERS: dict[str, Callable[[], None]] = {
    one.__name__: one for one in (loop, allocate, hoard, recurse, leave, fail)
}
"""They are undone in place."""


@entity
class Account:
    number: str = key()
    balance: int = 0

    def add(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    def poison(self, how: str, other: "Account") -> int:
        """Change two entities, then do something bad."""
        self.balance += 1_000_000
        other.balance += 1_000_000
        {**KILLERS, **OTHERS}[how]()
        return self.balance

    def unspeakable(self) -> Any:
        self.balance += 1_000_000
        return object()


app = App("poison", Account)
