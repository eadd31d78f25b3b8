"""The events of one atom on their way through the functions of a workflow.

Each consumer of a node gets events of its own, decoded or computed for it, so no two branches share an object that can
change. An event that no function has made or replaced keeps its bytes: it is not encoded again for a consumer of the
same type.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeAlias

from penstock.model.streams.event_type import EventType
from penstock.model.streams.flow import FlowNode, FlowOperator
from penstock.model.streams.stream import Atom
from penstock.model.streams.workflow_plan import WorkflowPlan

Keyed: TypeAlias = tuple[Any, Any, bytes]
"""A key, None without keys; an event; and its bytes, as the source or a task has published them."""

Piece: TypeAlias = tuple[Sequence[Any], Sequence[Any] | None, Sequence[bytes]]
"""Several events for a task: their keys, the events, and their bytes. There are no events if the handler must decode them,
because no other function may have the same object."""

_SOURCE: Final = (
    FlowOperator.SOURCE
)  # names of this module, because CPython 3.11 looks up members slowly
_TASK: Final = FlowOperator.TASK
_UNION: Final = FlowOperator.UNION
_KEY: Final = FlowOperator.KEY
_MAP: Final = FlowOperator.MAP
_FILTER: Final = FlowOperator.FILTER
_NO_BYTES: Final = b""
PIECE: Final = 1_000
"""The events that are decoded together."""


class FlowEvents:
    """Computes the events of the nodes of one workflow for one atom.

    Attributes:
        outputs: The keys and encoded events that each task has published, by the name of the task.
    """

    def __init__(self, plan: WorkflowPlan, atom: Atom = ()) -> None:
        self._plan = plan
        self._source = plan.workflow.source.events
        self.atom = atom
        self.outputs: dict[str, list[tuple[Any, bytes]]] = {}

    @property
    def has_events(self) -> bool:
        """Whether the source or a task has published an event."""
        return bool(self.atom) or any(self.outputs.values())

    def taken(self, node: FlowNode, target: EventType[Any]) -> Iterator[Piece]:
        """Yield the events of a node for a task in pieces, in order; the functions before it run for a whole piece.

        Args:
            target: The type of the events that the task takes.

        Raises:
            Unencodable: An event does not fit the type.
        """
        # An event that can change is decoded for its handler alone. An event of another type has no bytes of this type yet.
        if not target.is_shared or self._plan.published_as(node) != target.constrained:
            encoded = iter(self.encoded(node, target))
            while piece := [*islice(encoded, PIECE)]:
                keys, data = zip(*piece, strict=True)
                yield keys, None, data
        elif node.operator is _SOURCE:
            yield from self._source_pieces(None)
        elif node.operator is _KEY and node.inputs[0].operator is _SOURCE:
            yield from self._source_pieces(node.function)
        else:
            events = self._events(node)
            while several := [*islice(events, PIECE)]:
                keys, values, data = zip(*several, strict=True)
                yield keys, values, data

    def _source_pieces(self, function: Callable[[Any], Any] | None) -> Iterator[Piece]:
        """Yield the events of the source with their keys; no frame of Python takes part for each event."""
        for first in range(0, len(self.atom), PIECE):
            data = self.atom[first : first + PIECE]
            events = self._source.decode_all(data)
            if function is None:
                yield (None,) * len(data), events, data
                continue
            keys = [*map(function, events)]
            if len(keys) < len(data):  # `map` takes the exception for its own end
                raise RuntimeError("a function has raised StopIteration")
            yield keys, events, data

    def encoded(self, node: FlowNode, target: EventType[Any]) -> Iterable[tuple[Any, bytes]]:
        """Return the keys and the encoded events of a node, in order; the functions before it run in the iteration.

        Args:
            target: The type of the events where they go.

        Raises:
            Unencodable: An event does not fit the type.
        """
        operator = node.operator
        if operator is _UNION:
            return chain.from_iterable(self.encoded(branch, target) for branch in node.inputs)
        if self._plan.published_as(node) != target.constrained:
            return ((key, target.encode(event)) for key, event, _ in self._events(node))
        if operator is _SOURCE:
            return ((None, data) for data in self.atom)
        if operator is _TASK:
            return self._outputs(node)
        return ((key, data) for key, _, data in self._events(node))

    def _events(self, node: FlowNode) -> Iterator[Keyed]:
        """Yield the events of a node, in order."""
        operator = node.operator
        if operator is _SOURCE:
            source, atom = self._source, self.atom
            if len(atom) == 1:  # most atoms of requests
                return iter(((None, source.decode(atom[0]), atom[0]),))
            return ((None, event, data) for event, data in _decoded(source, atom))
        if operator is _TASK:
            return self._task(node)
        if operator is _UNION:
            return chain.from_iterable(self._events(branch) for branch in node.inputs)
        return self._computed(node)

    def _outputs(self, node: FlowNode) -> list[tuple[Any, bytes]]:
        return self.outputs.get(self._plan.task_of[node].name, [])

    def _task(self, node: FlowNode) -> Iterator[Keyed]:
        output, published = self._plan.task_of[node].output, self._outputs(node)
        if output is None:
            return iter(())
        decoded = _decoded(output, [data for _, data in published])
        return (
            (key, event, data) for (key, _), (event, data) in zip(published, decoded, strict=True)
        )

    def _computed(self, node: FlowNode) -> Iterator[Keyed]:
        """Yield the events that a function gives."""
        function: Any = node.function
        taken = self._events(node.inputs[0])
        operator = node.operator
        if operator is _KEY:
            return ((function(event), event, data) for _, event, data in taken)
        if operator is _MAP:
            return ((key, function(event), _NO_BYTES) for key, event, _ in taken)
        if operator is _FILTER:
            return (keyed for keyed in taken if function(keyed[1]))
        return ((key, inner, _NO_BYTES) for key, event, _ in taken for inner in function(event))


def _decoded(events: EventType[Any], encoded: Sequence[bytes]) -> Iterator[tuple[Any, bytes]]:
    """Yield events with their bytes."""
    decode = events.decode
    # Events that can change are decoded one by one, when a handler takes them, so that no two handlers have the same object.
    if not events.is_shared or len(encoded) == 1:
        return ((decode(data), data) for data in encoded)
    pieces = (encoded[first : first + PIECE] for first in range(0, len(encoded), PIECE))
    return chain.from_iterable(
        zip(events.decode_all(piece), piece, strict=True) for piece in pieces
    )
