"""The index of request ids: what it finds in its dictionary and in its sorted runs."""

from pathlib import Path

import numpy as np
import pytest

from penstock.base.ids import RequestId
from penstock.log import clock as log_clock
from penstock.log import request_id_index
from penstock.log.api import Entry
from penstock.log.request_id_index import RequestIdIndex, SortedRun
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


def test_ids_are_found_in_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated ids get their first positions, wherever the index holds them, until they expire; then they are new."""
    monkeypatch.setattr(request_id_index, "RECENT_COUNT", 8)
    monkeypatch.setattr(log_clock, "STEP_MAX_S", 2 * DAY_S)
    clock = Clock()
    log = SqliteLog(tmp_path / "log.sqlite", retention_s=DAY_S, clock_us=clock)
    names = [f"r{number}" for number in range(615)]
    assert append(log, *names[:600]) == [*range(600)]
    for first in range(600, 615, 3):
        assert append(log, *names[first : first + 3]) == [first, first + 1, first + 2]
    assert append(log, *names) == [*range(615)]
    assert len(log._index._runs) > 1, "the ids are in several runs"
    clock.now_s += 2 * DAY_S
    assert append(log, *(f"other{number}" for number in range(9))) == [*range(615, 624)]
    assert not min(len(run.hashes) for run in log._index._runs), "all ids of a run have expired"
    assert append(log, "other3", "r1", "new") == [618, 624, 625]
    log.close()


def test_clash_of_hashes_finds_both() -> None:
    """Ids whose first 64 bits are equal are candidates together."""
    index = RequestIdIndex("file", DAY_S)
    words = (np.array(column, np.uint64) for column in ([7, 5, 7], [0, 1, 2]))
    index._merge(SortedRun(*words), 0, 0)
    assert index._candidates(np.array([7, 9, 1], np.uint64)) == [0, 2]
