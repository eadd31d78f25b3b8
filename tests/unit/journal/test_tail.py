"""The tail of the journal hands over the replies of new epochs; old ones are looked up."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from penstock.base.ids import Epoch, LogPartition, Lsn, RequestId
from penstock.errors import JournalUnavailable, TimedOut
from penstock.files import durable
from penstock.journal.api import TRANSACTIONS, Commit, Journal, Part, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.journal.replies import find_reply, replies_of
from penstock.journal.tail import AsyncJournalTail, JournalTail
from penstock.model.reply import Reply
from tests.memory_journal import MemoryJournal
from tests.waiting import wait_for

ONLY = LogPartition(0)
DEADLINE_MS = 60_000


def commit(journal: Journal, epoch: int, lsns: range) -> None:
    """Commit an epoch in which each request answered with its own position."""
    rows = pa.table(
        {
            "epoch": [epoch] * len(lsns),
            "partition": [0] * len(lsns),
            "lsn": list(lsns),
            "request_id": [f"r{lsn}" for lsn in lsns],
            "time_us": [0] * len(lsns),
            "request": [b""] * len(lsns),
            "error": [None] * len(lsns),
            "reply": [msgspec.msgpack.encode(lsn) for lsn in lsns],
        },
        schema=TRANSACTIONS,
    )
    part = journal.write(PartKind.TRANSACTIONS, rows, f"epoch-{epoch}")
    journal.commit(Commit(Epoch(epoch), {ONLY: Lsn(lsns.stop)}, (part,), time_us=0))


@pytest.fixture
def journal() -> MemoryJournal:
    """Give a journal of ten epochs of three requests each."""
    made = MemoryJournal()
    for epoch in range(10):
        commit(made, epoch, range(3 * epoch, 3 * epoch + 3))
    return made


def test_every_committed_reply_is_found(journal: MemoryJournal) -> None:
    """The look-up finds each request in its own epoch."""
    for lsn in range(30):
        reply = find_reply(journal, (ONLY, Lsn(lsn)))
        assert (reply.request_id, reply.epoch, reply.value(int)) == (
            RequestId(f"r{lsn}"),
            Epoch(lsn // 3),
            lsn,
        )


def test_a_request_that_is_not_processed_has_no_reply(journal: MemoryJournal) -> None:
    """The look-up beyond the newest epoch says that it is too early."""
    with pytest.raises(TimedOut, match="not processed yet"):
        find_reply(journal, (ONLY, Lsn(30)))


def test_an_old_reply_comes_without_waiting(journal: MemoryJournal) -> None:
    """A question about a committed request is answered from the journal's past."""
    tail = JournalTail(journal)
    assert tail.wait((ONLY, Lsn(4)), DEADLINE_MS).value(int) == 4
    tail.close()


def test_a_reply_wakes_who_waits_for_it(journal: MemoryJournal) -> None:
    """A caller that waits gets its reply with the commit of its epoch."""
    tail = JournalTail(journal)
    later = threading.Timer(0.01, commit, (journal, 10, range(30, 33)))
    later.start()
    assert tail.wait((ONLY, Lsn(31)), DEADLINE_MS).value(int) == 31
    later.join()
    tail.close()


def test_waiting_ends_when_time_is_up(journal: MemoryJournal) -> None:
    """A reply that does not come is an error with the next step."""
    tail = JournalTail(journal)
    with pytest.raises(TimedOut, match="same request id"):
        tail.wait((ONLY, Lsn(99)), timeout_ms=10)
    assert not tail.wait_until((ONLY, Lsn(99)), timeout_ms=10)
    tail.close()


def test_progress_wakes_who_waits_for_a_position(journal: MemoryJournal) -> None:
    """Waiting for a position returns when everything below it is committed."""
    tail = JournalTail(journal)
    later = threading.Timer(0.01, commit, (journal, 10, range(30, 33)))
    later.start()
    assert tail.wait_until((ONLY, Lsn(33)), DEADLINE_MS)
    later.join()
    tail.close()


