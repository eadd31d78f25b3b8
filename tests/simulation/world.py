"""`World`: virtual time, hosts, an object store and a log, between which a schedule puts faults.

A task is a generator, as a decision is (`penstock.base.decision`): it yields what it asks for, and gets the answer at a later
moment of virtual time. A request goes to its server and is carried out there, and the answer goes back; each of the
three can be lost, late, doubled or wrong. Nothing here knows what a task is for.
"""

import errno
import heapq
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from penstock.base.decision import Now, Pause
from penstock.base.ids import Epoch
from penstock.files.shared_root import Found
from penstock.files.store_answers import ConditionFailed, Get, Put
from penstock.journal.head import Clocks

Task = Generator[Any, Any, Any]

ANSWER_S: Final = 5.0
"""A request without an answer ends after this time, as in `files.store_client`."""
_WAY_S: Final = (0.001, 0.02)


@dataclass(frozen=True, slots=True)
class Write:
    """Ask to write an object without a condition."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Names:
    """Ask for all names with a prefix, and for when each was written."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Ask to remove an object."""

    name: str


@dataclass(frozen=True, slots=True)
class Append:
    """Ask to append a record to the log; its position."""

    record: Any


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for the records from a position on; the answer waits a while for the first of them."""

    position: int


@dataclass(frozen=True, slots=True)
class Until:
    """Ask to go on when a condition holds, or after some seconds; whether it holds."""

    holds: Callable[[], bool]
    timeout_s: float


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something that goes wrong from one moment to another.

    Attributes:
        name: One of `schedule.FAULTS`.
        host: The host whose requests or processes it meets.
        share: The part of the requests that it meets, or the size of a jump.
    """

    at_s: float
    name: str
    host: int
    lasts_s: float
    share: float = 1.0

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} {self.name} of host {self.host} for {self.lasts_s:.3f} s ({self.share:.2f})"


@dataclass(eq=False, slots=True)
class Process:
    """Tasks that are stopped and killed together."""

    host: "Host"
    name: str
    is_alive: bool = True
    is_stopped: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)
    """The names that it has put without a clear answer."""
    trap: Callable[[], None] | None = None
    """What happens when it is about to put an epoch."""


@dataclass(eq=False, slots=True)
class Host:
    """A host with a clock of its own."""

    number: int
    offset_s: float = 0.0
    """How far its clock of the time of day is off."""
    faults: list[Fault] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Object:
    data: bytes
    tag: str
    written_s: float


