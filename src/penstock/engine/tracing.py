"""Tracing: what one request did, seen while it runs again.

Nothing of this is recorded while an application runs: a request is a pure function of the state
before it, so it is run once more, under CPython's trace function, when somebody asks. Pure: who
calls it supplies the state before, the clock, and holds the handler to its limits.

Calls of entities' methods, of transactional functions and of what creates, deletes and looks for
entities become a tree, of a bounded size. What a savepoint or the abort has undone is told with it.
The request does not notice: nothing that belongs to the application is run to describe it.
"""

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

from penstock.base.ids import EntityKey
from penstock.engine.execute import Outcome
from penstock.engine.replay import Replayer, Row, call_text
from penstock.engine.wording import shown, shown_error
from penstock.errors import PenstockError
from penstock.model.application import App
from penstock.model.context import Transaction, active
from penstock.model.declaration import RESERVED
from penstock.model.entity_type import EntityType

CALLS_MAX: Final = 10_000
"""Calls of one request that are told."""

DEEP_MAX: Final = 100
"""How many calls inside each other are told."""

OWN_DEPTH: Final = 100
"""Python calls that watching may take on top of those of a handler."""

_US: Final = 1_000_000
_RETURNS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST"})
_YIELDS: Final = frozenset({"YIELD_VALUE"})
_CREATE: Final = Transaction.create.__code__
_DELETE: Final = Transaction.delete.__code__
_EXISTS: Final = Transaction.exists.__code__
_REMEMBER: Final = Transaction.remember.__code__
_RESTORE: Final = Transaction.restore.__code__
_OWN: Final = frozenset({_CREATE, _DELETE, _EXISTS, _REMEMBER, _RESTORE})

States = dict[EntityKey, bytes | None]


@dataclass(slots=True)
class Call:
    """One call in a request.

    Attributes:
        call: As one would write it: `Item/i1.add(5)`.
        where: `folder/file:line` of its code; empty for what every entity can do.
        took_us: How long it took in this run, with all calls inside it, microseconds.
        value: What it returned, as text; None where it raised.
        error: What it raised: class and message.
        undone: Whether what it did to entities was undone.
        calls: The calls inside it, in order.
        omitted: Further calls inside it, at any depth, that are not told: there are too many.
    """

    call: str
    where: str = ""
    took_us: float = 0.0
    value: str | None = None
    error: str | None = None
    undone: bool = False
    calls: list["Call"] = field(default_factory=list)
    omitted: int = 0

    def undo(self) -> None:
        """Mark it and all inside it as undone."""
        self.undone = True
        for one in self.calls:
            one.undo()


@dataclass(frozen=True, slots=True)
class Undone:
    """What a savepoint, or the abort of the request, took back.

    Attributes:
        call: The call whose savepoint it was, or the request.
        abort: Whether it was the abort.
        before, after: What entities were when it began, and what they had become; only those that
            differ. Empty where an attribute held what cannot be stored.
    """

    call: str
    abort: bool
    before: States
    after: States


@dataclass(frozen=True, slots=True)
class Traced:
    """What one request did.

    Attributes:
        outcome: How it came out this time.
        root: Its calls; None where it called nothing that exists.
        undone: What was taken back, in that order.
    """

    outcome: Outcome
    root: Call | None
    undone: tuple[Undone, ...]


