"""Late workflows: a workflow that begins with earlier atoms of its source takes these first, and then the newer ones.

The record that subscribes the workflow fixes the atoms that it has missed. Catch-up records give it these atoms, some
at a time, so that other records are not held up. Atoms that are published meanwhile are held in rows of the state, in
order; the last catch-up records take them. So the workflow takes each atom once, in the order of the stream.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.cascade import Cascade, Delivery, LaterRecord, Step
from penstock.engine.streams.stored_cascade import Apply, HeldSteps
from penstock.engine.streams.system_rows import BEHIND, LATE, system_key
from penstock.model.catch_up import PIECE_ATOMS, CatchUp, encode_catch_up
from penstock.model.context import Read
from penstock.model.control import Subscribe
from penstock.model.streams.flow import Workflow
from penstock.model.streams.topology import Topology


class LateFlow(msgspec.Struct, array_like=True, frozen=True):
    """The progress of a late workflow; one without a row takes nothing yet.

    Attributes:
        first: The number of the next atom that it has missed.
        upto: The number of the atom after the last one that it has missed.
        taken: The number of held atoms that it has taken.
        held: The number of atoms that were held.
        piece: The number of the next catch-up record.
    """

    first: int
    upto: int
    taken: int = 0
    held: int = 0
    piece: int = 0

    @property
    def is_live(self) -> bool:
        """Whether it takes new atoms at once."""
        return self.first >= self.upto and self.taken == self.held


_encode: Final = Encoder().encode
decode_progress: Final = msgspec.msgpack.Decoder(LateFlow).decode


def late_key(flow: str) -> EntityKey:
    """Return the key of the row with the progress of a workflow."""
    return system_key(LATE, flow)


def subscriptions(topology: Topology) -> list[Subscribe]:
    """Return the control record of each late workflow."""
    return [
        Subscribe(name, workflow.source.name, workflow.start)
        for name, workflow in topology.late_workflows.items()
    ]


def subscription(control: Subscribe, published: int) -> bytes:
    """Return the row of a workflow that subscribes.

    Args:
        published: The number of atoms that the source has published.
    """
    start = control.start
    first = min(start, published) if isinstance(start, int) else 0
    return _encode(LateFlow(first, published))


def next_piece(flow: str, stream: str, state: LateFlow, former: int | None = None) -> CatchUp:
    """Return the next piece of a workflow, without atoms; `former` atoms were in the piece before."""
    return CatchUp(flow, stream, state.piece, state.first, state.upto, (), former)


class LateFlows:
    """The late workflows of an application, over one state.

    Attributes:
        workflows: The workflows that declare where they start, by name.
    """

    def __init__(self, topology: Topology, read: Read, apply: Apply) -> None:
        self.workflows = topology.late_workflows
        self._held = HeldSteps(BEHIND, topology, read, apply)
        self._read = read
        self._apply = apply

    def holds(self, step: Step) -> bool:
        """Hold an atom if its workflow has missed earlier ones, and say whether the step must not run."""
        if not (isinstance(step, Delivery) and isinstance(step.subscriber, Workflow)):
            return False
        flow = step.subscriber.flow_name
        if flow not in self.workflows:
            return False
        row = self._read(late_key(flow))
        if row is None:
            return True  # its subscription gives it the atom, as one that it has missed
        state = decode_progress(row)
        if state.is_live:
            return False
        more = replace(state, held=state.held + 1)
        self._held.hold(flow, state.held, step, late_key(flow), _encode(more))
        return True

    def take(
        self, cascade: Cascade, piece: CatchUp, is_over: Callable[[RequestId, int], bool]
    ) -> Iterator[Delivery]:
        """Yield the atoms that a catch-up record gives to its workflow, and cause the next record.

        `is_over` says whether the record ends after so many atoms; it also gets the id of the next record.


        A record of an earlier piece changes nothing. The record of a workflow that is gone gives no atoms, and the
        piece gets another number: if the workflow comes back, the log takes each id once.
        """
        key, workflow = late_key(piece.flow), self.workflows.get(piece.flow)
        row = self._read(key)
        if row is None or decode_progress(row).piece != piece.piece:
            return
        if workflow is None:
            self._apply({key: _encode(replace(decode_progress(row), piece=piece.piece + 1))})
            return
        following_id = replace(piece, piece=piece.piece + 1).record
        taken = decode_progress(row).taken
        given, ran = self._given(piece, workflow, taken), 0
        while not is_over(following_id, ran) and (step := next(given, None)) is not None:
            ran += 1
            yield step
        missed = min(ran, len(piece.atoms))
        first, taken = piece.first + missed, taken + ran - missed
        row = self._read(key)  # the atoms of this record may have led to others, which are held
        assert row is not None, "no record removes the row"
        state = replace(decode_progress(row), first=first, taken=taken, piece=piece.piece + 1)
        self._apply({key: _encode(state)})
        if not state.is_live:
            following = next_piece(piece.flow, piece.stream, state, ran)
            cascade.later.append(LaterRecord(following.record, encode_catch_up(following), 0))

    def _given(self, piece: CatchUp, workflow: Workflow[Any], taken: int) -> Iterator[Delivery]:
        """Yield the atoms of a piece, and behind the last piece those that are held."""
        for events in piece.atoms:
            yield Delivery(workflow, piece.stream, events)
        if piece.first + len(piece.atoms) >= piece.upto:
            for place in range(taken, taken + PIECE_ATOMS - len(piece.atoms)):
                held = self._held.take(piece.flow, place)
                if held is None:
                    return
                for step in held:
                    assert isinstance(step, Delivery), "only atoms are held"
                    yield step
