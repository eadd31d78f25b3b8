"""Followers that ask for the same atoms at the same epoch share one reading."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import App, stream
from penstock.base.ids import Epoch
from penstock.gateway.handlers.streams import Question, RenderedBatch, SharedBatches
from penstock.gateway.stream_bodies import AtomBatch, json_body
from penstock.gateway.table_pages import TablePage, TableQuestion
from penstock.journal.atoms import AtomReader
from tests.memory_journal import MemoryJournal
from tests.stream_journal import publish

lines = stream("lines", str)
app = App("following", lines)


class Rendering:
    """Renders when it may, and counts; the first call fails if it is told so."""

    def __init__(self, *, fails: bool = False) -> None:
        self.calls = 0
        self.may = threading.Event()
        self._fails = fails

    def __call__(self, batch: AtomBatch) -> bytes:
        self.calls += 1
        assert self.may.wait(60)
        if self._fails and self.calls == 1:
            raise ValueError("it fails")
        return json_body(batch)


async def no_page(question: TableQuestion) -> TablePage:
    raise AssertionError(question)


def with_batches(run: Callable[[SharedBatches], Awaitable[Any]]) -> None:
    journal = MemoryJournal()
    publish(journal, {"lines": [["a"], ["b"]]})

    async def running() -> None:
        with ThreadPoolExecutor(2) as threads:
            await run(SharedBatches(AtomReader(journal), threads, no_page))

    asyncio.run(running())


def test_followers_share_a_reading_and_one_that_leaves_changes_nothing() -> None:
    """Of fifty followers, one reads; the others get the same batch, also when the first has left."""

    async def run(batches: SharedBatches) -> None:
        rendering = Rendering()
        question = Question(lines, 0, 10, rendering)
        followers = [asyncio.create_task(batches.at(question, Epoch(0))) for _ in range(50)]
        await asyncio.sleep(0)
        followers[0].cancel()
        rendering.may.set()
        answers = await asyncio.gather(*followers[1:])
        assert {(answer.atoms, answer.next, answer.published) for answer in answers} == {(2, 2, 2)}
        assert await batches.at(question, Epoch(0)) is answers[0]
        assert rendering.calls == 1
        assert (await batches.at(question, Epoch(1))).next == 2
        assert (await batches.newest(question)).next == 2
        assert rendering.calls == 3

    with_batches(run)


def test_a_failed_reading_is_not_kept() -> None:
    """All who wait for it get the error, and the next follower reads again."""

    async def run(batches: SharedBatches) -> None:
        rendering = Rendering(fails=True)
        rendering.may.set()
        question = Question(lines, 1, 10, rendering)
        asked = [batches.at(question, Epoch(0)) for _ in range(3)]
        failed = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(error) for error in failed] == ["it fails"] * 3
        assert (await batches.at(question, Epoch(0))).atoms == 1

    with_batches(run)


def test_only_the_newest_batches_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of the kept batches are bounded; a batch that was dropped is read again."""
    monkeypatch.setattr("penstock.gateway.handlers.streams._KEPT_BYTES", 300)

    async def run(batches: SharedBatches) -> None:
        rendering = Rendering()
        rendering.may.set()
        question = Question(lines, 0, 1, rendering)
        kept: list[RenderedBatch] = [await batches.at(question, Epoch(n)) for n in range(4)]
        assert rendering.calls == 4
        assert await batches.at(question, Epoch(3)) is kept[3]
        await batches.at(question, Epoch(0))
        assert rendering.calls == 5

    with_batches(run)
