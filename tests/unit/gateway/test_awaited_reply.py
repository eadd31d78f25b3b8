"""A task waits for the append and the reply of its request at once, and wakes once."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.errors import LogUnavailable, TimedOut
from penstock.gateway.intake import AwaitedReply
from penstock.journal.tail import AsyncJournalTail
from penstock.model.reply import Reply
from tests.memory_journal import MemoryJournal
from tests.unit.journal.test_tail import ONLY, commit

LIMIT_S = 60.0


def appended(
    tail: AsyncJournalTail, awaited: AwaitedReply, lsn: Lsn, limit_s: float = LIMIT_S
) -> None:
    """Do as the intake does after an append."""
    tail.watch((((ONLY, lsn), awaited.accept(lsn)),), limit_s)


@types.coroutine
def counted(waiting: Coroutine[Any, Any, Reply], steps: list[Any]) -> Generator[Any, Any, Reply]:
    """Run a coroutine, and note what it waits for, each time that it waits."""
    while True:
        try:
            steps.append(waiting.send(None))
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        yield steps[-1]


def test_an_append_and_its_reply_are_one_wait() -> None:
    """The append wakes no task: the task of the request has one wait, which ends with the reply."""

    async def ask() -> None:
        journal, steps = MemoryJournal(), list[Any]()
        tail = AsyncJournalTail(journal)
        awaited = AwaitedReply(tail)
        task = asyncio.ensure_future(counted(awaited.reply(), steps))
        await asyncio.sleep(0)
        assert not awaited.done()
        assert tail.waiting == 0, "the request has no position yet"
        appended(tail, awaited, Lsn(3))
        await asyncio.sleep(0)
        assert tail.waiting == 1
        await asyncio.to_thread(commit, journal, 0, range(5))
        assert (await task).value(int) == 3
        assert (len(steps), tail.waiting) == (1, 0)
        tail.close()

    asyncio.run(ask())


def test_a_reply_may_come_before_the_task_waits() -> None:
    """The outcome of an append and the reply are kept for a task that waits later."""

    async def ask() -> None:
        journal = MemoryJournal()
        commit(journal, 0, range(5))
        tail = AsyncJournalTail(journal)
        awaited = AwaitedReply(tail)
        appended(tail, awaited, Lsn(2))
        while not awaited.done():
            await asyncio.sleep(0.001)
        assert (await awaited.reply()).request_id == RequestId("r2")
        tail.close()

    asyncio.run(ask())


def test_a_refused_append_is_raised() -> None:
    """The task gets the error of an append; then it waits for nothing."""

    async def ask() -> None:
        tail = AsyncJournalTail(MemoryJournal())
        awaited = AwaitedReply(tail)
        task = asyncio.create_task(awaited.reply())
        await asyncio.sleep(0)
        awaited.set_exception(LogUnavailable("the disk is full"))
        with pytest.raises(LogUnavailable, match="the disk is full"):
            await task
        assert tail.waiting == 0
        tail.close()

    asyncio.run(ask())


def test_the_time_limit_begins_with_the_append() -> None:
    """A slow append takes nothing from the time for the reply."""

    async def ask() -> None:
        tail = AsyncJournalTail(MemoryJournal())
        awaited = AwaitedReply(tail)
        task = asyncio.create_task(awaited.reply())
        await asyncio.sleep(0.05)
        assert not task.done()
        appended(tail, awaited, Lsn(0), 0.01)
        with pytest.raises(TimedOut, match="the request is durable and will be processed"):
            await task
        assert tail.waiting == 0
        tail.close()

    asyncio.run(ask())


@pytest.mark.parametrize("is_appended", [False, True])
def test_a_task_that_is_cancelled_waits_no_longer(*, is_appended: bool) -> None:
    """The end of a connection ends the wait, before and after the append; the request goes on."""

    async def ask() -> None:
        journal = MemoryJournal()
        tail = AsyncJournalTail(journal)
        awaited = AwaitedReply(tail)
        task = asyncio.create_task(awaited.reply())
        await asyncio.sleep(0)
        if is_appended:
            appended(tail, awaited, Lsn(0))
            assert tail.waiting == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert awaited.done()
        assert tail.waiting == 0
        await asyncio.to_thread(commit, journal, 0, range(1))
        await tail.until(Epoch(0), LIMIT_S)
        assert tail.is_committed((ONLY, Lsn(0)))
        tail.close()

    asyncio.run(ask())
