"""A schedule: what goes wrong in one run of the simulation, drawn from a seed; its run, its check, and its smallest form.

The check is independent of the drivers: it reads what lies in the store and in the log, and what callers heard.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Final

from tests.simulation.actors import (
    KEEPS_S,
    Bank,
    Call,
    caller,
    driver,
    gateway,
)
from tests.simulation.world import Fault, Host, Process, World

MILD: Final = (
    "lost answers",
    "doubled requests",
    "slow",
    "conflicts",
    "unavailable",
    "no writes",
    "denied names",
    "jump",
)
"""Faults that are no reason for a takeover."""
HARD: Final = (
    "lost requests",
    "late requests",
    "cut",
    "driver killed",
    "driver killed at its commit",
    "driver stopped",
    "driver stopped at its commit",
    "gateway killed",
    "gateway stopped",
)
FAULTS: Final = (*MILD, *HARD)
_EVERYWHERE: Final = frozenset({"unavailable", "no writes"})
_LIKE_CUTS: Final = frozenset({"lost answers", "conflicts"})
_JUMP_S: Final = KEEPS_S / 24
_TRACE_LINES: Final = 400
_CALM_S: Final = 240.0
"""When the last fault is over, everything is answered within this time."""


@dataclass(frozen=True)
class Schedule:
    """One run.

    Attributes:
        callers: How many callers there are.
        calls: How many calls each makes.
        pause_s: The mean pause between two calls of a caller.
    """

    seed: int
    hosts: int
    callers: int
    calls: int
    pause_s: float
    faults: tuple[Fault, ...]

    @property
    def is_mild(self) -> bool:
        """Whether no driver may be replaced.

        Answers that are lost or wrong at one host alone are as good as a cut if they last, or if the store is away at the
        same time: that host cannot change the lease, and another one can.
        """
        for_one = [fault for fault in self.faults if fault.name in _LIKE_CUTS]
        return all(fault.name in MILD for fault in self.faults) and (
            not for_one or (len(self.faults) == 1 and for_one[0].lasts_s < 1)
        )

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.hosts} hosts, {self.callers} callers of {self.calls}"]
        return "\n".join([*lines, *map(str, self.faults)])


def drawn(seed: int) -> Schedule:
    """Return the schedule of a seed."""
    draw = random.Random(seed)
    hosts = draw.choice((2, 2, 3))
    is_long = draw.random() < 0.15  # long enough for names to be forgotten
    pause_s = draw.choice((0.5, 2.0)) if not is_long else 8.0
    calls = draw.randint(3, 8) if not is_long else 14
    span_s = calls * pause_s + 5
    names = MILD if draw.random() < 0.25 else FAULTS
    faults = [_fault(draw, hosts, names, span_s) for _ in range(draw.randint(1, 6))]
    if draw.random() < 0.2:  # long enough for a takeover
        at_s, asleep_s = draw.uniform(0, span_s / 2), draw.uniform(9, 40)
        faults.append(Fault(at_s, "driver stopped at its commit", 0, asleep_s))
    if is_long:
        asleep_s = KEEPS_S * draw.uniform(1.5, 2.5)
        at_s = draw.uniform(0, span_s / 8)
        faults.append(Fault(at_s, "driver stopped at its commit", 0, asleep_s))
    return Schedule(seed, hosts, draw.randint(2, 3), calls, pause_s, tuple(sorted(faults)))


def _fault(draw: random.Random, hosts: int, names: tuple[str, ...], span_s: float) -> Fault:
    name = draw.choice(names)
    host = -1 if name in _EVERYWHERE or draw.random() < 0.3 else draw.randrange(hosts)
    share = 1.0 if name in _EVERYWHERE else draw.choice((0.3, 0.6, 1.0))
    if name == "jump":
        share = draw.uniform(-_JUMP_S, _JUMP_S)
    return Fault(draw.uniform(0, span_s), name, host, draw.choice((0.5, 3.0, 12.0, 30.0)), share)


class Simulation(World):
    """A world with drivers, gateways and callers, in which a schedule runs."""

    def __init__(self, schedule: Schedule, *, traced: bool = False) -> None:
        roles = {"driver": driver, "gateway": gateway}
        super().__init__(schedule.seed, schedule.hosts, roles, traced=traced)
        self._schedule = schedule
        self.callers = schedule.callers
        for host in self.hosts:
            self.begin("gateway", host)
            self.at(0.2 * host.number, partial(self.begin, "driver", host))
        for number in range(schedule.callers):
            process = Process(self.hosts[0], f"caller {number}")
            calls, pause_s = schedule.calls, schedule.pause_s
            self.start(process, caller(self, process, number, calls, pause_s))
        for fault in schedule.faults:
            hosts = self.hosts if fault.host < 0 else [self.hosts[fault.host % schedule.hosts]]
            for host in hosts:
                self._plan(fault, host)

    def outcome(self) -> list[str]:
        """Run the schedule; return what is wrong afterwards."""
        end_s = max((fault.at_s + fault.lasts_s for fault in self._schedule.faults), default=0.0)
        span_s = self._schedule.calls * self._schedule.pause_s
        self.run(
            max(end_s, 2 * span_s) + _CALM_S, lambda: not self.callers and self.now_s > end_s + 1
        )
        return [*self.failures, *self._complaints()]

    def _plan(self, fault: Fault, host: Host) -> None:
        role, _, event = fault.name.partition(" ")
        if role not in ("driver", "gateway") and fault.name != "jump":
            host.faults.append(fault)
            return

        def begin() -> None:
            process = self.processes.get((role, host.number))
            if fault.name == "jump":
                host.offset_s = fault.share
            elif process is not None and process.is_alive:
                self.tell(process.name, event)
                if event.endswith("at its commit"):
                    process.trap = partial(end, process)
                else:
                    end(process)

        def end(process: Process) -> None:
            if event.startswith("killed"):
                self.replace(process)
            else:
                self.stop(process)
                self.at(self.now_s + fault.lasts_s, partial(self.wake, process))

        self.at(fault.at_s, begin)

    def _complaints(self) -> Iterator[str]:
        history = list(self._history())
        yield from self._lost({commit["epoch"]: text for commit, text in history})
        replies: dict[str, Any] = {}
        yield from self._unequal([commit for commit, _ in history], replies)
        for call in self.calls:
            yield from self._wrong(call, replies)
        yield from self._disorder()
        if self._schedule.is_mild and self.takeovers > 1:
            yield f"{self.takeovers} drivers had the lease, without a reason"

    def _lost(self, texts: dict[Any, str]) -> Iterator[str]:
        """Yield the epochs that were committed or read, and are not in the store."""
        for epoch, text in self.committed:
            if texts.get(epoch) != text:
                yield f"epoch {epoch} is lost that a driver has committed: {text}"
        for epoch, text in self.fenced:
            if texts.get(epoch) == text:
                yield f"epoch {epoch} is in the store, and its driver was told that it is another's: {text}"
        for host in self.hosts:
            for number, text in enumerate(host.facts["seen"]):
                if texts.get(number) != text:
                    yield f"host {host.number} has read another epoch {number}: {text}"

    def _unequal(self, commits: list[dict[str, Any]], replies: dict[str, Any]) -> Iterator[str]:
        """Yield the epochs that differ from one thread; note the reply of each request."""
        bank, end = Bank(), 0
        for commit in commits:
            records = self.log[end : commit["end"]]
            end = commit["end"]
            rows = [[record[0], bank.answer(record)] for record in records]
            if rows != commit["rows"] or bank.accounts != commit["accounts"]:
                yield f"epoch {commit['epoch']} differs from one thread: {rows}, {commit}"
            for request_id, reply in rows:
                replies.setdefault(request_id, reply)

    def _wrong(self, call: Call, replies: dict[str, Any]) -> Iterator[str]:
        """Yield what a caller heard that is not so."""
        request_id, known = call.request_id, replies.get(call.request_id)
        if any(self.log[lsn][0] != request_id for lsn in call.positions):
            yield f"request {request_id} is not in the log at {call.positions}"
        if call.reply is None:
            yield f"request {request_id} has no reply"
        elif call.reply != known or call.again not in (None, known):
            yield f"request {request_id} was answered {call.reply} and {call.again}, not {known}"

    def _disorder(self) -> Iterator[str]:
        """Yield the pairs of calls whose order in the log contradicts real time."""
        places: dict[str, int] = {}
        for lsn, (request_id, _) in enumerate(self.log):
            places.setdefault(request_id, lsn)
        done = [call for call in self.calls if call.reply is not None]
        for before, after in product(done, done):
            if before.replied_s < after.called_s:
                first, second = before.request_id, after.request_id
                if places[first] > places[second]:
                    yield f"{second} was called after the reply of {first}, and is before it"

    def _history(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the epochs that are in the store."""
        epoch = 0
        segments = {
            name: found.data.decode().split("\n")
            for name, found in sorted(self.objects.items())
            if name.startswith("segment/")
        }
        merged = [text for texts in segments.values() for text in texts]
        while True:
            if epoch < len(merged):
                text = merged[epoch]
            elif (found := self.objects.get(f"epoch/{epoch:06}")) is not None:
                text = found.data.decode()
            else:
                return
            yield json.loads(text), text
            epoch += 1


