"""Key shares: the handlers of large atoms, divided among several tasks by key.

Each task takes all atoms, computes all keys, and runs the handlers of its own keys only. So nothing is moved between the
tasks before the handlers run. A turn has the number that it has in a single task, therefore the outputs of all shares can
be put into their order again, and randomness is the same. A step takes the merged turns in place of its own, and does
everything behind them itself.

The shares are a guess: wherever one of them meets a failure or a wait, its result is dropped, and a single task runs the
record. No other module of the engine knows of shares: a share, and a step with merged turns, call the same methods of
`WorkflowStep` as a step that takes a whole atom.
"""

import inspect
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, count, takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.derived_ids import step_id
from penstock.engine.streams.flow_events import Piece
from penstock.engine.streams.handler_start import REMEMBERED, are_remembered, event_handler
from penstock.engine.streams.workflow_step import Unfit, WorkflowStep
from penstock.errors import UserError
from penstock.model.streams.flow import Workflow
from penstock.model.streams.stream import Atom
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.topology import Topology
from penstock.model.streams.workflow_plan import WorkflowPlan

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Sizes: TypeAlias = "npt.NDArray[np.int64]"


class TaskTurns(msgspec.Struct, array_like=True):
    """The work of the handlers of one task in one step.

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


class StepTurns(msgspec.Struct, array_like=True):
    """The work of the handlers of all divided tasks in one step."""

    step: RequestId
    tasks: list[TaskTurns]
    writes: dict[EntityKey, bytes | None]


class KeyShare:
    """The share of one task."""

    def __init__(self, number: int, count: int) -> None:
        self._number = number
        self._count = count
        self._owned: dict[str, _OwnedKeys] = {}
        self.tasks: list[TaskTurns] = []
        self.steps: list[StepTurns] = []

    def owns(self, key_text: str) -> bool:
        """Say whether the handlers of a key run in this share."""
        return xxh3_64_intdigest(key_text.encode()) % self._count == self._number

    def take(self, step: WorkflowStep, plan: WorkflowPlan, atom: Atom) -> None:
        """Run the handlers of an atom whose keys are in the share; publish nothing."""
        step.is_eager = True  # each output needs its own bytes, because it is put into order alone
        step.begin_atom(atom)
        self.tasks = []  # of an attempt before this one
        following = 1
        for task in divided_tasks(plan):
            if task.noted or step.may_wait(task):
                raise UserError("a handler waits")
            following = self._take_task(step, task, following)
        if step.begun or step.has_listed_keys:
            raise UserError("the atom cannot be divided")

    def _take_task(self, step: WorkflowStep, task: TaskType, first: int) -> int:
        """Run the own handlers of a task; return the number of the turn that follows on the turns of all shares.

        Args:
            first: The number of the first turn.
        """
        places, following = array("I"), first

        def noting(turns: Iterable[int]) -> Iterator[int]:
            # The next turn is asked for when the handler has ended. To wrap the handler would take a frame, and handlers
            # can count frames: between a step and its handler, there are as many as in a whole atom.
            for turn in turns:
                yield turn
                places.extend([turn] * (len(step.outputs) - len(places)))

        def own_pieces() -> Iterator[Piece]:
            nonlocal following
            for keys, values, encoded in step.pieces(task):
                flags = self._flags(task, keys)
                step.turns = noting(compress(range(following, following + len(flags)), flags))
                following += len(flags)
                own = None if values is None else [*compress(values, flags)]
                yield [*compress(keys, flags)], own, [*compress(encoded, flags)]
                next(step.turns, None)  # so that the last turn is noted

        step.begin_task(task)
        step.take_pieces(event_handler(task), own_pieces())
        outputs = [data for _, data in step.outputs]
        sizes = array("I", map(len, outputs))
        turns = TaskTurns(
            task.name, following - first, places.tobytes(), sizes.tobytes(), b"".join(outputs)
        )
        self.tasks.append(turns)
        return following

    def _flags(self, task: TaskType, keys: Sequence[Any]) -> list[bool]:
        """Return whether each of some keys is in the share."""
        owned = self._owned.setdefault(task.name, _OwnedKeys(self, task))
        return [*map(owned.__getitem__ if are_remembered(keys) else owned.__missing__, keys)]

    def end_step(self, step: RequestId, writes: dict[EntityKey, bytes | None]) -> int:
        """Note the writes of a step that has taken effect; return the bytes of the step."""
        self.steps.append(StepTurns(step, self.tasks, writes))
        size = sum(len(task.outputs) for task in self.tasks)
        self.tasks = []
        return size + sum(len(data) for data in writes.values() if data is not None)


class SharedTurns:
    """The turns of all shares, for the task that does the rest."""

    def __init__(self, shares: Sequence[list[StepTurns]]) -> None:
        self._steps = {steps[0].step: steps for steps in zip(*shares, strict=False)}

    def taking(
        self, cascade: Cascade, plan: WorkflowPlan, atom: Atom
    ) -> Callable[[WorkflowStep], None]:
        """Return how a step takes an atom: with the turns of the shares, as long as these have run the same steps."""
        step = step_id(cascade.root, cascade.taken)
        shares = self._steps.get(step)
        if shares is not None and step == next(iter(self._steps)):
            del self._steps[step]
            return lambda run: (
                run.take_atom(atom) if run.is_eager else _take_turns(run, plan, atom, shares)
            )
        if shares is not None:  # a step was left out that the shares have run: its cascade was cut
            self.drop()
        return lambda run: run.take_atom(atom)

    def drop(self, _failure: object = None) -> None:
        """Drop all turns: a step has failed, so the turns of the shares behind it are wrong."""
        self._steps.clear()


def _take_turns(
    step: WorkflowStep, plan: WorkflowPlan, atom: Atom, shares: Sequence[StepTurns]
) -> None:
    """Run an atom through all tasks, with the turns of the shares in place of those of the divided tasks."""
    step.begin_atom(atom)
    done = turns = 0
    for tasks in zip(*(share.tasks for share in shares), strict=True):
        step.begin_task(plan.tasks[done])
        done += 1
        turns += tasks[0].turns
        sizes, outputs = _merged(tasks)
        if not step.output.pack(outputs, len(sizes)):
            step.is_unfit = True  # the handler that has exceeded the limit gets the error
            raise Unfit
        if step.pending is None:
            ends = sizes.cumsum().tolist()
            each = zip([0, *ends], ends, strict=False)
            step.outputs += [(None, outputs[begin:end]) for begin, end in each]
    step.turns = count(turns + 1)
    for share in shares:
        step.shared_writes |= share.writes
    step.run(plan.tasks[done:])


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


def _merged(tasks: Sequence[TaskTurns]) -> tuple[Sizes, bytes]:
    """Return the sizes and the bytes of the outputs of all shares in the order of their turns; no output becomes an object."""
    import numpy as np  # noqa: PLC0415 -- a test of an application needs none

    order = np.argsort(_joined(task.places for task in tasks), kind="stable")
    sizes = _joined(task.sizes for task in tasks).astype(np.int64)
    begins = (np.cumsum(sizes) - sizes)[order]
    sizes = sizes[order]
    moved = np.repeat(begins - (np.cumsum(sizes) - sizes), sizes)
    outputs = np.frombuffer(b"".join(task.outputs for task in tasks), np.uint8)
    return sizes, outputs[moved + np.arange(len(moved))].tobytes()


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
