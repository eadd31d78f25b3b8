"""Cascades whose steps are noted while they run, for traces.

`CascadeRunner` runs the cascades. This module notes the input and the results of each step, and changes nothing.
"""

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any

from penstock.engine.streams.cascade import Cascade, LaterRecord, PublishedAtom, Step
from penstock.engine.streams.cascade_runner import CascadeRunner
from penstock.engine.streams.stored_cascade import StoredQueue
from penstock.model.request import Failure


@dataclass(frozen=True, slots=True)
class TakenStep:
    """One step of a cascade that has run.

    Attributes:
        number: The number of the step in its cascade, from 1.
        parent: The step that queued it; 0 for a step that the record itself has caused.
        step: The consumer, and the atom, questions or answers that it took.
        failure: Why it failed; None if it took effect.
    """

    number: int
    parent: int
    step: Step
    queued: tuple[Step, ...]
    published: tuple[PublishedAtom, ...]
    later: tuple[LaterRecord, ...]
    failure: Failure | None


class ObservedCascades(CascadeRunner):
    """Runs cascades, and notes the steps of a cascade on request.

    Attributes:
        steps: The noted steps; None if steps are not noted. `observe` begins a new list.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.steps: list[TakenStep] | None = None
        self._parents: deque[int] = deque()
        self._failure: Failure | None = None
        self.on_failure = self._note_failure

    def observe(self) -> list[TakenStep]:
        """Note the steps of the next cascade in a new list, and return this list."""
        steps: list[TakenStep] = []
        self.steps = steps
        self._parents.clear()
        return steps

    def _note_failure(self, failure: Failure) -> None:
        self._failure = failure

    def _load(self, cascade: Cascade, rest: StoredQueue[Step]) -> int:
        loaded = super()._load(cascade, rest)
        if self.steps:  # else `_take` counts them
            self._parents.extendleft([0] * loaded)
        return loaded

    def _take(self, cascade: Cascade, step: Step) -> None:
        if self.steps is None:
            super()._take(cascade, step)
            return
        queue = cascade.queue
        if not self.steps:  # all steps that wait now are caused by the record
            self._parents.extend([0] * (len(queue) + 1))
        sizes = len(queue), len(cascade.published), len(cascade.later)
        self._failure = None
        super()._take(cascade, step)
        queued = tuple(islice(queue, sizes[0], None))
        self._parents.extend([cascade.taken] * len(queued))
        self.steps.append(
            TakenStep(
                cascade.taken,
                self._parents.popleft(),
                step,
                queued,
                tuple(cascade.published[sizes[1] :]),
                tuple(cascade.later[sizes[2] :]),
                self._failure,
            )
        )