def complaints_of(schedule: Schedule) -> list[str]:
    """Return what is wrong after a schedule; an exception of a task is wrong, too."""
    try:
        return Simulation(schedule).outcome()
    except Exception as error:  # noqa: BLE001 -- a finding as any other
        return [f"{type(error).__name__}: {error}"]


def smallest(schedule: Schedule) -> Schedule:
    """Return a schedule with as few faults, callers and calls as still show something wrong."""
    while True:
        for smaller in _smaller(schedule):
            if complaints_of(smaller):
                schedule = smaller
                break
        else:
            return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    faults = schedule.faults
    for place in range(len(faults)):
        yield replace(schedule, faults=faults[:place] + faults[place + 1 :])
    for name in ("callers", "calls"):
        if (count := getattr(schedule, name)) > 1:
            yield replace(schedule, **{name: count - 1})


def traced(schedule: Schedule) -> list[str]:
    """Return the trace of a schedule, and what is wrong at its end."""
    simulation = Simulation(schedule, traced=True)
    try:
        wrong = simulation.outcome()
    except Exception as error:  # noqa: BLE001 -- as in `complaints_of`
        wrong = [f"{type(error).__name__}: {error}"]
    assert simulation.trace is not None
    return [*simulation.trace, *wrong]


def report_of(schedule: Schedule) -> str:
    """Return the smallest form of a schedule that shows something wrong, with the end of its trace."""
    small = smallest(schedule)
    return "\n".join([str(small), *traced(small)[-_TRACE_LINES:]])
