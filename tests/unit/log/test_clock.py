"""The log's own time: ids age by it, and no jump of the machine's clock makes them older or younger by much."""

from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.log.clock import time_after
from penstock.log.sqlite import SqliteLog

DAY_US = 86_400 * 1_000_000


@pytest.mark.parametrize("is_opened_again", [False, True], ids=["same process", "after a start"])
def test_clock_that_jumps_forgets_no_id(tmp_path: Path, *, is_opened_again: bool) -> None:
    """An id keeps its position while the clock is 8 days ahead, after maintenance then, and afterwards."""
    now = [1_800_000_000_000_000]
    path = tmp_path / "log.sqlite"
    entry = Entry(RequestId("pay-1"), b"body", b"", now[0])

    def opened() -> SqliteLog:
        return SqliteLog(path, clock_us=lambda: now[0])

    log = opened()
    assert log.append([entry]) == [Lsn(0)]
    for jump in (8 * DAY_US, -8 * DAY_US, 8 * DAY_US):
        now[0] += jump
        if is_opened_again:
            log.close()
            log = opened()
        assert log.append([entry]) == [Lsn(0)]
    log.append([Entry(RequestId("other"), b"body", b"", now[0])])
    log.truncate(Lsn(2))
    now[0] -= 8 * DAY_US
    assert log.append([entry]) == [Lsn(0)]
    assert is_opened_again or log.clock_jumps == 4
    log.close()


def test_ids_age_while_the_log_is_used(tmp_path: Path) -> None:
    """An id is forgotten after the retention, if the log is used at least each hour."""
    now = [1_800_000_000_000_000]
    log = SqliteLog(tmp_path / "log.sqlite", clock_us=lambda: now[0], retention_s=86_400)
    entry = Entry(RequestId("pay-1"), b"body", b"", now[0])
    log.append([entry])
    for hour in range(23):
        now[0] += 3_600_000_000
        assert log.append([Entry(RequestId(f"{hour}"), b"body", b"", now[0])]) == [Lsn(hour + 1)]
    assert log.append([entry]) == [Lsn(0)]
    now[0] += 3_600_000_000
    assert log.append([entry]) == [Lsn(24)]
    log.close()


@pytest.mark.parametrize(("ahead_us", "is_kept"), [(1, True), (60_000_000, True), (DAY_US, False)])
def test_time_of_a_clock_that_was_wrong_does_not_count(ahead_us: int, *, is_kept: bool) -> None:
    """What follows an event is a little after it, but not days ahead of the clock once the clock is right again."""
    now_us = 1_800_000_000_000_000
    found = time_after(now_us + ahead_us, lambda: now_us)
    assert found == (now_us + ahead_us if is_kept else now_us)
    assert time_after(now_us - ahead_us, lambda: now_us) == now_us
