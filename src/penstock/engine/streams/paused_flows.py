"""Workflows that pause at a failure: their steps wait in rows of the state until a record of the log resumes them.

A workflow that is declared with `on_failure="pause"` stops at the atom at which a handler failed. This atom, and each
later step of the workflow, is held in order. A resuming record takes all of them again; or it sets the failed atom
aside, and takes the others. Its id has the name of the workflow and the number of the pause, so one pause ends once.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.cascade import Cascade, Delivered, Delivery, Inquiry, NextInLine, Step
from penstock.engine.streams.derived_ids import MARK
from penstock.engine.streams.stored_cascade import Apply, HeldSteps
from penstock.engine.streams.system_rows import HELD, PAUSED, system_key
from penstock.model.context import Read
from penstock.model.request import Failure
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.flow import Workflow
from penstock.model.streams.stream import Stream
from penstock.model.streams.task_type import flow_of
from penstock.model.streams.topology import Topology

_RESUME: Final = f"resume{MARK}"
_SKIP: Final = f"skip{MARK}"
_NUMBER: Final = f"{MARK}p"


class PausedFlow(msgspec.Struct, array_like=True, frozen=True):
    """A workflow that is paused, or was.

    Attributes:
        number: The number of its pauses.
        held: The number of steps that are held.
        failure: The failure of the first of these steps; None if the workflow is not paused.
        since_us: The time of the record at which the pause began, in microseconds since the Unix epoch.
    """

    number: int
    held: int
    failure: Failure | None
    since_us: int = 0


SkippedAtom = tuple[Stream[FailedAtom], Step, Failure]
"""Work that is set aside: the stream of failed atoms, the step that failed, and its failure."""

_encode: Final = Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(PausedFlow).decode
_NEVER: Final = PausedFlow(0, 0, None)


def resuming_id(flow: str, number: int, *, skip: bool) -> RequestId:
    """Return the id of the record that ends a pause.

    Args:
        skip: Whether the failed atom is set aside.
    """
    return RequestId(f"{_SKIP if skip else _RESUME}{flow}{_NUMBER}{number}")


def decode_paused(row: bytes | None) -> PausedFlow:
    """Return the state of a workflow; without a row, the workflow was never paused."""
    return _NEVER if row is None else _decode(row)


class PausedFlows:
    """The workflows of an application that are paused, over one state."""

    def __init__(self, topology: Topology, read: Read, apply: Apply) -> None:
        self._topology = topology
        self._held = HeldSteps(HELD, topology, read, apply)
        self.can_pause = any(plan.workflow.pauses for plan in topology.workflows.values())
        self._read = read
        self._apply = apply

    def state_of(self, flow: str) -> PausedFlow:
        """Return the state of a workflow."""
        return decode_paused(self._read(paused_key(flow)))

    def begin(self, flow: str, step: Step, failure: Failure, time_us: int) -> None:
        """Pause a workflow, and hold the step that failed."""
        self._hold(flow, step, PausedFlow(self.state_of(flow).number + 1, 1, failure, time_us))

    def holds(self, step: Step) -> bool:
        """Hold a step if its workflow is paused, and say whether it is."""
        flow = self._flow_of(step)
        if flow is None:
            return False
        state = self.state_of(flow)
        if state.failure is None:
            return False
        self._hold(flow, step, replace(state, held=state.held + 1))
        return True

    def _hold(self, flow: str, step: Step, state: PausedFlow) -> None:
        self._held.hold(flow, state.held, step, paused_key(flow), _encode(state))

    def _flow_of(self, step: Step) -> str | None:
        """Return the name of the workflow that takes a step, if it can pause; None for another consumer."""
        match step:
            case Delivery(subscriber=Workflow() as workflow):
                pass
            case Inquiry(portal=portal):
                workflow = self._topology.responders[portal][0].workflow
            case Delivered(task=task) | NextInLine(task=task):
                plan = self._topology.workflows.get(flow_of(task))
                if plan is None:  # the task is gone
                    return None
                workflow = plan.workflow
            case _:
                return None
        return workflow.flow_name if workflow.pauses else None

    def resume(self, cascade: Cascade) -> Iterator[SkippedAtom]:
        """End the pause that a record resumes, and queue the held steps.

        Another record, and a record of a pause that has ended, change nothing.

        Yields:
            The failed atom, if the record sets it aside; it is a step of the cascade.
        """
        record = cascade.root
        beginning = next((word for word in (_RESUME, _SKIP) if record.startswith(word)), None)
        flow, mark, number = record.removeprefix(beginning or "").rpartition(_NUMBER)
        if not cascade.continues or beginning is None or not mark or not number.isdigit():
            return
        state = self.state_of(flow)
        if state.failure is None or state.number != int(number):
            return
        ended = PausedFlow(state.number, 0, None)
        self._apply({paused_key(flow): _encode(ended)})
        steps: list[Step] = []
        for place in range(1, state.held + 1):
            held = self._held.take(flow, place)
            assert held is not None, "the row of each held step is stored"
            steps += held
        if beginning == _SKIP:
            step = steps.pop(0)
            cascade.taken += 1
            yield self._topology.workflows[flow].workflow.failed, step, state.failure
        cascade.push_all(steps)


def paused_key(flow: str) -> EntityKey:
    """Return the key of the row that has the state of a workflow."""
    return system_key(PAUSED, flow)
