"""Faults around the embedded log: processes die, space runs out, locks are held.

Acknowledged entries stay, and the log goes on when the fault is over.
"""

import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import LogUnavailable, PenstockError, RequestConflict
from penstock.log import database
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog

pytestmark = pytest.mark.faults

DEADLINE_S = 60
DEADLINE_MS = DEADLINE_S * 1000
PRELUDE = """
import json, os, resource, sys
from pathlib import Path
from penstock.base.ids import Lsn, RequestId
from penstock.errors import LogUnavailable
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog

def entry(name, body=b"body"):
    return Entry(RequestId(name), body, b"", 0)

def tell(*what):
    print(json.dumps(what), flush=True)

path = Path(sys.argv[1])
"""


def entry(name: str, body: bytes = b"body") -> Entry:
    return Entry(RequestId(name), body, b"12345678", 0)


def child(path: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, str(path), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def lines_of(process: subprocess.Popen[str]) -> list[list[object]]:
    """Return the events of a child until its end, without a line that its death cut short."""
    # Not `communicate`, which forgets the lines that `readline` has buffered.
    assert process.stdout is not None
    with process.stdout:
        output = process.stdout.read()
    process.wait(DEADLINE_S)
    return [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith("\n")]


def names_in(log: SqliteLog) -> list[str]:
    return [record.request_id for record in log.read(log.start(), log.end())]


def crashed_copy(path: Path, to: Path) -> Path:
    """Copy the files of an open log as a crash would leave them."""
    for suffix in ("", "-wal", "-lock"):
        shutil.copy(path.with_name(path.name + suffix), to.with_name(to.name + suffix))
    return to


APPEND_FOR_EVER = """
log = SqliteLog(path)
worker = sys.argv[2]
number = 0
while True:
    names = [f"{worker} {number + n}" for n in range(1 + number % 7)]
    tell(names, log.append([entry(name, b"x" * (number % 3000)) for name in names]))
    number += len(names)
"""


@pytest.mark.parametrize("acknowledgements", [1, 20, 60])
def test_killed_appender_loses_nothing_acknowledged(tmp_path: Path, acknowledgements: int) -> None:
    """After kill -9 of two appending processes every acknowledged record is there, without gaps."""
    path = tmp_path / "log"
    workers = [child(path, APPEND_FOR_EVER, name) for name in "ab"]
    told: list[list[object]] = []
    for worker in workers:
        assert worker.stdout is not None
        told += [json.loads(worker.stdout.readline()) for _ in range(acknowledgements)]
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
    for worker in workers:
        told += lines_of(worker)
    log = SqliteLog(path)
    records = log.read(Lsn(0), log.end())
    assert [record.lsn for record in records] == list(range(len(records)))
    position = {record.request_id: record.lsn for record in records}
    assert len(position) == len(records)
    for names, lsns in told:
        assert isinstance(names, list)
        assert [position[name] for name in names] == lsns
    assert log.append([entry("after")]) == [len(records)]
    log.close()


def test_processes_append_and_read_at_once(tmp_path: Path) -> None:
    """Records of several processes get one order; ids are deduplicated between them."""
    path = tmp_path / "log"
    program = """
log = SqliteLog(path)
for number in range(40):
    tell(*log.append([entry(f"shared {number}"), entry(f"{sys.argv[2]} {number}")]))
"""
    workers = [child(path, program, name) for name in "abc"]
    log = SqliteLog(path)
    seen: list[str] = []
    while len(seen) < 160:
        end = log.wait(Lsn(len(seen)), DEADLINE_MS)
        assert end > len(seen), "the writers stopped before they were done"
        seen += [record.request_id for record in log.read(Lsn(len(seen)), end)]
    told = [lines_of(worker) for worker in workers]
    for name, acknowledged in zip("abc", told, strict=True):
        for number, (shared, own) in enumerate(acknowledged):
            assert (seen[shared], seen[own]) == (f"shared {number}", f"{name} {number}")  # type: ignore[call-overload]
    assert log.end() == 160
    assert log.find(RequestId("b 39")) is not None
    log.close()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A closed log of two blocks, with three records each."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    for block in range(2):
        log.append([entry(f"{block} {n}", b"%d" % n * 50) for n in range(3)])
    log.close()
    return path


FULL_DISK = """
log = SqliteLog(path)
done = []
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
failures = 0
for number in range(200):
    try:
        done += log.append([entry(str(number), bytes(5000))])
    except LogUnavailable as error:
        failures += "bytes (ulimit -f)" in str(error)
tell(failures, done, log.end(), [one.request_id for one in log.read(Lsn(0), log.end())])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
tell(log.append([entry(str(number), bytes(5000)) for number in range(200)]))
log.close()
"""


@pytest.mark.parametrize("kilobytes", [64, 300, 500])
def test_full_disk_loses_nothing_acknowledged(tmp_path: Path, kilobytes: int) -> None:
    """Without space appends fail and add nothing, reading works; with space again all goes on."""
    path = tmp_path / "log"
    process = child(path, FULL_DISK, str(kilobytes * 1024))
    (failures, done, end, held), (positions,) = lines_of(process)
    assert process.returncode == 0
    assert isinstance(done, list) and isinstance(held, list)  # noqa: PT018 - for the type checker
    assert failures == 200 - len(done) > 0
    assert done == list(range(len(held)))
    assert end == len(held)
    log = SqliteLog(path)
    assert sorted(names_in(log)) == sorted(str(n) for n in range(200))
    assert isinstance(positions, list)
    assert [names_in(log)[lsn] for lsn in positions] == [str(n) for n in range(200)]
    log.close()


def test_checkpoint_keeps_the_write_ahead_log_bounded(tmp_path: Path) -> None:
    """The write-ahead log stays bounded while other threads read without a pause."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    log.append([entry("first")])
    done = threading.Event()
    failed: list[PenstockError] = []

    def read() -> None:
        while not done.is_set():
            try:
                end = log.end()
                log.read(Lsn(max(0, end - 50)), end)
            except PenstockError as error:
                failed.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    largest = 0
    for number in range(60):
        log.append([entry(f"{number} {n}", bytes(100_000)) for n in range(20)])
        largest = max(largest, path.with_name("log-wal").stat().st_size)
    done.set()
    for reader in readers:
        reader.join()
    assert failed == []
    assert largest < 100_000_000 < path.stat().st_size
    log.close()


def test_held_lock_ends_in_an_error(tmp_path: Path) -> None:
    """An append that waits for another process's lock gives up, and works once it is free."""
    path = tmp_path / "log"
    log = SqliteLog(path, lock_timeout_ms=50)
    program = """
import fcntl
with path.with_name("log-lock").open("a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    tell("held")
    sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(LogUnavailable, match="too long"):
        log.append([entry("a")])
    assert log.read(Lsn(0), log.end()) == []
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    assert log.append([entry("a")]) == [0]
    log.close()


def test_forked_child_must_open_anew(written: Path) -> None:
    """A child that was forked is refused its parent's log, and may open its own."""
    log = SqliteLog(written)
    names_in(log)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            log.end()
        except LogUnavailable:
            mine: SqliteLog = pickle.loads(pickle.dumps(log))
            code = 0 if mine.append([entry("child")]) == [6] else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert names_in(log)[-1] == "child"
    log.close()


def test_reopened_log_knows_ids_and_positions(written: Path) -> None:
    """Ids, start and end survive closing, also when nothing is held any more."""
    log = SqliteLog(written)
    log.truncate(Lsn(6))
    log.close()
    log = SqliteLog(written)
    assert (log.start(), log.end()) == (6, 6)
    assert log.append([entry("0 2", b"2" * 50), entry("new")]) == [2, 6]
    with pytest.raises(RequestConflict):
        log.append([entry("1 1", b"other")])
    log.close()


def test_acknowledged_append_is_in_the_files(tmp_path: Path) -> None:
    """The files, copied at the moment of an acknowledgement, hold the record."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    for number in range(3):
        log.append([entry(str(number))])
        copy = SqliteLog(crashed_copy(path, tmp_path / f"copy{number}"))
        assert names_in(copy) == [str(n) for n in range(number + 1)]
        copy.close()
    log.close()


def test_connections_sync_each_commit(tmp_path: Path) -> None:
    """Every thread's connection runs in the mode in which COMMIT syncs the write-ahead log."""
    log = SqliteLog(tmp_path / "log")

    def mode() -> tuple[object, ...]:
        with log._database.using() as connection:
            return tuple(
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "wal_autocheckpoint")
            )

    with ThreadPoolExecutor(1) as pool:
        assert mode() == pool.submit(mode).result() == ("wal", 2, 0)
    log.close()


def test_failure_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls it a disk I/O error when it cannot make its shared memory longer; the message has the cause."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    for least_free, is_full in ((0, False), (1 << 62, True)):
        monkeypatch.setattr(database, "_FULL_BYTES", least_free)
        translated = database.sqlite_errors_translated(tmp_path / "log.sqlite")
        with pytest.raises(LogUnavailable) as caught, translated:
            raise error
        assert ("the disk is full" in str(caught.value)) is is_full
