"""`QueryPool`: each question is answered by a child of its own, within limits that the system keeps.

Promises that a question ends by its deadline with an answer or an error that names the limit, that
a crash costs the question alone, and that questions which take long leave places to those that do
not: a question that has no answer after `QUICK_S` goes on where one of the places for long ones is
free; otherwise it is ended, and begins again when its turn there has come. An answer lies in memory
while it is small, else in a file without a name.
"""

import signal
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import IO, Final

import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import (
    Corrupt,
    Diverged,
    JournalUnavailable,
    Overloaded,
    PenstockError,
    QueryError,
    ViewUnavailable,
)
from penstock.sql.child_process import OUT_OF_MEMORY, Bounds, ChildProcess, Work, start
from penstock.sql.damage import ViewDamaged
from penstock.sql.query import QueryLimits, QueryResult, too_large
from penstock.sql.result_format import ResultFormat, encode_result
from penstock.sql.slots import FairSlots

QUICK_S: Final = 0.2
"""How long every question may run before it needs a place for long ones; longer if it could use less
than half a core of that time."""

QUICK: Final = 2
LONG: Final = 3
"""Places: so many questions run at once in their first moments, and so many beyond them."""

LONG_EACH: Final = 2
"""The number of places for long questions that a caller may have."""

_NICE: Final = 15
"""The processor is for short questions and for the thread that applies epochs first."""

_SLACK: Final = 256 << 20
"""Memory that a query may take beyond `view.memory_mb`: stacks, code, vectors."""

_IN_MEMORY: Final = 1 << 20
_LET_START_S: Final = 0.05
_LENGTH: Final = struct.Struct("<Q")
_KINDS: Final[dict[str, type[Exception]]] = {
    one.__name__: one
    for one in (QueryError, ViewUnavailable, JournalUnavailable, Corrupt, Diverged, ViewDamaged)
}
_TIME: Final = (signal.SIGALRM, signal.SIGXCPU)


class _Head(msgspec.Struct):
    """The beginning of a child's output.

    Attributes:
        epoch: The epoch of the answer.
        types: The SQL type of each column.
        size: Bytes of the body, which follows; then come bytes for `QueryJob.keep`.
        error: The class of an error and its message, instead of an answer.
    """

    epoch: int = -1
    types: list[str] = []
    size: int = 0
    error: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """How an answer is wanted.

    Attributes:
        chosen: The format.
        caller: A name; the places are shared out among callers.
    """

    chosen: ResultFormat = ResultFormat.ARROW
    caller: str = ""


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """An answer in its format.

    Attributes:
        epoch: Its epoch.
        types: The SQL type of each column.
        body: A file, at the beginning of the answer.
        size: Its bytes.
    """

    epoch: Epoch
    types: Sequence[str]
    body: IO[bytes]
    size: int

    def answer(self) -> QueryResult:
        """Return the rows of an answer that is an Arrow stream."""
        with self.body:
            table = pa.ipc.open_stream(self.body.read(self.size)).read_all()
        return QueryResult(self.epoch, table.replace_schema_metadata(None), self.types)


@dataclass(frozen=True, slots=True)
class QueryJob:
    """A question as a child answers it.

    Attributes:
        ask: Gives the answer.
        asked: How the answer is wanted.
        limits: Its limits.
        still: Keeps other threads from the data that `ask` uses, while a process is forked.
        kept: Gives bytes that the parent keeps for other children.
        keep: Takes them, in the parent.
        ready: Gives a child that does this job already, if there is one.
    """

    ask: Callable[[], QueryResult]
    asked: Asked
    limits: QueryLimits
    still: Callable[[], AbstractContextManager[object]] = nullcontext
    kept: Callable[[], bytes] = bytes
    keep: Callable[[bytes], object] = bytes
    ready: Callable[[], ChildProcess | None] = lambda: None

    def work(self, pipe: IO[bytes]) -> None:
        """Answer, in a child."""
        head, body = self._answered()
        told = msgspec.msgpack.encode(head)
        pipe.write(_LENGTH.pack(len(told)))
        pipe.write(told)
        pipe.write(body)
        pipe.flush()
        try:
            kept = self.kept()
        except MemoryError:  # the answer is there
            kept = b""
        pipe.write(_LENGTH.pack(len(kept)))
        pipe.write(kept)

    def _answered(self) -> tuple[_Head, bytes]:
        error: Exception
        try:
            answer = self.ask()
            body = encode_result(answer, self.asked.chosen)
            return _Head(answer.epoch, list(answer.types), len(body)), body
        except MemoryError:
            error = too_large(self.limits.settings)
        except (PenstockError, ViewDamaged) as found:
            error = found
        return _Head(error=(type(error).__name__, str(error))), b""


