"""The readers of a gateway: processes that answer `@readonly` calls from the state on local disk.

They also encode calls whose arguments run code of the application, and convert rows of earlier schema versions. The
gateway runs no handler itself. A reader that dies, or does not answer in time, costs only the
calls that it runs: they run again in another reader, and a call that has ended two readers, or that has run for longer
than its limit when its reader ended, fails with `limit-exceeded`. The nursery (`runtime.reads.nursery`) starts another reader for each dead one.
"""

import asyncio
import logging
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from penstock.base.class_code import has_code
from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.base.start import program_of
from penstock.engine.limits import TimeLimit
from penstock.errors import LimitExceeded, Overloaded, TimedOut
from penstock.gateway.telemetry.metrics import Metrics
from penstock.model.application import App
from penstock.model.declaration import RESERVED
from penstock.model.limit import STREAMS
from penstock.model.reply import failure_of, raised_by
from penstock.model.request import APPEND
from penstock.model.signature import Signature
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.question import encode_question
from penstock.runtime.reads.arguments import ArgumentSource, CallTarget, SizeLimits, encoded_call
from penstock.runtime.reads.messages import (
    LENGTH_BYTES,
    Encoded,
    Encoding,
    Failed,
    Message,
    Outcomes,
    Question,
    ReadCall,
    ReaderSettings,
    ReadOutcome,
    Ready,
    Started,
    Upcasting,
    decode_message,
    framed,
)
from penstock.runtime.reads.nursery import PID_BYTES
from penstock.state.newest import at_newest, read_changed, read_newest
from penstock.state.stores import PartitionedReader

T = TypeVar("T")


class EntityReader:
    """Reads entities for one gateway, in its own thread, at the newest committed epoch.

    A read sees every change whose reply any gateway has returned before. It appends nothing.
    """

    def __init__(self, data: Path, app: str) -> None:
        self._thread = ThreadPoolExecutor(1, "penstock-entities")
        self._thread.submit(int)  # begins the thread: later the system may refuse one
        directory = DataDirectory(data)
        self._journal = directory.open_journal_of(app)
        self._stores = directory.open_stores(self._journal)
        self._is_far = directory.shared.is_far

    async def read(self, keys: Sequence[EntityKey]) -> tuple[Epoch, list[bytes | None]]:
        """Return the newest epoch, and each entity's encoded attributes; None if it does not exist.

        All entities are read at that epoch.

        Raises:
            OperationalError: Journal or state cannot be read.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, read_newest, self._journal, self._stores, keys
        )

    async def read_changed(
        self, keys: Set[EntityKey], after: Epoch | None
    ) -> tuple[Epoch, dict[EntityKey, bytes | None]]:
        """Return the newest epoch, and the rows at it of those entities that may have changed after another epoch.

        An entity that is left out has the same row at both epochs. Raises as `read`.

        Args:
            after: The other epoch; None for all rows.
        """
        # The changes of an epoch would be a request to the object store, and the rows lie on this host.
        known = None if self._is_far else after
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, read_changed, self._journal, self._stores, keys, known
        )

    async def at_newest(self, read: Callable[[PartitionedReader], T]) -> T | None:
        """Return what a function reads at the newest epoch; None before the first epoch. Raises as `read`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, at_newest, self._journal, self._stores, read
        )

    def close(self) -> None:
        """Close stores and journal."""
        self._thread.submit(self._stores.close)
        self._thread.shutdown()
        self._journal.close()


_log = logging.getLogger(__name__)

# -P: a module in the current directory must not replace one of Penstock.
PROGRAM: Final = program_of("penstock.runtime.reads.nursery")

_CATCH_UP_S: Final = 60.0
"""How long a reader may bring the stores to the newest epoch; the next reader continues there."""

_GRACE_S: Final = 1.0
"""How much longer than its limit by the clock a reader may run before it is killed."""

_DEATHS_MAX: Final = 5
"""Readers that the calls of one question may end."""

_FRAME_BYTES_MAX: Final = 1 << 20
"""The most bytes of a message in addition to results."""