class Unsteady(MemoryJournal):
    """A journal that cannot be read at times."""

    broken = False
    tries = 0

    def wait(
        self, after: Epoch, timeout_ms: int, ahead: Callable[[Commit], object] | None = None
    ) -> Commit | None:
        """Wait for the next epoch."""
        if self.broken:
            self.tries += 1
            raise OSError("the disk is away")
        return super().wait(after, timeout_ms, ahead)


def test_journal_that_fails_once_is_followed_again() -> None:
    """Callers that wait get the failure; later callers are answered."""
    journal = Unsteady()
    tail = JournalTail(journal)
    journal.broken = True
    with pytest.raises(JournalUnavailable, match="the disk is away"):
        tail.wait((ONLY, Lsn(0)), DEADLINE_MS)
    journal.broken = False
    commit(journal, 0, range(1))
    assert tail.wait_until((ONLY, Lsn(1)), DEADLINE_MS)
    assert tail.wait((ONLY, Lsn(0)), DEADLINE_MS).value(int) == 0
    tail.close()


def test_a_journal_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """One sentence says that it is away, without a trace, and one that it is back."""
    journal = Unsteady()
    tail = JournalTail(journal)
    with caplog.at_level("INFO", "penstock.journal.tail"):
        journal.broken = True
        wait_for(lambda: journal.tries > 2, "three tries")
        journal.broken = False
        wait_for(lambda: len(caplog.records) > 1, "the return")
    tail.close()
    assert [(record.message, record.exc_info) for record in caplog.records] == [
        ("the journal cannot be followed", None),
        ("the journal can be followed again", None),
    ]


def test_event_loop_gets_replies_of_past_and_coming_epochs(journal: MemoryJournal) -> None:
    """Coroutines get the reply of an old request at once, and that of a new one with its commit."""

    async def ask() -> list[int]:
        waiting: list[int] = []
        tail = AsyncJournalTail(journal, waiting.append)
        old = await tail.reply((ONLY, Lsn(4)), DEADLINE_MS)
        asked = [asyncio.create_task(tail.reply((ONLY, Lsn(31)), DEADLINE_MS)) for _ in range(2)]
        advanced = asyncio.create_task(tail.until(Epoch(10), DEADLINE_MS))
        await asyncio.sleep(0)
        assert tail.waiting == 1
        await asyncio.to_thread(commit, journal, 10, range(30, 33))
        new = await asyncio.gather(*asked)
        await advanced
        assert (tail.epoch, tail.positions, waiting[-1]) == (Epoch(10), {ONLY: Lsn(33)}, 0)
        tail.close()
        return [old.value(int), *(reply.value(int) for reply in new)]

    assert asyncio.run(ask()) == [4, 31, 31]


def test_an_epoch_is_read_while_it_becomes_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync of a new name and the reading of its parts overlap; both have ended when the wait for the epoch ends."""
    driver, gateway = (DeltaJournal(tmp_path, "app") for _ in range(2))
    commit(driver, 0, range(1))
    sync, writer, read = durable.sync_directory, threading.get_ident(), threading.Event()
    steps: list[str] = []

    def slow(path: Path) -> None:
        if threading.get_ident() != writer:
            assert read.wait(DEADLINE_MS / 1000), "the parts are read meanwhile"
            steps.append("synced")
        sync(path)

    def ahead(commit: Commit) -> None:
        steps.append(f"read {len(replies_of(gateway, commit, {(ONLY, Lsn(1))}))}")
        read.set()

    gateway.last()
    monkeypatch.setattr(durable, "sync_directory", slow)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(gateway.wait, Epoch(0), DEADLINE_MS, ahead)
        wait_for(lambda: gateway._commits._bell, "the wait has looked")
        commit(driver, 1, range(1, 2))
        assert waiting.result() == driver.last()
    assert steps == ["read 1", "synced"]


def test_replies_that_were_read_ahead_are_not_read_again(tmp_path: Path) -> None:
    """Who waited before gets the reply that was read ahead; who began to wait since gets his, too."""
    journal = DeltaJournal(tmp_path, "app")
    tail = JournalTail(journal)
    tail._closed.set()  # the test does the work of its thread
    tail._thread.join()
    first, second = Future[Reply](), Future[Reply]()
    tail._register((ONLY, Lsn(0)), first)
    commit(journal, 0, range(2))
    made = journal.last()
    assert made is not None
    tail._read_ahead(made)
    assert not first.done()
    tail._register((ONLY, Lsn(1)), second)
    tail._advance(made)
    assert [first.result(0).value(int), second.result(0).value(int)] == [0, 1]


class Counting(MemoryJournal):
    """A journal that counts how often a part is read."""

    reads = 0

    def read(self, part: Part, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a part's rows, and count."""
        self.reads += 1
        return super().read(part, columns)


