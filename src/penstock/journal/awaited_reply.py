"""`AwaitedReply`: the reply for which a task of an event loop waits, also while its request is being appended.

The task wakes once: with the reply, or with the error of the append, of the journal or of the time limit.
"""

import asyncio

from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.errors import PenstockError, TimedOut
from penstock.journal.replies import LogPosition
from penstock.journal.tail import AsyncJournalTail
from penstock.model.reply import Reply


class AwaitedReply:
    """The reply to one request; it takes the outcome of the append as a future does."""

    __slots__ = ("_future", "_position", "_tail", "_timeout_s")

    def __init__(self, tail: AsyncJournalTail, timeout_s: float) -> None:
        """Create it in the event loop of the tail.

        Args:
            timeout_s: The longest wait for the reply, from when the request is durable.
        """
        self._tail = tail
        self._timeout_s = timeout_s
        self._future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._position: LogPosition | None = None

    def done(self) -> bool:
        """Say whether the wait has ended: with a reply, with an error, or because the task was cancelled."""
        return self._future.done()

    def set_exception(self, error: PenstockError) -> None:
        """Raise an error for the task: its request was not appended."""
        self._future.set_exception(error)

    def set_result(self, lsn: Lsn) -> None:
        """Wait for the reply to the request that was appended at a position; the time limit begins."""
        self.begin((ONLY_PARTITION, lsn))

    def begin(self, position: LogPosition) -> None:
        """Wait for the reply to the request at a log position; the time limit begins."""
        self._position = position
        self._tail.watch(((position, self._future),))
        self._tail.expiries.add(self, self._timeout_s)

    async def reply(self) -> Reply:
        """Return the reply.

        Raises:
            TimedOut: It did not come in time; the request may still take effect.
            JournalUnavailable: The journal cannot be read.
            IntegrityError: The journal is damaged.
            PenstockError: The request was not appended.
        """
        try:
            return await self._future
        except BaseException:
            if self._position is not None:
                self._tail.forget(((self._position, self._future),))
            raise
        finally:
            self._tail.expiries.remove(self)

    def expire(self) -> None:
        """Raise `TimedOut` for the task."""
        if not self._future.done():
            self._future.set_exception(
                TimedOut(
                    f"no reply within {self._timeout_s:g} s; the request is durable and will be "
                    "processed; ask again with the same request id"
                )
            )


async def reply_at(tail: AsyncJournalTail, position: LogPosition, timeout_s: float) -> Reply:
    """Return the reply to the request at a log position; raises as `AwaitedReply.reply`."""
    awaited = AwaitedReply(tail, timeout_s)
    awaited.begin(position)
    return await awaited.reply()
