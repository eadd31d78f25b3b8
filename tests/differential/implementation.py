"""Run the same applications with the implementation that the environment names; print a line for each outcome.

    PENSTOCK_NATIVE=disable python -m tests.differential.implementation

Two processes, one with each implementation, must print the same lines: the replies, the state, and the checksum of each
part of a journal. Hypothesis draws the same examples in both.
"""

import hashlib
import secrets
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings

from examples import tpcc
from examples.tpcc.nurand import Scale
from examples.tpcc.population import population
from examples.tpcc.terminal import Terminal
from penstock import App, Entity, LocalRuntime, key
from penstock.base.ids import BEFORE_FIRST, RequestId
from penstock.engine.execute import Limits
from penstock.log.api import Entry
from penstock.native.choice import describe
from tests.differential.committed import answers_of
from tests.differential.inline import Inline
from tests.differential.machine import app as machine
from tests.differential.programs import BEGINNING_US, History, histories, logged, shapes, tangles
from tests.hostile import strategies
from tests.hostile.handlers import app as hostile
from tests.hostile.programs import Danger, beginning, entries, numbered
from tests.memory_log import MemoryLog

DEPTH = 300
CLIMBERS = "tests.differential.implementation:climbers"
FRAMES_CHECKED = (*range(DEPTH - 150, DEPTH - 110), *range(DEPTH - 30, DEPTH))
"""With 128 frames before the recursion limit, the compiled implementation leaves all work to Python; a touch takes up to 15,
so that it meets the limit with the last ones. In between, both implementations run Python alone."""


class Leaf(Entity):
    """An entity that is touched at some depth."""

    name: str = key()
    number: int = 0
    others: list["Leaf"] = []

    @property
    def double(self) -> int:
        """Run a handler's code at the first touch."""
        return 2 * self.number

    def bump(self) -> int:
        self.number += 1
        return self.number


class Place(NamedTuple):
    """A key with parts."""

    row: int
    name: str


@dataclass
class Mark:
    """A record in a row, and in a result."""

    number: int
    leaf: Leaf


class Twig(Entity):
    """An entity whose key has parts, and whose row has records."""

    place: Place = key()
    marks: list[Mark]


class Climber(Entity):
    """Descends, and touches a leaf with the frames that are left."""

    name: str = key()
    lowest: int = 0

    def descend(self, frames: int, leaf: Leaf, way: str) -> str:
        if frames:
            return self.descend(frames - 1, leaf, way)
        try:
            return str(TOUCHES[way](leaf))
        except RecursionError:
            self.lowest += 1
            return "too deep"

    def mark(self, place: Place, number: int) -> list[Mark]:
        """Return records."""
        twig = Twig(place)
        twig.marks.append(Mark(number, Leaf("a")))
        return twig.marks


def _put(leaf: Leaf) -> int:
    leaf.number = 7
    return leaf.number


def _deeper(leaf: Leaf) -> int:
    """Return how many more frames there are after a touch."""
    levels = 0

    def down() -> None:
        nonlocal levels
        levels += 1
        down()

    try:
        assert leaf.number >= 0
        down()
    except RecursionError:
        return levels
    return -1


TOUCHES: dict[str, Callable[[Leaf], Any]] = {
    "get": lambda leaf: leaf.number,
    "property": lambda leaf: leaf.double,
    "method": lambda leaf: leaf.bump(),
    "put": _put,
    "references": lambda leaf: [other.name for other in leaf.others],
    "refer": lambda leaf: Leaf(f"{leaf.name}x").name,
    "missing": lambda leaf: Leaf("missing").number if leaf.number else 0,
    "parts": lambda leaf: Twig(Place(1, leaf.name)).marks[0].leaf.number,
    "create": lambda leaf: Twig.upsert(Place(2, leaf.name), marks=[Mark(1, leaf)]).place,
    "deeper": _deeper,
}
climbers = App("climbers", Climber, Leaf, Twig)


def climb() -> None:
    """Touch entities at each depth before the recursion limit, in each way."""
    limits = Limits(depth=DEPTH)
    for way in TOUCHES:
        runtime = LocalRuntime(climbers, limits=limits)
        runtime.call.Leaf.create("a", number=1)
        runtime.call.Leaf.create("b", number=2, others=[Leaf("a"), Leaf("b")])
        runtime.call.Twig.create(Place(1, "b"), marks=[Mark(3, Leaf("a"))])
        runtime.call.Climber.create("c")
        tell("marks", way, runtime.call(Climber.mark, Climber("c"), Place(1, "b"), 5))
        for frames in FRAMES_CHECKED:
            request = climbers.request("Climber", "c", "descend", (frames, Leaf("b"), way))
            log = MemoryLog()
            log.append([Entry(RequestId(f"{way}{frames}"), *request, 0)])
            (reply,) = runtime.replay(log.read(log.start(), log.end()))
            tell("climb", way, frames, reply.error, reply.data)
        tell("climbed", way, sorted(runtime.state.items()))


