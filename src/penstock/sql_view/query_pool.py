"""Executes each query in a child process, within limits that the operating system enforces.

A query ends by its deadline, with a result or with an error that names the limit. A crash costs one
query. Long queries leave room for short ones: a query without a result after `QUICK_S` continues if a
slot for long queries is free; otherwise it is ended, and starts again when it gets such a slot. A
small result lies in memory, a large one in an unnamed file.
"""

import signal
import struct
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import IO, Final

import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import (
    Overloaded,
    PenstockError,
    QueryError,
    ViewUnavailable,
)
from penstock.model.reply import failure_of, raised_by
from penstock.model.request import Failure
from penstock.process.child_process import OUT_OF_MEMORY, Bounds, ChildProcess, Work, start
from penstock.sql_view.connection import ViewDamaged
from penstock.sql_view.query import QueryLimits, QueryResult, too_large
from penstock.sql_view.result_format import ResultFormat, encode_result


class FairSlots:
    """A number of slots. Many threads may request slots at once."""

    def __init__(self, slots: int, per_caller: int) -> None:
        """Create free slots, of which one caller gets at most `per_caller`."""
        self._slots = slots
        self._per_caller = per_caller
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, object]] = []
        self._taken: Counter[str] = Counter()

    def take(self, caller: str, deadline: float) -> bool:
        """Wait for a slot until a deadline (`time.monotonic`); return whether there was one."""
        ticket = (caller, object())
        with self._changed:
            self._waiting.append(ticket)
            try:
                left_s = max(0.0, deadline - time.monotonic())
                if not self._changed.wait_for(lambda: self._next() is ticket, left_s):
                    return False
                self._taken[caller] += 1
                return True
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def take_now(self, caller: str) -> bool:
        """Take a slot if one is free now; return whether there was one."""
        with self._changed:
            # A caller that waits must not be overtaken.
            free = not self._waiting and self._is_free(caller)
            if free:
                self._taken[caller] += 1
            return free

    def give(self, caller: str) -> None:
        """Return a slot."""
        with self._changed:
            self._taken[caller] -= 1
            self._taken += Counter()  # removes callers without slots
            self._changed.notify_all()

    def _is_free(self, caller: str) -> bool:
        return self._taken.total() < self._slots and self._taken[caller] < self._per_caller

    def _next(self) -> tuple[str, object] | None:
        free = [ticket for ticket in self._waiting if self._is_free(ticket[0])]
        # The caller with the fewest slots is next; `min` takes the earliest of equals.
        return min(free, key=lambda ticket: self._taken[ticket[0]], default=None)


QUICK_S: Final = 0.2
"""How long a query may run before it needs a slot for long queries. A query that has used less than
half a core of this time may run longer."""

QUICK: Final = 2
LONG: Final = 3
"""Slots: how many queries run at once during their first `QUICK_S`, and how many after it."""

LONG_EACH: Final = 2
"""How many slots for long queries one caller may have."""

_NICE: Final = 15
"""The nice value of long queries; short queries and the applying thread run first."""

_SLACK: Final = 256 << 20
"""Bytes that a child may take beyond `view.memory_mb`, for stacks, code and vectors."""

_IN_MEMORY: Final = 1 << 20
_LET_START_S: Final = 0.05
_LENGTH: Final = struct.Struct("<Q")
_TIME: Final = (signal.SIGALRM, signal.SIGXCPU)


class _Head(msgspec.Struct):
    """The header of a child's output.

    Attributes:
        types: The SQL type of each column.
        size: The bytes of the body, which follows the header. Bytes for `QueryJob.keep` follow it.
        error: The error that there is in place of a result.
    """

    epoch: int = -1
    types: list[str] = []
    size: int = 0
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """The format and the caller of a query.

    Attributes:
        caller: The caller's name; slots are shared among callers.
    """

    result_format: ResultFormat = ResultFormat.ARROW
    caller: str = ""


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result in its format.

    Attributes:
        types: The SQL type of each column.
        size: The bytes of the result.
    """

    epoch: Epoch
    types: Sequence[str]
    body: IO[bytes]
    size: int

    def result(self) -> QueryResult:
        """Return the rows of a result in Arrow format."""
        with self.body:
            table = pa.ipc.open_stream(self.body.read(self.size)).read_all()
        return QueryResult(self.epoch, table.replace_schema_metadata(None), self.types)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer whose bytes are made already."""

    epoch: Epoch
    body: bytes


