"""Epochs whose resident tasks die at random, before or after it has run them, equal one thread."""

import random
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.ids import RequestId
from penstock.log.api import Entry
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark.messages import Reside, TaskResult, WorkerSettings
from penstock.runtime.spark.resident_task import ResidentTask, UnixDoor, serve
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import answers_of, digest_of_stores, state_of
from tests.differential.inline import Inline, InlineJobs
from tests.differential.machine import app
from tests.differential.programs import History, drawn, histories, tangles
from tests.differential.simulation import Answer
from tests.waiting import wait_for


class MortalJobs(InlineJobs):
    """Jobs with two resident tasks, each of which dies at every third command, on average.

    Attributes:
        deaths: How often they have died.
        served: How often they have run a command, and sent the result.
    """

    def __init__(self, draw: random.Random, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self._draw = draw
        self.deaths = self.served = 0
        folder = Path(settings.scratch)
        self._residents = [
            ResidentTask(self._stay, UnixDoor(folder, f"resident{n}")) for n in range(2)
        ]
        for resident in self._residents:
            resident.start()
            wait_for(resident.connected, "the resident task")

    def _stay(self, reside: Reside) -> None:
        serve(reside.socket, self._may_die, list)

    def _may_die(self, order: bytes) -> TaskResult:
        dies = self._draw.choice(["before", "after", "", "", "", ""])
        self.deaths += bool(dies)
        if dies == "before":
            raise EOFError
        result = self.perform(order)
        if dies == "after":  # its parts are written, and no commit names them
            raise EOFError
        self.served += 1
        return result

    def close(self) -> None:
        for resident in self._residents:
            resident.stop()
        super().close()


@drawn(10)
@given(histories(most=8) | tangles(most=10), st.integers(1, 3), st.integers(0, 1 << 32))
def test_resident_and_ordinary_tasks_equal_one_thread(
    history: History, partitions: int, seed: int
) -> None:
    """Journal, stores and replies are those of one thread, whichever task runs an epoch."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tests.differential.inline.InlineJobs", partial(MortalJobs, random.Random(seed))
        )
        draw = random.Random(seed)
        inline = Inline(Path(folder), partitions, small_epoch=5, epoch_records_max=7)
        serial = LocalRuntime(app, secret=inline.journal.secret)
        try:
            for number, (request_id, call) in enumerate([*history.created(), *history.every()]):
                inline.log.append([Entry(RequestId(request_id), *call.encode(app), number)])
                if draw.random() < 0.5:
                    inline.advance(inline.log.end())
            inline.advance(end := inline.log.end())
            replies = serial.replay(inline.log.read(inline.log.start(), end))
            expected = [Answer(one.request_id, one.error, one.data) for one in replies]
            assert answers_of(inline.journal) == expected
            assert state_of(inline.journal) == serial.state
            stores = digest_of_stores(inline.config, inline.journal)
            assert stores == digest_of_mapping(serial.state)
            jobs = inline._jobs
            assert isinstance(jobs, MortalJobs)
            assert jobs.served + jobs.deaths > 0, "the resident task has run epochs"
        finally:
            inline.close()