DIED_TWICE: Final = "its process died twice while it ran"
RAN_TOO_LONG: Final = (
    "it ran longer than its limit, and could not be interrupted, so its process was ended; the limit is limits.time_ms, "
    "limits.wall_ms, or its @limit(time=…)"
)

_RESTART_S: Final = 1.0
_END_S: Final = 5.0


class ReaderNursery:
    """The process that forks the readers of all pools of this process; any thread may use it.

    It starts with the first pool, and again with the next one after its death.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def begin(self, settings: ReaderSettings) -> tuple[int, socket.socket]:
        """Let it start the readers of a pool; return its process id, and the socket of the pool.

        When the socket is closed, the readers end. Its other end is closed when they have ended, or when the nursery dies.
        """
        body = encode_question(settings)
        message = len(body).to_bytes(LENGTH_BYTES) + body
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            process, control = self._living()
            try:
                sent = socket.send_fds(control, [message], [theirs.fileno()])
                control.sendall(message[sent:])
            except OSError:  # it dies, or does not answer; the end of the pool's socket tells of it
                process.kill()
            return process.pid, ours

    def bury(self, pid: int) -> None:
        """Wait until the process with this id has ended, if it is the present one."""
        process = self._process
        if process is not None and process.pid == pid:
            _end(process)

    def close(self) -> None:
        """End it, and all readers."""
        with self._lock:
            if self._process is not None and self._control is not None:
                self._control.close()
                _end(self._process)

    def _living(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        if self._process is None or self._control is None or self._process.poll() is not None:
            if self._control is not None:
                self._control.close()
            self._control, theirs = socket.socketpair()
            self._control.settimeout(_END_S)
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603 -- our own module, our own interpreter
                    [*PROGRAM, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
        return self._process, self._control


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait until a nursery has ended; it ends because its socket is closed."""
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ReaderChannel:
    """The gateway's end of the socket of one reader.

    Attributes:
        nursery: The process id of the nursery that has forked it.

    Args:
        bytes_max: The most bytes of a message.
    """

    def __init__(self, pid: int, nursery: int, streams: Streams, bytes_max: int) -> None:
        self.pid = pid
        self.nursery = nursery
        self._reader, self._writer = streams
        self._bytes_max = bytes_max

    def send(self, question: Question | Encoding | Upcasting) -> None:
        """Send a question without waiting."""
        self._writer.write(framed(question))

    async def receive(self) -> Message:
        """Return the next message.

        Raises:
            EOFError: The reader has died.
            OSError: The connection is broken.
            ValueError: A handler has written to the reader's socket.
        """
        length = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES))
        if length > self._bytes_max:
            raise ValueError(f"a message of {length} bytes")
        return decode_message(await self._reader.readexactly(length))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


class _Answer(msgspec.Struct):
    """The answer of a reader to a question, as far as it has come.

    Attributes:
        epoch: The epoch of the state; None until the calls run.
        outcomes: The outcomes of the first calls.
        failed: Why no call has an outcome.
        is_complete: Whether the reader has answered; False if it died.
        began_s: When the calls, or the call behind the last outcome, began; by the clock of the event loop.
        ended_s: When the reader died.
    """

    epoch: Epoch | None = None
    outcomes: list[ReadOutcome] = msgspec.field(default_factory=list)
    failed: Failed | None = None
    is_complete: bool = False
    began_s: float = 0.0
    ended_s: float = 0.0


