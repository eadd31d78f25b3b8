"""Each commit of a log wakes the processes that wait for it, when they can see it."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from penstock.base.ids import Lsn
from penstock.files.bell import Bell
from penstock.log import sqlite
from penstock.log.database import Database
from penstock.log.sqlite import SqliteLog
from tests.conformance.logs import DEADLINE_MS, entry
from tests.waiting import wait_for


def test_wait_is_woken_by_the_append_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each append ends a wait, also while appends are frequent; the waiter looks no further time meanwhile."""
    monkeypatch.setattr(sqlite, "QUIET_S", 10 * DEADLINE_MS)
    path = tmp_path / "log"
    with (
        closing(SqliteLog(path)) as other,
        closing(SqliteLog(path)) as log,
        ThreadPoolExecutor(1) as pool,
    ):
        for number in range(3):
            waiting = pool.submit(log.wait, Lsn(number), DEADLINE_MS)
            wait_for(lambda: log._appended.is_watched, "the watch")
            other.append([entry(f"r{number}")])
            assert waiting.result() == number + 1
            wait_for(lambda: not log._appended.is_watched, "the end of the watch")


def test_wait_looks_where_nobody_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without watches, a wait ends a few milliseconds after an append."""
    monkeypatch.setattr(Bell, "watch_write", _refuse)
    monkeypatch.setattr(sqlite, "QUIET_S", 10 * DEADLINE_MS)
    path = tmp_path / "log"
    with (
        closing(SqliteLog(path)) as other,
        closing(SqliteLog(path)) as log,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(log.wait, Lsn(0), DEADLINE_MS)
        wait_for(lambda: not log._appended.can_be_watched, "the try to watch")
        other.append([entry("a")])
        assert waiting.result() == 1


def _refuse(bell: Bell, _: Path) -> bool:
    bell.can_be_watched = False
    return False


@pytest.mark.parametrize("follows", [False, True])
def test_every_kind_of_log_tells_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, follows: bool
) -> None:
    """The watched file changes when others can see the transaction; a copy of a topic has no mark, before and afterwards."""
    path = tmp_path / "log"
    seen: list[int] = []
    with closing(Database(path, DEADLINE_MS, follows=follows)) as database:
        before = database.mark_path.read_bytes()
        mark = _told(lambda: seen.append(_start_in(path)))
        with monkeypatch.context() as patched, database.writing() as connection:
            patched.setattr("penstock.log.database.HighWaterMark.tell", mark)
            patched.setattr("penstock.log.database.HighWaterMark.write", mark)
            connection.execute("UPDATE position SET start = 7")
        assert seen == [7]
        with database.writing() as connection:
            connection.execute("UPDATE position SET start = 8")
        assert database.mark_path.read_bytes() != before
    Database(path, DEADLINE_MS, follows=follows).close()


def _told(note: Callable[[], object]) -> Callable[..., None]:
    def tell(*_: object) -> None:
        note()

    return tell


def _start_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as other:
        (start,) = other.execute("SELECT start FROM position").fetchone()
        return int(start)
