"""Requests to `handlers` as plain data: honest ones, and acts; each is written on one line.

    a3.transfer 5 a1
    a2.act raise cancelled, in_savepoint, list __iter__ returned a0

`Bank` is the dumb twin: it knows the answer to every honest request, given the acts with effect.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count, product
from typing import Any, Final

import msgspec

from penstock.base.ids import RequestId
from penstock.errors import Unhandled
from penstock.log.api import Entry
from penstock.model.application import App
from tests.hostile import misuse
from tests.hostile.exceptions import ERRORS
from tests.hostile.handlers import BEGINNING, MOVED
from tests.hostile.places import BASES, HOOKS, LATE_PLACES, PLACES, USES
from tests.hostile.side_effects import HOGS, KILLERS, SIDE_EFFECTS
from tests.hostile.values import ENDLESS, VALUES

ACCOUNTS: Final = 12
NEVER: Final = "-never-"


class Danger(IntEnum):
    """The effect that an act may have on its process."""

    NONE = 0  # its outcome is the same in every process
    LASTING = 1  # the process may be another one afterwards
    DEADLY = 2  # it ends, or has to be ended


VERBS: Final[dict[str, tuple[Danger, Sequence[str]]]] = {
    "raise": (Danger.NONE, tuple(ERRORS)),
    **{
        verb: (Danger.NONE, tuple(name for name in VALUES if name not in ENDLESS))
        for verb in ("return", "store", "store-inside", "save", "give", "refer", "number")
    },
    "misuse": (Danger.NONE, tuple(misuse.PLAIN)),
    "tamper": (Danger.LASTING, tuple(misuse.LASTING)),
    "side-effect": (Danger.LASTING, tuple(SIDE_EFFECTS)),
    "hog": (Danger.LASTING, tuple(HOGS)),
    "kill": (Danger.DEADLY, tuple(KILLERS)),
}
DEEDS: Final[dict[Danger, tuple[str, ...]]] = {
    level: tuple(
        f"{verb} {name}"
        for verb, (danger, names) in VERBS.items()
        if danger is level
        for name in names
    )
    for level in Danger
}
"""All deeds by their danger."""

TRAPS: Final = tuple(
    " ".join(words) for words in product(BASES, (one for one in HOOKS if one != "__del__"), USES)
)
HANDS_OFF: Final = ("returned", "inside", "member", "raised", "chained", "awaited", "existing")
"""Uses that touch no toy."""

LATE_TRAPS: Final = tuple(" ".join(words) for words in product(BASES, ["__del__"], HANDS_OFF))
QUIET: Final = (
    *(one for one in PLACES if one != "in_caught_savepoint"),
    *(one for one in TRAPS if one.split()[2] in HANDS_OFF),
)
"""Places that touch no toy themselves: of a deed that may spoil its process, the check takes over the
money alone."""

LATE: Final = (*LATE_PLACES, *LATE_TRAPS)
"""Places where no deed may touch an entity: the transaction of the deed is not known."""

LATE_DEEDS: Final = tuple(f"raise {name}" for name in ERRORS)


@dataclass(frozen=True)
class Call:
    """A request. `method` is create, deposit, transfer, survey or act."""

    method: str
    account: int = 0
    amount: int = 0
    friend: int = 0
    places: tuple[str, ...] = ()
    deed: str = ""

    def __str__(self) -> str:
        match self.method:
            case "act":
                words = ", ".join([self.deed, *self.places])
                return f"a{self.account}.act {words} a{self.friend}"
            case "transfer":
                return f"a{self.account}.transfer {self.amount} a{self.friend}"
            case "deposit":
                return f"a{self.account}.deposit {self.amount}"
            case _:
                return f"{self.method} a{self.account}"

    def __repr__(self) -> str:
        return str(self)

    @property
    def danger(self) -> Danger:
        """Return the effect that it may have on its process."""
        verb = self.deed.partition(" ")[0]
        level = VERBS[verb][0] if verb else Danger.NONE
        return max(level, Danger.LASTING) if set(LATE) & {*self.places} else level

    @property
    def harmless(self) -> "Call":
        """Return the call that changes the same money, and does nothing else."""
        return Call("act", self.account, friend=self.friend, deed="return none")

    def encode(self, app: App) -> tuple[bytes, bytes]:
        """Return the body and the touches of its log entry."""
        me, friend = f"a{self.account}", app.entities["Account"].of_text(f"a{self.friend}")
        match self.method:
            case "create" | "toy":
                kind = "Account" if self.method == "create" else "Toy"
                name = me if self.method == "create" else f"toy-{me}"
                return app.request(kind, name, "create")
            case "deposit":
                return app.request("Account", me, "deposit", [self.amount])
            case "transfer":
                return app.request("Account", me, "transfer", [self.amount, friend])
            case "survey":
                return app.request("", None, "survey")
            case _:
                return app.request("Account", me, "act", [self.places, self.deed, friend])


Answer = tuple[str | None, bytes]
Sent = list[tuple[RequestId, Call]]


@dataclass
class Bank:
    """Balances, and the right answer to each request."""

    surveyed: Any = None
    balances: dict[int, int] = field(default_factory=dict)

    def complaint(self, call: Call, answer: Answer) -> str | None:
        """Take over a request in log order; return a complaint about its answer."""
        error, data = answer
        if call.method == "act":
            if error is None:
                self.balances[call.account] -= MOVED
                self.balances[call.friend] += MOVED
            elif type(error) is not str or not error:
                return f"the code is {error!r}"
            return None
        expected = self._perform(call)
        if expected == NEVER:
            return None if error == Unhandled.code else f"answered {answer}, not that it holds less"
        found = (error, msgspec.msgpack.decode(data))
        if call.method == "survey" and self.surveyed is None:  # the first is before any act
            self.surveyed = expected = found[1]
        return None if found == (None, expected) else f"answered {found}, not {expected!r}"

    def _perform(self, call: Call) -> Any:
        balances = self.balances
        match call.method:
            case "create":
                balances[call.account] = BEGINNING
                return f"a{call.account}"
            case "toy":
                return f"toy-a{call.account}"
            case "survey":
                return self.surveyed
            case "deposit":
                balances[call.account] += call.amount
            case _:
                if balances[call.account] < call.amount:
                    return NEVER
                balances[call.account] -= call.amount
                balances[call.friend] += call.amount
        return balances[call.account]


def beginning() -> list[Call]:
    """Return the requests that make all accounts and toys."""
    numbers = range(ACCOUNTS)
    return [Call(what, number) for what in ("create", "toy") for number in numbers]


def honest(chance: random.Random) -> Call:
    """Return an honest request."""
    account, friend = chance.sample(range(ACCOUNTS), 2)
    if chance.random() < 0.4:
        return Call("deposit", account, chance.randrange(50))
    return Call("transfer", account, chance.randrange(150), friend)


def act(chance: random.Random, deed: str, places: Sequence[str] = ()) -> Call:
    """Return an act between two accounts."""
    account, friend = chance.sample(range(ACCOUNTS), 2)
    return Call("act", account, friend=friend, places=tuple(places), deed=deed)


def random_act(chance: random.Random, most: Danger) -> Call:
    """Return any act that is at most so dangerous."""
    level = chance.choices([*Danger], [8, 4, 1])[0]
    if level > most:
        level = Danger.NONE
    if level is Danger.LASTING and chance.random() < 0.3:
        return act(chance, chance.choice(LATE_DEEDS), [chance.choice(LATE)])
    several = range(chance.choice([0, 1, 1, 2]))
    if level is Danger.NONE:
        places = [chance.choice(chance.choice([TRAPS, [*PLACES]])) for _ in several]
    else:
        places = [chance.choice(chance.choice([QUIET, [*PLACES][:1]])) for _ in several]
    return act(chance, chance.choice(DEEDS[level]), places)


def between(chance: random.Random, acts: Sequence[Call], each: int) -> list[Call]:
    """Return acts with some honest requests before and after each, and a look at the process behind it."""
    found: list[Call] = []
    for one in acts:
        found += [honest(chance) for _ in range(each)]
        found += [one, Call("survey")] if one.danger is Danger.LASTING else [one]
    return [*found, *(honest(chance) for _ in range(each))]


def numbered(prefix: str) -> Callable[[Sequence[Call]], Sent]:
    """Return a function that gives each call its own request id."""
    numbers = count()
    return lambda calls: [(RequestId(f"{prefix}{next(numbers)}"), one) for one in calls]


def entries(app: App, sent: Sent, time_us: int = 0) -> list[Entry]:
    """Return the entries for a log."""
    return [Entry(name, *call.encode(app), time_us) for name, call in sent]
