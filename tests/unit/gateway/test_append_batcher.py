"""The batcher tells each caller the outcome of its own requests."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import LogUnavailable, RequestConflict
from penstock.gateway.errors import error_of, response_of
from penstock.gateway.intake import AppendBatcher, Outcome
from penstock.gateway.telemetry.metrics import Metrics
from penstock.log.api import Entry
from penstock.process.process_limits import NO_TASKS
from tests.memory_log import MemoryLog


def entry(name: str, body: bytes = b"") -> Entry:
    return Entry(RequestId(name), body, b"", 0)


def test_each_caller_gets_its_own_outcomes(tmp_path: Path) -> None:
    """Callers that share an append get positions and errors in the order of their own requests."""

    async def append() -> list[Sequence[Outcome]]:
        batcher, taken = AppendBatcher(MemoryLog(), Metrics(tmp_path)), list[Sequence[Outcome]]()

        def take(senders: Sequence[str], outcomes: Sequence[Outcome]) -> None:
            told.append(list(senders))
            taken.append(outcomes)

        batcher.append((entry("a"), entry("b")), "ab", take)
        batcher.append((entry("a", b"other"),), "c", take)
        batcher.append((entry("d"),), "d", lambda _, outcomes: taken.append(outcomes))
        await batcher.close()
        return taken

    told: list[list[str]] = []
    (first, second, conflict), other = asyncio.run(append())
    assert told == [["a", "b", "c"]], "one call for all senders with the same taker"
    assert (first, second, other) == (Lsn(0), Lsn(1), [Lsn(2)])
    assert isinstance(conflict, RequestConflict)


def test_a_caller_that_fails_is_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the one that takes an outcome is logged; the others of its batch and later ones get theirs."""

    def fail(_: Sequence[str], __: Sequence[Outcome]) -> None:
        raise ValueError("this caller is wrong")

    async def append() -> list[Outcome]:
        batcher = AppendBatcher(MemoryLog(), Metrics(tmp_path))
        batcher.append((entry("a"),), "a", fail)
        outcomes: list[Outcome] = []

        def take(_: Sequence[str], taken: Sequence[Outcome]) -> None:
            outcomes.extend(taken)

        batcher.append((entry("b"),), "b", take)
        while not outcomes:
            await asyncio.sleep(0)
        batcher.append((entry("c"),), "c", take)
        await batcher.close()
        return outcomes

    assert asyncio.run(append()) == [Lsn(1), Lsn(2)]
    assert [each.getMessage() for each in caplog.records] == [
        "the outcome of an append was not taken"
    ]


class _Broken(MemoryLog):
    """A log with a fault of its own, once."""

    is_broken = True

    def append(self, entries: Sequence[Entry], *, limited: bool = True) -> list[Lsn]:
        if self.is_broken:
            self.is_broken = False
            raise ValueError("nobody expects this")
        return super().append(entries, limited=limited)


def test_a_fault_of_the_log_is_told_and_the_next_append_works(tmp_path: Path) -> None:
    """No sender waits forever for an append that has ended with an error that nobody expects."""

    async def append() -> list[Outcome]:
        batcher, outcomes = AppendBatcher(_Broken(), Metrics(tmp_path)), list[Outcome]()
        for name in "ab":
            batcher.append((entry(name),), name, lambda _, taken: outcomes.extend(taken))
            async with asyncio.timeout(60):
                while len(outcomes) < "ab".index(name) + 1:
                    await asyncio.sleep(0.001)
        await batcher.close()
        return outcomes

    failed, appended = asyncio.run(append())
    assert isinstance(failed, LogUnavailable)
    assert appended == Lsn(0)


def test_a_system_that_refuses_threads_holds_no_request_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of a gateway begins with it: the first request came later, and no request was answered."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def append() -> list[Outcome]:
        batcher, outcomes = AppendBatcher(MemoryLog(), Metrics(tmp_path)), list[Outcome]()
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refuse)
            batcher.append((entry("a"),), "a", lambda _, taken: outcomes.extend(taken))
            async with asyncio.timeout(60):
                while not outcomes:
                    await asyncio.sleep(0.001)
        await batcher.close()
        return outcomes

    assert asyncio.run(append()) == [Lsn(0)]


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), BlockingIOError(11, "unavailable")]
)
def test_a_system_that_refuses_processes_is_no_fault_of_the_gateway(error: Exception) -> None:
    """The caller is told to send the request again, and the log names the limit in one line."""
    told = error_of(error, "/export/Item")
    assert str(told) == f"{NO_TASKS}; send the request again later"
    assert response_of(told).status_code == 503
