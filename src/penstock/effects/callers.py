"""The processes that call effects: user code, so each may hang, die, or take all memory.

A *caller* is a fork of the effect process. It reads calls from a pipe and writes their ends to another one. There are two kinds:
one makes one call at a time, the other makes many calls of `async def` effects on one event loop. The parent kills a caller whose
call takes too long, so nothing that a function does delays another function.

A caller of the first kind may be given short calls ahead, so that it need not wait for the parent after each. Each is a packet of its pipe,
and only one process can read a packet. So the parent can take back those that have not begun.
"""

import asyncio
import inspect
import os
import resource
import signal
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any
from typing import Final as Fixed

import msgspec

from penstock.effects.secrets import Secrets
from penstock.engine.effect_call import (
    arguments_of,
    encoded_result,
    hidden_error,
    protected_value,
)
from penstock.engine.failure import failure_of
from penstock.errors import Erased, LimitExceeded, PenstockError, RequestError, Unencodable
from penstock.model.application import App
from penstock.model.effect import RUNNING, Final, RetryAfter, RunningEffect
from penstock.model.waiting_effect import WaitingEffect, decode_waiting_effect
from penstock.process.child_process import ChildProcess, start

_LENGTH: Fixed = struct.Struct("<I")
_CHUNK: Fixed = 1 << 16
_STATM: Fixed = 5
"""The field of `/proc/self/statm` with the number of pages that RLIMIT_DATA limits."""

PACKET: Fixed = 4_096
"""The bytes of a packet of a pipe (Linux, pipe(7)); a longer message takes several."""

AHEAD_MAX: Fixed = 15
"""The calls that a caller may be given ahead; its pipe has room for 16 packets."""

BLOCKED_S: Fixed = 5.0
"""How long a call may keep the event loop before its process ends; other calls wait for the loop."""

_TICK_S: Fixed = 0.5
_SLACK_BYTES: Fixed = 64 << 10

BLOCKED: Fixed = 4
"""The exit code of a caller whose event loop was kept by one call."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call for a caller.

    Attributes:
        number: The number of the call.
        effect_id: The result of `effect_id()` in it.
        row: The row of the effect.
        timeout_s: The time of the call on the event loop.
    """

    number: int
    effect_id: str
    row: bytes
    timeout_s: float


class CallEnd(msgspec.Struct, frozen=True, array_like=True):
    """The end of a call.

    Attributes:
        value: The encoded result; None after a failure.
        error: The failure.
        is_final: Whether no further try would help.
        after_s: The pause that the other side has asked for; None without one.
        blocks: Whether it has kept the event loop.
        leaves: Whether the caller ends then, so that it gets no other call.
        has_ended: Whether the function has ended; not if its time is over, or if it keeps the loop.
        hidden: The whole text of the failure, encrypted, if the arguments concern a person; then `error` has its kind alone.
        took_s: The time of the call, in a caller that makes one at a time.
    """

    number: int
    value: bytes | None
    error: str = ""
    is_final: bool = False
    after_s: float | None = None
    blocks: bool = False
    leaves: bool = False
    has_ended: bool = True
    hidden: bytes | None = None
    took_s: float = 0.0


_encode: Fixed = msgspec.msgpack.Encoder().encode
_decode_call: Fixed = msgspec.msgpack.Decoder(Call).decode
_decode_end: Fixed = msgspec.msgpack.Decoder(CallEnd).decode


@dataclass(frozen=True, slots=True)
class CallerCode:
    """The parts of which a caller is made.

    Attributes:
        data: The data directory, none of whose open files a caller keeps.
        number: The number of the deployment. Callers of a former deployment end after their calls.
        still: A context in which no other thread of this process holds a lock of a library.
    """

    app: App
    data: Path
    secrets: Secrets
    memory_bytes: int
    reply_bytes: int
    number: int
    still: AbstractContextManager[object]


