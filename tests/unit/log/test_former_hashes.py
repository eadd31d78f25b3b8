"""A log that a version up to 0.2.0 has written, whose hashes cover the rights of callers, tells repeated requests, too."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import xxhash

from penstock.base.ids import Lsn, RequestId
from penstock.errors import RequestConflict
from penstock.log.copy_prefix import copy_log, keep_prefix
from penstock.log.sqlite import SqliteLog
from penstock.model.request import cancelled_body
from tests.conformance.logs import request

FIRST = {
    "ada~old": request("ada~old", "call"),
    "ada~none": request("ada~none"),
    "ada~cancelled": request("ada~cancelled", "call"),
}


def make_former(path: Path, bodies: Mapping[str, bytes]) -> None:
    """Give a log the hashes of a former version: those of whole bodies, as they were appended first."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (seed,) = connection.execute("SELECT seed FROM position").fetchone()
        for first, count, appended_s, data in connection.execute(
            "SELECT first, records, appended_s, data FROM block"
        ).fetchall():
            names = [record[1] for record in msgspec.msgpack.decode(data)]
            hashes = b"".join(
                xxhash.xxh3_128_digest(name.encode(), seed)
                + xxhash.xxh3_64_digest(bodies[name], seed)
                for name in names
            )
            head = msgspec.msgpack.encode((first, count, appended_s))
            connection.execute(
                "UPDATE block SET prints = ?, prints_digest = ? WHERE first = ?",
                (hashes, xxhash.xxh3_128_digest(head + hashes), first),
            )


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """A log with a request of a caller with rights, one without, and a cancelled one."""
    path = tmp_path / "log.sqlite"
    with closing(SqliteLog(path)) as log:
        log.append([FIRST["ada~old"], FIRST["ada~none"]])
        log.schedule(FIRST["ada~cancelled"], 5)
        log.append_scheduled(RequestId("ada~cancelled"), 1, cancelled_body)
    make_former(path, {name: entry.body for name, entry in FIRST.items()})
    return path


@pytest.mark.parametrize("scopes", ["call", "read", ""])
def test_request_of_a_former_version_is_repeated_with_any_rights(former: Path, scopes: str) -> None:
    """The record that is still held tells the call; another call is refused."""
    with closing(SqliteLog(former)) as log:
        assert log.append([request(name, scopes) for name in FIRST]) == [0, 1, 2]
        for name in FIRST:
            log.schedule(request(name, scopes), 9)
            with pytest.raises(RequestConflict, match=name):
                log.append([request(name, scopes, amount=2)])
            with pytest.raises(RequestConflict, match=name):
                log.schedule(request(name, scopes, amount=2), 9)
        assert log.repeat(request("ada~old", scopes), Lsn(0)) == 3
        assert log.append([request("ada~old")]) == [3]
        assert (log.promote(9), log.end()) == (0, 4)


def test_truncated_request_of_a_former_version_is_repeated_with_its_rights(former: Path) -> None:
    """Only its hash is left: with its rights it is known, with others it is refused, and never runs twice."""
    with closing(SqliteLog(former)) as log:
        log.truncate(Lsn(3))
        assert log.append([FIRST["ada~old"], request("ada~none", "read")]) == [0, 1]
        with pytest.raises(RequestConflict, match="'ada~old'"):
            log.append([request("ada~old", "read")])
        assert log.end() == 3


def test_copy_of_a_former_log_keeps_its_hashes(former: Path, tmp_path: Path) -> None:
    """A backup, and a copy that goes on at an earlier position, tell repeated requests like the log itself."""
    copy_log(former, tmp_path / "copy.sqlite")
    keep_prefix(tmp_path / "copy.sqlite", Lsn(1), 0)
    with closing(SqliteLog(tmp_path / "copy.sqlite")) as log:
        assert log.append([request("ada~old", "read"), request("ada~none", "read")]) == [0, 1]
