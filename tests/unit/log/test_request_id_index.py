"""The index of request ids: what it finds in its dictionary and in its sorted runs; and what its file forgets."""

import errno
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryFile
from typing import NoReturn

import numpy as np
import pytest

from penstock.base.ids import RequestId
from penstock.log import clock as log_clock
from penstock.log import request_id_index, sorted_run
from penstock.log.api import Entry
from penstock.log.database import delete_expired_ids
from penstock.log.request_id_index import RequestIdIndex
from penstock.log.sorted_run import SortedRun, merged, run_of
from penstock.log.sqlite import SqliteLog

DAY_S = 86_400


class Clock:
    """A clock that a test sets."""

    now_s = 1_000_000

    def __call__(self) -> int:
        return self.now_s * 1_000_000


def append(log: SqliteLog, *names: str) -> list[int]:
    """Append requests; return their positions."""
    return [
        int(lsn) for lsn in log.append([Entry(RequestId(name), b"x", b"", 0) for name in names])
    ]


def end_merges(log: SqliteLog) -> None:
    """Wait until the index has merged what it merges, and has taken the outcome over."""
    while (merge := log._index._merge) is not None:
        merge.join()
        log._index._tidy(log._index._ages[-1][1])


@pytest.mark.parametrize("part", [sorted_run.PART_COUNT, 16])
def test_ids_are_found_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Repeated ids get their first positions, wherever the index holds them, until they expire; then they are new."""
    monkeypatch.setattr(request_id_index, "RECENT_COUNT", 8)
    monkeypatch.setattr(sorted_run, "PART_COUNT", part)
    monkeypatch.setattr(log_clock, "STEP_MAX_S", 2 * DAY_S)
    clock = Clock()
    log = SqliteLog(tmp_path / "log.sqlite", retention_s=DAY_S, clock_us=clock)
    names = [f"r{number}" for number in range(300)]
    for first in range(0, 300, 3):
        assert append(log, *names[first : first + 3]) == [first, first + 1, first + 2]
        if first < 200:
            end_merges(log)
    assert append(log, *names) == [*range(300)]
    assert len(log._index._runs) > 1
    assert log._index._runs[0].hashes.flags.writeable == (part > 100), "a long run is in a file"
    end_merges(log)
    clock.now_s += 2 * DAY_S
    assert append(log, *(f"other{number}" for number in range(9))) == [*range(300, 309)]
    end_merges(log)
    held = [position for run in log._index._runs for position in run.positions.tolist()]
    # A run is as young as its newest id, and the dictionary had some of the others.
    assert 300 - 8 < min(held) <= 300, "the ids before have expired"
    assert append(log, "other3", "r1", "new") == [303, 309, 310]
    log.close()


def test_a_start_reads_many_ids_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds all of them, and never has more than a part in an array of its own."""
    monkeypatch.setattr(request_id_index, "RECENT_COUNT", 8)
    names = [f"r{number}" for number in range(300)]
    with closing(SqliteLog(tmp_path / "log.sqlite", retention_s=DAY_S)) as log:
        for first in range(0, 300, 10):
            append(log, *names[first : first + 10])
    for module in (sorted_run, request_id_index):
        monkeypatch.setattr(module, "PART_COUNT", 20)
    lengths: list[int] = []

    def noted(hashes: sorted_run.Words, positions: sorted_run.Words) -> SortedRun:
        lengths.append(len(hashes))
        return run_of(hashes, positions)

    monkeypatch.setattr(request_id_index, "run_of", noted)
    with closing(SqliteLog(tmp_path / "log.sqlite", retention_s=DAY_S)) as log:
        assert append(log, *names) == [*range(300)]
        end_merges(log)
        assert append(log, *names, "new") == [*range(301)]
    assert lengths == [20] * 15


