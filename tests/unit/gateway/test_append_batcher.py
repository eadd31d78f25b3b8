"""The batcher tells each caller the outcome of its own requests."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.base.ids import Lsn, RequestId
from penstock.errors import RequestConflict
from penstock.gateway.intake import AppendBatcher, Outcome
from penstock.gateway.telemetry.metrics import Metrics
from penstock.log.api import Entry
from tests.memory_log import MemoryLog


def entry(name: str, body: bytes = b"") -> Entry:
    return Entry(RequestId(name), body, b"", 0)


def test_each_caller_gets_its_own_outcomes(tmp_path: Path) -> None:
    """Callers that share an append get positions and errors in the order of their own requests."""

    async def append() -> list[Sequence[Outcome]]:
        batcher, taken = AppendBatcher(MemoryLog(), Metrics(tmp_path)), list[Sequence[Outcome]]()
        batcher.append((entry("a"), entry("b")), taken.append)
        batcher.append((entry("a", b"other"),), taken.append)
        await batcher.close()
        return taken

    both, (conflict,) = asyncio.run(append())
    assert both == [Lsn(0), Lsn(1)]
    assert isinstance(conflict, RequestConflict)


def test_a_caller_that_fails_is_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the one that takes an outcome is logged; the others of its batch and later ones get theirs."""

    def fail(_: Sequence[Outcome]) -> None:
        raise ValueError("this caller is wrong")

    async def append() -> list[Outcome]:
        batcher = AppendBatcher(MemoryLog(), Metrics(tmp_path))
        batcher.append((entry("a"),), fail)
        outcomes: list[Outcome] = []
        batcher.append((entry("b"),), outcomes.extend)
        while not outcomes:
            await asyncio.sleep(0)
        batcher.append((entry("c"),), outcomes.extend)
        await batcher.close()
        return outcomes

    assert asyncio.run(append()) == [Lsn(1), Lsn(2)]
    assert [each.getMessage() for each in caplog.records] == [
        "the outcome of an append was not taken"
    ]
