"""Maintenance: disk stays bounded, needed history stays, and reports name its holders."""

import json
import shutil
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import BEFORE_FIRST, Epoch, Lsn, RequestId
from penstock.cli.main import execute
from penstock.errors import OperationalError
from penstock.journal.api import CompactionPolicy
from penstock.log.api import Entry
from penstock.process.clock_jumps import note_jump
from penstock.process.config import Config, HistoryConfig, ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.fault import MAINTENANCE_STEPS
from penstock.retention import savepoints
from penstock.retention.leases import lease
from penstock.retention.maintenance import encode_work, maintain
from penstock.retention.maintenance_process import run_maintenance
from penstock.retention.maintenance_report import MaintenanceReport
from penstock.retention.retention import surplus_snapshots
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import all_states_as_of
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests import forked
from tests.checkout import TOP
from tests.unit.sql_view.gallery_app import Written, app

pytestmark = pytest.mark.long

SPEC = str(TOP / "tests" / "unit" / "sql_view" / "gallery_app.py")
NOW_US = 1_900_000_000_000_000


def config_of(data: Path, retention_s: int = 0, **history: int) -> Config:
    chosen: dict[str, Any] = {"grace_s": 0, "nice": 0, "merge_epochs": 5, **history}
    return Config(data, partitions=2, retention_s=retention_s, history=HistoryConfig(**chosen))


class Kept:
    """A data directory with a journal, a log, and small segments."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data = data
        self.journal = DataDirectory(data).open_journal_of(app.name)
        self.written = Written(self.journal)
        self.snapshots = Snapshots(data / "snapshots", self.journal.identity)
        monkeypatch.setattr(
            "penstock.retention.maintenance.DEFAULT_COMPACTION", CompactionPolicy(newest=2)
        )

    def grow(self, epochs: int) -> None:
        for _ in range(epochs):
            number = self.written.epoch % 7
            self.written.painters({number: None if number == 3 else f"p{self.written.epoch}"})

    def maintain(self, **history: int) -> MaintenanceReport:
        return maintain(app, config_of(self.data, **history), snapshot=True)

    def states(self, epoch: int) -> list[dict[str, object]]:
        found = all_states_as_of(self.journal, Epoch(epoch), self.snapshots)
        rows: list[dict[str, object]] = found.sort_by("key").to_pylist()
        return rows


@pytest.fixture(scope="module")
def thirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with 30 epochs."""
    data = tmp_path_factory.mktemp("thirty")
    with pytest.MonkeyPatch.context() as patch:
        kept = Kept(data, patch)
        kept.grow(30)
        kept.journal.close()
    return data


