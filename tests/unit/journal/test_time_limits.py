"""Waits for replies end when their time is up, all of them by one timer."""

import asyncio
import time

from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.errors import TimedOut
from penstock.journal.tail import LOOK_S, AsyncJournalTail
from penstock.model.reply import Reply
from tests.memory_journal import MemoryJournal

SLACK_S = 5.0
PLACE = (ONLY_PARTITION, Lsn(7))


def test_waits_end_in_time_and_not_early() -> None:
    """Each wait ends after its own time; a forgotten one never does, and nothing waits in the tail then."""

    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        tail = AsyncJournalTail(MemoryJournal())
        waits: list[asyncio.Future[Reply]] = [loop.create_future() for _ in range(4)]
        limits_s = [0.2, 0.0, 0.1, 0.01]
        began_s = time.monotonic()
        for wait, limit_s in zip(waits, limits_s, strict=True):
            tail.watch(((PLACE, wait),), limit_s)
        waits[2].cancel()
        tail.forget(((PLACE, waits[2]),))
        took_s = []
        for index in (1, 3, 0):
            await asyncio.wait({waits[index]}, timeout=SLACK_S)
            assert isinstance(waits[index].exception(), TimedOut)
            took_s.append(time.monotonic() - began_s - limits_s[index])
        assert waits[2].cancelled()
        assert tail.waiting == 0
        tail.close()
        return took_s

    assert all(late_s > -0.001 for late_s in asyncio.run(run()))


def test_timer_runs_only_while_there_are_waits() -> None:
    """After the last wait the event loop sleeps, and the next wait starts the timer again."""

    async def run() -> None:
        tail = AsyncJournalTail(MemoryJournal())
        for _ in range(2):
            wait: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            tail.watch(((PLACE, wait),), LOOK_S / 2)
            await asyncio.wait({wait}, timeout=SLACK_S)
            assert isinstance(wait.exception(), TimedOut)
            await asyncio.sleep(0)
            assert tail._timer is None
        tail.close()

    asyncio.run(run())
