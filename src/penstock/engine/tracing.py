"""Tracing: runs one request again and records its calls.

An application records no traces while it runs. A request is a pure function of the state before it, so
a trace runs it again under CPython's trace function. This module does no I/O: the caller supplies the
state and the clock, and enforces the limits of the handler.

The trace is a tree of calls: methods of entities, transactional functions, and `create`, `delete` and
`exists`. Calls that a savepoint or an abort has undone are marked, with the states just before.
"""

import dis
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

from penstock.base.ids import EntityKey
from penstock.base.record import is_record, members_of
from penstock.engine.execute import Outcome
from penstock.engine.replay import Replayer, RequestRow
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.observed_cascades import TakenStep
from penstock.errors import PenstockError
from penstock.model.application import App
from penstock.model.context import CREATING, EXISTING, Transaction, active
from penstock.model.declaration import RESERVED
from penstock.model.entity_type import EntityType
from penstock.model.savepoint import SavepointBlock

_TEXT_MAX: Final = 80
_DEPTH_MAX: Final = 4
_US: Final = 1_000_000
_BRACKETS: Final[dict[type, str]] = {
    list: "[{}]",
    tuple: "({})",
    set: "{{{}}}",
    frozenset: "{{{}}}",
}
_RETURNS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST"})
_DELETE: Final = Transaction.delete.__code__
_OPEN: Final = SavepointBlock.open.__code__
_RESTORE: Final = SavepointBlock.restore.__code__
_OWN: Final = frozenset({CREATING, _DELETE, EXISTING, _OPEN, _RESTORE})


@dataclass(slots=True)
class CallTrace:
    """One call in a request.

    Attributes:
        call: The call as text: `Item/i1.add(5)`.
        where: `folder/file:line` of its code; empty for `create`, `delete` and `exists`.
        took_us: Microseconds of this run, with all inner calls.
        value: The result as text; None if the call raised.
        undone: Whether its changes of entities were undone.
        calls: The calls inside it, in order.
    """

    call: str
    where: str = ""
    took_us: float = 0.0
    value: str | None = None
    error: str | None = None
    undone: bool = False
    calls: list["CallTrace"] = field(default_factory=list)

    def undo(self) -> None:
        """Mark the call and all inner calls as undone."""
        self.undone = True
        for call in self.calls:
            call.undo()


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """The trace of one request.

    Attributes:
        root: The root of the calls; None if the request names no method that exists.
        undone: The states that a savepoint or the abort has undone.
        cascade: The cascade of the record; None if it has caused nothing.
        steps: The workflow steps of the cascade, in order.
    """

    outcome: Outcome
    root: CallTrace | None
    undone: dict[EntityKey, bytes | None]
    cascade: Cascade | None = None
    steps: Sequence[TakenStep] = ()


def trace(
    app: App, replayer: Replayer, row: RequestRow, clock: Callable[[], float]
) -> RequestTrace:
    """Run a request and trace it.

    A debugger that uses the trace function of this thread is suspended meanwhile.

    Args:
        replayer: Has the state before the request.
        clock: Returns seconds.
    """
    tracer = _Tracer(app, clock)
    before = sys.gettrace()
    sys.settrace(tracer.enter)
    try:
        outcome = replayer.execute(row)
    finally:
        sys.settrace(before)
    steps = replayer.cascades.observe()
    outcome = replayer.conclude(row, outcome)
    replayer.cascades.steps = None
    if outcome.error is not None and tracer.root is not None:
        tracer.root.undo()
    return RequestTrace(outcome, tracer.root, tracer.undone, replayer.cascade, steps)