class World:
    """The moment, and everything that is going to happen.

    Attributes:
        calls: What callers have called.
        committed: The epochs that drivers believe to have committed, with their texts.
        fenced: The epochs with which drivers were fenced, with their texts.
        takeovers: How often a driver has got the lease.
        callers: How many callers have not ended.
        failures: What the actors themselves have found wrong.
    """

    def __init__(
        self, seed: int, hosts: int, roles: "Mapping[str, Role]", *, traced: bool = False
    ) -> None:
        self.now_s = 0.0
        self.random = random.Random(seed)
        self.hosts = [Host(number) for number in range(hosts)]
        self.objects: dict[str, _Object] = {}
        self.log: list[Any] = []
        self.calls: list[Any] = []
        self.committed: list[tuple[Epoch, str]] = []
        self.fenced: list[tuple[Epoch, str]] = []
        self.takeovers = self.callers = 0
        self.failures: list[str] = []
        self.trace: list[str] | None = [] if traced else None
        self.processes: dict[tuple[str, int], Process] = {}
        self._roles = roles
        self._runs = 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._tag = 0
        self._fetches: list[Callable[[], None]] = []

    def begin(self, role: str, host: Host) -> None:
        """Start a process of a role."""
        self._runs += 1
        process = Process(host, f"{role} {host.number}.{self._runs}")
        self.processes[role, host.number] = process
        self.start(process, self._roles[role](self, process))

    def replace(self, process: Process) -> None:
        """End a process, and start another one of its role a moment later, as a supervisor does."""
        if process.is_alive:
            self.kill(process)
            role = process.name.partition(" ")[0]
            self.at(self.now_s + 1, partial(self.begin, role, process.host))

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Let something happen at a moment."""
        self._number += 1
        heapq.heappush(self._agenda, (time_s, self._number, act))

    def run(self, until_s: float, is_over: Callable[[], bool]) -> None:
        """Let time pass until a moment, or until it is over."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= until_s and not is_over():
            self.now_s, _, act = heapq.heappop(agenda)
            act()

    def tell(self, who: object, what: object) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now_s:9.3f} {who}: {what}")

    def start(self, process: Process, task: Task) -> None:
        """Run a task in a process."""
        self._resume(process, task, None, None)

    def kill(self, process: Process) -> None:
        """End a process at once; its requests are under way still."""
        process.is_alive = False
        process.waiting.clear()

    def stop(self, process: Process) -> None:
        """Let a process rest, as SIGSTOP does."""
        process.is_stopped = True

    def wake(self, process: Process) -> None:
        """Let a process that rests go on: it hears all answers that have come."""
        process.is_stopped = False
        waiting, process.waiting = process.waiting, []
        for act in waiting:
            act()

    def _resume(self, process: Process, task: Task, answer: Any, error: OSError | None) -> None:
        if not process.is_alive:
            return
        if process.is_stopped:
            process.waiting.append(lambda: self._resume(process, task, answer, error))
            return
        try:
            while True:
                ask = task.send(answer) if error is None else task.throw(error)
                error = None
                if isinstance(ask, Now):
                    answer = self.now_s
                elif isinstance(ask, Clocks):
                    answer = self.now_s + process.host.offset_s, self.now_s
                else:
                    break
        except StopIteration:
            return
        self._carry_out(process, task, ask)

    def _carry_out(self, process: Process, task: Task, ask: Any) -> None:
        if process.trap is not None and isinstance(ask, Put) and ask.name.startswith("epoch/"):
            trap, process.trap = process.trap, None
            trap()
            if process.is_stopped:
                process.waiting.append(lambda: self._carry_out(process, task, ask))
                return

        def later(answer: Any = None, error: OSError | None = None) -> None:
            if self.trace is not None and not isinstance(ask, Pause | Until):
                self.tell(process.name, f"{_shown(ask)} -> {_shown(error or answer)}")
            self._resume(process, task, answer, error)

        if isinstance(ask, Pause):
            self.at(self.now_s + ask.seconds, later)
        elif isinstance(ask, Until):
            self._await(ask, self.now_s + ask.timeout_s, later)
        else:
            self._send(process, ask, later)

    def _await(self, ask: Until, deadline_s: float, later: Callable[..., None]) -> None:
        if ask.holds() or self.now_s >= deadline_s:
            later(ask.holds())
        else:
            self.at(min(self.now_s + 0.25, deadline_s), lambda: self._await(ask, deadline_s, later))

    def _way_s(self) -> float:
        low, high = _WAY_S
        return low + (high - low) * self.random.random()

    def _active(self, host: Host) -> list[Fault]:
        """Return the faults that a request of a host meets now."""
        now_s = self.now_s
        return [fault for fault in host.faults if fault.at_s <= now_s < fault.at_s + fault.lasts_s]

    def _send(self, process: Process, ask: Any, later: Callable[..., None]) -> None:
        """Send a request; its answer comes, or an error after a while, once."""
        request = _Request(self, process, ask, later, self._way_s())
        for fault in self._active(process.host):
            if self.random.random() < fault.share:
                _EFFECTS[fault.name](request)
        if request.wrong is not None:
            self.at(self.now_s + request.way_s, partial(request.end, *request.wrong))
            return
        self.at(self.now_s + ANSWER_S, partial(request.end, None, OSError(errno.EIO, "no answer")))
        for copy in range(request.copies):
            delay_s = request.way_s + copy * 30 * self.random.random()
            self.at(self.now_s + delay_s, partial(self._arrive, request, copy))

    def _arrive(self, request: "_Request", copy: int) -> None:
        answer, error = self._served(request, copy)
        is_cut = any(fault.name == "cut" for fault in self._active(request.process.host))
        if answer is not _LATER and not (request.is_lost or copy or is_cut):
            self.at(self.now_s + self._way_s(), partial(request.end, answer, error))

    def _served(self, request: "_Request", copy: int) -> tuple[Any, OSError | None]:  # noqa: PLR0911 -- one for each request
        """Carry a request out at its server."""
        match request.ask:
            case Append(record):
                self.log.append(record)
                fetches, self._fetches = self._fetches, []
                for fetch in fetches:
                    fetch()
                return len(self.log) - 1, None
            case Fetch(position) if position >= len(self.log):
                self._fetches.append(partial(self._arrive, request, copy))
                return _LATER, None
            case Fetch(position):
                return self.log[position : position + 8], None
            case Put() | Write() | Remove() as ask:
                error = self._written(ask)
                return None if error or isinstance(ask, Remove) else self.objects[
                    ask.name
                ].tag, error
            case Names(prefix):
                objects = sorted(self.objects.items())
                return {
                    name: one.written_s for name, one in objects if name.startswith(prefix)
                }, None
            case ask:
                return self._found(ask.name), None

    def _found(self, name: str) -> Found:
        present = self.objects.get(name)
        return Found(None, None) if present is None else Found(present.data, present.tag)

    def _written(self, ask: Put | Write | Remove) -> OSError | None:
        present = self.objects.get(ask.name)
        if isinstance(ask, Put) and ask.tag != (present and present.tag):
            return ConditionFailed(errno.EEXIST, "412")
        if isinstance(ask, Remove):
            self.objects.pop(ask.name, None)
        else:
            self.put(ask.name, ask.data)
        return None

    def put(self, name: str, data: bytes) -> None:
        """Write an object at once."""
        self._tag += 1
        self.objects[name] = _Object(data, str(self._tag), self.now_s)


