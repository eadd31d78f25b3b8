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
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from penstock import App, Entity, key, now, transactional
from penstock import random as chance
from penstock.dataflow.analysis.analyze import analyze_app
from penstock.dataflow.analysis.hazard import MESSAGES
from penstock.dataflow.graph import Hazard, Plan

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
