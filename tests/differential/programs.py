"""Random programs and requests for `machine`, and how they are written on one line.

    r3: Beta1.run(a2)[add 3; try [Alpha0 [fail]] else [save [set 1]]]
    r4: Delta(big 1).mold[box 3; give 2 (small 0)]

A history is the appended requests, in order; a request may be repeated under its own id.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from penstock.base.ids import RequestId
from penstock.log.api import Entry, Log, Record
from penstock.model.application import App
from tests.differential.forms import Act, Box, Film, Form, Hall, Spot
from tests.differential.machine import KEYS, Program, Who
from tests.differential.twin import Name, Trouble, Twin, name_of
from tests.memory_log import MemoryLog

BEGINNING_US = 1_700_000_000_000_000
SPOT_HALLS = (Hall.BIG, Hall.SMALL, Hall.BIG)
FIRST_SPOT = Spot(Hall.BIG, 0)
KINDS = ("Alpha", "Beta", "Gamma")
HURRY = "PENSTOCK_TESTS_HURRY" in os.environ  # only whether something fails is asked
IN_PYTHON = os.environ.get("PENSTOCK_NATIVE") == "disable"  # the second run of the suite
# The explicit examples run first: each is a program that a defect or a mutant needs.
PHASES = (
    (Phase.explicit, Phase.generate)
    if HURRY
    else (Phase.explicit, Phase.generate, Phase.target, Phase.shrink)
)

beside_one_thread = pytest.mark.turns(
    2,
    *("base", "dataflow", "deployment", "engine", "exchange", "files", "history", "journal", "log"),
    *("model", "native", "orders", "process", "runtime", "state"),
    of="random programs beside one thread",
)
"""A dear test whose random programs run through the rooms of epochs: a change of another room runs two of these tests."""


def drawn(count: int) -> settings:
    """Draw so many examples; half of them where the same test runs with the compiled implementation, too.

    `test_implementations` compares the two. A mutant is in the Python code alone, and meets all examples.
    """
    return settings(max_examples=count // 2 if IN_PYTHON and not HURRY else count, phases=PHASES)


Step = tuple[Any, ...]

keys = st.integers(0, KEYS - 1)
numbers = st.integers(0, 9)
whos: st.SearchStrategy[Who] = st.tuples(st.sampled_from(KINDS), keys)
some_values = st.fixed_dictionaries(
    {}, optional={"number": numbers, "items": st.lists(numbers, max_size=2)}
)
simple_steps = st.one_of(
    st.tuples(st.just("add"), numbers),
    st.just(("get",)),
    st.just(("mix",)),
    st.tuples(st.just("set"), numbers),
    st.tuples(st.sampled_from(["read", "write"]), whos),
    st.tuples(st.sampled_from(["push", "extend", "extend"]), numbers),
    st.sampled_from([("hold",), ("hold",), ("count",)]),
    st.tuples(st.just("share"), whos),
    st.just(("chance",)),
    st.tuples(st.sampled_from(["drop", "has"]), whos),
    st.tuples(st.just("total"), st.lists(whos, max_size=3).map(tuple)),
    st.tuples(st.just("new"), whos, numbers),
    st.tuples(st.just("patch"), whos, some_values),
    st.tuples(st.just("fresh"), numbers),
    st.tuples(st.just("tie"), keys),
    st.just(("fail",)),
    st.just(("end",)),
)


def _deeper(steps: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[Any]:
    several = st.lists(steps, min_size=1, max_size=most).map(tuple)
    return st.one_of(
        simple_steps,
        st.tuples(st.sampled_from(["call", "call", "look"]), whos, several),
        st.tuples(st.just("jump"), st.sampled_from(KINDS), several),
        st.tuples(st.sampled_from(["follow", "ask", "swallow", "save"]), several),
        st.tuples(st.sampled_from(["attempt", "ensure", "when"]), several, several),
        st.tuples(st.just("loop"), st.just(2), several),
        st.builds(_undone, several),
        st.builds(_aliased, numbers, several),
        st.builds(_caught, st.tuples(st.just("look"), whos, several)),
    )


def _caught(step: Step) -> Step:
    """Go on after a step, with any exception."""
    return ("attempt", (step,), ())


def _undone(program: tuple[Step, ...]) -> Step:
    """Do something, fail, and go on as if nothing had been done."""
    return _caught(("save", (*program, ("fail",))))


def _aliased(number: int, program: tuple[Step, ...]) -> Step:
    """Undo a change that passes by the entity, since a variable holds its list."""
    return ("loop", 1, (("hold",), _undone((("extend", number), *program)), ("extend", number)))


steps = _deeper(_deeper(_deeper(simple_steps, 2), 2), 3)
programs = st.lists(steps, min_size=2, max_size=4).map(tuple)

# Accesses depend on writes of others: a transaction that runs again accesses other entities.
_follow_values = st.one_of(
    st.tuples(st.just("jump"), st.sampled_from(KINDS), st.just((("mix",),))),
    st.tuples(st.just("jump"), st.sampled_from(KINDS), st.just((("get",),))),
    st.tuples(st.just("write"), whos),
)
tangled_programs = st.tuples(
    st.tuples(st.just("read"), whos),
    st.tuples(
        st.just("when"),
        st.lists(_follow_values, min_size=1, max_size=2).map(tuple),
        st.lists(_follow_values, max_size=2).map(tuple),
    ),
)


@dataclass(frozen=True)
class Call:
    """A request: `method` is run, look, main, create, update_or_create, delete or exists."""

    method: str
    who: Who
    program: Program = ()  # type: ignore[assignment]
    friend: int | None = None
    number: int = 0
    values: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        friend = "" if self.friend is None else f"(a{self.friend})"
        target = "main" if self.method == "main" else f"{show_who(self.who)}.{self.method}"
        match self.method:
            case "create":
                return f"{target}({self.number})"
            case "update_or_create":
                return f"{target}({dict(self.values)})"
            case "delete" | "exists":
                return target
            case _:
                return f"{target}{friend}{show(self.program)}"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 -- IPython's protocol
        printer.text(repr(self))

    def encode(self, app: App) -> tuple[bytes, bytes]:
        """Return the body and the touches of its log entry."""
        kind, key = name_of(self.who)
        named = {}
        if self.friend is not None:
            named["friend"] = app.entities["Alpha"].of_text(f"a{self.friend}")
        match self.method:
            case "main":
                return app.request("", None, "main", [self.program], named)
            case "create":
                positional = [key] if kind == "Gamma" else []
                return app.request(kind, key, "create", positional, {"number": self.number})
            case "update_or_create":
                return app.request(kind, key, self.method, (), dict(self.values))
            case "delete" | "exists":
                return app.request(kind, key, self.method)
            case _:
                friendless = self.method == "look"
                return app.request(
                    kind, key, self.method, [self.program], {} if friendless else named
                )

    def perform(self, twin: Twin, request_id: str) -> tuple[str | None, object]:
        """Do it to the twin; return the failure's name or the value."""
        name = name_of(self.who)
        friend: Name | None = None if self.friend is None else ("Alpha", f"a{self.friend}")
        twin.begin(request_id)
        value: object = None
        try:
            match self.method:
                case "main":
                    value = twin.run_unloaded(("Alpha", "a0"), self.program, friend)
                case "create":
                    twin.create(name, self.number)
                    value = str(name[1])
                case "update_or_create":
                    twin.patch(name, dict(self.values))
                    value = str(name[1])
                case "delete":
                    twin.delete(name)
                case "exists":
                    value = name in twin.live
                case "look":
                    value = twin.look(name, self.program)
                case _:
                    value = twin.run(name, self.program, friend)
            twin.commit()
        except Trouble as trouble:
            return str(trouble), None
        return None, value


