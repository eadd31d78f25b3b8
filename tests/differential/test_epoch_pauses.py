"""Workflows that pause, through the driver of epochs with a real log, journal and stores, and without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import RequestError
from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.model.call import Call, append_of, encoded
from penstock.orders.paused_workflows import paused_workflows, resume_workflow
from penstock.runtime.local.runtime import LocalRuntime
from tests.differential.committed import state_of, streams_of
from tests.differential.inline import Inline
from tests.differential.pausing_app import FORBIDDEN, SPEC, app, numbers, others, totals


class Twins:
    """The driver of epochs and one thread, which process the same log.

    Attributes:
        inline: The driver.
        serial: The thread.
    """

    def __init__(self, data: Path, small_epoch: int) -> None:
        data.mkdir()
        self.inline = Inline(data, 2, SPEC, app.name, small_epoch=small_epoch, epoch_records_max=3)
        self.serial = LocalRuntime(app, secret=self.inline.journal.secret)
        self._processed = 0

    def append(self, *calls: Call[Any]) -> None:
        """Append calls, and process them."""
        start = int(self.inline.log.end())
        entries = [
            Entry(RequestId(f"r{start + number}"), *encoded(app, call), start + number)
            for number, call in enumerate(calls)
        ]
        self.inline.log.append(entries)
        self.process()

    def resume(self, *, skip: bool = False) -> None:
        """Resume the workflow, and process the record."""
        resume_workflow(app, self.inline.config, "total", skip=skip)
        self.process()

    def process(self) -> None:
        """Process the log to its end in both runtimes, and compare them."""
        log, start, reached = self.inline.log, self._processed, None
        while reached != (reached := int(log.end())):
            self.inline.advance(reached)
        self._processed = reached
        self.serial.replay(log.read(Lsn(start), Lsn(reached)))
        assert state_of(self.inline.journal) == self.serial.state
        atoms = {name: atoms for name, atoms in self.serial.streams.items() if atoms}
        assert streams_of(self.inline.journal) == atoms

    def totals(self) -> list[list[int]]:
        """Return the atoms of the workflow that pauses."""
        published = streams_of(self.inline.journal)["totals"]
        return [[totals.events.decode(event) for event in atom] for atom in published]

    def standing(self) -> list[tuple[str, int, str, int, bool]]:
        """Return the paused workflows."""
        return [
            (one.name, one.since_us, one.failure, one.held, one.is_resuming)
            for one in paused_workflows(app, self.inline.config)
        ]


@pytest.fixture(params=[0, 1_000], ids=["several tasks", "one task"])
def twins(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Twins]:
    """Four steps are held since the third record; epochs run in several tasks, or in one task."""
    FORBIDDEN.clear()
    FORBIDDEN.add(0)
    twins = Twins(tmp_path / "data", request.param)
    assert twins.standing() == []
    twins.append(
        Call("Till", "a", "create"),
        append_of(numbers, [1]),
        append_of(numbers, [5, 0]),
        Call("Till", "a", "add", (2,)),
        append_of(others, [100]),
    )
    twins.append(Call("Till", "a", "add", (3,)))
    yield twins
    twins.inline.close()


def test_held_steps_run_in_order_after_a_resume(twins: Twins) -> None:
    """Steps that were held over several epochs run once the handler accepts the atom, also after a restart."""
    assert twins.standing() == [("total", 2, "ValueError: 0 is forbidden", 4, False)]
    assert twins.totals() == [[1]]
    twins.inline.restart()
    FORBIDDEN.clear()
    twins.resume()
    assert twins.totals() == [[1], [6, 6], [8], [], [11]]
    assert twins.standing() == []
    twins.append(append_of(numbers, [1]))
    assert twins.totals()[-1] == [12]


def test_workflow_that_fails_again_pauses_again(twins: Twins) -> None:
    """It holds the same steps again; then a resume sets the failed atom aside."""
    twins.resume()
    ((_, _, failure, held, _),) = twins.standing()
    assert (failure, held) == ("ValueError: 0 is forbidden", 4)
    twins.resume(skip=True)
    assert twins.totals() == [[1], [3], [], [6]]
    assert len(twins.serial.streams["total-failed"]) == 1
    assert twins.standing() == []


def test_second_failure_of_the_held_steps_pauses_there(twins: Twins) -> None:
    """The steps behind it stay held, in order."""
    FORBIDDEN.add(2)
    twins.resume(skip=True)
    assert [(failure, held) for _, _, failure, held, _ in twins.standing()] == [
        ("ValueError: 2 is forbidden", 3)
    ]
    FORBIDDEN.clear()
    twins.resume()
    assert twins.totals() == [[1], [3], [], [6]]


def test_one_pause_is_resumed_once(twins: Twins) -> None:
    """A repetition appends nothing, and the other way to resume is refused until the epoch."""
    config = twins.inline.config
    resume_workflow(app, config, "total", skip=False)
    end = twins.inline.log.end()
    assert twins.standing()[0][-1], "the log has the record"
    resume_workflow(app, config, "total", skip=False)
    assert twins.inline.log.end() == end
    with pytest.raises(RequestError, match="total resumes already, without skip"):
        resume_workflow(app, config, "total", skip=True)
    FORBIDDEN.clear()
    twins.process()
    for skip in (False, True):
        with pytest.raises(RequestError, match="total is not paused; paused workflows: none"):
            resume_workflow(app, config, "total", skip=skip)
