"""What if: a span of the journal's epochs again, with other code or other requests.

The baseline is the journal, as it was recorded. So a handler that is not deterministic differs here,
too, without any change: `replay` finds that out. Promises that nothing is written but the scratch
journal, where one is wanted, and that code which stores a class otherwise than the state before the
span has it is refused before anything runs.
"""

import gc
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base.ids import EntityKey, Epoch, RequestId, split_entity_key
from penstock.engine.execute import Limits
from penstock.engine.replay import RecordedEpoch
from penstock.engine.what_if import (
    UNCHANGED,
    EntityDifferences,
    ReplyDifferences,
    RequestChanges,
    StateDiff,
    entity_differences,
    replay_plan,
)
from penstock.errors import ClassChanged
from penstock.history.reader import HistoryReader
from penstock.history.replay import Progress
from penstock.history.rerun import Rerun
from penstock.history.sandbox import OutsideCall
from penstock.history.scratch_journal import ScratchJournal
from penstock.model.application import App
from penstock.model.shape import differences


@dataclass(frozen=True, slots=True)
class Scenario:
    """What shall be otherwise.

    Attributes:
        recorded_by: The application whose journal it is.
        app: The one that runs the requests now; the same one unless the code is changed.
        changes: By epoch, what is changed in its requests.
    """

    recorded_by: App
    app: App
    changes: Mapping[Epoch, RequestChanges] = field(default_factory=dict)

    @property
    def other_code(self) -> bool:
        """Whether other code runs."""
        return self.app is not self.recorded_by


@dataclass(frozen=True, slots=True)
class WhatIf:
    """How history would have come out.

    Attributes:
        first, last: The epochs that were run again, both included.
        requests: How many ran; `skipped` were taken as recorded, because they had exceeded a limit.
        spent_s: How long running, reading, comparing and writing took, without the state before.
        replies, entities: What differs.
        refused: By id, the requests that reached outside, which nobody does again.
    """

    first: Epoch
    last: Epoch
    requests: int
    skipped: int
    spent_s: float
    replies: ReplyDifferences
    entities: EntityDifferences
    refused: Mapping[RequestId, OutsideCall]


def what_if(
    past: HistoryReader,
    alternative: Scenario,
    limits: Limits,
    span: tuple[Epoch, Epoch],
    told: Progress,
    scratch: Path | None = None,
) -> WhatIf:
    """Run a span of epochs with changes, and compare with the journal.

    Args:
        past: The journal.
        alternative: What shall be otherwise.
        limits: What a transaction may use.
        span: First and last epoch.
        told: For progress.
        scratch: An empty data directory for the epochs as they come out; None: they are not kept.

    Raises:
        ClassChanged: The code declares a class otherwise than the state before the span has it.
        Corrupt: The journal is damaged.
        JournalUnavailable: The disk of the scratch journal is full or fails.
    """
    first, last = span
    state = past.state_before(first)
    check_layouts(alternative.recorded_by, alternative.app, state)
    run = _Run(Rerun(alternative.app, state, limits, past.secret), alternative)
    gc.collect()
    gc.freeze()  # a large state shall not be looked through again and again
    began = time.perf_counter()
    try:
        with ExitStack() as stack:
            if scratch is not None:
                begun_us = past.epoch(first).time_us
                kept = ScratchJournal(scratch, alternative.app, past.secret, first, state, begun_us)
                run.scratch = stack.enter_context(kept)
            for recorded in past.epochs(first, last):
                run.epoch(recorded)
                told(recorded.epoch, run.requests)
    finally:
        gc.unfreeze()
    spent_s = time.perf_counter() - began
    found = entity_differences(run.drift, state, alternative.recorded_by, alternative.app)
    return WhatIf(
        first, last, run.requests, run.skipped, spent_s, run.replies, found, run.rerun.refused
    )


class _Run:
    """What comes together while epochs run."""

    def __init__(self, rerun: Rerun, alternative: Scenario) -> None:
        self.rerun = rerun
        self._alternative = alternative
        self.scratch: ScratchJournal | None = None
        self.replies = ReplyDifferences()
        self.drift = StateDiff()
        self.requests = self.skipped = 0

    def epoch(self, recorded: RecordedEpoch) -> None:
        """Run an epoch, compare it and write it."""
        replayer, changed = self.rerun.replayer, self._alternative
        changes = changed.changes.get(recorded.epoch, UNCHANGED)
        course = replay_plan(recorded.rows, changes, other_code=changed.other_code)
        if recorded.epoch == 0 and not recorded.rows:
            check_layouts(changed.recorded_by, changed.app, recorded.changes)
            replayer.take(recorded.changes)  # a state that history begins with: `scratch`
        outcomes = self.rerun.run_all(course.rows)
        untouched = outcomes.count(None)
        self.requests += len(outcomes) - untouched
        self.skipped += untouched
        self.replies.compare(recorded.epoch, course, outcomes)
        self.drift.follow(replayer.state, replayer.written, recorded.changes)
        if self.scratch is not None:
            epoch, time_us = recorded.epoch, recorded.time_us
            self.scratch.commit(epoch, time_us, course, outcomes, replayer.written)
        replayer.finish()


def check_layouts(recorded_by: App, app: App, state: Iterable[EntityKey]) -> None:
    """Refuse code that could not read the entities that there are.

    Raises:
        ClassChanged: Names their classes, and how the code declares them otherwise.
    """
    if app is recorded_by:
        return
    stored = {split_entity_key(key)[0] for key in state}
    known = {name: one for name, one in recorded_by.shapes.items() if name in stored}
    found = differences(known, app.shapes)
    if found:
        lines = "".join(f"\n  {one}" for one in found)
        raise ClassChanged(
            "the new code does not fit the entities that there are before the first epoch (- is stored, "
            f"+ is declared by the new code):{lines}\nNothing was run. Begin with epoch 0 (--from 0) if "
            "the journal reaches back there, so that the new code creates them itself"
        )
