"""`LeaseMarks` and `Looks`: one process of a host reads the lease, and the others look for nothing while it tells of nothing."""

import os
import time
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.base.ids import Epoch
from penstock.files import lease_mark
from penstock.files.layout import RUN
from penstock.files.lease_mark import UNTOLD_S, LeaseMark, LeaseMarks, changed
from penstock.files.looks import FAR_PAUSE_S, Looks
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import Commit, Journal, told_commit
from penstock.process.lease import Change, Lease, lease_of

LEASE = Lease(run="a", host="h", name="n", pid=1, epoch=Epoch(7))


class Asked:
    """A lease in a store, which counts the questions."""

    def __init__(self, lease: bytes | None) -> None:
        self.lease = lease
        self.count = 0

    def __call__(self) -> bytes | None:
        self.count += 1
        if self.lease == b"away":
            raise OSError
        return self.lease


def age(folder: Path, seconds: float) -> None:
    """Let the file of the mark be that old."""
    at_s = time.time_ns() / 1e9 - seconds
    (path,) = (folder / RUN).glob("lease-*.json")
    os.utime(path, (at_s, at_s))


def test_processes_of_a_host_share_one_question(tmp_path: Path) -> None:
    """The first process that needs the mark reads the lease; the others take its mark until that is old."""
    store = Asked(LEASE.text)
    one, other = LeaseMarks(tmp_path, "s3://b/x", store), LeaseMarks(tmp_path, "s3://b/x", store)
    assert one.now() == other.now() == LeaseMark("a", Epoch(7), 0)
    assert store.count == 1
    store.lease = changed(LEASE.text)
    age(tmp_path, lease_mark.FRESH_S)
    assert other.now() == one.now() == LeaseMark("a", Epoch(7), 1)
    assert store.count == 2


def test_holder_leaves_its_lease_and_nobody_asks(tmp_path: Path) -> None:
    """On the host of the driver, or of a standby, no other process asks the store."""
    store = Asked(None)
    marks = LeaseMarks(tmp_path, "s3://b/x", store)
    marks.note(LEASE.text)
    assert LeaseMarks(tmp_path, "s3://b/x", store).now() == LeaseMark("a", Epoch(7), 0)
    assert store.count == 0


@pytest.mark.parametrize(
    "lease",
    [None, b"", b"7", b"away", b'{"run": "a", "epoch": 7}', b'{"run": "a", "changes": "1"}'],
)
def test_without_a_mark_each_process_looks_for_itself(tmp_path: Path, lease: bytes | None) -> None:
    """There is no lease, something else, no answer, or a holder of a version that counts nothing; a clock that is set back is believed by nobody."""
    marks = LeaseMarks(tmp_path, "s3://b/x", Asked(lease))
    assert marks.now() is None
    if lease != b"away":
        assert changed(lease) is None
        age(tmp_path, -60)
        marks = LeaseMarks(tmp_path, "s3://b/x", store := Asked(LEASE.text))
        assert marks.now() is not None
        assert store.count == 1


def test_store_that_does_not_answer_is_asked_once_in_a_while(tmp_path: Path) -> None:
    """Each question may take seconds, and a supervisor asks five times a second."""
    store = Asked(b"away")
    marks = [LeaseMarks(tmp_path, "s3://shop", store) for _ in range(3)]
    assert [each.now() for each in marks] == [None, None, None]
    assert store.count == 1
    age(tmp_path, lease_mark.FRESH_S)
    store.lease = LEASE.text
    assert marks[0].now() == LeaseMark("a", Epoch(7), 0)


def test_count_survives_the_changes_of_the_holder() -> None:
    """The holder keeps the count, and a count delays no takeover."""
    counted = changed(changed(LEASE.text))
    held = lease_of(counted)
    assert held is not None
    assert (held.changes, held.run, held.epoch) == (2, "a", 7)
    renewed = lease_of(Change(None, LEASE).edit(counted, Epoch(8)))
    assert renewed is not None
    assert (renewed.changes, renewed.epoch) == (2, 8)
    taken = Change(LEASE.text, Lease(run="b", host="g", name="m", pid=2)).edit(counted)
    assert taken is not None, "a count is no sign of life of the holder"
    assert (
        Change(changed(LEASE.text), Lease(run="b", host="g", name="m", pid=2)).edit(
            Lease(run="a", host="h", name="n", pid=1, count=1).text
        )
        is None
    ), "the holder lives"


class Commits:
    """A journal that counts the looks for its newest commit."""

    def __init__(self) -> None:
        self.looks = 0
        self._known: Commit | None = None

    def known(self) -> Commit | None:
        return self._known

    def last(self) -> Commit | None:
        self.looks += 1
        self._known = Commit(Epoch(4 + self.looks), {}, (), 0)
        return self._known


def test_newest_commit_is_asked_for_when_the_lease_tells_of_another() -> None:
    """Status lines and reports cost no question while the lease tells of the epoch that is known."""
    journal, root = Commits(), Root()

    def told(mark: LeaseMark | None) -> int:
        root.mark = mark
        commit = told_commit(cast("Journal", journal), cast("SharedRoot", root))
        assert commit is not None
        return commit.epoch

    assert told(LeaseMark("a", Epoch(5), 0)) == 5, "nothing is known yet"
    assert told(LeaseMark("a", Epoch(5), 3)) == 5
    assert told(LeaseMark("b", Epoch(4), 0)) == 5, "the holder has not told of it yet"
    assert journal.looks == 1
    assert told(LeaseMark("b", Epoch(6), 0)) == 6
    assert told(None) == 7, "nothing tells"
    assert told(LeaseMark("b", Epoch(-1), 0)) == 8, "the holder has told of no epoch"


class Root:
    """A root whose mark a test sets."""

    is_far = True

    def __init__(self) -> None:
        self.mark: LeaseMark | None = None

    def lease_mark(self) -> LeaseMark | None:
        return self.mark


def test_look_is_due_when_the_mark_counts_a_change() -> None:
    """Only a count, another holder or a long time makes a look due; without a mark it is due after each pause."""
    root, now = Root(), [0.0]
    looks = Looks(cast("SharedRoot", root), 1.0, clock=lambda: now[0])

    def due_after(seconds: float, **mark: Any) -> bool:
        now[0] += seconds
        root.mark = LeaseMark("a", **mark) if mark else None
        return looks.is_due()

    assert due_after(0.0, changes=0)
    assert not due_after(2.0, changes=0)
    assert not due_after(2.0, changes=0, epoch=5), "an epoch changes no small file"
    assert due_after(2.0, changes=1)
    assert not due_after(0.5, changes=2), "the shortest pause"
    assert due_after(0.5, changes=2)
    assert not due_after(UNTOLD_S - 1, changes=2)
    assert due_after(1.0, changes=2), "a writer may end before it counts"
    assert not due_after(FAR_PAUSE_S - 1)
    assert due_after(1.0), "nothing tells"
    assert due_after(1.0, changes=2), "perhaps something has changed before the mark came back"
    assert not due_after(1.0, changes=2)
    root.is_far = False
    assert due_after(1.0, changes=2), "a look at a folder costs nothing"