@dataclass(frozen=True, slots=True)
class QueryJob:
    """A query for a child.

    Attributes:
        execute: Returns the rows, or their bytes.
        still: A context for the fork, in which no other thread changes the data of `execute`.
        kept: Returns bytes for later children, in the child.
        keep: Receives these bytes, in the parent.
        ready: Returns a warm child that executes the query already, or None.
    """

    execute: Callable[[], QueryResult | Encoded]
    options: ResultOptions
    limits: QueryLimits
    still: Callable[[], AbstractContextManager[object]] = nullcontext
    kept: Callable[[], bytes] = bytes
    keep: Callable[[bytes], object] = bytes
    ready: Callable[[], ChildProcess | None] = lambda: None

    def work(self, pipe: IO[bytes]) -> None:
        """Execute the query in a child, and write the output."""
        head, body = self._execute()
        header = msgspec.msgpack.encode(head)
        pipe.write(_LENGTH.pack(len(header)))
        pipe.write(header)
        pipe.write(body)
        # The caller gets its result before the bytes for later children are made.
        pipe.flush()
        try:
            kept = self.kept()
        except MemoryError:  # the result is written already
            kept = b""
        pipe.write(_LENGTH.pack(len(kept)))
        pipe.write(kept)

    def _execute(self) -> tuple[_Head, bytes]:
        try:
            result = self.execute()
            if isinstance(result, Encoded):
                return _Head(result.epoch, [], len(result.body)), result.body
            body = encode_result(result, self.options.result_format)
            return _Head(result.epoch, list(result.types), len(body)), body
        except MemoryError:
            error = failure_of(too_large(self.limits.settings))
        except PenstockError as raised:
            error = failure_of(raised)
        except ViewDamaged as damage:
            error = Failure("", ViewDamaged.__name__, str(damage))
        return _Head(error=error), b""