Role = Callable[[World, Process], Task]
_LATER: Final = object()


@dataclass(eq=False, slots=True)
class _Request:
    """A request on its way.

    Attributes:
        copies: How often it arrives.
        is_lost: Whether its answer is lost.
        wrong: An answer that it gets without its server.
    """

    world: World
    process: Process
    ask: Any
    later: Callable[..., None]
    way_s: float
    copies: int = 1
    is_lost: bool = False
    wrong: tuple[Any, OSError | None] | None = None
    is_over: bool = False

    def end(self, answer: Any, error: OSError | None) -> None:
        """Give the answer, if it is the first one."""
        if not self.is_over:
            self.is_over = True
            if error is not None and isinstance(self.ask, Put):
                self.process.unclear.add(self.ask.name)
            self.later(answer, error)


def _lose(request: _Request) -> None:
    request.copies = 0


def _lose_answer(request: _Request) -> None:
    request.is_lost = True


def _delay_beyond_answer(request: _Request) -> None:
    request.way_s += 15 * request.world.random.random()
    request.is_lost = True


def _double(request: _Request) -> None:
    request.copies += 1


def _delay(request: _Request) -> None:
    request.way_s += 2 * request.world.random.random()


def _say_conflict(request: _Request) -> None:
    if isinstance(request.ask, Put):
        request.wrong = None, ConditionFailed(errno.EEXIST, "409")


def _refuse(request: _Request) -> None:
    if not isinstance(request.ask, Append | Fetch):
        request.wrong = None, OSError(errno.EIO, "503")


def _refuse_write(request: _Request) -> None:
    if isinstance(request.ask, Put | Write | Remove):
        request.wrong = None, OSError(errno.EIO, "503")


def _deny_name(request: _Request) -> None:
    """Deny for a moment what was written without a clear answer."""
    if isinstance(request.ask, Get) and request.ask.name in request.process.unclear:
        present = request.world.objects.get(request.ask.name)
        if present is not None and request.world.now_s - present.written_s < 1:
            request.wrong = Found(None, None), None


_EFFECTS: Final = {
    "cut": _lose,
    "lost requests": _lose,
    "lost answers": _lose_answer,
    "late requests": _delay_beyond_answer,
    "doubled requests": _double,
    "slow": _delay,
    "conflicts": _say_conflict,
    "unavailable": _refuse,
    "no writes": _refuse_write,
    "denied names": _deny_name,
}
"""What each fault of a network or of a store does to a request that it meets."""


def _shown(thing: Any) -> str:
    if isinstance(thing, OSError):
        return f"{type(thing).__name__} {thing.strerror}"
    text = str(thing)
    return text if len(text) < 160 else f"{text[:157]}…"