class _Tracer:
    """The trace function of one request."""

    def __init__(self, app: App, clock: Callable[[], float]) -> None:
        self._codes = dict(_codes_of(app))
        self._clock = clock
        self._open: list[CallTrace] = []
        self._began: list[float] = []
        self._marks: list[tuple[SavepointBlock, CallTrace, int]] = []  # of blocks: where they began
        self.root: CallTrace | None = None
        self.undone: dict[EntityKey, bytes | None] = {}

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        """Look at a frame that begins."""
        code = frame.f_code
        if event != "call":
            return None
        if code in _OWN:
            return self._enter_own(frame, code)
        if code not in self._codes:
            return None
        frame.f_trace_lines = False
        file = "/".join(code.co_filename.split("/")[-2:])  # others need not know where that lies
        where = f"{file}:{code.co_firstlineno}"
        self._push(CallTrace(_call_text(*self._codes[code], frame), where))
        return self._inside

    def _inside(self, frame: FrameType, event: str, argument: Any) -> Any:
        call = self._open[-1]
        if event == "exception":
            error_type, error, _ = argument
            call.error = f"{error_type.__name__}: {_clipped(str(error))}"
        elif event == "return":
            if _is_return(frame):
                call.error, call.value = None, shown(argument)
            self._pop()
        return self._inside

    def _enter_own(self, frame: FrameType, code: CodeType) -> Any:
        """Trace a call of Penstock: `create`, `delete`, `exists`, or a savepoint."""
        back = frame.f_back
        if back is not None and back.f_code in _OWN:
            return None
        values = frame.f_locals
        if code is _OPEN:
            if self._open:
                self._marks.append((values["self"], self._open[-1], len(self._open[-1].calls)))
            return None
        if code is _RESTORE:
            self._restore(values["self"])
            return None
        frame.f_trace_lines = False
        self._push(CallTrace(_own_text(code, values)))
        return self._inside

    def _restore(self, block: SavepointBlock) -> None:
        txn = active()
        if txn is not None:
            self.undone.update(_changes(txn))
        for mark, call, since in self._marks:
            if mark is block:
                for undone in call.calls[since:]:
                    undone.undo()

    def _push(self, call: CallTrace) -> None:
        if self._open:
            self._open[-1].calls.append(call)
        elif self.root is None:
            self.root = call
        self._open.append(call)
        self._began.append(self._clock())

    def _pop(self) -> None:
        call = self._open.pop()
        call.took_us = (self._clock() - self._began.pop()) * _US
        txn = active()
        if not self._open and txn is not None:
            self.undone.update(_changes(txn))  # counts where the request is undone


def _codes_of(app: App) -> Iterator[tuple[CodeType, tuple[EntityType | None, bool]]]:
    """Yield the code of methods and functions, each with its class if it has one, and whether it is a property's."""
    for entity in app.entities.values():
        for name, member in inspect.getmembers_static(entity.cls):
            thing = member.fget if isinstance(member, property) else member
            special = name.startswith("__") and name.endswith("__")
            if isinstance(thing, FunctionType) and name not in RESERVED and not special:
                is_property = isinstance(member, property)
                yield inspect.unwrap(thing).__code__, (entity, is_property)
        if entity.initializer is not None:
            yield inspect.unwrap(entity.initializer).__code__, (entity, False)
    for signature in app.functions.values():
        yield inspect.unwrap(signature.function).__code__, (None, False)


def _changes(txn: Transaction) -> dict[EntityKey, bytes | None]:
    """Return the changes of a transaction so far; nothing if they cannot be encoded."""
    try:
        return txn.changes()
    except PenstockError:
        return {}


def _is_return(frame: FrameType) -> bool:
    """Say whether a frame ends by returning, and not by raising: its last instruction tells."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] in _RETURNS


def _call_text(entity: EntityType | None, is_property: bool, frame: FrameType) -> str:  # noqa: FBT001 -- of a pair
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = [frame.f_locals.get(name) for name in names]
    if entity is None or not values:
        return f"{code.co_name}({', '.join(map(shown, values))})"
    target = entity.name if code.co_name == "__init__" else shown(values[0])
    if is_property:
        return f"{target}.{code.co_name}"  # it is read, and not called
    return f"{target}.{code.co_name}({', '.join(map(shown, values[1:]))})"


def _own_text(code: CodeType, values: dict[str, Any]) -> str:
    if code is _DELETE:
        return f"{shown(values['instance'])}.delete()"
    key = values["key"]
    if code is EXISTING:
        return f"{key}.exists()"
    entity_type: EntityType = values["entity_type"]
    attributes = values["instance"].__dict__.items()
    given = [
        f"{name}={shown(attribute)}"
        for name, attribute in attributes
        if name != entity_type.key_name
    ]
    return f"{key}.create({', '.join(given)})"


def shown(value: Any, depth: int = 0) -> str:
    """Return a value as text; a reference as class and key, without loading the entity."""
    entity: EntityType | None = getattr(type(value), "__reference__", None)
    if entity is not None:
        return str(entity.key_of(value))
    if depth < _DEPTH_MAX and (text := _nested(value, depth + 1)) is not None:
        return _clipped(text)
    if isinstance(value, Enum):
        return str(value)
    if type(value).__module__ in ("builtins", "datetime", "decimal", "uuid"):
        return _clipped(repr(value))
    return f"<{type(value).__name__}>"


def _nested(value: Any, depth: int) -> str | None:
    """Return a collection or record as text; None for other values."""
    if type(value) in _BRACKETS:
        texts = [shown(item, depth) for item in value]
        texts = sorted(texts) if isinstance(value, set | frozenset) else texts
        return _BRACKETS[type(value)].format(", ".join(texts))
    if type(value) is dict:
        pairs = (f"{shown(name, depth)}: {shown(item, depth)}" for name, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if is_record(type(value)):
        named = ((member.name, getattr(value, member.name)) for member in members_of(type(value)))
        inside = ", ".join(f"{name}={shown(item, depth)}" for name, item in named)
        return f"{type(value).__name__}({inside})"
    return None


def _clipped(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
