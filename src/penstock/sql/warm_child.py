"""A child process that is forked and warm before its query arrives.

A new fork is slow: it copies each page that it writes to, and the first statement of DuckDB touches
many pages. A warm child has run one query already and waits for its command. It has the tables of one
epoch, so it is replaced after each batch of epochs.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import ViewUnavailable
from penstock.process.child_process import ChildProcess, keep_to
from penstock.process.config import ViewConfig
from penstock.sql.query import Query, QueryLimits, limits_of, run
from penstock.sql.query_pool import QueryJob, QueryPool, ResultOptions, bounds_of
from penstock.sql.result_format import ResultFormat, encode_result
from penstock.sql.view_store import ViewStore

_PAUSE_S: Final = 0.005
_LENGTH_BYTES: Final = 8
"""A command follows its length, because other children may keep the pipe open."""

_WARM_UP_S: Final = 60.0
_WARM_UP: Final = Query("SELECT 1")


class _Command(msgspec.Struct, frozen=True):
    """A query for a warm child, with its limits and the format of its result."""

    query: Query
    deadline: float
    time_ms: int
    rows_max: int
    result_format: ResultFormat


_decode = msgspec.msgpack.Decoder(_Command).decode


def encode_command(query: Query, limits: QueryLimits, options: ResultOptions) -> bytes | None:
    """Return the command for a query; None if a parameter cannot be encoded without change."""
    command = _Command(
        query, limits.deadline, limits.time_ms, limits.rows_max, options.result_format
    )
    try:
        data = msgspec.msgpack.encode(command)
    except (TypeError, OverflowError):  # MessagePack has integers of 64 bits
        return None
    return data if _decode(data) == command else None


@dataclass(slots=True)
class _Waiting:
    """A waiting child, its epoch, and the pipe for its command."""

    child: ChildProcess
    epoch: Epoch
    commands: int
    counted: ExitStack = field(default_factory=ExitStack)

    def end(self) -> None:
        self.child.end()
        self.counted.close()


class WarmChild:
    """The warm child of a view, and the thread that forks it. Many threads may take the child."""

    def __init__(
        self,
        pool: QueryPool,
        store: ViewStore,
        settings: ViewConfig,
        still: Callable[[], AbstractContextManager[Epoch]],
    ) -> None:
        """Begin without a child.

        Args:
            pool: Starts and counts children.
            still: A context in which no other thread changes the tables; its value is their epoch.
        """
        self._pool = pool
        self._store = store
        self._settings = settings
        self._still = still
        self._epoch = BEFORE_FIRST
        self._changing = threading.Lock()
        self._waiting: _Waiting | None = None
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="penstock-spare", daemon=True)

    def start(self) -> None:
        """Start the thread that forks a child when one is wanted."""
        self._thread.start()

    def want(self) -> None:
        """Request a child, if none waits."""
        self._wanted.set()

    def take(self, epoch: Epoch, command: bytes) -> ChildProcess | None:
        """Give a command to the waiting child, if its epoch is `epoch` or later; return the child."""
        waiting = self._take_waiting()
        if waiting is None:
            return None
        is_usable = (
            waiting.epoch >= epoch
            and waiting.child.is_alive()
            and _write_command(waiting.commands, command)
        )
        os.close(waiting.commands)
        if not is_usable:
            waiting.end()
            return None
        waiting.counted.close()  # the caller has counted the child
        return waiting.child

    def drop(self) -> None:
        """End the waiting child, because the view changes its tables."""
        waiting = self._take_waiting()
        if waiting is not None:
            os.close(waiting.commands)
            waiting.end()

    def close(self) -> None:
        """Stop the thread, and end the waiting child."""
        self._stopping.set()
        self.want()
        if self._thread.is_alive():
            self._thread.join()
        self.drop()

    def _take_waiting(self) -> _Waiting | None:
        with self._changing:
            waiting, self._waiting = self._waiting, None
        return waiting

    def _keep(self) -> None:
        while not self._stopping.is_set():
            if self._waiting is None:
                with suppress(OSError, ViewUnavailable):  # the next query reports the failure
                    self._fork()
            self._wanted.wait()
            self._stopping.wait(_PAUSE_S)  # lets the current result be sent first
            self._wanted.clear()

    @contextmanager
    def _noting_epoch(self) -> Iterator[None]:
        with self._still() as self._epoch:
            yield

    def _fork(self) -> None:
        source, target = os.pipe()
        with ExitStack() as counted:
            counted.enter_context(self._pool.counted())

            def work(pipe: IO[bytes]) -> None:
                os.close(target)
                with os.fdopen(source, "rb") as commands:
                    self._serve(commands, pipe)

            try:
                child = self._pool.started(work, None, self._noting_epoch())
            except BaseException:
                os.close(target)
                raise
            finally:
                os.close(source)
            waiting = _Waiting(child, self._epoch, target, counted.pop_all())
        with self._changing:
            self._waiting = waiting

    def _serve(self, commands: IO[bytes], pipe: IO[bytes]) -> None:
        """Warm up, read one command and execute it; this runs in the child."""
        deadline = time.monotonic() + _WARM_UP_S
        result = run(self._store, _WARM_UP, limits_of(_WARM_UP, self._settings, deadline))
        for result_format in ResultFormat:
            encode_result(result, result_format)
        self._store.sealed().execute("ROLLBACK")
        length = commands.read(_LENGTH_BYTES)
        if not length:
            return  # the parent has dropped this child
        command = _decode(commands.read(int.from_bytes(length)))
        limits = QueryLimits(command.deadline, command.time_ms, command.rows_max, self._settings)
        keep_to(bounds_of(limits))
        options = ResultOptions(command.result_format)
        QueryJob(partial(run, self._store, command.query, limits), options, limits).work(pipe)


def _write_command(target: int, command: bytes) -> bool:
    try:
        with open(target, "wb", closefd=False) as commands:
            commands.write(len(command).to_bytes(_LENGTH_BYTES))
            commands.write(command)
    except OSError:
        return False
    return True
