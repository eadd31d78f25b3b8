"""`WarmChild`: a child that is forked before its question comes.

A fork begins slowly: it copies each page that it writes to, and DuckDB's first statement touches
many. A spare child has run a query already and waits for its question. It has the tables of one
epoch, so that another one takes its place after each fold of epochs.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Final

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import ViewUnavailable
from penstock.sql.child_process import ChildProcess
from penstock.sql.query_pool import QueryPool

_PAUSE_S: Final = 0.005
LENGTH_BYTES: Final = 8
"""An order follows its length: other children keep the pipe open."""

Serve = Callable[[IO[bytes], IO[bytes]], None]
"""The work of the child: it gets warm, reads one order, and writes the outcome."""


@dataclass(slots=True)
class _Waiting:
    """A child that waits, and the pipe for its order."""

    child: ChildProcess
    epoch: Epoch
    orders: int
    counted: ExitStack = field(default_factory=ExitStack)


class WarmChild:
    """The spare child of a view, and a thread that forks it. Many threads may take it."""

    def __init__(
        self, pool: QueryPool, serve: Serve, still: Callable[[], AbstractContextManager[Epoch]]
    ) -> None:
        """Have none yet; `still` keeps everything as it is, at the epoch that it gives."""
        self._pool = pool
        self._serve = serve
        self._still = still
        self._epoch = BEFORE_FIRST
        self._changing = threading.Lock()
        self._waiting: _Waiting | None = None
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="penstock-spare", daemon=True)

    def start(self) -> None:
        """Fork one whenever it is wanted."""
        self._thread.start()

    def want(self) -> None:
        """Have a child made, if none waits."""
        self._wanted.set()

    def take(self, epoch: Epoch, order: bytes) -> ChildProcess | None:
        """Give an order to the child, if there is one at this epoch or a later one."""
        found = self._taken()
        if found is None:
            return None
        usable = found.epoch >= epoch and found.child.is_alive() and _wrote(found.orders, order)
        os.close(found.orders)
        if not usable:
            self._end(found)
            return None
        found.counted.close()  # the pool counts it from now on
        return found.child

    def drop(self) -> None:
        """End the child: it is of an old epoch soon."""
        found = self._taken()
        if found is not None:
            os.close(found.orders)
            self._end(found)

    def close(self) -> None:
        """Fork no more, and end the child."""
        self._stopping.set()
        self.want()
        if self._thread.is_alive():
            self._thread.join()
        self.drop()

    def _taken(self) -> _Waiting | None:
        with self._changing:
            found, self._waiting = self._waiting, None
        return found

    def _end(self, found: _Waiting) -> None:
        found.child.end()
        found.counted.close()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            if self._waiting is None:
                with suppress(OSError, ViewUnavailable):  # the question that needs it says so
                    self._make()
            self._wanted.wait()
            self._stopping.wait(_PAUSE_S)  # the answer is on its way meanwhile
            self._wanted.clear()

    @contextmanager
    def _noting_epoch(self) -> Iterator[None]:
        with self._still() as self._epoch:
            yield

    def _make(self) -> None:
        source, target = os.pipe()
        with ExitStack() as counted:
            counted.enter_context(self._pool.counted())

            def work(pipe: IO[bytes]) -> None:
                os.close(target)
                with os.fdopen(source, "rb") as orders:
                    self._serve(orders, pipe)

            try:
                child = self._pool.started(work, None, self._noting_epoch())
            except BaseException:
                os.close(target)
                raise
            finally:
                os.close(source)
            made = _Waiting(child, self._epoch, target, counted.pop_all())
        with self._changing:
            self._waiting = made


def _wrote(target: int, order: bytes) -> bool:
    try:
        with open(target, "wb", closefd=False) as orders:
            orders.write(len(order).to_bytes(LENGTH_BYTES))
            orders.write(order)
    except OSError:
        return False
    return True
