"""Replies out of the journal, for an event loop: one thread follows, and wakes who waits.

Promises that a reply is given only when its epoch is committed, and given once: to everybody who
waits for its position. When the journal cannot be read, who waits hears of it, and following goes
on when it can be read again.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn
from penstock.errors import JournalUnavailable, PenstockError, TimedOut
from penstock.journal.api import Commit, Journal
from penstock.journal.replies import Place, find_reply, replies_of
from penstock.model.reply import Reply

_log = logging.getLogger(__name__)

LOOK_MS: Final = 100
PAUSE_S: Final = 0.5
"""Between two tries of a journal that cannot be read."""


class Following:
    """Follows the journal for one gateway. Belongs to one event loop, but for its thread.

    Attributes:
        epoch: The newest epoch whose replies were given.
        reached: The log position after it, by partition.
        failure: Why the journal cannot be read now; None while it can.
    """

    def __init__(self, journal: Journal, tell: Callable[[int], None] = lambda count: None) -> None:
        """Follow from the newest epoch on; must be called in the loop.

        `tell` is given the number of those who wait, whenever it changes.
        """
        self._journal = journal
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Place, list[asyncio.Future[Reply]]] = {}
        self._advanced: list[asyncio.Future[None]] = []
        last = journal.last()
        self.epoch = BEFORE_FIRST if last is None else last.epoch
        self.reached: dict[LogPartition, Lsn] = {} if last is None else dict(last.positions)
        self.failure: PenstockError | None = None
        self._closed = threading.Event()
        self._look_ups = ThreadPoolExecutor(1, "penstock-look-up")
        self._thread = threading.Thread(target=self._follow, name="penstock-follow", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many positions are waited for."""
        return len(self._waiting)

    def is_committed(self, place: Place) -> bool:
        """Say whether the request at a log position is processed."""
        partition, lsn = place
        return lsn < self.reached.get(partition, Lsn(0))

    async def reply(self, place: Place, timeout_s: float) -> Reply:
        """Return the reply to the request at a log position.

        Raises:
            TimedOut: It did not come in time; the request may still take effect.
            JournalUnavailable: The journal cannot be read.
            IntegrityError: It is damaged.
        """
        if self.is_committed(place):
            return await self._loop.run_in_executor(
                self._look_ups, find_reply, self._journal, place
            )
        if self.failure is not None:
            raise self.failure
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting.setdefault(place, []).append(future)
        self._tell(len(self._waiting))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TimedOut(
                f"no reply within {timeout_s:g} s; the request is durable and will be processed; "
                "ask again with the same request id"
            ) from None
        finally:
            self._forget(place, future)

    async def until(self, epoch: Epoch, timeout_s: float) -> None:
        """Return when an epoch is committed and seen here.

        Raises:
            TimedOut: It was not in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.epoch < epoch:
                    future: asyncio.Future[None] = self._loop.create_future()
                    self._advanced.append(future)
                    await future
        except TimeoutError:
            raise TimedOut(
                f"epoch {epoch} is not committed yet; the newest is {self.epoch}"
            ) from None

    def close(self) -> None:
        """Stop following; who waits hears nothing more."""
        self._closed.set()
        self._thread.join(timeout=5)
        self._look_ups.shutdown(wait=False)

    def _forget(self, place: Place, future: asyncio.Future[Reply]) -> None:
        others = self._waiting.get(place)
        if others is not None and future in others:
            others.remove(future)
            if not others:
                del self._waiting[place]
                self._tell(len(self._waiting))

    def _follow(self) -> None:
        seen = self.epoch
        while not self._closed.is_set():
            try:
                commit = self._journal.wait(seen, LOOK_MS)
                if commit is None:
                    if self.failure is not None:
                        self._call(self._recover)
                    continue
                found = replies_of(self._journal, commit, frozenset(list(self._waiting)))
                seen = commit.epoch
                self._call(self._deliver, commit, found)
            except Exception as error:  # noqa: BLE001 -- who waits must hear of whatever it is
                if self._closed.is_set():
                    return
                _log.error("the journal cannot be followed", exc_info=error)
                told = error if isinstance(error, PenstockError) else JournalUnavailable(str(error))
                self._call(self._fail, told)
                self._closed.wait(PAUSE_S)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _deliver(self, commit: Commit, found: list[tuple[Place, Reply]]) -> None:
        self.failure = None
        self.epoch = commit.epoch
        self.reached = dict(commit.positions)
        for place, reply in found:
            for future in self._waiting.pop(place, ()):
                if not future.done():
                    future.set_result(reply)
        # Who began to wait after the parts were read, for an epoch that has come meanwhile:
        for place in [one for one in self._waiting if self.is_committed(one)]:
            self._find_late(place, self._waiting.pop(place))
        self._tell(len(self._waiting))
        advanced, self._advanced = self._advanced, []
        for one in advanced:
            if not one.done():
                one.set_result(None)

    def _find_late(self, place: Place, futures: list[asyncio.Future[Reply]]) -> None:
        search = self._loop.run_in_executor(self._look_ups, find_reply, self._journal, place)

        def hand_over(done: asyncio.Future[Reply]) -> None:
            for future in futures:
                if future.done():
                    continue
                error = done.exception()
                if error is None:
                    future.set_result(done.result())
                else:
                    future.set_exception(error)

        search.add_done_callback(hand_over)

    def _fail(self, error: PenstockError) -> None:
        self.failure = error
        waiting, self._waiting = self._waiting, {}
        self._tell(0)
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def _recover(self) -> None:
        self.failure = None
