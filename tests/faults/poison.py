"""An application whose handlers end, hang or exhaust their process."""

import sys
from collections.abc import Callable
from typing import Any

from penstock import App, entity, key, send
from tests.hostile import side_effects


def leave() -> None:
    sys.exit(3)


def fail() -> None:
    raise KeyError("a plain failure")


KILLERS: dict[str, Callable[[], Any]] = {
    name: side_effects.KILLERS[name]
    for name in ("exit", "read_nowhere", "loop_in_c", "loop_and_catch", "hang")
}
"""They end their worker's process, or leave it no other end."""

OTHERS: dict[str, Callable[[], Any]] = {
    **{name: side_effects.HOGS[name] for name in ("loop", "allocate", "hoard", "recurse")},
    **{handler.__name__: handler for handler in (leave, fail)},
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

    def delegate(self, how: str, other: "Account") -> int:
        """Send something bad, and something good behind it."""
        send(Account.poison, other, how, self)
        send(Account.add, self, 0)
        return self.balance

    def delegate_all(self, others: list["Account"]) -> None:
        """Send something bad to each of several accounts."""
        for other in others:
            send(Account.poison, other, "exit", self)

    def unspeakable(self) -> Any:
        self.balance += 1_000_000
        return object()


app = App("poison", Account)