def test_many_late_questions_share_a_look_up() -> None:
    """Requests that begin to wait after the commit of their epochs do not read the epoch one after the other."""
    journal, count = Counting(), 500
    for epoch in range(3):
        commit(journal, epoch, range(count * epoch, count * (epoch + 1)))

    async def ask() -> list[int]:
        tail = AsyncJournalTail(journal)
        lsns = range(count * 3)
        replies = await asyncio.gather(*(tail.reply((ONLY, Lsn(lsn)), DEADLINE_MS) for lsn in lsns))
        again = await tail.reply((ONLY, Lsn(7)), DEADLINE_MS)
        tail.close()
        return [reply.value(int) for reply in (*replies, again)]

    assert asyncio.run(ask()) == [*range(count * 3), 7]
    assert journal.reads <= 20, "the first question, those that came meanwhile, and the last one"


def test_a_deployment_is_heard_of_with_the_commit_that_names_it() -> None:
    """An epoch that names the known deployment wakes nobody; one that names none may belong to any."""

    async def ask() -> None:
        journal = MemoryJournal()
        tail = AsyncJournalTail(journal)
        for epoch, known, name in ((0, "", ""), (1, "", "first"), (3, "first", "second")):
            waiting = asyncio.create_task(tail.until_deployed(known, DEADLINE_MS))
            await asyncio.sleep(0)
            if epoch == 3:
                journal.commit(Commit(Epoch(2), {}, (), 0, deployment="first"))
                await tail.until(Epoch(2), DEADLINE_MS)
                await asyncio.sleep(0)
                assert not waiting.done()
            journal.commit(Commit(Epoch(epoch), {}, (), 0, deployment=name))
            await waiting
            assert (tail.epoch, tail.deployment) == (epoch, name)
        await tail.until_deployed("second", 0.01)
        await tail.until_deployed("first", DEADLINE_MS)
        tail.close()

    asyncio.run(ask())


def test_event_loop_hears_of_time_and_of_a_journal_that_fails() -> None:
    """Waiting ends with an error when time is up, and when the journal cannot be read."""

    async def ask() -> None:
        journal = Unsteady()
        tail = AsyncJournalTail(journal)
        with pytest.raises(TimedOut, match="same request id"):
            await tail.reply((ONLY, Lsn(0)), 0.01)
        with pytest.raises(TimedOut, match="epoch 3 is not committed yet; the newest is -1"):
            await tail.until(Epoch(3), 0.01)
        journal.broken = True
        with pytest.raises(JournalUnavailable, match="the disk is away"):
            await tail.reply((ONLY, Lsn(0)), DEADLINE_MS)
        journal.broken = False
        await asyncio.to_thread(commit, journal, 0, range(1))
        await tail.until(Epoch(0), DEADLINE_MS)
        assert (await tail.reply((ONLY, Lsn(0)), DEADLINE_MS)).value(int) == 0
        assert tail.failure is None
        tail.close()

    asyncio.run(ask())
