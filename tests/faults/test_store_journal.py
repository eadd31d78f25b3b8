"""A journal in an object store: no false fence, no lost epoch, and no name that is forgotten too early."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Diverged, Fenced, JournalUnavailable
from penstock.files import store_root
from penstock.files.store_root import StoreRoot
from penstock.journal import segments
from penstock.journal.action import commit_text
from penstock.journal.api import SCHEMAS, Commit, CompactionPolicy, PartKind
from penstock.journal.compaction import Compaction
from penstock.journal.delta import DeltaJournal
from penstock.journal.segments import Segments
from tests.conformance.test_journal import commit_of, grow
from tests.object_store import (
    CONFLICT,
    CUT_ANSWER,
    CUT_REQUEST,
    LOST_ANSWER,
    SLOW_DOWN,
    Fault,
    HostileProxy,
    StoreServer,
)

SLOW_S = 2.0
SMALL = CompactionPolicy(newest=2, epochs=4, grace_s=0)


@pytest.fixture
def driver(
    store_server: StoreServer, near: StoreRoot, proxy: HostileProxy, tmp_path: Path
) -> DeltaJournal:
    """A journal with one epoch, behind the proxy."""
    grow(DeltaJournal(near, "shop"), 0)
    return DeltaJournal(store_server.root(tmp_path / "far", tmp_path.name, proxy.port), "shop")


@pytest.mark.parametrize("fault", [LOST_ANSWER, CUT_ANSWER, CUT_REQUEST, CONFLICT, SLOW_DOWN])
def test_driver_is_not_fenced_by_its_own_commit(
    driver: DeltaJournal, near: StoreRoot, proxy: HostileProxy, fault: Fault
) -> None:
    """A commit whose answer is lost or wrong is one epoch, and the next one follows."""
    assert driver.last() is not None
    proxy.faults["PUT"] = deque([fault])
    driver.commit(commit_of(1))
    assert list(DeltaJournal(near, "shop").commits(Epoch(0))) == [commit_of(1)]
    driver.commit(commit_of(2))


@pytest.mark.parametrize("fault", [LOST_ANSWER, CUT_REQUEST, CONFLICT])
def test_second_driver_is_fenced_whatever_the_answer_was(
    driver: DeltaJournal, near: StoreRoot, proxy: HostileProxy, fault: Fault
) -> None:
    """The epoch of another stays, and the driver behind the bad network learns that it is another's."""
    rival = DeltaJournal(near, "shop")

    def overtake(path: str) -> None:
        if rival.last() != commit_of(1):
            rival.commit(commit_of(1))

    proxy.faults["PUT"] = deque([Fault(first=overtake, reaches=False, status=503), fault])
    with pytest.raises(Fenced, match="another driver runs 'shop'"):
        driver.commit(replace(commit_of(1), time_us=7))
    assert list(rival.commits(Epoch(0))) == [commit_of(1)]


def test_of_two_drivers_at_once_one_commits_an_epoch(
    store_server: StoreServer, near: StoreRoot, tmp_path: Path
) -> None:
    """50 times two drivers commit other bytes at the same time: one of them succeeds, and the other one is fenced."""
    hosts = near, store_server.root(tmp_path / "far", tmp_path.name)
    grow(DeltaJournal(near, "shop"), 0)
    ready = Barrier(2)

    def drive(number: int, epoch: int, journal: DeltaJournal) -> Commit | None:
        commit = replace(commit_of(epoch), time_us=number)
        ready.wait(60)
        try:
            journal.commit(commit)
        except Fenced:
            return None
        return commit

    winners = []
    with ThreadPoolExecutor(2) as drivers:
        for epoch in range(1, 51):
            journals = [
                DeltaJournal(host, "shop") for host in hosts
            ]  # a fenced driver starts again
            assert {journal.last().epoch for journal in journals} == {epoch - 1}  # type: ignore[union-attr]
            outcomes = list(drivers.map(drive, (1, 2), (epoch, epoch), journals))
            (winner,) = [commit for commit in outcomes if commit is not None]
            winners.append(winner)
    assert list(DeltaJournal(near, "shop").commits(Epoch(0))) == winners


def test_slow_store_costs_time_and_nothing_else(
    driver: DeltaJournal, near: StoreRoot, proxy: HostileProxy
) -> None:
    """Each answer comes two seconds late: parts that are put together wait at the same time, and the commit is made once."""
    rows = {kind: SCHEMAS[kind].empty_table() for kind in (PartKind.CHANGES, PartKind.SENT)}
    together = Barrier(len(rows))

    def put_late(path: str) -> None:
        if "_delta_log" not in path:
            together.wait(60)
        time.sleep(SLOW_S)

    late = Fault(first=lambda path: time.sleep(SLOW_S))
    assert driver.last() is not None
    proxy.always = {"PUT": Fault(first=put_late), "GET": late, "HEAD": late}
    before = len(proxy.asked)
    parts = tuple(driver.write_all(rows, "e1-of-driver"))
    commit = replace(commit_of(1), parts=parts)
    driver.commit(commit)
    assert [verb for verb, _ in proxy.asked[before:]].count("PUT") == len(rows) + 1
    assert list(DeltaJournal(near, "shop").commits(Epoch(0))) == [commit]
    proxy.always = {}
    driver.commit(commit_of(2))


