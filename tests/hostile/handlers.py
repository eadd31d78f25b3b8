"""An application whose handlers perform the acts of their argument, and honest accounts.

An act is plain data: `act(["in_savepoint", "list __iter__ returned"], "raise cancelled", friend)`
moves money to the friend, and then does the deed at the place. So one file serves every runtime,
and acts can be made at random, shortened, and written on one line. With any act, money is
conserved: either it took effect and the move stands, or nothing of it remains.
"""

import contextlib
import datetime
import decimal
import importlib
import json
import os
import random
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy.random

from penstock import App, Entity, key, readonly, transactional
from tests.hostile import misuse
from tests.hostile.exceptions import ERRORS
from tests.hostile.places import LATER, Scene, do
from tests.hostile.side_effects import HOGS, KILLERS, SIDE_EFFECTS
from tests.hostile.values import VALUES

BEGINNING: Final = 100
MOVED: Final = 7
"""The amount that an act moves from its account to the friend's."""


class Poor(Exception):
    """An account does not hold that much."""


class Account(Entity):
    number: str = key()
    balance: int = BEGINNING

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    def transfer(self, amount: int, other: "Account") -> int:
        if self.balance < amount:
            raise Poor(f"{self.number} holds {self.balance}, not {amount}")
        self.balance -= amount
        other.balance += amount
        return self.balance

    def act(self, places: list[str], deed: str, friend: "Account") -> Any:
        """Move money, and then do something bad."""
        scene = Scene(self, friend, Toy(f"toy-{self.number}"))
        self.balance -= MOVED
        friend.balance += MOVED
        verb, _, name = deed.partition(" ")
        return do(scene, places, lambda: DEEDS[verb](scene, name))

    @readonly
    def look(self, deed: Any) -> Any:
        return deed()

    def relay(self, deed: Any) -> Any:
        return deed()


class Toy(Entity):
    """An entity that acts may spoil: it holds no money."""

    name: str = key()
    number: int = 0
    kept: Any = None
    texts: dict[str, str] = {}
    friend: "Toy | None" = None

    @property
    def last(self) -> Any:
        return LATER[-1]()

    def take(self, value: Any) -> Any:
        return value


def _mask() -> int:
    os.umask(mask := os.umask(0o077))
    return mask


@transactional
def survey() -> dict[str, Any]:
    """Describe the process as far as a handler can notice changes by other handlers."""
    facts: dict[str, Callable[[], Any]] = {
        "length": lambda: len([1, 2, 3]),
        "order": lambda: sorted([3, 1, 2]),
        "instance": lambda: isinstance(7, int),
        "decimal": lambda: str(decimal.Decimal(1) / 3),
        "environment": lambda: [name in os.environ for name in ("PATH", "PENSTOCK_DATA")],
        "folder": lambda: os.path.isdir("tests"),  # noqa: PTH112 -- the folder is the question
        "filters": lambda: "error" in {one[0] for one in warnings.filters},
        "random": lambda: random.getstate()[1] == random.Random(1).getstate()[1],
        "digits": sys.get_int_max_str_digits,
        "trace": lambda: sys.gettrace() is None,
        "switch": sys.getswitchinterval,
        "alarm": lambda: callable(signal.getsignal(signal.SIGALRM)),
        "json": lambda: json.dumps({"a": [1, {}]}),
        "time": lambda: datetime.datetime(2026, 1, 2).isoformat(),  # noqa: DTZ001 -- of no zone
        "contexts": lambda: decimal.DefaultContext.prec,
        "sockets": socket.getdefaulttimeout,
        "importers": lambda: importlib.import_module("json") is json and None not in sys.meta_path,
        "deposit": lambda: Account.deposit.__name__,
        "attributes": lambda: [*vars(Account)["__reference__"].attributes],
        "method": lambda: [*vars(Toy)].count("__getattribute__"),
        "mask": _mask,
        "numbers": lambda: [type(each()) is float for each in (random.random, numpy.random.random)],
    }
    found: dict[str, Any] = {}
    for name, fact in facts.items():
        with contextlib.suppress(Exception):
            found[name] = fact()
    return found


def _raise(_: Scene, name: str) -> Any:
    raise ERRORS[name]()


def _store(scene: Scene, name: str) -> None:
    scene.toy.kept = VALUES[name]()


def _store_inside(scene: Scene, name: str) -> None:
    scene.toy.kept = {"x": [VALUES[name]()]}


def _save(scene: Scene, name: str) -> Any:
    scene.toy.kept = VALUES[name]()
    return do(scene, ["in_caught_savepoint", "in_readonly"], lambda: 1)


DEEDS: Final[dict[str, Callable[[Scene, str], Any]]] = {
    "raise": _raise,
    "return": lambda _, name: VALUES[name](),
    "store": _store,
    "store-inside": _store_inside,
    "save": _save,
    "give": lambda scene, name: scene.toy.take(VALUES[name]()),
    "refer": lambda scene, name: type(scene.toy)(VALUES[name]()).number,
    "number": lambda scene, name: setattr(scene.toy, "number", VALUES[name]()),
    "misuse": lambda scene, name: misuse.PLAIN[name](scene),
    "tamper": lambda scene, name: misuse.LASTING[name](scene),
    "side-effect": lambda _, name: (SIDE_EFFECTS[name](), None)[1],
    "kill": lambda _, name: KILLERS[name](),
    "hog": lambda _, name: HOGS[name](),
}
"""The kinds of acts, by their first word."""

app = App("hostile", Account, Toy, survey)
