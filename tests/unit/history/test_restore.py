"""Restored and forked applications hold the state of the original at that epoch."""

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import Epoch, LogPartition, Lsn, RequestId
from penstock.deployment.loading import load_app
from penstock.errors import ConfigError, QueryError, RequestConflict
from penstock.history.backup import Backups
from penstock.history.branch import DROPPED
from penstock.history.restore import fork, parse_restore_point, restore
from penstock.history.verification import verify
from penstock.journal.api import CompactionPolicy
from penstock.journal.delta import DeltaJournal
from penstock.journal.replies import find_reply
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.retention import savepoints
from penstock.retention.savepoints import Savepoint
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from tests.checkout import SHOP
from tests.history import Call
from tests.serial_driver import SerialDriver
from tests.unit.history.copied_shop import (
    CREATED,
    EPOCHS,
    TINY,
    add,
    digest_at,
    digests_replayed,
    made,
    replies,
)


@settings(max_examples=6)
@given(
    calls=st.lists(
        st.lists(
            st.sampled_from(
                [
                    ("Item", "i1", "add", (5,)),
                    ("Item", "i1", "subtract", (9,)),
                    ("Item", "i1", "delete", ()),
                    ("Item", "i1", "create", {"price": 1, "stock": 2}),
                    ("User", "u1", "create", {"credit": 7}),
                    ("User", "u1", "pay", (3,)),
                ]
            ),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=6,
    ),
    compacted=st.booleans(),
    snapshot=st.integers(-1, 5),
)
def test_every_epoch_can_be_restored(
    calls: list[list[Call]], *, compacted: bool, snapshot: int
) -> None:
    """State and replies after restoring and forking to any epoch are those of a replay up to it."""
    with TemporaryDirectory() as folder:
        data = made(Path(folder, "data"), calls)
        app = load_app(SHOP)
        with closing(DeltaJournal(data / "journal", "shop")) as journal:
            if 0 <= snapshot < len(calls):
                snapshots = Snapshots(data / "snapshots", journal.identity)
                write_next_snapshot(app, journal, snapshots, Epoch(snapshot))
            if compacted:
                journal.compact(TINY)
        backups = Backups(Path(folder, "backups"))
        backups.make(data, "shop")
        known, replayed = replies(data), digests_replayed(data)
        done = 0
        for epoch, some in enumerate(calls):
            done += len(some)
            for number, branch in enumerate(
                (
                    restore(backups.root, Path(folder, f"r{epoch}"), epoch),
                    fork(data, "shop", Path(folder, f"f{epoch}"), epoch),
                )
            ):
                other = Path(branch.data)
                assert (branch.epoch, branch.waiting) == (epoch, 0), number
                assert branch.dropped == len(known) - done
                assert digest_at(other, epoch) == replayed[epoch]
                assert replies(other) == known[:done]


def test_snapshots_come_along_where_the_journal_has_forgotten(tmp_path: Path) -> None:
    """History behind the retained floor can be restored, from the snapshot that it begins with."""
    data = made(tmp_path / "data")
    app = load_app(SHOP)
    expected = {epoch: digest_at(data, epoch) for epoch in range(5)}
    with closing(DeltaJournal(data / "journal", "shop")) as journal:
        snapshots = Snapshots(data / "snapshots", journal.identity)
        for epoch in (1, 3):
            write_next_snapshot(app, journal, snapshots, Epoch(epoch))
        journal.compact(TINY)
        assert journal.forget(Epoch(2)) == 2
    Backups(tmp_path / "b").make(data, "shop")
    for epoch in (2, 3, 4):
        for branch in (
            restore(tmp_path / "b", tmp_path / f"r{epoch}", epoch),
            fork(data, "shop", tmp_path / f"f{epoch}", epoch),
        ):
            other = Path(branch.data)
            assert digest_at(other, epoch) == expected[epoch]
            assert verify(other, app, lambda *_: None).findings == []
            manifests = [path.name for path in (other / "snapshots" / "manifests").iterdir()]
            assert sorted(manifests) == [f"{one:012}.json" for one in (1, 3) if one <= epoch]
    with pytest.raises(ConfigError, match="they hold epochs 2 to 4"):
        restore(tmp_path / "b", tmp_path / "none", 1)
    with pytest.raises(QueryError, match="there is no epoch 1"):
        fork(data, "shop", tmp_path / "none", 1)


def test_restored_application_goes_on(tmp_path: Path) -> None:
    """A driver runs there; known ids get the recorded answers, dropped ones may be used again."""
    data = made(tmp_path / "data")
    Backups(tmp_path / "b").make(data, "shop")
    restore(tmp_path / "b", tmp_path / "new", 1)
    known = replies(data)
    driver = SerialDriver(SHOP, Config(tmp_path / "new"))
    driver.start()
    first, hint = driver.app.request("Item", "i1", "create", (), {"price": 3, "stock": 10})
    assert driver.log.append([Entry(RequestId("r0"), first, hint, 0)]) == [0]
    again, hint = driver.app.request("Item", "i1", "add", (100,), {})
    with pytest.raises(RequestConflict):
        driver.log.append([Entry(RequestId("r1"), again, hint, 0)])
    assert driver.log.append([Entry(RequestId("r4"), again, hint, 0)]) == [3]
    assert driver.wait_until(Lsn(4), 20_000)
    driver.stop()
    with closing(DeltaJournal(tmp_path / "new" / "journal", "shop")) as journal:
        reply = find_reply(journal, (LogPartition(0), Lsn(3))).data
        assert msgspec.msgpack.decode(reply or b"").endswith("115")  # 15 + 100
        assert [commit.epoch for commit in journal.commits(Epoch(-1))] == [0, 1, 2]
    assert replies(data) == known


def test_dropped_requests_are_listed(tmp_path: Path) -> None:
    """Requests that were processed after the cut, or waited, are listed with id and call."""
    data = made(tmp_path / "data")
    add(data, "late")
    Backups(tmp_path / "b").make(data, "shop")
    branch = restore(tmp_path / "b", tmp_path / "new", 2)
    lines = [json.loads(line) for line in (tmp_path / "new" / DROPPED).read_text().splitlines()]
    assert branch.dropped == len(lines) == 4
    assert [one["request_id"] for one in lines] == ["r5", "r6", "r7", "late"]
    assert [one["lsn"] for one in lines] == [5, 6, 7, 8]
    assert lines[0]["call"] == "User/u1.pay(6)"
    times_us = [datetime.fromisoformat(one["time"]).timestamp() * 1e6 for one in lines]
    assert times_us == pytest.approx([one["time_us"] for one in lines], abs=1)


def test_what_waited_in_the_log_runs_in_the_restored_application(tmp_path: Path) -> None:
    """Without a named epoch nothing that was acknowledged is lost, processed or not."""
    data = made(tmp_path / "data", EPOCHS[:3])
    add(data, "late")
    Backups(tmp_path / "b").make(data, "shop")
    for branch in (
        restore(tmp_path / "b", tmp_path / "restored", None),
        fork(data, "shop", tmp_path / "forked", None),
    ):
        assert (branch.epoch, branch.waiting, branch.dropped) == (2, 1, 0)
        assert not Path(branch.data, DROPPED).exists()
        driver = SerialDriver(SHOP, Config(Path(branch.data)))
        driver.start()
        assert driver.wait_until(Lsn(6), 20_000)
        driver.stop()


def test_epoch_is_aimed_at_by_number_name_and_time(tmp_path: Path) -> None:
    """A savepoint and an instant lead to their epochs; later savepoints do not come along."""
    data = made(tmp_path / "data")
    savepoints.create(data, Savepoint("early", Epoch(1), 0))
    savepoints.create(data, Savepoint("late", Epoch(3), 0))
    with closing(DeltaJournal(data / "journal", "shop")) as journal:
        times = [commit.time_us for commit in journal.commits(Epoch(-1))]
    Backups(tmp_path / "b").make(data, "shop")
    named = restore(tmp_path / "b", tmp_path / "named", parse_restore_point("early"))
    assert named.epoch == 1
    assert [one.name for one in savepoints.every(tmp_path / "named")] == ["early"]
    assert fork(data, "shop", tmp_path / "forked", parse_restore_point("late")).epoch == 3
    when = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=times[2])
    assert (
        restore(tmp_path / "b", tmp_path / "timed", parse_restore_point(when.isoformat())).epoch
        == 2
    )
    for unknown in ("1970-01-01T00:00:00+00:00", datetime.now(UTC).isoformat()):
        with pytest.raises(ConfigError, match="no backup in"):
            restore(tmp_path / "b", tmp_path / "none", parse_restore_point(unknown))


