"""Compare types of keys, attributes and events, operations, and TPC-C's transactions: compiled, in Python, and before.

    python -m benchmarks.value_types --former ../former --update-docs

An entity is read and changed by a function that takes twenty of them, in the serial runtime. An event is encoded as `emit` does.
An operation is done twenty times in a transaction of a task, and the cost of an empty transaction is taken off. The
transactions of TPC-C run in a task over a state in memory, as those of a large epoch do, and New-Order also through a `Kit`. Each turn is a process of its own, and the turns alternate. So a change
of the machine's speed meets all of them, and processor time tells how much they take also while other programs run. `--former` names a
checkout of earlier code, which has been set up there. The last line is JSON.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict
from uuid import UUID

from benchmarks import page
from benchmarks.machine import machine
from examples import tpcc
from examples.tpcc.nurand import Scale
from examples.tpcc.population import population
from examples.tpcc.terminal import Terminal
from penstock import App, Entity, LocalRuntime, key, savepoint, stream, transactional
from penstock.base.ids import RequestId
from penstock.engine.execute import Executor, Limits
from penstock.engine.task import Task
from penstock.native.choice import DISABLE, REQUIRE, VARIABLE
from penstock.process.guard import Guard
from penstock.testing import Kit

ENTITIES: Final = 2_000
AT_ONCE: Final = 20
ROUNDS: Final = 4
TASKS: Final = 20
SCALE: Final = Scale(items=2_000, customers=90)
OF_EACH_TERMINAL: Final = 200
NOW_US: Final = 10**15


class Place(NamedTuple):
    """A key with names."""

    row: int
    number: int


class Colour(Enum):
    """An enumeration of texts."""

    RED = "r"
    BLUE = "b"


@dataclass
class Line:
    """A record in a list."""

    name: str
    count: int
    price: Decimal


@dataclass(frozen=True)
class Money:
    """A record that is replaced."""

    cents: int
    currency: str


class Point(TypedDict):
    """A dictionary with declared keys."""

    x: int
    label: str


class Case(NamedTuple):
    """A class of entities: the type of its key, its attributes, and what a change does beside counting.

    Attributes:
        key_of: Returns the key of a number.
        attributes: The types of the attributes, each with its first value.
        change: Changes an attribute of an entity.
    """

    what: str
    key_type: Any
    key_of: Callable[[int], Any]
    attributes: dict[str, tuple[Any, Any]]
    change: Callable[[Any], None] | None = None


def five(annotation: Any, value: Any) -> dict[str, tuple[Any, Any]]:
    """Return five attributes of a type."""
    return {f"a{index}": (annotation, value) for index in range(5)}


def add_cent(entity: Any) -> None:
    """Change a `Decimal`."""
    entity.a0 += Decimal("0.01")


def add_second(entity: Any) -> None:
    """Change a `datetime`."""
    entity.a0 += timedelta(seconds=1)


def count_line(entity: Any) -> None:
    """Change a record in a list."""
    entity.a[0].count += 1


def add_money(entity: Any) -> None:
    """Replace a record."""
    entity.a = Money(entity.a.cents + 1, "EUR")


TEXTS: Final = five(str, "abcdefgh")
MOMENT: Final = datetime(2026, 1, 1, tzinfo=UTC)
NUMBERS: Final = {str(number): number for number in range(10)}
LINES: Final = [Line("tea", 2, Decimal("3.50")) for _ in range(10)]
CASES: Final = (
    Case("`str` key, five texts", str, str, TEXTS),
    Case("`int` key, five texts", int, lambda number: number, TEXTS),
    Case("`UUID` key, five texts", UUID, lambda number: UUID(int=number + 1), TEXTS),
    Case("`tuple[int, int]` key", tuple[int, int], lambda number: (1, number), TEXTS),
    Case("`NamedTuple` key", Place, lambda number: Place(1, number), TEXTS),
    Case("five `Decimal`", str, str, five(Decimal, Decimal("12.50")), add_cent),
    Case("five `datetime`", str, str, five(datetime, MOMENT), add_second),
    Case("five `Enum`", str, str, five(Colour, Colour.RED)),
    Case("five optional texts", str, str, five(str | None, None)),
    Case("a dataclass of two fields", str, str, {"a": (Money, Money(100, "EUR"))}, add_money),
    Case("a list of ten dataclasses", str, str, {"a": (list[Line], LINES)}, count_line),
    Case("a `TypedDict`", str, str, {"a": (Point, {"x": 1, "label": "z"})}),
    Case("`dict[str, int]` of ten", str, str, {"a": (dict[str, int], NUMBERS)}),
    Case("`dict[str, Any]` of ten", str, str, {"a": (dict[str, Any], NUMBERS)}),
)


def class_of(case: Case) -> Any:
    """Return the class of the entities of a case."""

    def bump(self: Any) -> None:
        self.n += 1
        if case.change is not None:
            case.change(self)

    types = {name: annotation for name, (annotation, _) in case.attributes.items()}
    hints = {"k": case.key_type, "n": int, **types}
    names = {"__annotations__": hints, "__module__": __name__, "k": key(), "n": 0, "bump": bump}
    return type("Measured", (Entity,), names)


def entity_us(case: Case) -> float:
    """Return the processor time of an entity in microseconds."""
    cls = class_of(case)
    values = {name: value for name, (_, value) in case.attributes.items()}

    @transactional
    def load(first: int, last: int) -> None:
        for number in range(first, last):
            cls.create(case.key_of(number), **values)

    @transactional
    def change(first: int, last: int) -> None:
        for number in range(first, last):
            cls(case.key_of(number)).bump()

    runtime = LocalRuntime(App("measured", cls, load, change))
    pieces = range(0, ENTITIES, AT_ONCE)
    for first in pieces:
        runtime.call(load, first, first + AT_ONCE)
    began = time.process_time()
    for first in [*pieces] * ROUNDS:
        runtime.call(change, first, first + AT_ONCE)
    return (time.process_time() - began) / (ENTITIES * ROUNDS) * 1e6


EVENTS: Final[tuple[tuple[str, Any, Any], ...]] = (
    ("a `NamedTuple`", Place, Place(1, 2)),
    ("a `Decimal`", Decimal, Decimal("12.50")),
    ("a `datetime`", datetime, MOMENT),
    ("an `Enum`", Colour, Colour.RED),
    ("a dataclass of three fields", Line, LINES[0]),
    ("a list of ten dataclasses", list[Line], LINES),
    ("a `TypedDict`", Point, {"x": 1, "label": "z"}),
    ("`dict[str, int]` of ten", dict[str, int], NUMBERS),
    ("`dict[str, Any]` of ten", dict[str, Any], NUMBERS),
)


def event_us(annotation: Any, value: Any) -> float:
    """Return the processor time of encoding an event in microseconds."""
    events = stream("measured", annotation)
    App("measured", events)
    encode = events.events.encode
    began = time.process_time()
    for _ in range(ENTITIES * ROUNDS):
        encode(value)
    return (time.process_time() - began) / (ENTITIES * ROUNDS) * 1e6


class Thing(Entity):
    """What the operations are done with."""

    k: str = key()
    n: int = 0

    def bump(self) -> None:
        """Change it."""
        self.n += 1


def _saved(name: str) -> None:
    with savepoint():
        Thing(name).bump()


OPERATIONS: Final[dict[str, Callable[[str], Any]]] = {
    "a reference that is not used": Thing,
    "a read": lambda name: Thing(name).n,
    "a call, with a change": lambda name: Thing(name).bump(),
    "`exists`": Thing.exists,
    "`create`": lambda name: Thing.create(f"new {name}"),
    "`upsert`": lambda name: Thing.upsert(name, n=1),
    "`delete`": lambda name: Thing(name).delete(),
    "a savepoint with a change": _saved,
}


def operations_us() -> dict[str, float]:
    """Return the processor time of each operation in microseconds."""
    chosen: list[Callable[[str], Any]] = []

    @transactional
    def load(first: int) -> None:
        for number in range(first, first + AT_ONCE):
            Thing.create(f"k{number}")

    @transactional
    def operate(first: int) -> None:
        for perform in chosen:
            for number in range(first, first + AT_ONCE):
                perform(f"k{number}")

    app = App("operations", Thing, load, operate)
    state: dict[Any, bytes] = {}
    executor = Executor(app, state.get, Limits())
    pieces = range(0, ENTITIES, AT_ONCE)
    for first in pieces:
        outcome = executor.run(
            RequestId(f"l{first}"), app.request("", None, "load", (first,))[0], NOW_US
        )
        state.update({name: data for name, data in outcome.writes.items() if data is not None})
    bodies = [app.request("", None, "operate", (first,))[0] for first in pieces]
    tasks_us(app, state, bodies)  # the first task looks for the names to watch
    empty = tasks_us(app, state, bodies)
    found = {"an empty transaction": empty}
    for what, perform in OPERATIONS.items():
        chosen[:] = [perform]
        found[what] = max(0.0, tasks_us(app, state, bodies) - empty) / AT_ONCE
    return found


def tasks_us(app: App, state: dict[Any, bytes], bodies: list[bytes]) -> float:
    """Return the mean of many tasks: the clock of the processor is too coarse for one task of small transactions."""
    return statistics.fmean(transaction_us(app, state, bodies) for _ in range(TASKS))


def kit_us() -> float:
    """Return the processor time of a New-Order through a `Kit` in microseconds."""
    kit = Kit(tpcc.app)
    for work in population(1, SCALE):
        kit.call(work.function, *work.arguments)
    drawn = (
        each
        for number in range(10)
        for each in islice(Terminal(number, 1, SCALE), OF_EACH_TERMINAL)
    )
    works = [each.work for each in drawn if each.kind == "new-order" and not each.rolls_back]
    began = time.process_time()
    for work in works:
        kit.call(work.function, *work.arguments)
    return (time.process_time() - began) / len(works) * 1e6


def transactions_us() -> dict[str, float]:
    """Return the processor time of each transaction of TPC-C in microseconds."""
    state: dict[Any, bytes] = {}
    executor = Executor(tpcc.app, state.get, Limits())
    for number, work in enumerate(population(1, SCALE)):
        body, _ = tpcc.app.request("", None, work.function.__name__, work.arguments)
        outcome = executor.run(RequestId(f"load{number}"), body, NOW_US)
        assert outcome.error is None, outcome
        state.update({name: data for name, data in outcome.writes.items() if data is not None})
    bodies: dict[str, list[bytes]] = {}
    for number in range(10):
        for drawn in islice(Terminal(number, 1, SCALE), OF_EACH_TERMINAL):
            if not drawn.rolls_back:
                name, arguments = drawn.work.function.__name__, drawn.work.arguments
                body, _ = tpcc.app.request("", None, name, arguments)
                bodies.setdefault(drawn.kind, []).append(body)
    gc.collect()
    gc.freeze()
    return {
        f"TPC-C, {kind}": transaction_us(tpcc.app, state, each)
        for kind, each in sorted(bodies.items())
    }


def transaction_us(app: App, state: dict[Any, bytes], bodies: list[bytes]) -> float:
    """Return the mean processor time of transactions in microseconds."""
    task = Task(app, state.get, Limits(), keys=lambda _: [])
    began = time.process_time()
    with Guard(task.executor, Limits(), batched=True) as guard:
        for position, body in guard.each(enumerate(bodies)):
            task.run(position, RequestId(f"r{position}"), body, NOW_US)
    task.access()
    return (time.process_time() - began) / len(bodies) * 1e6


def measured(wish: str, former: Path | None) -> dict[str, float]:
    """Measure everything in a process of its own."""
    environment = {**os.environ, VARIABLE: wish}
    if former is not None:
        environment["PYTHONPATH"] = str(former.resolve() / "src")
    command = [sys.executable, "-m", "benchmarks.value_types", "--turn"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure in turns, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3, help="processes of each kind")
    parser.add_argument("--former", type=Path, help="a checkout of earlier code")
    parser.add_argument("--update-docs", action="store_true")
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        found = {case.what: entity_us(case) for case in CASES}
        found |= {f"event: {what}": event_us(*event) for what, *event in EVENTS}
        found |= operations_us() | transactions_us() | {"TPC-C, new-order in a `Kit`": kit_us()}
        print(json.dumps(found))
        return
    kinds: dict[str, tuple[str, Path | None]] = {
        "compiled": (REQUIRE, None),
        "Python": (DISABLE, None),
    }
    if options.former is not None:
        kinds["before"] = (REQUIRE, options.former)
    about = machine(Path("/var/tmp"))
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for turn in range(options.turns):
        for name, kind in kinds.items():
            turns[name].append(measured(*kind))
        print(f"turn {turn + 1} of {options.turns}", file=sys.stderr)
    rows = [
        {
            "id": what,
            **{name: statistics.median(each[what] for each in turns[name]) for name in kinds},
        }
        for what in turns["compiled"][0]
    ]
    figures = {"machine": about, "rows": rows}
    if options.update_docs:
        page.update("types", figures)
    print(page.types_content(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