def trade() -> None:
    """Run TPC-C, whose keys, attributes, arguments and results are of most types."""
    scale = Scale(items=20, customers=30)
    terminals = (
        islice((each.work for each in Terminal(number, 1, scale)), 30) for number in range(5)
    )
    log = MemoryLog()
    for number, work in enumerate(chain(population(1, scale), *terminals)):
        request = tpcc.app.request("", None, work.function.__name__, work.arguments)
        log.append([Entry(RequestId(str(number)), *request, BEGINNING_US + number)])
    runtime = LocalRuntime(tpcc.app)
    for reply in runtime.replay(log.read(log.start(), log.end())):
        tell("trade", reply.request_id, reply.error, reply.data)
    tell("traded", sorted(runtime.state.items()))


def climb_in_epochs() -> None:
    """Do the same in epochs, where a task reads through its writes and the stores of two partitions."""
    with tempfile.TemporaryDirectory() as folder:
        inline = Inline(
            Path(folder), 2, CLIMBERS, climbers.name, small_epoch=100, limits=Limits(depth=DEPTH)
        )
        requests = [
            climbers.request("Leaf", "a", "create", (), {"number": 1}),
            climbers.request("Leaf", "b", "create", (), {"number": 2, "others": [Leaf("a")]}),
        ]
        for number, way in enumerate(TOUCHES):
            requests.append(climbers.request("Climber", f"c{number}", "create"))
            requests += [
                climbers.request("Climber", f"c{number}", "descend", (frames, Leaf("b"), way))
                for frames in FRAMES_CHECKED[::3]
            ]
        for number, request in enumerate(requests):
            inline.log.append([Entry(RequestId(str(number)), *request, BEGINNING_US + number)])
        inline.advance(int(inline.log.end()))
        for answer in answers_of(inline.journal):
            tell("climb in epochs", answer)
        tell_parts(inline)
        inline.close()


def run_history(history: History) -> None:
    """Run a history in one thread."""
    serial = LocalRuntime(machine)
    sent = [*history.created(), *history.every()]
    for reply in serial.replay(logged(machine, sent)[0]):
        tell("serial", reply.request_id, reply.error, reply.data)
    tell("state", sorted(serial.state.items()))


def run_journal(history: History) -> None:
    """Run a history in epochs of several tasks."""
    with tempfile.TemporaryDirectory() as folder:
        inline = Inline(Path(folder), 2)
        for number, (request_id, call) in enumerate([*history.created(), *history.every()]):
            inline.log.append(
                [Entry(RequestId(request_id), *call.encode(machine), BEGINNING_US + number)]
            )
        inline.advance(int(inline.log.end()))
        tell_parts(inline)
        inline.close()


def run_hostile(calls: list[Any]) -> None:
    """Run hostile handlers in one thread; exceptions of their own are no outcome."""
    log = MemoryLog()
    log.append(entries(hostile, numbered("r")([*beginning(), *calls])))
    serial = LocalRuntime(hostile, limits=Limits(time_ms=10_000))
    for reply in serial.replay(log.read(log.start(), log.end())):
        tell("hostile", reply.request_id, reply.error, reply.data)
    tell("state", sorted(serial.state.items()))


def tell_parts(inline: Inline) -> None:
    """Print the checksum of each part of a journal."""
    for commit in inline.journal.commits(BEFORE_FIRST):
        for part in commit.parts:
            tell("part", commit.epoch, part.kind, part.rows, part.checksum)


def tell(*parts: object) -> None:
    """Print an outcome; a large one by its digest."""
    text = repr(parts)
    if len(text) > 300:
        text = f"{text[:200]} … {hashlib.sha256(text.encode()).hexdigest()}"
    sys.stdout.write(f"{text}\n")


def examples(strategy: Any, count: int, run: Callable[[Any], None]) -> None:
    """Run the same examples in each process."""
    chosen = settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    chosen(given(strategy)(run))()  # type: ignore[no-untyped-call]


def main() -> None:
    """Run everything."""
    sys.stderr.write(f"transactions run {describe()}\n")
    secrets.token_bytes = bytes  # type: ignore[assignment]  # the secret of a journal decides random values
    climb()
    climb_in_epochs()
    trade()
    examples(histories(), 60, run_history)
    examples(shapes(), 40, run_history)
    examples(tangles() | histories(most=8), 10, run_journal)
    examples(strategies.histories(Danger.NONE), 40, run_hostile)


if __name__ == "__main__":
    main()
