"""Damage to the embedded log's files: every change by hand is found and named."""

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import Corrupt, PenstockError
from penstock.log.sqlite import SqliteLog
from tests.faults.test_log_faults import crashed_copy, entry, names_in, written

__all__ = ["written"]  # a fixture

pytestmark = pytest.mark.faults


def flip(path: Path, table: str, column: str, first: int, offset: int) -> None:
    """Flip one bit of a stored value, behind the log's back."""
    connection = sqlite3.connect(path)
    key = f"FROM {table} WHERE first = {first}"
    (value,) = connection.execute(f"SELECT {column} {key}").fetchone()
    if isinstance(value, bytes):
        changed: object = value[:offset] + bytes([value[offset] ^ 1]) + value[offset + 1 :]
    else:
        changed = value ^ 1
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE first = {first}", (changed,))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bit_in_a_record_is_found(written: Path, seed: int) -> None:
    """A bit flipped anywhere in a record's bytes is an error that names file and position."""
    item = 5  # bytes of the array's head; then three records of equal length
    with sqlite3.connect(written) as connection:
        (size,) = connection.execute("SELECT length(data) FROM block WHERE first = 3").fetchone()
    connection.close()
    offset = random.Random(seed).randrange(item, size)
    flip(written, "block", "data", 3, offset)
    log = SqliteLog(written)
    assert [record.lsn for record in log.read(Lsn(0), Lsn(3))] == [0, 1, 2]
    damaged = 3 + (offset - item) * 3 // (size - item)
    for action in (log.read, log.hints):
        with pytest.raises(Corrupt, match=rf"{written}.*lsn {damaged}"):
            action(Lsn(0), Lsn(6))
    log.close()


@pytest.mark.parametrize("column", ["first", "records", "digest", "shape", "data"])
def test_flipped_bit_in_a_frame_is_found(written: Path, column: str) -> None:
    """If any part of a block's row is damaged, its records are not returned as if sound."""
    flip(written, "block", column, 3, 0)
    with pytest.raises(Corrupt, match=str(written)), closing(SqliteLog(written)) as log:
        log.read(Lsn(3), Lsn(6))


@pytest.mark.parametrize("column", ["appended_s", "prints", "prints_digest"])
@pytest.mark.parametrize("table", ["block", "remembered"])
def test_flipped_bit_in_the_ids_is_found(written: Path, table: str, column: str) -> None:
    """Damaged ids stop appends, which could no longer tell a duplicate; reading goes on."""
    if table == "remembered":
        log = SqliteLog(written)
        log.truncate(Lsn(4))
        log.close()
    flip(written, table, column, 0 if table == "remembered" else 3, 0)
    log = SqliteLog(written)
    assert len(log.read(Lsn(4), Lsn(6))) == 2
    with pytest.raises(Corrupt, match=str(written)):
        log.append([entry("new")])
    with pytest.raises(Corrupt, match=str(written)):
        log.find(RequestId("0 1"))
    log.close()


def test_missing_block_is_found(written: Path) -> None:
    """A hole in the positions is an error, not a shorter answer."""
    log = SqliteLog(written)
    log.append([entry("last")])
    with sqlite3.connect(written) as connection:
        connection.execute("DELETE FROM block WHERE first = 3")
    connection.close()
    with pytest.raises(Corrupt, match="lsn 3"):
        log.read(Lsn(0), Lsn(7))
    log.close()


def outcome_of(path: Path, known: list[str]) -> str:
    """Use a damaged log and say how that went; wrong answers fail at once."""
    try:
        log = SqliteLog(path)
    except PenstockError as error:
        return error.code
    try:
        found = names_in(log)
        assert found == known[: len(found)]
        log.append([entry("new")])
        assert names_in(log) == [*found, "new"]
    except PenstockError as error:
        return error.code
    else:
        return f"{len(found)} records"
    finally:
        log.close()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    """A file cut short, even to nothing, is reported as corrupt: it never passes for a shorter log."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    names = [str(n) for n in range(300)]
    for name in names:
        log.append([entry(name, bytes(500))])
    log.close()
    os.truncate(path, int(path.stat().st_size * share) // 512 * 512)
    assert outcome_of(path, names) == "corrupt"


def test_vanished_file_is_refused(written: Path) -> None:
    """A log whose file is gone is not silently created empty."""
    written.unlink()
    with pytest.raises(Corrupt, match="missing"):
        SqliteLog(written)


def test_other_file_is_refused(tmp_path: Path) -> None:
    """A file that is not a log is left alone."""
    text, database = tmp_path / "text", tmp_path / "database"
    text.write_text("no log " * 1000)
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE mine (a)")
    connection.close()
    for path in (text, database):
        before = path.read_bytes()
        with pytest.raises(Corrupt, match=str(path)) as raised:  # it keeps all objects alive
            SqliteLog(path)
        assert raised.tb is not None
        assert str(path) not in {one.path for one in psutil.Process().open_files()}
        assert path.read_bytes() == before


def test_torn_write_ahead_log_keeps_what_lies_before(tmp_path: Path) -> None:
    """A write-ahead log cut at any byte is refused; an accepted loss leaves the records before it."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    names = [str(n) for n in range(40)]
    for name in names:
        log.append([entry(name, bytes(300))])
    size = path.with_name("log-wal").stat().st_size
    cuts = random.Random(1).sample(range(20_000, size - 1000), 12)
    lengths = []
    for number, cut in enumerate([*sorted(cuts), size]):
        copy = crashed_copy(path, tmp_path / f"copy{number}")
        os.truncate(copy.with_name(copy.name + "-wal"), cut)
        if cut < size:
            with pytest.raises(Corrupt, match=r"\d+ acknowledged records .* are gone"):
                SqliteLog(copy)
            copy.with_name(copy.name + "-lock").unlink()
        lengths.append(outcome_of(copy, names))
    log.close()
    counts = [int(one.removesuffix(" records")) for one in lengths]
    assert counts == sorted(counts)
    assert counts[-1] == 40


def test_flipped_bit_in_the_write_ahead_log_is_found(tmp_path: Path) -> None:
    """A bit flip that makes SQLite drop acknowledged commits does not go unnoticed."""
    path = tmp_path / "log"
    log = SqliteLog(path)
    for number in range(20):
        log.append([entry(str(number), bytes(300))])
    wal = path.with_name("log-wal").read_bytes()
    for number, offset in enumerate(random.Random(2).sample(range(len(wal) // 2, len(wal)), 8)):
        copy = crashed_copy(path, tmp_path / f"copy{number}")
        damaged = wal[:offset] + bytes([wal[offset] ^ 4]) + wal[offset + 1 :]
        copy.with_name(copy.name + "-wal").write_bytes(damaged)
        assert outcome_of(copy, [str(n) for n in range(20)]) == "corrupt"
    log.close()


@pytest.mark.parametrize("mark", [b"", b"nonsense", b"9" * 20 + b" 0000000000000000\n"])
def test_illegible_high_water_mark_is_ignored(written: Path, mark: bytes) -> None:
    """A damaged mark proves nothing against the log; the next commit writes it again."""
    lock = written.with_name("log-lock")
    legible = lock.read_bytes()
    lock.write_bytes(mark)
    log = SqliteLog(written)
    assert log.end() == 6
    log.close()
    assert lock.read_bytes()[: len(legible)] == legible