class ReaderPool:
    """The readers of one gateway; for its event loop."""

    def __init__(
        self,
        nursery: ReaderNursery,
        settings: ReaderSettings,
        metrics: Metrics,
        waiting_max: int,
        longest: TimeLimit,
    ) -> None:
        """Start the readers.

        Args:
            nursery: Starts them.
            waiting_max: The most questions that wait for a reader or for their answers.
            longest: The time of the call that may run longest.
        """
        self._nursery = nursery
        self._settings = settings
        self._metrics = metrics
        self._waiting_max = waiting_max
        self._waiting = 0
        self._longest = longest
        # The last one used is warm: its stores are at the newest epoch.
        self._idle: asyncio.LifoQueue[ReaderChannel] = asyncio.LifoQueue()
        self._open: dict[ReaderChannel, None] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._loop = asyncio.get_running_loop()
        self._start()

    async def read(
        self, calls: Sequence[ReadCall], timeout_s: float
    ) -> tuple[Epoch, list[ReadOutcome]]:
        """Run calls over one state and return its epoch and the outcome of each call.

        Raises:
            Overloaded: Too many questions wait.
            TimedOut: There was no answer in time.
            LimitExceeded: The calls took too long together, or ended too many readers.
        """
        answer = await self._in_time(self._answer(list(calls)), timeout_s)
        if answer.failed is not None:
            raise raised_by(answer.failed.failure)
        self._metrics.read(len(calls))
        return BEFORE_FIRST if answer.epoch is None else answer.epoch, answer.outcomes

    async def encoded(
        self, target: CallTarget, source: ArgumentSource, timeout_s: float
    ) -> tuple[bytes, bytes]:
        """Return the body and the access hint of a log entry for a call, which a reader encodes.

        Args:
            timeout_s: The longest wait for a free reader and its answer.

        Raises:
            Overloaded, TimedOut: Too many questions wait, or there was no answer in time.
        """
        message = await self._in_time(self._encoding(Encoding(target, source)), timeout_s)
        return message.body, message.hint

    async def upcast(self, entity: str, key: str, row: bytes, timeout_s: float) -> bytes:
        """Return a row of an earlier schema version as the class declares it; a reader converts it.

        Args:
            timeout_s: The longest wait for a free reader and its answer.
        """
        return (await self._in_time(self._encoding(Upcasting(entity, key, row)), timeout_s)).body

    async def ready(self, timeout_s: float) -> None:
        """Return when a reader has loaded the application.

        Raises:
            TimedOut: No reader has loaded it in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                self._idle.put_nowait(await self._idle.get())
        except TimeoutError:
            raise TimedOut(f"no reader has loaded the code within {timeout_s:g} s") from None

    async def close(self) -> None:
        """End all readers of the pool; again has no effect."""
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control.fileno())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in list(self._open):
            self._forget(channel)
        await asyncio.to_thread(_await_end, self._control)
        self._control.close()

    async def _in_time(self, answer: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Await the answer of a reader, unless too many wait."""
        if self._waiting >= self._waiting_max:
            # Else Python warns of a coroutine that was never awaited.
            answer.close()
            raise Overloaded(f"{self._waiting_max} reads wait here already")
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise TimedOut(f"no reader answered within {timeout_s:g} s") from None
        finally:
            self._waiting -= 1

    async def _encoding(self, question: Encoding | Upcasting) -> Encoded:
        """Ask a reader; ask another one if it has died, because it may have died before."""
        for _ in range(2):
            channel = await self._idle.get()
            # A task of its own: the reader is busy until it has answered, also if the caller
            # leaves.
            asking = self._begin(self._ask_encoding(channel, question))
            message: Encoded | Failed | None = await asyncio.shield(asking)
            if isinstance(message, Failed):
                raise raised_by(message.failure)
            if message is not None:
                return message
        raise LimitExceeded("the code of a class ended two processes")

    async def _ask_encoding(
        self, channel: ReaderChannel, question: Encoding | Upcasting
    ) -> Encoded | Failed | None:
        """Return the answer of a reader; None if it has died. Kill it if it takes too long."""
        limit_ms = self._settings.limits.wall_ms
        try:
            channel.send(question)
            async with asyncio.timeout(limit_ms / 1_000):
                message = await channel.receive()
            if not isinstance(message, Encoded | Failed):
                raise ValueError("an unexpected message")
        except TimeoutError:
            self._kill(channel)
            why = f"the code of a class ran longer than wall_ms = {limit_ms}"
            return Failed(failure_of(LimitExceeded(why)))
        except BaseException as error:
            self._kill(channel)
            # A `ValueError` is a message that no reader sends: a handler has written to the socket.
            if isinstance(error, EOFError | OSError | ValueError):
                return None
            raise
        self._rest(channel)
        return message

    async def _answer(self, calls: list[ReadCall]) -> _Answer:
        """Ask readers until one of them answers; refuse calls that have ended two readers."""
        is_careful = False
        deaths = 0
        while deaths < _DEATHS_MAX:
            channel = await self._idle.get()
            asking = self._begin(self._ask(channel, Question(calls, is_careful)))
            answer: _Answer = await asyncio.shield(asking)  # a reader is busy until it has answered
            if answer.is_complete:
                return answer
            if answer.epoch is None:
                continue  # it had died before, or during a catch-up, which the next one continues
            deaths += 1
            # The call behind the last outcome was running when the reader died.
            killer = len(answer.outcomes)
            ran_s = answer.ended_s - answer.began_s
            # A careful reader tells of each call, so its second death is this call's.
            if is_careful:
                calls[killer] = msgspec.structs.replace(calls[killer], refusal=DIED_TWICE)
            elif len(calls) == 1 and ran_s * 1_000 >= self._settings.limits.time_ms:
                calls[killer] = msgspec.structs.replace(calls[killer], refusal=RAN_TOO_LONG)
            is_careful = True
        raise LimitExceeded(f"the calls ended {deaths} reader processes; send fewer at once")

    async def _ask(self, channel: ReaderChannel, question: Question) -> _Answer:
        """Ask a reader, and make it idle again when it has answered; kill it if it does not."""
        answer = _Answer()
        is_told_of_each = question.is_careful or len(question.calls) == 1
        # Else the calls have this time together, and the last one may begin at its end.
        longest_s = self._longest.wall_ms / 1_000 * (1 if is_told_of_each else 2) + _GRACE_S
        try:
            channel.send(question)
            async with asyncio.timeout(_CATCH_UP_S) as limit:
                while not answer.is_complete:
                    _take(await channel.receive(), answer, len(question.calls))
                    if answer.epoch is not None:
                        answer.began_s = self._loop.time()
                        limit.reschedule(answer.began_s + longest_s)
        except (TimeoutError, EOFError, OSError, ValueError) as error:
            # A msgspec.MsgspecError is a ValueError.
            _log.warning(
                "a reader ended while it ran calls",
                extra={"reader": channel.pid, "cause": repr(error)},
            )
            answer.ended_s = self._loop.time()
            self._kill(channel)
            return answer
        except BaseException:
            self._kill(channel)
            raise
        self._rest(channel)
        return answer

    def _start(self) -> None:
        """Let the nursery start the readers."""
        self._nursery_pid, self._control = self._nursery.begin(self._settings)
        # The event loop must never wait for the nursery.
        self._control.settimeout(0)
        self._loop.add_reader(self._control.fileno(), self._accept)

    def _accept(self) -> None:
        """Take the socket of another reader from the nursery."""
        try:
            pid, descriptors, _, _ = socket.recv_fds(self._control, PID_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            pid, descriptors = b"", []
        if not pid:
            self._begin(self._restart())
        elif descriptors:
            self._begin(self._adopt(int.from_bytes(pid), descriptors[0]))

    async def _restart(self) -> None:
        """Start the readers again after the death of the nursery."""
        self._loop.remove_reader(self._control.fileno())
        _log.error("the process that starts readers has died; it is started again")
        # The readers of a dead nursery may live, but no process could kill them.
        while not self._idle.empty():
            self._forget(self._idle.get_nowait())
        former, is_told = self._control, False
        while self._control is former:
            # A nursery that dies at once must not be started in a loop.
            await asyncio.sleep(_RESTART_S)
            try:
                await asyncio.to_thread(self._nursery.bury, self._nursery_pid)
                self._start()
            except (OSError, RuntimeError) as error:  # a limit of the system is reached
                if not is_told:
                    _log.warning("readers cannot be started now", extra={"cause": str(error)})
                is_told = True
        former.close()

    async def _adopt(self, pid: int, descriptor: int) -> None:
        """Wait until a reader has loaded the application, and let it answer questions."""
        nursery = self._nursery_pid
        streams = await asyncio.open_unix_connection(sock=socket.socket(fileno=descriptor))
        limits = self._settings.limits
        largest = max(
            limits.output_bytes + limits.reply_bytes, self._settings.sizes.record_bytes_max
        )
        bytes_max = largest + _FRAME_BYTES_MAX
        channel = ReaderChannel(pid, nursery, streams, bytes_max)
        self._open[channel] = None
        try:
            if isinstance(await channel.receive(), Ready):
                self._metrics.reader_started()
                self._rest(channel)
        except (EOFError, OSError, ValueError):
            self._forget(channel)

    def _rest(self, channel: ReaderChannel) -> None:
        """Let a reader wait for the next question, unless its nursery has died."""
        if channel.nursery == self._nursery_pid:
            self._idle.put_nowait(channel)
        else:
            self._forget(channel)

    def _kill(self, channel: ReaderChannel) -> None:
        """Let the nursery kill a reader, which is its child; a dead one has no process id to mistake."""
        self._forget(channel)
        with suppress(OSError):
            self._control.send(channel.pid.to_bytes(PID_BYTES))

    def _forget(self, channel: ReaderChannel) -> None:
        self._open.pop(channel, None)
        channel.close()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


def _await_end(control: socket.socket) -> None:
    """Tell the nursery to end the readers of a pool, and wait until they have ended."""
    control.settimeout(_END_S)
    with suppress(
        OSError
    ):  # the nursery is dead, and the readers with it; or it is busy, and ends them later
        control.shutdown(socket.SHUT_WR)
        while control.recv(1):  # the id of a reader that was just born
            pass


def _take(message: Message, answer: _Answer, calls: int) -> None:
    """Add a message of a reader to its answer."""
    match message:
        case Started(epoch):
            answer.epoch, answer.outcomes = epoch, []
        case Outcomes(items) if answer.epoch is not None:
            answer.outcomes += items
            answer.is_complete = len(answer.outcomes) == calls
        case Failed():
            answer.failed, answer.is_complete = message, True
        case _:
            raise ValueError("an unexpected message")
    if len(answer.outcomes) > calls:
        raise ValueError("more outcomes than calls")


class CallEncoder:
    """Encodes the calls and appends of one gateway; a reader does it if code of the application runs for that.

    Args:
        pool: The readers; without them, code of the application runs in this process.
    """

    def __init__(self, app: App, config: Config, pool: ReaderPool | None) -> None:
        self._app = app
        self._limits = SizeLimits(config.gateway.key_bytes_max, config.record_bytes_max)
        self._timeout_s = config.gateway.reply_timeout_ms / 1_000
        self._pool = pool
        self._with_code = frozenset() if pool is None else calls_with_code(app)

    async def encoded(self, target: CallTarget, source: ArgumentSource) -> tuple[bytes, bytes]:
        """Return the body and the access hint of a log entry for a call or an append.

        Raises:
            RequestError: The target does not exist, or the arguments do not fit.
        """
        if self._with_code and (target.owner, target.method) in self._with_code:
            assert self._pool is not None, "only a pool has calls with code"
            return await self._pool.encoded(target, source, self._timeout_s)
        return encoded_call(self._app, self._limits, target, source)


def calls_with_code(app: App) -> frozenset[tuple[str, str]]:
    """Return `CallTarget.owner` and the method of each call or append whose arguments or events run code."""
    calls = [("", name) for name, signature in app.functions.items() if _has_code(signature)]
    for entity in app.entities.values():
        has_key_code = has_code(entity.key_annotation)
        calls += [
            (entity.name, method)
            for method in (*entity.methods, *RESERVED)
            if has_key_code or _has_code(app.signature(entity.name, method))
        ]
    calls += [
        (f"{STREAMS}{name}", APPEND)
        for name, stream in app.topology.streams.items()
        if stream.is_open and has_code(stream.annotation)
    ]
    return frozenset(calls)


def _has_code(signature: Signature) -> bool:
    return any(has_code(parameter.annotation) for parameter in signature.parameters.values())