def test_nothing_is_restored_over_something(tmp_path: Path) -> None:
    """A directory that is not empty is refused and untouched; an empty one is taken."""
    data = made(tmp_path / "data", CREATED)
    Backups(tmp_path / "b").make(data, "shop")
    (tmp_path / "empty").mkdir()
    restore(tmp_path / "b", tmp_path / "empty", None)
    with pytest.raises(ConfigError, match="is not empty"):
        restore(tmp_path / "b", tmp_path / "empty", None)
    with pytest.raises(ConfigError, match="epoch 7; they hold epoch 0"):
        restore(tmp_path / "b", tmp_path / "none", 7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "data", "empty"]


def test_fork_shares_no_fate_with_its_original(tmp_path: Path) -> None:
    """Commits and compactions of the fork do not change the original, nor its identity."""
    data = made(tmp_path / "data")
    before = digest_at(data, 4)
    fork(data, "shop", tmp_path / "fork", 3)
    part = next((tmp_path / "fork" / "journal" / "kind=changes").iterdir())
    assert part.stat().st_nlink == 2
    add(tmp_path / "fork", "other")
    driver = SerialDriver(SHOP, Config(tmp_path / "fork"))
    driver.start()
    assert driver.wait_until(Lsn(8), 20_000)
    driver.stop()
    with closing(DeltaJournal(tmp_path / "fork" / "journal", "shop")) as forked:
        forked.compact(CompactionPolicy(newest=0, epochs=2, grace_s=0))
        with closing(DeltaJournal(data / "journal", "shop")) as original:
            assert forked.identity != original.identity
    assert digest_at(data, 4) == before
