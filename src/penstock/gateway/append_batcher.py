"""Appends requests to the log in batches: requests that arrive during an append share the next one.

Promises the guarantees of `Log.append` for each request alone: a request that is refused does not
affect the others of its batch. One thread writes, so the event loop never waits for a disk. When the
log cannot be written, as on a full disk, one line says so, and another one says when it can be written again. A gateway
without requests learns it by a write of its own, when its readiness is asked for.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.errors import LogUnavailable, PenstockError, Truncated, UserError
from penstock.gateway.telemetry.metrics import Metrics
from penstock.log.api import Entry, Log
from penstock.orders.cancellation import cancel, complete, end_cascade
from penstock.process.config import Config

_log = logging.getLogger(__name__)

_TOLD_AT_ONCE: Final = 32
_KNOWN_S: Final = 1.0
"""How long the outcome of a write says whether the next one would succeed."""

P = ParamSpec("P")
T = TypeVar("T")

Outcome = Lsn | PenstockError
"""The position of an appended request, or the reason why it was not appended."""

Taker = Callable[[Sequence[Outcome]], None]
"""Takes the outcomes of the requests that were appended together, in their order."""


class AppendBatcher:
    """Appends the requests of one gateway. For one event loop."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        """Start the thread; `close` ends it."""
        self._log = log
        self._metrics = metrics
        # One thread, so that the event loop never waits for a disk, and requests that come during an
        # append shares the next one.
        self._thread = ThreadPoolExecutor(1, "penstock-append")
        self._waiting: list[tuple[Sequence[Entry], Taker]] = []
        self._writer: asyncio.Task[None] | None = None
        self._failed_at: Lsn | None = (
            None  # the end of the log when it could not be written; None while it can
        )
        self._known_until_s = 0.0
        self._checking = asyncio.Lock()

    def append(self, entries: Sequence[Entry], take: Taker) -> None:
        """Append requests durably, and call a function with the outcome of each. No task wakes for it.

        Args:
            take: Gets these errors, among others: `RequestConflict` if the id belongs to a request with
                another body, `RecordTooLarge` if the body exceeds the log's limit, and `LogUnavailable` if the
                disk is full or fails. A request with an error was not appended.
        """
        self._waiting.append((entries, take))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    async def schedule(self, entry: Entry, due_us: int) -> None:
        """Store a request durably until it is due and appended; raises as `append`."""
        await self._in_thread(self._log.schedule, entry, due_us)

    async def place_of(self, request_id: RequestId) -> tuple[LogPartition, Lsn] | None:
        """Return the position of a request id; None if the log does not know it, or no longer."""
        return await self._in_thread(self._log.find, request_id)

    async def body_of(self, place: tuple[LogPartition, Lsn]) -> bytes | None:
        """Return the body of an appended request; None if the log was truncated since."""
        return await self._in_thread(self._body, *place)

    async def due_of(self, request_id: RequestId) -> int | None:
        """Return the due time of a scheduled request in microseconds since the Unix epoch."""
        return await self._in_thread(self._log.scheduled, request_id)

    async def cancel(self, request_id: RequestId) -> Lsn | None:
        """Cancel a scheduled request; see `penstock.orders.cancellation.cancel`."""
        return await self._in_thread(cancel, self._log, request_id)

    async def end_cascade(self, config: Config, root: RequestId) -> Lsn | None:
        """End the rest of a cascade; see `penstock.orders.cancellation.end_cascade`.

        It reads the state, so it runs in another thread than the appends.
        """
        # It reads the state, which would hold the appends up in their thread.
        return await asyncio.to_thread(end_cascade, config, self._log, root)

    async def complete(self, text: str) -> RequestId:
        """Complete the id of a scheduled request; see `penstock.orders.cancellation.complete`.

        It reads all scheduled requests, so it runs in another thread than the appends.
        """
        # It reads all scheduled requests, which would hold the appends up.
        return await asyncio.to_thread(complete, self._log, text)

    async def _in_thread(self, function: Callable[P, T], *arguments: P.args, **_: P.kwargs) -> T:
        """Run a function in the thread of the log."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    async def is_writable(self) -> bool:
        """Say whether an append would succeed now; a write finds out, at most one in a second."""
        async with self._checking:
            # A gateway without requests learns it only by a write of its own.
            if time.monotonic() >= self._known_until_s:
                await self._report(await self._in_thread(self._check))
        return self._failed_at is None

    def _check(self) -> list[Outcome]:
        try:
            self._log.check_writable()
        except LogUnavailable as error:
            return [error]
        except PenstockError:  # of a log whose damage the next append names
            return []
        return [self._end()]

    async def close(self) -> None:
        """Wait for all appends that have begun; their clients may have left."""
        if self._writer is not None:
            await self._writer
        self._thread.shutdown()

    async def _write(self) -> None:
        """Append batches until no request waits."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            entries = [entry for group, _ in batch for entry in group]
            began = time.perf_counter()
            outcomes = await self._in_thread(self._append, entries)
            self._metrics.appended(time.perf_counter() - began, len(entries))
            await self._report(outcomes)
            at = 0
            for number, (group, take) in enumerate(batch, 1):
                if number % _TOLD_AT_ONCE == 0:
                    await asyncio.sleep(0)  # others of the event loop must not wait for all of them
                try:
                    take(outcomes[at : at + len(group)])
                except Exception:  # noqa: BLE001 -- the other requests must hear of theirs
                    _log.exception("the outcome of an append was not taken")
                at += len(group)
        self._writer = None

    async def _report(self, outcomes: Sequence[Outcome]) -> None:
        """Log that the log cannot be written, or can be written again; not each refused request.

        A repeated request gets its former position without a write, also on a full disk.
        """
        if outcomes:
            self._known_until_s = time.monotonic() + _KNOWN_S
        failure = next((each for each in outcomes if isinstance(each, LogUnavailable)), None)
        failed_at = self._failed_at
        if failure is not None and failed_at is None:
            self._failed_at = await self._in_thread(self._end)
            _log.error(
                "requests are refused: the log cannot be written", extra={"cause": str(failure)}
            )
        elif failed_at is not None and any(
            # A repeated request gets its former position without a write, also on a full disk.
            isinstance(each, int) and each >= failed_at
            for each in outcomes
        ):
            self._failed_at = None
            _log.info("the log can be written again")

    def _end(self) -> Lsn:
        """Return the end of the log; its beginning if the log cannot be read."""
        try:
            return self._log.end()
        except PenstockError:
            return Lsn(0)

    def _body(self, partition: LogPartition, lsn: Lsn) -> bytes | None:
        try:
            return self._log.read(lsn, Lsn(lsn + 1), partition)[0].body
        except Truncated:
            return None

    def _append(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Append entries; a refused one is found by halving, so that it costs few durable writes."""
        try:
            return list(self._log.append(entries))
        except UserError as error:  # caused by one entry; then the log appends none
            if len(entries) == 1:
                return [error]
            # Halving finds the entry that the log refuses with few durable writes, and the others
            # are appended.
            half = len(entries) // 2
            return [*self._append(entries[:half]), *self._append(entries[half:])]
        except PenstockError as error:
            return [error] * len(entries)
