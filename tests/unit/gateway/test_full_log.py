"""A gateway whose log cannot be written, as on a full disk, says so once, not for each request."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import LogUnavailable
from penstock.gateway.intake import AppendBatcher, Outcome
from penstock.gateway.telemetry.metrics import Metrics
from penstock.log.api import Entry
from tests.memory_log import MemoryLog


class _FullLog(MemoryLog):
    """A log in memory whose disk can be full; as the real one, it needs no room for ids that it has."""

    is_full = True

    def append(self, entries: Sequence[Entry], *, limited: bool = True) -> list[Lsn]:
        if self.is_full and any(self.find(entry.request_id) is None for entry in entries):
            raise LogUnavailable("the disk is full")
        return super().append(entries, limited=limited)

    def check_writable(self) -> None:
        if self.is_full:
            raise LogUnavailable("the disk is full")


def test_a_full_log_is_one_line_and_its_end_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every request on the full disk is refused; the operator reads one line for all of them."""
    caplog.set_level("INFO", "penstock.gateway.intake")
    log = _FullLog()
    log.is_full = False

    async def appends() -> None:
        batcher = AppendBatcher(log, Metrics(tmp_path))

        async def append(name: str) -> None:
            outcomes: list[Outcome] = []
            entries = (Entry(RequestId(name), b"", b"", 0),)
            batcher.append(entries, (name,), lambda _, taken: outcomes.extend(taken))
            while not outcomes:
                await asyncio.sleep(0)
            (outcome,) = outcomes
            if isinstance(outcome, LogUnavailable):
                raise outcome

        await append("before")
        log.is_full = True
        for number in range(3):
            with pytest.raises(LogUnavailable):
                await append(f"full{number}")
            await append("before")  # a repetition writes nothing
        log.is_full = False
        for number in range(2):
            await append(f"free{number}")
        await batcher.close()

    asyncio.run(appends())
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert lines == [
        ("ERROR", "requests are refused: the log cannot be written"),
        ("INFO", "the log can be written again"),
    ]
    assert vars(caplog.records[0])["cause"] == "the disk is full"


def test_a_gateway_without_requests_learns_of_a_full_disk_and_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readiness needs no request: a write of its own finds out, and not more often than once in a second."""
    log, now_s = _FullLog(), [100.0]
    checks: list[float] = []

    async def asked() -> list[bool]:
        batcher = AppendBatcher(log, Metrics(tmp_path))
        answers = []
        for is_full, seconds in (
            (False, 0.0),
            (True, 0.5),
            (True, 2.0),
            (False, 0.5),
            (False, 2.0),
        ):
            log.is_full, now_s[0] = is_full, now_s[0] + seconds
            answers.append(await batcher.is_writable())
        await batcher.close()
        return answers

    monkeypatch.setattr("penstock.gateway.intake.time.monotonic", lambda: now_s[0])
    check = log.check_writable

    def counted() -> None:
        checks.append(now_s[0])
        check()

    monkeypatch.setattr(log, "check_writable", counted)
    assert asyncio.run(asked()) == [True, True, False, False, True]
    assert len(checks) == 3