def test_appends_go_on_during_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ids are found meanwhile, also those of new runs, and after it."""
    monkeypatch.setattr(request_id_index, "RECENT_COUNT", 8)
    may_end = threading.Event()

    def slow(runs: Sequence[SortedRun], first: int, folder: Path) -> SortedRun:
        may_end.wait()
        return merged(runs, first, folder)

    monkeypatch.setattr(request_id_index, "merged", slow)
    names = [f"r{number}" for number in range(100)]
    with closing(SqliteLog(tmp_path / "log.sqlite", retention_s=DAY_S)) as log:
        for first in range(0, 100, 10):
            append(log, *names[first : first + 10])
        merge = log._index._merge
        assert merge is not None
        assert merge.is_alive()
        assert append(log, *names) == [*range(100)]
        may_end.set()
        end_merges(log)
        assert append(log, *names, "new") == [*range(101)]
        assert len(log._index._runs) < 10


def test_a_full_disk_leaves_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids are found without the merge, which is tried again later."""
    monkeypatch.setattr(request_id_index, "RECENT_COUNT", 8)
    monkeypatch.setattr(sorted_run, "PART_COUNT", 16)
    monkeypatch.setattr(sorted_run, "TemporaryFile", full)
    names = [f"r{number}" for number in range(100)]
    with closing(SqliteLog(tmp_path / "log.sqlite", retention_s=DAY_S)) as log:
        for first in range(0, 100, 10):
            append(log, *names[first : first + 10])
            if (merge := log._index._merge) is not None:
                merge.join()
        assert append(log, *names) == [*range(100)]
        assert len(log._index._runs) > 5
        monkeypatch.setattr(sorted_run, "TemporaryFile", TemporaryFile)
        append(log, *(f"s{number}" for number in range(10)))
        end_merges(log)
        assert len(log._index._runs) == 1
        assert append(log, *names) == [*range(100)]


def full(**_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_clash_of_hashes_finds_both() -> None:
    """Ids whose first 64 bits are equal are candidates together."""
    index = RequestIdIndex("file", DAY_S)
    hashes, positions = (np.array(column, np.uint64) for column in ([7, 5, 7], [0, 1, 2]))
    index._put(hashes, positions, 0, 0)
    assert index._candidates([7, 9, 1]) == [0, 2]


@pytest.mark.parametrize("part", [1, 3, 1_000])
def test_a_merge_keeps_what_has_not_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Hashes at the ends of their range and equal ones are kept, in files as in memory."""
    monkeypatch.setattr(sorted_run, "PART_COUNT", part)
    columns = [([0, 2**64 - 1, 5, 5], [0, 1, 2, 3]), ([5, 2**63, 2**63 - 1], [4, 5, 6]), ([], [])]
    runs = [run_of(np.array(each, np.uint64), np.array(at, np.uint64)) for each, at in columns]
    found = merged(runs, 1, tmp_path)
    assert found.hashes.tolist() == [5, 5, 5, 2**63 - 1, 2**63, 2**64 - 1]
    assert found.positions.tolist() == [2, 3, 4, 6, 5, 1]
    assert found.last == 6
    assert not merged(runs, 7, tmp_path).hashes.tolist()
    assert not list(tmp_path.iterdir()), "the files have no name"


def forgotten(seconds: Sequence[int], oldest_s: int) -> tuple[list[int], int]:
    """Return the positions of rows that stay of those appended at some times, and the steps of SQLite."""
    steps: list[None] = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE remembered (first INTEGER PRIMARY KEY, appended_s INTEGER)"
        )
        connection.executemany("INSERT INTO remembered VALUES (?, ?)", enumerate(seconds))
        connection.set_progress_handler(lambda: steps.append(None), 1)
        delete_expired_ids(connection, oldest_s)
        connection.set_progress_handler(None, 1)
        rows = connection.execute("SELECT first FROM remembered ORDER BY first").fetchall()
    return [first for (first,) in rows], len(steps)


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [
        ([], []),
        ([1, 4, 5], []),
        ([6, 6], [0, 1]),
        ([4, 5, 6, 7], [2, 3]),
        ([4, 6, 5, 7], [1, 2, 3]),  # a younger row keeps all that follow it
    ],
)
def test_expired_ids_are_forgotten(seconds: list[int], kept: list[int]) -> None:
    """Ids of the oldest time and before it go, and no id that is younger."""
    assert forgotten(seconds, 5)[0] == kept


def test_forgetting_costs_what_is_forgotten() -> None:
    """All appends wait meanwhile, so it does not read the ids that stay."""
    (_, few), (kept, many) = (forgotten([1, *[9] * count], 5) for count in (10, 10_000))
    assert len(kept) == 10_000
    assert many == few