def test_epoch_costs_a_put_for_each_part_and_one_for_its_commit(
    driver: DeltaJournal,
    store_server: StoreServer,
    near: StoreRoot,
    proxy: HostileProxy,
    tmp_path: Path,
) -> None:
    """A driver asks for nothing else; who follows gets the commit with the look that finds it."""
    with HostileProxy(store_server.port) as other:
        follower = DeltaJournal(
            store_server.root(tmp_path / "other", tmp_path.name, other.port), "shop"
        )
        assert driver.last() == follower.last() is not None
        for epoch in (1, 2):
            proxy.asked.clear()
            other.asked.clear()
            rows = {
                kind: SCHEMAS[kind].empty_table()
                for kind in (PartKind.CHANGES, PartKind.TRANSACTIONS)
            }
            parts = tuple(driver.write_all(rows, f"e{epoch}-of-driver"))
            commit = replace(commit_of(epoch), parts=parts)
            driver.commit(commit)
            assert [verb for verb, _ in proxy.asked] == ["PUT"] * 3
            assert follower.wait(Epoch(epoch - 1), 60_000) == commit
            assert [verb for verb, _ in other.asked] == ["GET"]


def test_commit_of_unknown_outcome_can_be_repeated(
    driver: DeltaJournal, proxy: HostileProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that gave up says so; the same commit then succeeds, written already or not."""
    monkeypatch.setattr(store_root, "_CREATE_PATIENCE_S", 0.1)
    monkeypatch.setattr(store_root, "_PATIENCE_S", 0.1)
    for epoch, fault in ((1, CUT_ANSWER), (2, CUT_REQUEST)):
        assert driver.last() is not None
        proxy.always = {"PUT": fault, "GET": SLOW_DOWN}
        with pytest.raises(JournalUnavailable, match=f"epoch {epoch}, whose outcome is unknown"):
            driver.commit(commit_of(epoch))
        proxy.always = {}
        driver.commit(commit_of(epoch))
    assert [commit.epoch for commit in driver.commits(BEFORE_FIRST)] == [0, 1, 2]


def test_names_that_segments_have_replaced_stay_for_a_day(
    near: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits and parts go neither with a merge nor with the floor, but once they are old enough."""
    journal = DeltaJournal(near, "shop")
    made = grow(journal, 10)
    journal.compact(SMALL)
    assert journal.forget(Epoch(4)) == 4
    assert len([name for name in near.names("_delta_log") if name.endswith(".json")]) == 1 + 11
    assert near.get(made[0].parts[0].path)
    monkeypatch.setattr(StoreRoot, "keeps_s", 0)
    journal.compact(SMALL)
    journal.forget(Epoch(4))
    later = DeltaJournal(near, "shop")
    assert list(later.commits(BEFORE_FIRST)) == made[4:]
    assert len([name for name in near.names("_delta_log") if name.endswith(".json")]) == 1 + 3
    assert not near.has(made[0].parts[0].path)


def test_driver_that_slept_for_long_is_fenced(
    near: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is free because its epoch was merged and removed commits nothing."""
    monkeypatch.setattr(StoreRoot, "keeps_s", 0)  # a day has passed
    sleeper = DeltaJournal(near, "shop")
    grow(sleeper, 2)
    awake = DeltaJournal(near, "shop")
    made = grow(awake, 11)
    awake.compact(SMALL)
    with pytest.raises(Fenced):
        sleeper.commit(commit_of(3))
    assert list(DeltaJournal(near, "shop").commits(Epoch(2))) == made


class Stopped(Exception):
    """Ends a compaction as a kill would, so that its claims and files stay."""


def compacted_until(journal: DeltaJournal, step: str, then: Callable[[], object]) -> None:
    """Compact, and do something when a step is reached."""

    def reached(at: str) -> None:
        if at == step:
            then()

    journal.compact(SMALL, reached)


def spans_of(root: StoreRoot) -> list[str]:
    """Return the names of all indexes."""
    return sorted(name for name in root.names("journal/_segments") if name.endswith(".index"))


def files_of(root: StoreRoot) -> set[str]:
    """Return the names of all files of segments."""
    return {
        name for folder in root.names("journal") for name in root.names(f"journal/{folder}")
        if name.startswith("segment-")
    }  # fmt: skip


def test_two_hosts_that_compact_at_once_publish_no_segment_twice(
    store_server: StoreServer, near: StoreRoot, tmp_path: Path
) -> None:
    """Whoever is second drops its files, and goes on after the segment of the first, also with other settings."""
    ours = DeltaJournal(near.folder("journal"), "shop")
    made = grow(ours, 13)
    far = store_server.root(tmp_path / "far", tmp_path.name)
    others = DeltaJournal(far.folder("journal"), "shop")
    compacted_until(ours, "segment-written", lambda: others.compact(SMALL._replace(epochs=3)))
    assert spans_of(near) == [f"{one:012}-{two:012}.index" for one, two in ((0, 3), (4, 6), (7, 9))]
    listed = {part.path for segment in Segments(near.folder("journal")).every() for part in segment.files.values()}  # fmt: skip
    assert {path.partition("/")[2] for path in listed} == files_of(near)
    for journal in (ours, others, DeltaJournal(near.folder("journal"), "shop")):
        assert list(journal.commits(BEFORE_FIRST)) == made


def test_claim_of_a_host_that_died_is_carried_out_by_another(
    store_server: StoreServer, near: StoreRoot, tmp_path: Path
) -> None:
    """The last epoch of a claimed segment stays, also if the next host would merge other epochs."""

    def die() -> None:
        raise Stopped

    journal = DeltaJournal(near.folder("journal"), "shop")
    made = grow(journal, 9)
    with pytest.raises(Stopped):
        compacted_until(journal, "segment-written", die)
    far = store_server.root(tmp_path / "far", tmp_path.name).folder("journal")
    DeltaJournal(far, "shop").compact(SMALL._replace(epochs=2))
    assert spans_of(near)[:2] == [f"{0:012}-{3:012}.index", f"{4:012}-{5:012}.index"]
    assert list(DeltaJournal(far, "shop").commits(BEFORE_FIRST)) == made


def let_days_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move all clocks on, so that what is useless may be removed, and what a process knows is old."""
    now_s, now_ns = StoreRoot.now_s, time.time_ns
    days_s = 3 * 86_400
    monkeypatch.setattr(StoreRoot, "now_s", lambda self: (now_s(self)[0] + days_s,) * 2)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + days_s * 10**9)
    monkeypatch.setattr(segments, "_FRESH_S", 0.0)


def test_host_that_slept_compacts_nothing_that_is_merged(
    store_server: StoreServer, near: StoreRoot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that is free because its segment was forgotten leads to no second segment of its epochs."""
    root = near.folder("journal")
    sleeper = DeltaJournal(root, "shop")
    grow(sleeper, 13)
    plan = Compaction._batches
    asleep = [True]

    def slow(self: Compaction, *args: Any) -> Iterator[Any]:
        for batch in plan(self, *args):
            if asleep.pop() if asleep else False:
                far = store_server.root(tmp_path / "far", tmp_path.name)
                awake = DeltaJournal(far.folder("journal"), "shop")
                awake.compact(SMALL)
                awake.forget(Epoch(8))
                let_days_pass(monkeypatch)
                awake.forget(Epoch(8))
                assert not root.has("_segments/000000000000.claim")
            yield batch

    monkeypatch.setattr(Compaction, "_batches", slow)
    sleeper.compact(SMALL._replace(epochs=3))
    assert spans_of(near) == [f"{8:012}-{11:012}.index"]
    assert DeltaJournal(root, "shop").first() == 8


def test_reader_that_slept_for_long_does_not_take_a_false_name_for_an_epoch(
    near: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that slept creates a name again before it is fenced; who reads on from there gets the true epoch."""
    root = near.folder("journal")
    reader, late = DeltaJournal(root, "shop"), DeltaJournal(root, "shop")
    grow(reader, 2)
    assert late.last() == reader.last()
    awake = DeltaJournal(root, "shop")
    made = grow(awake, 13)
    awake.compact(SMALL)
    let_days_pass(monkeypatch)
    awake.compact(SMALL)
    name = f"_delta_log/{4:020}.json"
    assert not root.has(name)
    root.create(name, commit_text(replace(commit_of(3), time_us=7), "shop"))
    assert reader.wait(Epoch(2), 0) == made[0]
    awake.forget(Epoch(8))
    let_days_pass(monkeypatch)
    with pytest.raises(Diverged, match="no epoch 3"):
        late.wait(Epoch(2), 0)


def test_names_stay_for_a_day_by_both_clocks(
    near: StoreRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock of this host that is a year ahead makes no name old."""
    near.add("a", b"")
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns + 365 * 86_400 * 10**9)
    assert near.age_s("a") < 60
    assert near.now_s()[1] > now_ns / 1e9 + 86_400
