"""Replies are what the journal has committed: followed, and looked up."""

import threading

import msgspec
import pyarrow as pa
import pytest

from penstock.base.ids import Epoch, LogPartition, Lsn, RequestId
from penstock.errors import TimedOut
from penstock.journal.api import TRANSACTIONS, Commit, PartKind
from penstock.journal.memory import MemoryJournal
from penstock.journal.replies import Replies, find_reply

ONLY = LogPartition(0)
DEADLINE_MS = 10_000


def commit(journal: MemoryJournal, epoch: int, lsns: range) -> None:
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
    """Who asks for a committed request is answered from the journal's past."""
    replies = Replies(journal)
    assert replies.wait((ONLY, Lsn(4)), DEADLINE_MS).value(int) == 4
    replies.close()


def test_a_reply_wakes_who_waits_for_it(journal: MemoryJournal) -> None:
    """A caller that waits gets its reply with the commit of its epoch."""
    replies = Replies(journal)
    later = threading.Timer(0.01, commit, (journal, 10, range(30, 33)))
    later.start()
    assert replies.wait((ONLY, Lsn(31)), DEADLINE_MS).value(int) == 31
    later.join()
    replies.close()


def test_waiting_ends_when_time_is_up(journal: MemoryJournal) -> None:
    """A reply that does not come is an error that says what to do."""
    replies = Replies(journal)
    with pytest.raises(TimedOut, match="same request id"):
        replies.wait((ONLY, Lsn(99)), timeout_ms=10)
    assert not replies.wait_until((ONLY, Lsn(99)), timeout_ms=10)
    replies.close()


def test_progress_wakes_who_waits_for_a_position(journal: MemoryJournal) -> None:
    """Waiting for a position returns when everything below it is committed."""
    replies = Replies(journal)
    later = threading.Timer(0.01, commit, (journal, 10, range(30, 33)))
    later.start()
    assert replies.wait_until((ONLY, Lsn(33)), DEADLINE_MS)
    later.join()
    replies.close()


class Unsteady(MemoryJournal):
    """A journal that cannot be read at times."""

    broken = False

    def wait(self, after: Epoch, timeout_ms: int) -> Commit | None:
        """Wait for the next epoch."""
        if self.broken:
            raise OSError("the disk is away")
        return super().wait(after, timeout_ms)


def test_journal_that_fails_once_is_followed_again() -> None:
    """Who waits meanwhile hears of it; who asks later is answered."""
    journal = Unsteady()
    replies = Replies(journal)
    journal.broken = True
    with pytest.raises(OSError, match="the disk is away"):
        replies.wait((ONLY, Lsn(0)), DEADLINE_MS)
    journal.broken = False
    commit(journal, 0, range(1))
    assert replies.wait_until((ONLY, Lsn(1)), DEADLINE_MS)
    assert replies.wait((ONLY, Lsn(0)), DEADLINE_MS).value(int) == 0
    replies.close()
