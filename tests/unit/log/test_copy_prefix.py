"""A copied prefix of a log goes on as if the later records had never been appended."""

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.ids import Lsn, RequestId
from penstock.errors import Corrupt, Diverged, RequestConflict
from penstock.log import copy_prefix
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog


def entry(number: int, *, time_us: int = 0) -> Entry:
    return Entry(RequestId(f"r{number}"), b"body %d" % number, b"\0" * 8 * (number % 3), time_us)


def grown(path: Path, sizes: list[int]) -> int:
    with closing(SqliteLog(path)) as log:
        done = 0
        for size in sizes:
            log.append([entry(number) for number in range(done, done + size)])
            done += size
    return done


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    truncated=st.integers(0, 42),
    end=st.integers(0, 42),
)
def test_log_goes_on_where_it_was_cut(sizes: list[int], truncated: int, end: int) -> None:
    """Records of the prefix are as they were, their ids are known; later ids are new."""
    with TemporaryDirectory() as folder:
        source, target = Path(folder, "a"), Path(folder, "b")
        count = grown(source, sizes)
        with closing(SqliteLog(source)) as log:
            log.truncate(Lsn(truncated))
            start = log.start()
            records, hints = log.read(start, Lsn(count)), log.hints(start, Lsn(count))
        assert copy_prefix.copy_log(source, target) == (start, count)
        if end > count:
            with pytest.raises(Diverged):
                copy_prefix.keep_prefix(target, Lsn(end), 0)
            return
        behind = [one.lsn for one in copy_prefix.requests_after(target, Lsn(end), 0)]
        assert behind == list(range(max(start, end), count))
        copy_prefix.keep_prefix(target, Lsn(end), 0)
        assert [path.name for path in Path(folder).glob("b*")] == ["b"]
        with closing(SqliteLog(target)) as log:
            held = max(end - start, 0)
            assert (log.start(), log.end()) == (min(start, end), end)
            assert log.read(log.start(), log.end()) == records[:held]
            assert log.hints(log.start(), log.end()) == hints[:held]
            found = [log.find(RequestId(f"r{number}")) for number in range(count)]
            assert found == [(0, number) if number < end else None for number in range(count)]
            if end:
                assert log.append([entry(end - 1)]) == [end - 1]
            assert log.append([entry(count)]) == [end]


def test_copy_of_a_log_in_use_holds_what_was_acknowledged(tmp_path: Path) -> None:
    """Records that are only in the write-ahead log are in the copy, and the original goes on."""
    with closing(SqliteLog(tmp_path / "a")) as log:
        log.append([entry(0), entry(1)])
        assert copy_prefix.copy_log(tmp_path / "a", tmp_path / "b") == (0, 2)
        assert log.append([entry(2)]) == [2]
    with closing(SqliteLog(tmp_path / "b")) as copied:
        assert copied.append([entry(2)]) == [2]


def test_what_was_scheduled_after_the_cut_waits_no_more(tmp_path: Path) -> None:
    """Entries that were scheduled by then still wait; the others are listed, and their ids are free."""
    with closing(SqliteLog(tmp_path / "a")) as log:
        log.schedule(entry(0, time_us=5), 1_000)
        log.schedule(entry(1, time_us=6), 2_000)
    copy_prefix.copy_log(tmp_path / "a", tmp_path / "b")
    (behind,) = copy_prefix.requests_after(tmp_path / "b", Lsn(0), 5)
    assert (behind.request_id, behind.lsn, behind.due_us) == ("r1", None, 2_000)
    copy_prefix.keep_prefix(tmp_path / "b", Lsn(0), 5)
    with closing(SqliteLog(tmp_path / "b")) as log:
        assert log.scheduled(RequestId("r0")) == 1_000
        with pytest.raises(RequestConflict):
            log.append([entry(0)])
        assert log.append([entry(1)]) == [0]


@pytest.mark.parametrize("column", ["data", "shape", "prints"])
def test_damaged_log_is_not_copied(tmp_path: Path, column: str) -> None:
    """One wrong byte is found, and the position is named."""
    grown(tmp_path / "a", [3, 3])
    with closing(sqlite3.connect(tmp_path / "a")) as connection, connection:
        connection.execute(
            f"UPDATE block SET {column} = CAST(substr({column}, 1, 20) || x'ff' ||"
            f" substr({column}, 22) AS BLOB) WHERE first = 3"
        )
    with pytest.raises(Corrupt, match=r"lsn 3|\[3, 6\)"):
        copy_prefix.copy_log(tmp_path / "a", tmp_path / "b")