def trace(app: App, replayer: Replayer, row: Row, clock: Callable[[], float]) -> Traced:
    """Run a request and watch it; `clock` returns seconds.

    A debugger or a profiler that uses the trace function of this thread is put aside meanwhile.
    It takes `OWN_DEPTH` of the depth that the thread has left.
    """
    tracer = _Tracer(app, clock)
    before = sys.gettrace()
    sys.settrace(tracer.enter)
    try:
        outcome = replayer.run(row)
    finally:
        sys.settrace(before)
    text = call_text(row.body)
    root = tracer.root_as(text)
    if outcome.error is not None:
        if root is not None:
            root.undo()
        if tracer.left.after:
            tracer.undone.append(Undone(text, True, tracer.left.before, tracer.left.after))
    return Traced(outcome, root, tuple(tracer.undone))


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where a savepoint began: inside which call, and after how many calls in it."""

    memory: Any
    call: Call
    since: int


@dataclass(frozen=True, slots=True)
class _Made:
    """What a transaction has made of entities so far: what they were when it began, and are."""

    before: States
    after: States


class _Tracer:
    """The trace function of one request.

    Attributes:
        undone: What savepoints took back.
        left: What the last call left behind that was not inside another.
    """

    def __init__(self, app: App, clock: Callable[[], float]) -> None:
        self._codes = dict(_codes_of(app))
        self._clock = clock
        self._count = 0
        self._open: list[Call] = []
        self._began: list[float] = []
        self._paused: dict[FrameType, Call] = {}  # of generators
        self._marks: list[_Mark] = []
        self._outermost: list[Call] = []
        self._taken: tuple[str, _Made] | None = None
        self.undone: list[Undone] = []
        self.left = _Made({}, {})

    def root_as(self, text: str) -> Call | None:
        """Return the one call that has no other around it, or all of them as calls of `text`."""
        if len(self._outermost) < 2:
            return self._outermost[0] if self._outermost else None
        took_us = sum(one.took_us for one in self._outermost)
        last = self._outermost[-1]
        return Call(text, "", took_us, last.value, last.error, calls=self._outermost)

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        """Look at a frame that begins."""
        code = frame.f_code
        if event != "call":
            return None
        if code in _OWN:
            return self._enter_own(frame, code)
        if code not in self._codes:
            return None
        if (paused := self._paused.pop(frame, None)) is not None:
            self._resume(paused)
        elif self._omits():
            return None
        else:
            file = "/".join(code.co_filename.split("/")[-2:])  # others need not know where that lies
        where = f"{file}:{code.co_firstlineno}"
            self._push(Call(_call_text(self._codes[code], frame), where))
        frame.f_trace_lines = False
        return self._inside

    def _omits(self) -> bool:
        """Say whether a call is one too many, and count it then."""
        if self._open and (self._count >= CALLS_MAX or len(self._open) >= DEEP_MAX):
            self._open[-1].omitted += 1
            return True
        return False

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        call = self._open[-1]
        if event == "exception":
            call.error = shown_error(argument[1])
        elif event == "return":
            last = dis.opname[frame.f_code.co_code[frame.f_lasti]]  # raising has another one
            if last in _RETURNS:
                call.error, call.value = None, shown(argument)
            elif last in _YIELDS and call.error is None:
                self._paused[frame] = call
            self._pop()
        return self._inside

    def _enter_own(self, frame: FrameType, code: CodeType) -> Any:
        """Look at what a transaction does for entities: creating, deleting, savepoints."""
        back = frame.f_back
        if back is not None and back.f_code in _OWN:
            return None
        values = frame.f_locals
        if code is _RESTORE:
            self._taking(values["memory"])
        if code is not _REMEMBER and code is not _RESTORE:
            if self._omits():
                return None
            self._push(Call(_own_text(code, values)))
        frame.f_trace_lines = False
        return {_REMEMBER: self._remembering, _RESTORE: self._restoring}.get(code, self._inside)

    def _remembering(self, _: FrameType, event: str, argument: Any) -> Any:
        if event == "return" and argument is not None and self._open:
            self._marks.append(_Mark(argument, self._open[-1], len(self._open[-1].calls)))
        return self._remembering

    def _taking(self, memory: Any) -> None:
        """Note what is about to be taken back."""
        self._taken = None
        for mark in self._marks:
            if mark.memory is memory:
                for one in mark.call.calls[mark.since :]:
                    one.undo()
                self._taken = mark.call.call, _made_now()

    def _restoring(self, _: FrameType, event: str, __: Any) -> Any:
        if event == "return" and self._taken is not None:
            call, had = self._taken
            now = _made_now()
            before: States = {}
            after: States = {}
            for key in dict.fromkeys([*had.after, *now.after]):
                was = now.after.get(key, now.before.get(key))
                became = had.after.get(key, had.before.get(key))
                if was != became:
                    before[key], after[key] = was, became
            if after:
                self.undone.append(Undone(call, False, before, after))
            self._taken = None
        return self._restoring

    def _push(self, call: Call) -> None:
        (self._open[-1].calls if self._open else self._outermost).append(call)
        self._count += 1
        self._resume(call)

    def _resume(self, call: Call) -> None:
        self._open.append(call)
        self._began.append(self._clock())

    def _pop(self) -> None:
        self._open.pop().took_us += (self._clock() - self._began.pop()) * _US
        if not self._open:
            self.left = _made_now()


def _codes_of(app: App) -> Iterator[tuple[CodeType, EntityType | None]]:
    """Yield the code of methods and functions, each with its class if it has one."""
    for kind in app.entities.values():
        for name, member in inspect.getmembers_static(kind.cls):
            thing = member.fget if isinstance(member, property) else member
            special = name.startswith("__") and name.endswith("__")
            if isinstance(thing, FunctionType) and name not in RESERVED and not special:
                yield inspect.unwrap(thing).__code__, kind
        if kind.initializer is not None:
            yield inspect.unwrap(kind.initializer).__code__, kind
    for signature in app.functions.values():
        yield inspect.unwrap(signature.function).__code__, None


def _made_now() -> _Made:
    """Return what the running transaction has made of entities; nothing where nobody can say."""
    txn = active()
    if txn is None:
        return _Made({}, {})
    try:
        return _Made(dict(txn.before), txn.changes())
    except PenstockError:
        return _Made(dict(txn.before), {})


def _call_text(kind: EntityType | None, frame: FrameType) -> str:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = [frame.f_locals.get(name) for name in names]
    if kind is None or not values:
        return f"{code.co_name}({', '.join(map(shown, values))})"
    if code.co_name == "__init__":  # it has no key yet; a base class's is that of several classes
        target = type(values[0]).__name__
    else:
        target = shown(values[0])
    return f"{target}.{code.co_name}({', '.join(map(shown, values[1:]))})"


def _own_text(code: CodeType, values: dict[str, Any]) -> str:
    if code is _DELETE:
        return f"{shown(values['instance'])}.delete()"
    key = values["key"]
    if code is _EXISTS:
        return f"{key}.exists()"
    kind: EntityType = values["kind"]
    attributes = values["instance"].__dict__.items()
    given = [f"{name}={shown(one)}" for name, one in attributes if name != kind.key_name]
    return f"{key}.create({', '.join(given)})"
