"""Faults around requests that are due later: processes die, space runs out, files are old or damaged.

An acknowledged entry fires exactly once, or its loss is named.
"""

import json
import os
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import ConfigError, Corrupt, RequestConflict
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from tests.faults.test_log_faults import child, crashed_copy, entry, lines_of, names_in

pytestmark = pytest.mark.faults

SCHEDULE_FOR_EVER = """
log = SqliteLog(path)
number = 0
while True:
    log.schedule(entry(f"s{number}"), number % 50)
    tell(f"s{number}")
    number += 1
"""
PROMOTE_FOR_EVER = """
log = SqliteLog(path)
now_us = 0
while True:
    moved = log.promote(now_us)
    now_us += 1
    tell(moved)
"""
CANCEL_FOR_EVER = """
log = SqliteLog(path)
number = 0
while True:
    if log.append_scheduled(RequestId(f"s{number}"), 1, lambda body: b"cancelled") is not None:
        tell(f"s{number}")
        number += 3
    elif log.find(RequestId(f"s{number}")) is not None:
        number += 3
"""
FULL_DISK = """
log = SqliteLog(path)
for number in range(20):
    log.schedule(entry(str(number), bytes(5000)), number)
size = max(one.stat().st_size for one in path.parent.iterdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
failures = 0
for action in (lambda: log.promote(99), lambda: log.schedule(entry("more", bytes(5000)), 0)):
    try:
        action()
    except LogUnavailable:
        failures += 1
tell(failures, log.end(), log.scheduled(RequestId("3")), log.scheduled(RequestId("more")))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
tell(log.promote(99), log.promote(99), log.end())
log.close()
"""


def told_by_the_killed(path: Path, programs: Sequence[str], lines: int) -> list[list[object]]:
    """Kill processes when the first one has told so many lines; return all that it has told."""
    workers = [child(path, program) for program in programs]
    first = workers[0]
    assert first.stdout is not None
    told: list[list[object]] = [json.loads(first.stdout.readline()) for _ in range(lines)]
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
    told += lines_of(first)
    for worker in workers[1:]:
        lines_of(worker)
    return told


@pytest.mark.parametrize("acknowledgements", [1, 40, 120])
def test_killed_processes_fire_each_request_once(tmp_path: Path, acknowledgements: int) -> None:
    """After kill -9 of the scheduler and of two promoters, each acknowledged request fires once."""
    path = tmp_path / "log"
    programs = (SCHEDULE_FOR_EVER, *[PROMOTE_FOR_EVER] * 2)
    told = told_by_the_killed(path, programs, acknowledgements)
    log = SqliteLog(path)
    while log.promote(50):
        pass
    names = names_in(log)
    assert len(set(names)) == len(names)
    assert {str(one[0]) for one in told} <= set(names)
    log.close()


def test_killed_processes_cancel_or_fire_each_request_once(tmp_path: Path) -> None:
    """After kill -9 of a canceller too, each request has one record, and a told one is cancelled."""
    path = tmp_path / "log"
    programs = (CANCEL_FOR_EVER, SCHEDULE_FOR_EVER, PROMOTE_FOR_EVER)
    told = told_by_the_killed(path, programs, 10)
    log = SqliteLog(path)
    while log.promote(50):
        pass
    names = names_in(log)
    assert len(set(names)) == len(names)
    records = log.read(Lsn(0), log.end())
    cancelled = {one.request_id for one in records if one.body == b"cancelled"}
    assert {str(one[0]) for one in told} <= cancelled
    assert len(cancelled) <= len(told) + 1, "a kill may come between a commit and its line"
    log.close()


def test_full_disk_delays_promotion(tmp_path: Path) -> None:
    """Without space nothing moves and nothing is lost; with space again each fires once."""
    path = tmp_path / "log"
    process = child(path, FULL_DISK)
    (failures, end, waiting, refused), moved = lines_of(process)
    assert process.returncode == 0
    assert (failures, end, waiting, refused) == (2, 0, 3, None)
    assert moved == [20, 0, 20]
    log = SqliteLog(path)
    assert names_in(log) == [str(number) for number in range(20)]
    log.close()


def test_acknowledged_schedule_is_in_the_files(tmp_path: Path) -> None:
    """The files, copied at the moment of an acknowledgement, hold the request; so does a reopened log."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    log.schedule(entry("later"), 5)
    copy = SqliteLog(crashed_copy(path, tmp_path / "copy"))
    assert copy.scheduled(RequestId("later")) == 5
    copy.close()
    log.close()
    log = SqliteLog(path)
    with pytest.raises(RequestConflict):
        log.append([entry("later")])
    assert (log.promote(5), names_in(log)) == (1, ["later"])
    log.close()


def test_lost_schedule_is_noticed(tmp_path: Path) -> None:
    """A log whose acknowledged schedule is gone with its write-ahead log does not pass for whole."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    log.append([entry("first")])
    log._database.checkpoint()
    before = path.read_bytes()
    log.schedule(entry("later"), 5)
    copy = crashed_copy(path, tmp_path / "copy")
    copy.write_bytes(before)
    os.truncate(copy.with_name("copy-wal"), 0)
    with pytest.raises(Corrupt, match=r"1 acknowledged records .* gone"):
        SqliteLog(copy)
    copy.with_name("copy-lock").unlink()
    lossy = SqliteLog(copy)
    assert (names_in(lossy), lossy.scheduled(RequestId("later"))) == (["first"], None)
    lossy.close()
    log.close()


@pytest.mark.parametrize("column", ["due_us", "mark", "digest", "data"])
def test_damaged_schedule_is_found(tmp_path: Path, column: str) -> None:
    """Damage to a waiting request is named when promotion begins, also if it would hide the request."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    log.schedule(entry("later"), 5)
    log.close()
    value = 2**50 if column == "due_us" else b"damaged"
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE scheduled SET {column} = ?", (value,))
    connection.close()
    log = SqliteLog(path)
    with pytest.raises(Corrupt, match=f"{path}.*scheduled request number 1"):
        log.promote(0)
    assert log.end() == 0
    log.close()


def test_file_without_schedule_is_upgraded(tmp_path: Path) -> None:
    """A file of the former format is opened, keeps its records, ids and positions, and schedules."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    log.append([entry(str(number)) for number in range(5)])
    log.truncate(Lsn(2))
    log.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE scheduled")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    log = SqliteLog(path)
    other = SqliteLog(path)
    assert (log.start(), log.end(), names_in(log)) == (2, 5, ["2", "3", "4"])
    assert log.append([Entry(RequestId("1"), b"body", b"", 0), entry("new")]) == [1, 5]
    log.schedule(entry("later"), 5)
    assert (other.promote(5), names_in(log)[-1]) == (1, "later")
    log.close()
    other.close()


def test_file_of_a_later_version_is_no_damage(tmp_path: Path) -> None:
    """The message says which version of Penstock reads the file, and the file stays as it is."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    log.append([entry("kept")])
    log.close()
    with sqlite3.connect(path) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.close()
    with pytest.raises(
        ConfigError, match=f"has the format {version + 1}.*use the version that wrote"
    ):
        SqliteLog(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    log = SqliteLog(path)
    assert names_in(log) == ["kept"]
    log.close()