@pytest.fixture
def kept(thirty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Give a copy of the directory with 30 epochs."""
    shutil.copytree(thirty, tmp_path, dirs_exist_ok=True)
    return Kept(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def forty(thirty: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a directory with a log, with 30 epochs that were tended, and with 10 more."""
    data = tmp_path_factory.mktemp("forty")
    shutil.copytree(thirty, data, dirs_exist_ok=True)
    with closing(DataDirectory(data).open_log()):
        pass
    with pytest.MonkeyPatch.context() as patch:
        kept = Kept(data, patch)
        kept.maintain()
        kept.grow(10)
        kept.journal.close()
    return data


def test_everything_is_kept_by_default(kept: Kept) -> None:
    """Without bounds no epoch is forgotten, however many are merged."""
    done = kept.maintain()
    assert (done.first, done.wanted, done.snapshot) == (0, 0, 29)
    assert done.merged == 25
    assert [one.epoch for one in kept.journal.commits(BEFORE_FIRST)] == list(range(30))


@pytest.mark.parametrize(
    "bounds", [{"keep_epochs": 12}, {"keep_s": 1}, {"keep_mb": 1}], ids=["epochs", "age", "bytes"]
)
def test_each_bound_forgets_what_exceeds_it(
    kept: Kept, bounds: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs go by number, age or bytes, and the states of those that stay are as before."""
    monkeypatch.setattr("penstock.retention.retention.MEGABYTE", 12_000)
    for _ in range(3):
        kept.maintain()
        kept.grow(10)
    truth = {epoch: kept.states(epoch) for epoch in range(45, 60)}
    done = kept.maintain(**bounds)
    assert done.wanted > 5
    assert 0 < done.first <= done.wanted
    for epoch, expected in truth.items():
        if epoch >= done.first - 1:
            assert kept.states(epoch) == expected


def test_a_clock_that_has_jumped_ahead_forgets_no_epoch(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing brings an epoch back: what is old by the wrong time alone stays, until an operator deletes the file of jumps."""
    for _ in range(3):
        kept.maintain()
        kept.grow(10)
    note_jump(kept.data, 3 * 86_400)
    note_jump(kept.data, -60)
    last = kept.journal.last()
    assert last is not None
    ahead_us = last.time_us + 3 * 86_400_000_000
    monkeypatch.setattr("penstock.retention.maintenance.wall_clock_us", lambda: ahead_us)
    assert kept.maintain(keep_s=86_400).first == 0
    (kept.data / "run" / "clock-jumps.jsonl").unlink()
    assert kept.maintain(keep_s=86_400).first > 0


@pytest.mark.parametrize("holder", ["savepoint", "lease", "view", "replies"])
def test_what_somebody_needs_stays_and_is_named(kept: Kept, holder: str) -> None:
    """A savepoint, a reader, a lagging view and unexpired request ids each keep their epochs."""
    for _ in range(3):
        kept.maintain()
        kept.grow(10)
    expected = kept.states(31)
    retention_s = 10 * 365 * 86_400 if holder == "replies" else 0
    config = config_of(kept.data, retention_s, keep_epochs=5)
    if holder == "savepoint":
        savepoints.create(kept.data, savepoints.Savepoint("sale", Epoch(31), NOW_US))
    if holder == "view":
        (kept.data / "view").mkdir()
        (kept.data / "view" / "epoch").write_text("31")
    if holder == "lease":
        with lease(kept.data, "a backup", Epoch(31)):
            done = maintain(app, config, snapshot=True)
    else:
        done = maintain(app, config, snapshot=True)
    names = {"savepoint": "sale", "lease": "a backup", "view": "view", "replies": "replies"}
    assert names[holder] in done.holders[0].who
    assert done.first <= 31
    assert kept.states(31) == expected
    if holder == "lease":
        assert maintain(app, config, snapshot=True).first > 31


def test_log_is_truncated_behind_what_is_merged(kept: Kept) -> None:
    """Records of merged epochs go from the log; their request ids stay known."""
    with closing(DataDirectory(kept.data).open_log()) as log:
        for number in range(10):
            log.append([Entry(RequestId(f"r{number}"), b"x", b"", time.time_ns() // 1_000)])
        kept.written.lsn = 6
        kept.grow(5)
        kept.written.lsn = 10
        kept.grow(3)
        config = Config(kept.data, history=HistoryConfig(grace_s=0, merge_epochs=5))
        done = maintain(app, config, snapshot=False)
        assert done.log_start == log.start() == 6
        assert log.end() == 10
        assert log.find(RequestId("r1")) is not None
        assert log.append([Entry(RequestId("r1"), b"x", b"", 1)]) == [Lsn(1)]


def test_disk_stays_bounded_over_many_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 600 epochs, tended now and then, the number of files and bytes does not grow."""
    monkeypatch.setattr("os.fsync", lambda _: None)  # nothing loses power here
    kept = Kept(tmp_path, monkeypatch)
    sizes: list[tuple[int, int]] = []
    for _ in range(8):
        kept.grow(75)
        kept.maintain(keep_epochs=60, snapshots_max=3, merge_epochs=15)
        # Behind every 20 snapshots, a checkpoint bounds the log of their Delta tables.
        files = [
            path
            for path in tmp_path.rglob("*")
            if path.is_file() and path.parent.name != "_delta_log"
        ]
        sizes.append((len(files), sum(path.stat().st_size for path in files)))
    assert kept.journal.first() > 450
    assert max(count for count, _ in sizes[2:]) <= sizes[1][0]
    assert max(size for _, size in sizes[2:]) <= 1.2 * sizes[1][1]
    with (
        closing(DataDirectory(tmp_path).open_stores(kept.journal, 2)) as stores,
        stores.at(Epoch(599)) as reader,
    ):
        assert len(list(reader.items())) == len(kept.states(599)) == 6


def test_view_begins_with_a_snapshot_where_the_journal_does_not_reach(kept: Kept) -> None:
    """A view that is new, or far behind, has the entities of now, and requests as far as held."""
    data, view_settings = kept.data, ViewConfig(memory_mb=128)
    query = Query("SELECT number, name FROM Painter ORDER BY number")

    def answer() -> list[dict[str, object]]:
        view = View(data, app, kept.journal, view_settings)
        view.start()
        with closing(view):
            rows: list[dict[str, object]] = view.ask(query).table.to_pylist()
            found = view.ask(Query("SELECT min(epoch) AS first FROM epochs")).table.to_pylist()
            return [*rows, found[0]]

    assert answer()[-1] == {"first": 0}
    for _ in range(2):
        kept.maintain()
        kept.grow(20)
    (data / "view" / "epoch").unlink()  # as if it were not maintained
    assert kept.maintain(keep_epochs=3).first == 50
    after = answer()
    assert after[-1] == {"first": 50}
    for path in (data / "view").glob("view.duckdb*"):
        path.unlink()
    assert answer() == after
    expected = [int(str(row["key"])) for row in kept.states(69)]
    assert [row["number"] for row in after[:-1]] == sorted(expected)


def test_damaged_snapshot_is_set_aside_and_another_taken(kept: Kept) -> None:
    """The next snapshot is made without the damaged one, as long as the journal allows."""
    kept.maintain()
    manifest = kept.snapshots.newest()
    assert manifest is not None
    (kept.data / "snapshots" / manifest.classes["Painter"].files[0].path).write_bytes(b"gone")
    kept.grow(3)
    assert kept.maintain().snapshot == 32
    assert len(list((kept.data / "snapshots" / "manifests").glob("*.damaged"))) == 1


def test_child_does_the_same_and_says_so(kept: Kept) -> None:
    """The process beside a driver reports its work, and the error that ended it."""
    config = config_of(kept.data)
    done = json.loads(run_maintenance(encode_work(SPEC, config, snapshot=True), nice=0))
    assert (done["snapshot"], done["failure"]) == (29, None)
    part = kept.journal.last()
    assert part is not None
    kept.grow(1)
    for path in (kept.data / "journal" / "kind=changes").glob("000000000030-*"):
        path.write_bytes(b"gone")
    failed = json.loads(run_maintenance(encode_work(SPEC, config, snapshot=True), nice=0))
    assert failed["failure"].startswith("corrupt: ")


def test_child_gives_way_from_its_first_moment(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The process has its priority before it loads anything, and a dead one is told."""
    program = tmp_path / "program"
    told = "import os, sys; sys.stdin.read(); print(os.getpriority(os.PRIO_PROCESS, 0))"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{told}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    work = encode_work(SPEC, config_of(kept.data), snapshot=True)
    assert run_maintenance(work, nice=7).strip() == b"7"
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(OperationalError, match="exit code 3"):
        run_maintenance(work, nice=7)


def test_command_shows_what_there_is(kept: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    """`penstock snapshot` prints the newest snapshot and the holders of old epochs."""
    for _ in range(2):
        kept.maintain()
        kept.grow(10)
    savepoints.create(kept.data, savepoints.Savepoint("sale", Epoch(31), NOW_US))
    words = ["snapshot", SPEC, "--data", str(kept.data), "--set", "history.keep_epochs=2"]
    assert execute([*words, "--set", "retention_s=0", "--set", "history.grace_s=0"]) == 0
    out = capsys.readouterr().out
    assert "newest snapshot: epoch 49, 6 entities" in out
    assert "by savepoint sale" in out
    assert execute([*words, "--merge-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["snapshot"] == 49
    assert execute(["snapshot", SPEC, "--data", str(kept.data / "elsewhere")]) == 2
    assert "there is no journal" in capsys.readouterr().err


@given(
    st.sets(st.integers(0, 200), min_size=1, max_size=20), st.integers(2, 8), st.integers(0, 200)
)
@settings(deadline=None)
def test_thinning_keeps_both_ends(epochs: set[int], most: int, first: int) -> None:
    """However many snapshots there are, few stay, with the newest and the oldest useful one."""
    numbers = [Epoch(one) for one in epochs]
    left = sorted(epochs - set(surplus_snapshots(numbers, most, Epoch(first))))
    useful = sorted(one for one in epochs if one + 1 >= first)
    assert len(left) == min(most, len(useful))
    assert left[:1] == useful[:1]
    assert left[-1:] == useful[-1:]


_KILLED = """
import sys
from pathlib import Path
from penstock.journal.api import CompactionPolicy
from penstock.retention import maintenance
from tests.unit.sql_view.gallery_app import app
from tests.unit.retention.test_maintenance import config_of
import dataclasses

maintenance.DEFAULT_COMPACTION = CompactionPolicy(newest=2)
config = dataclasses.replace(config_of(Path(sys.argv[1]), keep_epochs=4), fault=sys.argv[2])
maintenance.maintain(app, config, snapshot=True)
"""


@pytest.mark.parametrize("step", MAINTENANCE_STEPS)
def test_kill_at_any_step_loses_nothing(
    forty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A process that dies at a step of maintenance leaves all states as they were; the next one goes on."""
    shutil.copytree(forty, tmp_path, dirs_exist_ok=True)
    kept = Kept(tmp_path, monkeypatch)
    truth = {epoch: kept.states(epoch) for epoch in range(36, 40)}
    done = forked.run(_KILLED, kept.data, f"{step}@1")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert {epoch: kept.states(epoch) for epoch in truth} == truth
    kept.grow(1)
    after = kept.maintain(keep_epochs=4)
    assert after.snapshot == 40
    assert after.first > 20
    assert {epoch: kept.states(epoch) for epoch in truth if epoch >= 39} == {39: truth[39]}
    with (
        closing(DataDirectory(kept.data).open_stores(kept.journal, 2)) as stores,
        stores.at(Epoch(40)) as reader,
    ):
        assert len(list(reader.items())) == len(kept.states(40))
