"""Records that continue cascades, while the machine's clock is set back."""

from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn, RequestId
from penstock.journal.api import Commit, Journal
from penstock.log.api import Entry
from penstock.log.clock import wall_clock_us
from penstock.log.sqlite import SqliteLog
from penstock.runtime.spark.later_records import LaterRecords
from tests.memory_journal import MemoryJournal

HOUR_US = 3_600_000_000
COMMIT = Commit(Epoch(0), {ONLY_PARTITION: Lsn(0)}, (), 0)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_cascade_goes_on_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_restarted: bool
) -> None:
    """Its records are due by the former time; they do not wait until the clock has come there again."""
    with closing(SqliteLog(tmp_path / "log.sqlite")) as log:
        now_us = wall_clock_us()
        for number in range(3):
            entry = Entry(RequestId(f"r{number}"), b"body", b"", now_us, is_control=True)
            log.schedule(entry, now_us + 30_000_000 + number, limited=False)

        def later() -> LaterRecords:
            journal = cast("Journal", MemoryJournal())
            return LaterRecords(log, journal, None, 86_400, lambda body: body)

        records = later()
        records.owe(COMMIT)
        records.append()
        assert log.end() == 0, "they are not due yet"
        for module in ("penstock.log.clock", "penstock.runtime.spark.later_records"):
            monkeypatch.setattr(f"{module}.wall_clock_us", lambda: now_us - HOUR_US)
        if is_restarted:
            records = later()
        for _ in range(2):
            records.owe(COMMIT)
            records.append()
        assert [each.request_id for each in log.read(Lsn(0), Lsn(3))] == ["r0", "r1", "r2"]
        assert records._free_us == now_us - HOUR_US