calls = st.one_of(
    st.builds(
        Call,
        st.sampled_from(["run", "run", "run", "main", "look"]),
        whos,
        programs,
        st.none() | keys,
    ),
    st.builds(Call, st.sampled_from(["create", "delete", "exists"]), whos, number=numbers),
    st.builds(
        Call,
        st.just("update_or_create"),
        whos,
        values=some_values.map(lambda values: tuple(values.items())),
    ),
)


@dataclass(frozen=True)
class Mold(Call):
    """A request to an entity whose key, attributes, arguments and results have many types."""

    spot: Spot = FIRST_SPOT
    acts: tuple[Act, ...] = ()
    gift: Box[Film] | None = None

    def __repr__(self) -> str:
        acts = [f"{act.form.value} {act.number} ({_show_spot(act.at)})" for act in self.acts]
        gift = "" if self.gift is None else f"{self.gift.value}"
        return f"Delta({_show_spot(self.spot)}).{self.method}[{'; '.join(acts)}]{gift}"

    def encode(self, app: App) -> tuple[bytes, bytes]:
        """Return the body and the touches of its log entry."""
        named = {"gift": self.gift, "acts": list(self.acts)} if self.method == "mold" else {}
        return app.request("Delta", self.spot, self.method, (), named)


def _show_spot(spot: Spot) -> str:
    return f"{spot.hall.value} {spot.number}"


