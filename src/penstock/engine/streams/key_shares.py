"""Key shares: the handlers of large atoms, divided among several tasks by key.

Each task takes all atoms, computes all keys, and runs the handlers of its own keys only. So nothing is moved between the
tasks before the handlers run. A turn has the number that it has in a single task, therefore the outputs of all shares can
be put into their order again, and randomness is the same. `WorkflowStep` uses the merged turns in place of its own, and
does everything behind them itself.

The shares are a guess: wherever one of them meets a failure or a wait, its result is dropped, and a single task runs the
record.
"""

import inspect
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.flow_events import Piece
from penstock.engine.streams.handler_start import REMEMBERED, are_remembered
from penstock.model.streams.flow import Workflow
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.topology import Topology
from penstock.model.streams.workflow_plan import WorkflowPlan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Sizes: TypeAlias = "npt.NDArray[np.int64]"


class TaskTurns(msgspec.Struct, array_like=True):
    """What the handlers of one task have done in one step.

    Attributes:
        turns: The number of the turns of all shares.
        places: The turn of each output: uint32.
        sizes: The bytes of each output: uint32.
        outputs: The encoded events, without anything between them.
    """

    task: str
    turns: int
    places: bytes
    sizes: bytes
    outputs: bytes


class MergedTurns(NamedTuple):
    """The turns of one task in one step, of all shares.

    Attributes:
        turns: The number of turns.
        sizes: The bytes of each output.
        outputs: The encoded events in order, without anything between them.
    """

    turns: int
    sizes: Sizes
    outputs: bytes

    def events(self) -> list[bytes]:
        """Return the single outputs."""
        ends = self.sizes.cumsum().tolist()
        outputs = self.outputs
        return [outputs[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class StepTurns(msgspec.Struct, array_like=True):
    """What the handlers of all divided tasks have done in one step."""

    step: RequestId
    tasks: list[TaskTurns]
    writes: dict[EntityKey, bytes | None]


class KeyShare:
    """The share of one task."""

    def __init__(self, number: int, count: int) -> None:
        """Take the share `number` of `count` shares."""
        self._number = number
        self._count = count
        self._owned: dict[str, _OwnedKeys] = {}
        self.tasks: list[TaskTurns] = []
        self.steps: list[StepTurns] = []

    def owns(self, key_text: str) -> bool:
        """Say whether the handlers of a key run in this share."""
        return xxh3_64_intdigest(key_text.encode()) % self._count == self._number

    def own(
        self, task: TaskType, piece: Piece, turns: Iterable[int]
    ) -> tuple[Piece, Iterable[int]]:
        """Return the events of a share, and their turns."""
        keys, events, encoded = piece
        owned = self._owned.setdefault(task.name, _OwnedKeys(self, task))
        look = owned.__getitem__ if are_remembered(keys) else owned.__missing__
        flags = [*map(look, keys)]
        own = None if events is None else [*compress(events, flags)]
        return (
            ([*compress(keys, flags)], own, [*compress(encoded, flags)]),
            compress(turns, flags),
        )

    def note(self, task: TaskType, turns: int, places: "array[int]", outputs: list[bytes]) -> None:
        """Note what a task has done."""
        sizes = array("I", map(len, outputs)).tobytes()
        noted = TaskTurns(task.name, turns, places.tobytes(), sizes, b"".join(outputs))
        self.tasks.append(noted)

    def end_step(self, step: RequestId, writes: dict[EntityKey, bytes | None]) -> int:
        """Note the writes of a step that has taken effect; return the bytes of the step."""
        self.steps.append(StepTurns(step, self.tasks, writes))
        size = sum(len(task.outputs) for task in self.tasks)
        self.tasks = []
        return size + sum(len(data) for data in writes.values() if data is not None)


class SharedTurns:
    """The turns of all shares.

    Attributes:
        is_void: Whether a step has failed that uses them. Then they are wrong for all later steps.
    """

    def __init__(self, shares: Sequence[list[StepTurns]]) -> None:
        self._steps = {steps[0].step: steps for steps in zip(*shares, strict=False)}
        self.is_void = False

    def holds(self, step: RequestId) -> bool:
        """Say whether the shares have run a step."""
        return not self.is_void and step in self._steps

    def turns(self, step: RequestId) -> Iterator[MergedTurns]:
        """Yield the turns of each divided task of a step, in order."""
        shares = self._steps.get(step, ())
        for tasks in zip(*(share.tasks for share in shares), strict=True):
            yield _merged(tasks)

    def writes(self, step: RequestId) -> dict[EntityKey, bytes | None]:
        """Return the rows that the divided tasks of a step have changed."""
        merged: dict[EntityKey, bytes | None] = {}
        for share in self._steps.get(step, ()):
            merged |= share.writes
        return merged


class _OwnedKeys(dict[Any, bool]):
    """Whether the keys of one task are in a share; the keys that have come so far."""

    def __init__(self, share: KeyShare, task: TaskType) -> None:
        super().__init__()
        self._share = share
        self._task = task

    def __missing__(self, key: Any) -> bool:
        is_own = self._share.owns(self._task.key_text(key))
        if type(key) in REMEMBERED:
            self[key] = is_own
        return is_own


def _merged(tasks: Sequence[TaskTurns]) -> MergedTurns:
    """Return the outputs of all shares in the order of their turns; no output becomes an object."""
    import numpy as np  # noqa: PLC0415 -- a test of an application needs none

    order = np.argsort(_joined(task.places for task in tasks), kind="stable")
    sizes = _joined(task.sizes for task in tasks).astype(np.int64)
    begins = (np.cumsum(sizes) - sizes)[order]
    sizes = sizes[order]
    moved = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    outputs = np.frombuffer(b"".join(task.outputs for task in tasks), np.uint8)
    return MergedTurns(tasks[0].turns, sizes, outputs[moved + np.arange(len(moved))].tobytes())


def _joined(parts: Iterable[bytes]) -> "npt.NDArray[np.uint32]":
    import numpy as np  # noqa: PLC0415 -- a test of an application needs none

    return np.frombuffer(b"".join(parts), np.uint32)


def divided_tasks(plan: WorkflowPlan) -> list[TaskType]:
    """Return the tasks of a workflow that can take a large atom in shares: the first ones, up to one that cannot."""
    return list(takewhile(lambda task: not obstacle(plan, task), plan.tasks))


def obstacle(plan: WorkflowPlan, task: TaskType) -> str:
    """Return why a task cannot be divided by key; empty if it can."""
    reasons = {
        "it has no key": not task.is_keyed,
        "it has PerTask attributes": task.shared is not None,
        "it has on_atom_complete": task.completion is not None,
        "it replies to a portal": bool(task.responders),
        "its keys are exclusive": task.exclusive,
        "its handler can wait": inspect.iscoroutinefunction(getattr(task.cls, "on_event", None)),
        "another task takes its events": bool(plan.behind[task.name]),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def is_divided(topology: Topology, stream: str, cascade_steps: int) -> bool:
    """Say whether the large atoms of a stream are divided, for at least one task."""
    plans = subscribed(topology, stream)
    return any(map(divided_tasks, plans)) and not undivided_because(topology, stream, cascade_steps)


def subscribed(topology: Topology, stream: str) -> list[WorkflowPlan]:
    """Return the workflows that take the atoms of a stream."""
    takers = topology.subscribers.get(stream, [])
    return [topology.workflows[taker.flow_name] for taker in takers if isinstance(taker, Workflow)]


def undivided_because(topology: Topology, stream: str, cascade_steps: int) -> str:
    """Return why no task can take shares of the large atoms of a stream; empty if its tasks decide.

    Only those of streams that take appends are, because then nothing else in an epoch of appends uses the tasks.
    """
    takers, plans = topology.subscribers.get(stream, []), subscribed(topology, stream)
    reasons = {
        "it takes no appends": not topology.streams[stream].is_open,
        "a workflow of it pauses": any(plan.workflow.pauses for plan in plans),
        "a workflow of it declares start": any(
            plan.workflow.flow_name in topology.late_workflows for plan in plans
        ),
        "more than limits.cascade_steps take it": len(takers) > cascade_steps,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


_ENCODER = Encoder()
encode_shares = _ENCODER.encode
decode_shares = msgspec.msgpack.Decoder(list[StepTurns]).decode