class QueryPool:
    """The places for questions. Many threads may ask at once."""

    def __init__(self, closed: Sequence[int] = ()) -> None:
        """Have all places free; children close the given descriptors."""
        self.still = threading.Lock()
        """No process is forked while a thread has this lock, unless that thread forks."""
        self._closed = closed
        self._quick = FairSlots(QUICK, QUICK)
        self._long = FairSlots(LONG, LONG_EACH)
        self._counting = threading.Lock()
        self._living = 0
        self._starting = 0

    @property
    def living(self) -> int:
        """Children that live, and those about to; none is forked while `still` is held."""
        return self._living

    def let_start(self) -> None:
        """Let questions start that wait for `still`, which must not be held."""
        until = time.monotonic() + _LET_START_S
        while self._starting and time.monotonic() < until:
            time.sleep(_LET_START_S / 100)

    def run(self, job: QueryJob) -> EncodedResult:
        """Have a question answered.

        Raises:
            QueryError: The query is wrong, or exceeds a limit.
            Overloaded: Other questions had all places until its time was up.
            PenstockError: The error of the child.
            Damaged: The file cannot be trusted.
        """
        target = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 -- the answer has it
        try:
            if not self._quickly(job, target):
                target.seek(0)
                target.truncate()
                self._at_length(job, target)
            return _read(job, target)
        except OSError as error:
            target.close()
            where = tempfile.gettempdir()
            raise ViewUnavailable(f"the answer cannot be kept in {where}: {error}") from error
        except BaseException:
            target.close()
            raise

    def _quickly(self, job: QueryJob, target: IO[bytes]) -> bool:
        """Run a question; False if it takes long and has to wait for a place."""
        deadline, caller = job.limits.deadline, job.asked.caller
        if not self._quick.take(caller, deadline):
            raise Overloaded("other queries had all places until the time of this one was up")
        place = self._quick
        try:
            with self._child(job) as child:
                is_short = True
                while is_short:
                    until = min(deadline, time.monotonic() + QUICK_S)
                    if _followed(child, job, target, until):
                        return True
                    is_short = until < deadline and child.busy_s() < QUICK_S / 2
                if not self._long.take_now(caller):
                    return False
                place.give(caller)
                place = self._long
                self._rest(child, job, target)
                return True
        finally:
            place.give(caller)

    def _at_length(self, job: QueryJob, target: IO[bytes]) -> None:
        """Run a question from its beginning on, in a place for long ones."""
        caller = job.asked.caller
        if not self._long.take(caller, job.limits.deadline):
            raise Overloaded(
                f"the query takes longer than {QUICK_S * 1_000:.0f} ms, and other such queries had "
                "all places until its time was up"
            )
        try:
            with self._child(job) as child:
                self._rest(child, job, target)
        finally:
            self._long.give(caller)

    def _rest(self, child: ChildProcess, job: QueryJob, target: IO[bytes]) -> None:
        child.yield_to_others(_NICE)
        if not _followed(child, job, target, job.limits.deadline):
            raise job.limits.too_late()

    @contextmanager
    def _child(self, job: QueryJob) -> Iterator[ChildProcess]:
        """Start a child, and see it end."""
        with self.counted():
            child = job.ready() or self.started(job.work, bounds_of(job.limits), job.still())
            try:
                yield child
            finally:
                child.end()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Let a child count as one that lives, before it is started and until it has ended."""
        self._count(1, 0)
        try:
            yield
        finally:
            self._count(-1, 0)

    def started(
        self, work: Work, bounds: Bounds | None, still: AbstractContextManager[object]
    ) -> ChildProcess:
        """Start a child, as `start` does; the caller has counted it.

        Raises:
            ViewUnavailable: The system has no room for it.
        """
        self._count(0, 1)
        try:
            return start(work, bounds, still, self._closed)
        except OSError as error:
            message = f"no process can be started for the query: {error}"
            raise ViewUnavailable(message) from error
        finally:
            self._count(0, -1)

    def _count(self, living: int, starting: int) -> None:
        with self._counting:
            self._living += living
            self._starting += starting


def bounds_of(limits: QueryLimits) -> Bounds:
    """Return the limits of a child for one query."""
    memory = (limits.settings.memory_mb << 20) + _SLACK
    return Bounds(limits.deadline, memory, limits.settings.threads)


def _followed(child: ChildProcess, job: QueryJob, target: IO[bytes], until: float) -> bool:
    """Copy the output of a child until it has ended or the time is up; say which.

    Raises:
        QueryError: It broke down, or exceeds a limit.
    """
    if not child.copy(target, until):
        return False
    how = child.joined()
    if -how in _TIME:
        raise job.limits.too_late()
    if how == OUT_OF_MEMORY:
        raise too_large(job.limits.settings)
    if how > 0:
        raise RuntimeError("the process of the query failed; its traceback is on standard error")
    if how < 0:
        raise QueryError(
            f"the process of the query was ended by {signal.Signals(-how).name}; a query that needs "
            f"much more than {job.limits.settings.memory_mb} MB (view.memory_mb) may end so, too"
        )
    return True


def _read(job: QueryJob, target: IO[bytes]) -> EncodedResult:
    """Return the answer that a child has given.

    Raises:
        Exception: It has said so.
    """
    target.seek(0)
    told = _piece(target)
    head = msgspec.msgpack.decode(told, type=_Head)
    begin = target.tell()
    target.seek(begin + head.size)
    if kept := _piece(target):
        job.keep(kept)
    if head.error is not None:
        kind, message = head.error
        raise _KINDS.get(kind, RuntimeError)(message)
    target.seek(begin)
    return EncodedResult(Epoch(head.epoch), head.types, target, head.size)


def _piece(source: IO[bytes]) -> bytes:
    """Read bytes that follow their length."""
    return source.read(_LENGTH.unpack(source.read(_LENGTH.size))[0])