class QueryPool:
    """The slots for queries. Many threads may use the pool at once."""

    def __init__(self, closed: Sequence[int] = ()) -> None:
        self.still = threading.Lock()
        """While a thread holds this lock, no other thread forks a process."""
        self._closed = closed
        self._quick = FairSlots(QUICK, QUICK)
        self._long = FairSlots(LONG, LONG_EACH)
        self._counting = threading.Lock()
        self._living = 0
        self._starting = 0

    @property
    def living(self) -> int:
        """The number of living and starting children."""
        return self._living

    def let_start(self) -> None:
        """Give way to children that wait for `still`; the caller must not hold it."""
        until = time.monotonic() + _LET_START_S
        # A lock of Python is not fair: the thread that applies would take it again at once.
        while self._starting and time.monotonic() < until:
            time.sleep(_LET_START_S / 100)

    def run(self, job: QueryJob) -> EncodedResult:
        """Execute a query.

        Raises:
            ViewDamaged: DuckDB or its file is damaged.
        """
        target = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 -- the result owns it
        try:
            if not self._quickly(job, target):
                # The first attempt may have written a part of its output.
                target.seek(0)
                target.truncate()
                self._at_length(job, target)
            return _read(job, target)
        except OSError as error:
            target.close()
            where = tempfile.gettempdir()
            raise ViewUnavailable(
                f"the result cannot be stored in {where}: {error}; free space there"
            ) from error
        except BaseException:
            target.close()
            raise

    def _quickly(self, job: QueryJob, target: IO[bytes]) -> bool:
        """Execute a query; return False if it takes long and no slot for long queries is free."""
        deadline, caller = job.limits.deadline, job.options.caller
        if not self._quick.take(caller, deadline):
            raise Overloaded(
                "other queries had all places until the deadline of this query; try again later"
            )
        slots = self._quick
        try:
            with self._child(job) as child:
                is_short = True
                while is_short:
                    until = min(deadline, time.monotonic() + QUICK_S)
                    if _copy_output(child, job, target, until):
                        return True
                    # A query that waits for a processor is not a long one.
                    is_short = until < deadline and child.busy_s() < QUICK_S / 2
                # A wait here would keep a place for short queries; the query begins again in a long
                # one.
                if not self._long.take_now(caller):
                    return False
                slots.give(caller)
                slots = self._long
                self._rest(child, job, target)
                return True
        finally:
            slots.give(caller)

    def _at_length(self, job: QueryJob, target: IO[bytes]) -> None:
        """Execute a query from its beginning in a slot for long queries."""
        caller = job.options.caller
        if not self._long.take(caller, job.limits.deadline):
            raise Overloaded(
                f"the query takes longer than {QUICK_S * 1_000:.0f} ms, and other long queries had all "
                "places until its deadline; try again later"
            )
        try:
            with self._child(job) as child:
                self._rest(child, job, target)
        finally:
            self._long.give(caller)

    def _rest(self, child: ChildProcess, job: QueryJob, target: IO[bytes]) -> None:
        # Short queries and the thread that applies epochs run first.
        child.yield_to_others(_NICE)
        if not _copy_output(child, job, target, job.limits.deadline):
            raise job.limits.too_late()

    @contextmanager
    def _child(self, job: QueryJob) -> Iterator[ChildProcess]:
        """Start a child, and end it after the block."""
        with self.counted():
            child = job.ready() or self.started(job.work, bounds_of(job.limits), job.still())
            try:
                yield child
            finally:
                child.end()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a child as living during the block, which begins before the child starts."""
        self._count(1, 0)
        try:
            yield
        finally:
            self._count(-1, 0)

    def started(
        self, work: Work, bounds: Bounds | None, still: AbstractContextManager[object]
    ) -> ChildProcess:
        """Start a child as `child_process.start` does; the caller has counted it.

        Raises:
            ViewUnavailable: The system cannot create a process.
        """
        self._count(0, 1)
        try:
            return start(work, bounds, still, self._closed)
        except OSError as error:
            message = f"the system cannot start a process for the query: {error}"
            raise ViewUnavailable(message) from error
        finally:
            self._count(0, -1)

    def _count(self, living: int, starting: int) -> None:
        with self._counting:
            self._living += living
            self._starting += starting


def bounds_of(limits: QueryLimits) -> Bounds:
    """Return the limits of the child for a query."""
    memory = (limits.settings.memory_mb << 20) + _SLACK
    return Bounds(limits.deadline, memory, limits.settings.threads)


def _copy_output(child: ChildProcess, job: QueryJob, target: IO[bytes], until: float) -> bool:
    """Copy the output of a child; return whether the child has ended before `until`."""
    if not child.copy(target, until):
        return False
    exit_code = child.joined()
    if -exit_code in _TIME:
        raise job.limits.too_late()
    if exit_code == OUT_OF_MEMORY:
        raise too_large(job.limits.settings)
    if exit_code > 0:
        raise RuntimeError("the process of the query failed; standard error has its traceback")
    if exit_code < 0:
        raise QueryError(
            f"the process of the query was ended by {signal.Signals(-exit_code).name}; a query that needs "
            f"much more than {job.limits.settings.memory_mb} MB (view.memory_mb) may end so, too"
        )
    return True


def _read(job: QueryJob, target: IO[bytes]) -> EncodedResult:
    """Return the result in a child's output."""
    target.seek(0)
    head = msgspec.msgpack.decode(_read_piece(target), type=_Head)
    begin = target.tell()
    target.seek(begin + head.size)
    if kept := _read_piece(target):
        job.keep(kept)
    if head.error is not None:
        # No error of the protocol: only this process can rebuild the view.
        if head.error.kind == ViewDamaged.__name__:
            raise ViewDamaged(head.error.message)
        raise raised_by(head.error)
    target.seek(begin)
    return EncodedResult(Epoch(head.epoch), head.types, target, head.size)


def _read_piece(source: IO[bytes]) -> bytes:
    """Read the length of a piece, then the piece."""
    return source.read(_LENGTH.unpack(source.read(_LENGTH.size))[0])