spots = st.builds(Spot, st.sampled_from(Hall), keys)
# A deletion is rare, because a reference must not dangle afterwards.
_forms = st.sampled_from([*(form for form in Form if form is not Form.DROP)] * 2 + [Form.DROP])
_films = st.fixed_dictionaries(
    {"title": st.text(max_size=2), "price": st.sampled_from([Decimal("1.50"), Decimal("-0")])},
    optional={"year": numbers},
)
molds = st.builds(
    Mold,
    st.sampled_from(["mold"] * 8 + ["create", "update_or_create", "delete", "exists"]),
    st.just(("Delta", 0)),
    spot=spots,
    acts=st.lists(st.builds(Act, _forms, numbers, spots), min_size=1, max_size=4).map(tuple),
    gift=st.none() | st.builds(Box, _films),
)


@dataclass(frozen=True)
class History:
    """The requests that are appended to the log.

    `made` exist before, and so do three of the four entities of `Mold` if `has_spots`; `calls` come each with the number of
    its request id, which may return.
    """

    made: tuple[Who, ...]
    calls: tuple[tuple[int, Call], ...]
    has_spots: bool = False

    def __repr__(self) -> str:
        made = " ".join(f"{show_who(who)}={number}" for number, who in enumerate(self.made))
        return "\n".join([f"\n{made}", *(f"r{number}: {call!r}" for number, call in self.calls)])

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 -- IPython's protocol
        printer.text(repr(self))

    def created(self) -> list[tuple[str, Call]]:
        return [
            (f"m{number}", Call("create", who, number=number))
            for number, who in enumerate(self.made)
        ] + [
            (f"s{number}", Mold("create", ("Delta", 0), spot=Spot(hall, number // 2)))
            for number, hall in enumerate(SPOT_HALLS if self.has_spots else ())
        ]

    def once(self) -> list[tuple[str, Call]]:
        """Return each request once, in the order of first appearance."""
        return [(f"r{number}", call) for number, call in dict(self.calls).items()]

    def every(self) -> list[tuple[str, Call]]:
        """Return the requests, in order."""
        return [(f"r{number}", call) for number, call in self.calls]


def logged(app: App, sent: Sequence[tuple[str, Call]]) -> tuple[list[Record], list[bytes]]:
    """Append one by one to a log; return its records, and the touches."""
    log: Log = MemoryLog()
    for number, (request_id, call) in enumerate(sent):
        log.append([Entry(RequestId(request_id), *call.encode(app), BEGINNING_US + number)])
    start, end = log.start(), log.end()
    return log.read(start, end), log.hints(start, end)


@st.composite
def histories(draw: st.DrawFn, least: int = 4, most: int = 12) -> History:
    """Some entities that exist, then random calls; some requests are sent again."""
    absent = draw(st.lists(whos, max_size=2))
    made = tuple((kind, key) for kind in KINDS for key in range(KEYS) if (kind, key) not in absent)
    sent = list(enumerate(draw(st.lists(calls, min_size=least, max_size=most))))
    for again in draw(st.lists(st.integers(0, len(sent) - 1), max_size=1)):
        sent.append(sent[again])
    return History(made, tuple(sent))


@st.composite
def tangles(draw: st.DrawFn, most: int = 16) -> History:
    """Calls whose accesses depend on the writes of the calls before."""
    made = tuple((kind, key) for kind in KINDS for key in range(KEYS))
    call = st.builds(Call, st.just("main"), whos, tangled_programs)
    return History(made, tuple(enumerate(draw(st.lists(call, min_size=3, max_size=most)))))


@st.composite
def shapes(draw: st.DrawFn, most: int = 12) -> History:
    """Calls that change values of all types, and a few that do not."""
    sent = draw(st.lists(molds | molds | molds | calls, min_size=4, max_size=most))
    return History((("Alpha", 0),), tuple(enumerate(sent)), has_spots=True)


def show(program: Program) -> str:
    """Write a program on one line."""
    return f"[{'; '.join(_show_step(*step) for step in program)}]"


def show_who(who: Who) -> str:
    return f"{who[0]}{who[1]}"


def _show_step(name: str, *arguments: Any) -> str:
    match name, arguments:
        case "call", (who, program):
            text = f"{show_who(who)} {show(program)}"
        case "attempt", (program, handler):
            text = f"try {show(program)} else {show(handler)}"
        case "ensure", (program, last):
            text = f"try {show(program)} finally {show(last)}"
        case "when", (program, other):
            text = f"if odd {show(program)} else {show(other)}"
        case "total", (several,):
            text = f"total {' '.join(map(show_who, several))}"
        case _:
            text = " ".join([name, *map(_show_argument, arguments)])
    return text


def _show_argument(argument: Any) -> str:
    match argument:
        case [str(), int()]:
            return show_who((argument[0], argument[1]))
        case list() | tuple():
            return show(_as_program(argument))
        case _:
            return str(argument)


def _as_program(argument: Sequence[Any]) -> Program:
    return list(argument)
