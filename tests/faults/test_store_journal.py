"""A journal in an object store: no false fence, no lost epoch, and no name that is forgotten too early."""

from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Fenced, JournalUnavailable
from penstock.files import store_root
from penstock.files.store_root import StoreRoot
from penstock.journal.api import CompactionPolicy
from penstock.journal.delta import DeltaJournal
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
