"""The compiler warns of lines that make replay differ, or that fail when they run."""

import datetime
import gc
import locale
import os
import random
import signal
import smtplib
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from penstock import App, Entity, flow, key, now, portal, stream, transactional
from penstock import random as chance
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.analysis.hazard import MESSAGES
from penstock.dataflow.graph import Action, Hazard, Plan

SESSION = httpx.Client()
REGISTRY: dict[str, int] = {}
TOTAL = 0


class Leaf(Entity):
    name: str = key()
    size: int = 0

    def grow(self, amount: int) -> int:
        self.size += amount
        return self.size


def plan_of(function: Callable[..., Any]) -> Plan:
    return analyze_app(App("test", Leaf, transactional(function)))


def warnings_of(function: Callable[..., Any]) -> list[str]:
    plan = plan_of(function)
    return [one.message for one in plan.warnings if one.source.operator == function.__name__]


def test_hazards_are_warned_of() -> None:
    """Clocks, chance, surroundings and files in a handler are named, however imported."""

    def root() -> None:
        time.time()
        datetime.datetime.now(datetime.UTC)
        random.choice([1])
        uuid4()
        len(os.environ["HOME"])
        open("x")  # noqa: SIM115, PTH123
        socket.socket()

    assert [message.partition(" ")[0] for message in warnings_of(root)] == [
        "time.time",
        "datetime.datetime.now",
        "random.choice",
        "uuid4",
        "os.environ",
        "open",
        "socket.socket",
    ]


def test_calls_to_the_outside_are_warned_of() -> None:
    """Connections, processes, databases and files are named, with the remedy, one line for each."""

    def root(address: str) -> None:
        httpx.post(address)
        SESSION.get(address)
        with httpx.Client() as client:
            client.get(address)
        urllib.request.urlopen(address)
        smtplib.SMTP(address)
        subprocess.run([address], check=False)
        os.system(address)
        sqlite3.connect(address)
        Path(address).write_text("x")
        os.remove(address)  # noqa: PTH107
        threading.Thread(target=root)

    found = warnings_of(root)
    assert [message.partition(" ")[0] for message in found] == [
        "httpx.post",
        "SESSION.get",
        "httpx.Client",
        "client.get",
        "urllib.request.urlopen",
        "smtplib.SMTP",
        "subprocess.run",
        "os.system",
        "sqlite3.connect",
        "Path(address).write_text",
        "os.remove",
        "threading.Thread",
    ]
    assert all(f" {MESSAGES[Hazard.OUTSIDE]}" in message for message in found)


def test_pure_parts_of_such_modules_are_no_hazard() -> None:
    """Exceptions, constants and computations are not warned of because of their module."""

    def root(address: str) -> str:
        try:
            return urllib.parse.quote(str(Path(address).parent / os.path.basename(address)))  # noqa: PTH119
        except (subprocess.CalledProcessError, httpx.HTTPError, OSError):
            return HTTPStatus.OK.phrase

    assert warnings_of(root) == []


def test_hazards_in_helpers_are_found_at_their_line() -> None:
    """A warning names the line of the helper, and the method that led there."""

    def helper() -> float:
        return time.time()

    def root() -> float:
        return helper()

    (warning,) = plan_of(root).warnings
    assert warning.source.text == "root"
    assert warning.where.line == helper.__code__.co_firstlineno + 1


def test_global_state_is_warned_of() -> None:
    """A value in a module's variable is not state, in whichever way it is changed."""

    def root(name: str) -> None:
        global TOTAL
        TOTAL += 1
        REGISTRY[name] = 1
        REGISTRY.setdefault(name, 2)
        Leaf.colour = "red"  # type: ignore[attr-defined]

    assert [message.partition(" ")[0] for message in warnings_of(root)] == [
        "TOTAL",
        "REGISTRY",
        "REGISTRY",
        "Leaf.colour",
    ]


def test_undeclared_attributes_are_warned_of() -> None:
    """Assigning or reading an attribute that an entity does not declare is found before a run."""

    def root(leaf: Leaf) -> None:
        leaf.sise = 3  # type: ignore[attr-defined]
        leaf.wither()  # type: ignore[attr-defined]

    assert warnings_of(root) == [
        "Leaf declares no attribute sise; assigning it fails",
        "Leaf has no attribute or method wither",
    ]


def test_order_of_a_set_is_warned_of() -> None:
    """Iterating a set is a hazard unless the result does not depend on the order."""

    def root(names: set[str], numbers: set[int]) -> int:
        found = [name.upper() for name in names]
        for name in sorted(names):
            found += [name, name]
        return sum(len(name) for name in names) + sum([number + 1 for number in numbers])

    assert warnings_of(root) == [
        "the order of the set names differs between processes; sort it",
    ]


