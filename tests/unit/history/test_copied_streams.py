"""Copies of an application with streams: backup, restore and fork keep tasks, atoms and open cascades."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn, RequestId
from penstock.history.backup import Backups
from penstock.history.restore import fork, restore
from penstock.history.verification import verify
from penstock.journal.api import SCHEMAS, Commit, CompactionPolicy, Journal, PartKind
from penstock.journal.atoms import AtomReader
from penstock.log.api import Entry
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.state_as_of import all_states_as_of
from tests.unit.sql_view.words_app import app, row_of

COUNT = "wordcount.Count"
TINY = CompactionPolicy(newest=1, epochs=2, grace_s=0)
LATER = [("r0~~c1", 0), ("r1~~2", 5_000_000), ("r1~~c1", 0)]
"""The later records of epoch 1, with their delays. An epoch runs the first one."""


def rows_of(epoch: int, request_id: str, time_us: int) -> dict[PartKind, list[dict[str, object]]]:
    """Return the rows of an epoch of one append to the stream `lines`."""
    where = {"epoch": epoch, "partition": 0, "lsn": epoch, "time_us": time_us}
    body = app.append("lines", ["a"])
    done = {"request": body, "error": None, "reply": b"\xc0"}
    atom = {"stream": "lines", "atom": epoch, "step": 0, "count": 1, "events": b"\x91\xa1a"}
    changed = {"epoch": epoch, "entity": COUNT, "key": "a", "state": row_of(COUNT, total=epoch)}
    later = [
        {**where, "request_id": name, "request": body, "delay_us": delay} for name, delay in LATER
    ]
    return {
        PartKind.TRANSACTIONS: [{**where, **done, "request_id": request_id}],
        PartKind.EVENTS: [{**where, **atom}],
        PartKind.CHANGES: [
            changed,
            {**changed, "entity": "$steps", "key": f"r{epoch}", "state": b"\x90"},
        ],
        PartKind.SENT: [{**where, **done, "request_id": f"{request_id}~~1"}],
        PartKind.APPENDS: later if epoch == 1 else [],
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory of four epochs; the record of epoch 3 is a later record of epoch 1."""
    ids = ["r0", "r1", "r2", "r0~~c1"]
    directory = DataDirectory(tmp_path / "data")
    with closing(directory.open_journal(app)) as journal, closing(directory.open_log()) as log:
        body = app.append("lines", ["a"])
        for name in ids:
            log.append([Entry(RequestId(name), body, b"", 1_000)])
        for epoch, name in enumerate(ids):
            parts = tuple(
                journal.write(kind, pa.Table.from_pylist(rows, SCHEMAS[kind]), "0")
                for kind, rows in rows_of(epoch, name, 1_000).items()
                if rows
            )
            positions, atoms = {LogPartition(0): Lsn(epoch + 1)}, {"lines": epoch + 1}
            journal.commit(Commit(Epoch(epoch), positions, parts, 2_000 + epoch, atoms))
    return tmp_path / "data"


def shown(data: Path, upto: int) -> list[object]:
    """Return all that a journal shows up to an epoch: atoms, rows, states."""
    with closing(DataDirectory(data).open_journal(app)) as journal:
        assert _newest(journal) == upto
        numbers = [atom.number for atom in AtomReader(journal).atoms("lines", 0)]
        parts = [
            sorted(str(journal.read(part).to_pylist()) for part in commit.parts)
            for commit in journal.commits(BEFORE_FIRST)
        ]
        states = [
            sorted(map(str, all_states_as_of(journal, Epoch(epoch)).to_pylist()))
            for epoch in range(upto + 1)
        ]
    return [numbers, parts, states]


def _newest(journal: Journal) -> int:
    last = journal.last()
    assert last is not None
    assert last.atoms == {"lines": last.epoch + 1}
    return last.epoch


def problems(data: Path) -> list[str]:
    found = verify(data, app, lambda *_: None)
    return [finding.what for finding in found.problems]


@pytest.mark.parametrize("is_merged", [False, True])
def test_restored_streams_equal_the_original(data: Path, tmp_path: Path, is_merged: bool) -> None:  # noqa: FBT001
    """A backup that is restored shows the same atoms, rows and states, and verify finds no problem."""
    if is_merged:
        with closing(DataDirectory(data).open_journal(app)) as journal:
            journal.compact(TINY)
    assert problems(data) == []
    Backups(tmp_path / "b").make(data, "words")
    restore(tmp_path / "b", tmp_path / "new", None)
    assert shown(tmp_path / "new", 3) == shown(data, 3)
    assert problems(tmp_path / "new") == []


def test_fork_goes_on_with_the_cascades_of_its_epochs(data: Path, tmp_path: Path) -> None:
    """Records that its epochs have appended and not run wait in its log, each once, in order."""
    before = fork(data, "words", tmp_path / "before", Epoch(0))
    assert (before.waiting, before.dropped) == (0, 3)
    branch = fork(data, "words", tmp_path / "fork", Epoch(2))
    assert (branch.waiting, branch.dropped) == (2, 0)
    assert problems(tmp_path / "fork") == []
    with closing(DataDirectory(tmp_path / "fork").open_log()) as log:
        waiting = log.read(Lsn(3), log.end())
        assert [record.request_id for record in waiting] == ["r0~~c1", "r1~~c1"]
        [(due_us, scheduled)] = log.upcoming(9)
        assert (scheduled.request_id, due_us) == ("r1~~2", 5_001_000)
    whole = fork(data, "words", tmp_path / "whole", None)
    assert (whole.waiting, whole.dropped) == (1, 0)