@dataclass(slots=True, eq=False)
class Caller:
    """A caller, as its parent knows it.

    Attributes:
        calls: The calls that were given to it, in order, with the time at which each must have ended; infinite for those that were
            given ahead.
        on_loop: Whether it makes many calls of `async def` effects.
        unread: An end of its pipe, to take back calls; None if no call is given ahead.
        function: The effect of its calls, if it makes one at a time.
        owners: How many calls each owner has in it.
        is_alone: Whether none is given ahead behind its call: the call has failed before, or is longer than a packet.
        has_made: Whether a call has ended in it.
        idle_since: When its last call ended, or the first one was given.
        received: The bytes of calls that have not ended wholly.
        given: The bytes of calls that it has not taken yet.
    """

    code: CallerCode
    on_loop: bool
    source: int
    sink: int
    process: ChildProcess
    unread: int | None = None
    calls: dict[int, float] = field(default_factory=dict)
    function: str = ""
    owners: Counter[str] = field(default_factory=Counter)
    is_alone: bool = False
    has_made: bool = False
    idle_since: float = 0.0
    received: bytearray = field(default_factory=bytearray)
    given: bytearray = field(default_factory=bytearray)

    def call(self, call: Call, until: float) -> None:
        """Take a call; `flush` hands it over, for an event loop many with one write."""
        data = _encode(call)
        self.given += _LENGTH.pack(len(data)) + data
        self.calls[call.number] = until
        if not self.on_loop:
            self.flush()  # so each call begins with a packet

    def has_room(self, function: str, ahead: int) -> bool:
        """Say whether a call of an effect may be given ahead, if so many may wait behind the running one."""
        return (
            self.unread is not None
            and 0 < len(self.calls) <= min(ahead, AHEAD_MAX)
            and self.function == function
            and not self.is_alone
        )

    def take_back(self) -> list[int]:
        """Remove the calls that it has not read, and return their numbers."""
        numbers: list[int] = []
        with suppress(BlockingIOError):
            while self.unread is not None and not self.is_alone and self.calls:
                number = _decode_call(os.read(self.unread, PACKET)[_LENGTH.size :]).number
                del self.calls[number]
                numbers.append(number)
        return numbers

    def begin_next(self, timeout_s: float) -> None:
        """Count the time of the first call from now, if it was given ahead."""
        self.idle_since = time.monotonic()
        first = next(iter(self.calls))
        if self.calls[first] == float("inf"):
            self.calls[first] = self.idle_since + timeout_s

    def flush(self) -> bool:
        """Hand over calls, as far as the caller takes them now; return whether nothing is left. A caller that has ended is noticed by `ends`."""
        try:
            while self.given:
                del self.given[: os.write(self.sink, self.given)]
        except BlockingIOError:
            return False
        except OSError:
            self.given.clear()
        return True

    def ends(self) -> tuple[list[CallEnd], bool]:
        """Return the calls that have ended, and whether the caller itself has."""
        try:
            data = os.read(self.source, _CHUNK * 16)
        except BlockingIOError:
            return [], False
        except OSError:
            data = b""
        self.received += data
        ends: list[CallEnd] = []
        most = self.code.reply_bytes + _SLACK_BYTES
        while len(self.received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self.received)
            if size > most:  # a function has written to the pipe
                return ends, True
            if len(self.received) < _LENGTH.size + size:
                break
            frame = bytes(self.received[_LENGTH.size : _LENGTH.size + size])
            del self.received[: _LENGTH.size + size]
            try:
                end = _decode_end(frame)
            except msgspec.MsgspecError:
                return ends, True
            if self.calls.pop(end.number, None) is not None:
                ends.append(end)
        return ends, not data

    def end(self) -> str:
        """Kill it, and return how it had ended."""
        for descriptor in (self.sink, self.source, self.unread):
            with suppress(OSError):
                if descriptor is not None:
                    os.close(descriptor)
        code = self.process.end()
        if code < 0:
            with suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


def start_caller(code: CallerCode, *, on_loop: bool, others: Sequence["Caller"]) -> Caller:
    """Fork a caller.

    Args:
        others: The other callers, whose pipes it must not hold open.

    Raises:
        OSError: The system cannot create a process.
    """
    request_source, request_sink = os.pipe2(os.O_CLOEXEC | (0 if on_loop else os.O_DIRECT))
    reply_source, reply_sink = os.pipe()
    unread = None
    if not on_loop:  # another open file, because the caller's own end waits for calls
        unread = os.open(f"/proc/self/fd/{request_source}", os.O_RDONLY | os.O_NONBLOCK)
    own = [request_sink, reply_source, unread]
    for other in others:
        own += [other.source, other.sink, other.unread]
    closed = [descriptor for descriptor in own if descriptor is not None]
    work = partial(_serve, code, request_source, reply_sink, on_loop=on_loop)
    try:
        process = start(work, None, code.still, closed)
    except OSError:
        for descriptor in (request_source, request_sink, reply_source, reply_sink, unread):
            if descriptor is not None:
                os.close(descriptor)
        raise
    os.close(request_source)
    os.close(reply_sink)
    os.set_blocking(reply_source, False)
    os.set_blocking(request_sink, False)
    return Caller(
        code, on_loop, reply_source, request_sink, process, unread, idle_since=time.monotonic()
    )