def test_deterministic_sources_are_no_hazard() -> None:
    """The replacements that Penstock offers cause no warning."""

    def root(leaves: list[Leaf]) -> None:
        chance().choice(leaves).grow(now().year)

    assert warnings_of(root) == []


def test_special_methods_are_warned_of() -> None:
    """Operators call special methods where no call is written, which the plan cannot show."""

    class Box(Entity):
        name: str = key()

        def __len__(self) -> int:
            return 3

    (warning,) = analyze_app(App("test", Box)).warnings
    assert warning.message == "calls through __len__ are not in the plan"


def test_changes_of_the_process_are_warned_of() -> None:
    """Settings that other transactions share, and the locale, are named."""

    def root() -> None:
        sys.setswitchinterval(1)
        gc.disable()
        warnings.simplefilter("error")
        signal.alarm(1)
        locale.setlocale(locale.LC_ALL, "C")

    assert [message.partition(" ")[0] for message in warnings_of(root)] == [
        "sys.setswitchinterval",
        "gc.disable",
        "warnings.simplefilter",
        "signal.alarm",
        "locale.setlocale",
    ]


@dataclass
class Stamp:
    """A record whose field has a clock."""

    made: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    tags: list[str] = field(default_factory=list)


def fresh_name() -> str:
    return uuid4().hex


def test_factories_of_defaults_are_read() -> None:
    """A clock in the default of an attribute, a record or a task's attribute gives other values when it runs again."""

    class Visit(Entity):
        name: str = key()
        made: float = field(default_factory=time.time)
        label: str = field(default_factory=fresh_name)
        pair: tuple[int, str] = field(default_factory=lambda: (1, "")); word: str = field(default_factory=lambda: random.choice("ab"))  # noqa: E702  # fmt: skip
        stamp: Stamp | None = None
        safe: dict[str, int] = field(default_factory=dict)

    class Counter:
        since: float = field(default_factory=time.time)

        def on_event(self, event: int) -> None: ...

    numbers = stream("numbers", int)
    app = App("test", Visit, flow("f", numbers).task(Counter).sink("out", int))
    assert {
        (warning.source.text, warning.message.partition(" ")[0])
        for warning in analyze_app(app).warnings
    } == {
        ("Visit.made", "made"),
        ("Visit.label", "uuid4"),
        ("Visit.word", "random.choice"),
        ("Stamp.made", "datetime.datetime.now"),
        ("f.Counter.since", "since"),
    }


def test_an_update_across_a_wait_is_warned_of() -> None:
    """`self.x += await …` reads the attribute before the wait; the warning says how to write it."""
    numbers = stream("numbers", int)
    double = portal("double", int, int)

    class Doubling:
        def on_event(self, event: int) -> None: ...

        @double.reply
        def on_double(self, number: int) -> int:
            return 2 * number

    class Total:
        total: int = 0
        known: dict[int, int] = {}

        async def on_event(self, event: int) -> None:
            self.total += await double.ask(event)
            self.total = self.total - await double.ask(event)
            self.known[event] += await double.ask(event)
            self.total = await double.ask(event) + self.total
            own = 1
            own += await double.ask(event)
            reply = await double.ask(event)
            self.total += reply

    def warned(*, exclusive: bool) -> list[str]:
        total = flow("t", numbers).task(Total, exclusive=exclusive).sink("out", int)
        other = flow("d", stream("never", int)).task(Doubling).sink("none", int)
        return [warning.message for warning in analyze_app(App("test", total, other)).warnings]

    how = "is read before the wait, and written behind it: changes meanwhile are lost; write"
    asked = "`reply = await double.ask(event)`, and in the next line"
    assert warned(exclusive=False) == [
        f"self.total {how} {asked} `self.total += reply`",
        f"self.total {how} {asked} `self.total = self.total - reply`",
        f"self.known[event] {how} {asked} `self.known[event] += reply`",
    ]
    assert warned(exclusive=True) == []


def test_a_new_value_in_a_name_writes_no_attribute() -> None:
    """`name += …` changes the value of an attribute only if its type changes in place."""

    class Room(Entity):
        name: str = key()
        length: datetime.timedelta = datetime.timedelta(minutes=30)
        price: Decimal = Decimal(1)
        guests: list[str] = []
        beds: tuple[int, ...] = ()

        def look(self) -> None:
            length, price, beds, guests = self.length, self.price, self.beds, self.guests
            length += self.length
            price *= 2
            beds += (1,)
            del guests

        def fill(self) -> None:
            guests = self.guests
            guests += ["a"]

    plan = analyze_app(App("test", Room))
    assert [edge.source.member for edge in plan.edges if edge.action is Action.WRITE] == ["fill"]