def _write_all(descriptor: int, data: bytes | bytearray) -> None:
    done = os.write(descriptor, data)
    while done < len(data):
        done += os.write(descriptor, data[done:])


def _serve(code: CallerCode, source: int, sink: int, _pipe: IO[bytes], *, on_loop: bool) -> None:
    """Make calls until the parent ends; this is the work of a caller."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with suppress(OSError):  # only Linux counts and limits this
        pages = int(Path("/proc/self/statm").read_text().split()[_STATM])
        most = pages * resource.getpagesize() + code.memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    _let_go(code.data)
    import gc  # noqa: PLC0415 -- the parent's garbage stays: a collection would copy its pages

    gc.freeze()
    gc.enable()
    if on_loop:
        asyncio.run(_serve_on_loop(code, source, sink))
    else:
        _serve_one_by_one(code, source, sink)


def _let_go(data: Path) -> None:
    """Let the open files of a data directory, such as the log, be others: a function may write to any descriptor."""
    beginning = f"{data.resolve()}/"
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 -- a fifth of the time
        with suppress(
            OSError
        ):  # the descriptor of the directory itself, and pipes on other systems
            if str(Path(f"/proc/self/fd/{name}").readlink()).startswith(beginning):
                # Not closed: the next file would get the number, and objects of the parent still have it.
                os.dup2(null, int(name))


def _serve_one_by_one(code: CallerCode, source: int, sink: int) -> None:
    while message := os.read(source, PACKET):
        size = _LENGTH.size + _LENGTH.unpack_from(message)[0]
        while len(message) < size and (packet := os.read(source, PACKET)):
            message += packet
        began = time.perf_counter()
        end = _made(code, _decode_call(message[_LENGTH.size :]))
        end = msgspec.structs.replace(end, took_s=time.perf_counter() - began)
        data = _encode(end)
        # Before the next call is read: if that one ends the process, all others are known.
        _write_all(sink, _LENGTH.pack(len(data)) + data)
        if end.leaves:
            os._exit(0)


def _made(code: CallerCode, call: Call) -> CallEnd:
    """Make a call, and return its end."""
    effect = decode_waiting_effect(call.row)
    token = RUNNING.set(RunningEffect(call.effect_id, code.secrets.get, effect.time_us))
    try:
        result = _called(code.app, effect)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return CallEnd(call.number, _value(code, effect, result))
    except BaseException as raised:  # noqa: BLE001 -- user code may raise any exception
        return _failure(code, call.number, effect, raised)
    finally:
        RUNNING.reset(token)


def _called(app: App, effect: WaitingEffect) -> Any:
    arguments, named = arguments_of(app, effect)
    return app.effects[effect.function].function(*arguments, **named)


def _value(code: CallerCode, effect: WaitingEffect, result: object) -> bytes:
    value = encoded_result(code.app.effects[effect.function], result, code.reply_bytes)
    named = code.secrets.found_in(value)
    if named:
        raise Unencodable(f"the result of {effect.function} contains the secret {named}")
    return protected_value(code.app, effect, value)


_FINAL: Fixed = (Final, Unencodable, LimitExceeded, Erased, RequestError)
"""Errors after which no further try helps: the function says so, or its arguments or its result do not fit."""


def _failure(
    code: CallerCode, number: int, effect: WaitingEffect, raised: BaseException
) -> CallEnd:
    cls = type(raised)  # not `isinstance`, which asks the object for its class
    failure = failure_of(raised, code.memory_bytes, 0)
    text = f"{failure.kind}: {failure.message}" if failure.message else failure.kind
    if issubclass(cls, PenstockError):
        text = failure.message
    after_s = None
    if issubclass(cls, RetryAfter):
        with suppress(BaseException):  # a subclass may have replaced the attribute
            after_s = float(raised.seconds)  # type: ignore[attr-defined]
    is_final = issubclass(cls, _FINAL)
    # The memory of a function may stay allocated, and the next function would fail for it.
    leaves = issubclass(cls, MemoryError)
    text = code.secrets.without(text)
    hidden = None
    if not issubclass(cls, Erased):
        text, hidden = hidden_error(code.app, effect, failure.kind, text)
    return CallEnd(number, None, text, is_final, after_s, leaves=leaves, hidden=hidden)


class _Loop:
    """The event loop of a caller: its calls, and the facts for a watching thread."""

    def __init__(self, code: CallerCode, sink: int) -> None:
        self.code = code
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._ends = bytearray()
        self.numbers: dict[asyncio.Task[CallEnd], int] = {}
        self.ticked = time.monotonic()
        self._writing = threading.Lock()

    def tell(self, end: CallEnd) -> None:
        """Tell the end of a call now, from any thread."""
        data = _encode(end)
        with self._writing:
            _write_all(self._sink, self._ends + _LENGTH.pack(len(data)) + data)
            self._ends.clear()

    def _tell_soon(self, end: CallEnd) -> None:
        """Tell the end of a call, with all others that end in the same turn of the loop."""
        data = _encode(end)
        with self._writing:
            if not self._ends:
                self._loop.call_soon(self._flush)
            self._ends += _LENGTH.pack(len(data)) + data

    def _flush(self) -> None:
        with self._writing:
            if self._ends:  # else `tell` has taken them
                _write_all(self._sink, self._ends)
                self._ends.clear()

    async def tick(self) -> None:
        while True:
            self.ticked = time.monotonic()
            await asyncio.sleep(_TICK_S)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the process if a call keeps the loop; this is the work of a thread."""
        while True:
            time.sleep(_TICK_S)
            if time.monotonic() - self.ticked <= BLOCKED_S:
                continue
            task = asyncio.current_task(loop)
            number = None if task is None else self.numbers.get(task)
            if number is not None:
                error = f"it kept the event loop for {BLOCKED_S:g} s, so that other effects had to wait; use await, or def"
                self.tell(CallEnd(number, None, error, blocks=True, leaves=True, has_ended=False))
            os._exit(BLOCKED)

    def begin(self, call: Call) -> None:
        """Begin a call, whose end is told when it is there, or when its time is over."""
        task = self._loop.create_task(self._guarded(call))
        self.numbers[task] = call.number
        timer = self._loop.call_later(call.timeout_s, self._end_late, task, call)
        task.add_done_callback(partial(self._take_end, timer))

    def _take_end(self, timer: asyncio.TimerHandle, task: asyncio.Task[CallEnd]) -> None:
        timer.cancel()
        number = self.numbers.pop(task, None)
        if number is None:
            return
        if task.cancelled():  # by another call
            self._tell_soon(CallEnd(number, None, "another effect has cancelled it"))
        else:
            self._tell_soon(task.result())

    def _end_late(self, task: asyncio.Task[CallEnd], call: Call) -> None:
        if self.numbers.pop(task, None) is not None:
            self._tell_soon(CallEnd(call.number, None, too_long(call.timeout_s), has_ended=False))
            task.cancel()  # it may go on; its end does not matter any more

    async def _guarded(self, call: Call) -> CallEnd:
        effect = decode_waiting_effect(call.row)
        RUNNING.set(RunningEffect(call.effect_id, self.code.secrets.get, effect.time_us))
        try:
            result = await _called(self.code.app, effect)
            return CallEnd(call.number, _value(self.code, effect, result))
        except asyncio.CancelledError as raised:
            return _failure(self.code, call.number, effect, raised)
        except BaseException as raised:  # noqa: BLE001 -- user code may raise any exception
            return _failure(self.code, call.number, effect, raised)


class _Calls(asyncio.Protocol):
    """The calls that come through the pipe of a caller."""

    def __init__(self, state: _Loop) -> None:
        self._state = state
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        """Begin the calls that have come wholly."""
        received = self._received
        received += data
        at, end = 0, len(received)
        while end - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(received, at)
            if end - at - _LENGTH.size < size:
                break
            at += _LENGTH.size
            self._state.begin(_decode_call(bytes(received[at : at + size])))
            at += size
        del received[:at]

    def connection_lost(self, _error: Exception | None) -> None:
        """End with the parent."""
        os._exit(0)


def too_long(timeout_s: float) -> str:
    """Return the error of a call whose time is over."""
    return f"it did not return within {timeout_s:g} s"


async def _serve_on_loop(code: CallerCode, source: int, sink: int) -> None:
    loop = asyncio.get_running_loop()
    state = _Loop(code, sink)
    threading.Thread(target=state.watch, args=(loop,), daemon=True).start()
    await loop.connect_read_pipe(lambda: _Calls(state), os.fdopen(source, "rb", closefd=False))
    await state.tick()
