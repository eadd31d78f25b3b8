"""Flows: the tasks and functions between a stream and the stream that a workflow publishes.

A `Flow` is immutable: each operator returns a new flow, and a flow that is used twice branches. There are few
operators: `map`, `filter`, `flat_map`, `key`, `task`, `union`; `split` is composed of them. The graph is plain
data here. `plan` checks it, and `engine.streams` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from penstock.errors import DefinitionError
from penstock.model.declaration import caller_place
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.stream import UNKNOWN, Stream, check_source

T = TypeVar("T")
U = TypeVar("U")
U_co = TypeVar("U_co", covariant=True)
U_contra = TypeVar("U_contra", contravariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


OnFailure = Literal["set-aside", "pause"]
"""The consequences of a failure in a workflow: see `flow`."""

Start = Literal["earliest", "latest"] | int
"""The first atom that a workflow takes: see `flow`."""


class Emit(Protocol[U_contra]):
    """Publishes the events of a task: `out(event)` adds an event to the output of the atom."""

    def __call__(self, event: U_contra, /) -> None:
        """Add an event, which is copied at once."""


class EmittingTask(Protocol[T_contra, U_co]):
    """A class whose handler takes an event and publishes others."""

    def on_event(self, event: T_contra, out: Emit[U_co], /) -> Any:
        """Take an event."""


class SilentTask(Protocol[T_contra]):
    """A class whose handler takes an event and publishes nothing."""

    def on_event(self, event: T_contra, /) -> Any:
        """Take an event."""


class FlowOperator(Enum):
    """The operators of a flow."""

    SOURCE = "source"
    MAP = "map"
    FILTER = "filter"
    FLAT_MAP = "flat_map"
    KEY = "key"
    TASK = "task"
    UNION = "union"


@dataclass(frozen=True, eq=False)
class FlowNode:
    """One operator of a flow.

    Attributes:
        inputs: The nodes whose events it takes, in order.
        function: The function of `map`, `filter`, `flat_map` and `key`; the class of a task.
        where: `file:line` of the operator.
        exclusive: Whether the events of a key wait while a handler of that key waits for a reply.
    """

    operator: FlowOperator
    inputs: tuple[FlowNode, ...] = ()
    function: Callable[..., Any] | None = None
    where: str = ""
    name: str = ""
    exclusive: bool = False


class Flow(Generic[T]):
    """Events on their way from a stream to a workflow's own stream."""

    def __init__(
        self,
        name: str,
        source: Stream[Any],
        node: FlowNode,
        where: str,
        on_failure: OnFailure = "set-aside",
        start: Start = "latest",
    ) -> None:
        self._name = name
        self._source = source
        self._node = node
        self._on_failure: OnFailure = on_failure
        self._start: Start = start
        self.where = where

    def __repr__(self) -> str:
        return f"<Flow {self._name} without sink>"

    def _then(self, operator: FlowOperator, function: Any, where: str, **more: Any) -> Flow[Any]:
        node = FlowNode(operator, (self._node,), function, where, **more)
        return self._at(node)

    def _at(self, node: FlowNode) -> Flow[Any]:
        return Flow(self._name, self._source, node, self.where, self._on_failure, self._start)

    def map(self, function: Callable[[T], U]) -> Flow[U]:
        """Replace each event by the result of a function of it."""
        return self._then(FlowOperator.MAP, function, caller_place())

    def filter(self, predicate: Callable[[T], object]) -> Flow[T]:
        """Keep the events for which the result of a function is true."""
        return self._then(FlowOperator.FILTER, predicate, caller_place())

    def flat_map(self, function: Callable[[T], Iterable[U]]) -> Flow[U]:
        """Replace each event by the events that a function of it returns."""
        return self._then(FlowOperator.FLAT_MAP, function, caller_place())

    def key(self, function: Callable[[T], Any]) -> Flow[T]:
        """Give each event a key; a task behind this has attributes for each key.

        The type of the keys is the type that the function declares. A function without a declared result,
        such as a lambda, gives keys that are `str` or `int`.
        """
        return self._then(FlowOperator.KEY, function, caller_place())

    @overload
    def task(
        self, handler: type[EmittingTask[T, U]], *, name: str = "", exclusive: bool = False
    ) -> Flow[U]: ...
    @overload
    def task(
        self, handler: type[SilentTask[T]], *, name: str = "", exclusive: bool = False
    ) -> Flow[Any]: ...
    def task(self, handler: type[Any], *, name: str = "", exclusive: bool = False) -> Flow[Any]:
        """Hand each event to a task, and go on with the events that the task publishes.

        Args:
            handler: The class of the task. Its `on_event(self, event, out)` takes each event; its
                `on_atom_complete(self, out)`, if there is one, runs after the events of an atom. The attributes
                of the class are the state of the current key.
            name: The name of the task in its workflow; the name of the class without it.
            exclusive: Let the events of a key wait while a handler of that key waits for a reply.
        """
        label = name or getattr(handler, "__name__", repr(handler))
        return self._then(
            FlowOperator.TASK, handler, caller_place(), name=label, exclusive=exclusive
        )

    def union(self, *flows: Flow[T]) -> Flow[T]:
        """Go on with the events of several branches: those of this flow, then those of the others."""
        where = caller_place()
        for other in flows:
            if not isinstance(other, Flow):
                raise DefinitionError(
                    [
                        f"{where}: .union of workflow {self._name}: {other!r} is no branch of it; to join streams, "
                        f'let the workflow take a sequencer("name", type, stream, stream)'
                    ]
                )
        nodes = (self._node, *(flow._node for flow in flows))  # noqa: SLF001 -- its own class
        return self._at(FlowNode(FlowOperator.UNION, nodes, where=where))

    def split(self, *predicates: Callable[[T], object]) -> tuple[Flow[T], ...]:
        """Return a branch for each predicate; an event goes to the first branch whose predicate is true."""
        where = caller_place()
        return tuple(
            self._then(FlowOperator.FILTER, _FirstMatch(predicates, index), where)
            for index in range(len(predicates))
        )

    def sink(self, name: str, events: Any = UNKNOWN) -> Workflow[T]:
        """End the flow: publish its events as a stream.

        Args:
            events: The type of the events; needed if the last function does not declare it.
        """
        workflow: Workflow[T] = Workflow(
            name, events, self.where, self._name, self._source, self._node
        )
        workflow.on_failure, workflow.start = self._on_failure, self._start
        return workflow


class _FirstMatch:
    """Says whether a predicate is the first one of several that is true for an event."""

    def __init__(self, predicates: tuple[Callable[[Any], object], ...], index: int) -> None:
        self._predicates = predicates
        self._index = index

    def __call__(self, event: Any) -> bool:
        return first_match(self._predicates, event) == self._index


def first_match(predicates: Iterable[Callable[[Any], object]], event: Any) -> int | None:
    """Return the index of the first predicate that is true for an event; None if no predicate is."""
    return next((index for index, holds in enumerate(predicates) if holds(event)), None)


class Workflow(Stream[T]):
    """A workflow, and the stream that it publishes: one atom for each atom that it takes.

    Attributes:
        source: The stream whose atoms it takes.
        last: The last node of its graph.
        failed: The stream of the atoms at which a handler failed.
        on_failure: Whether such an atom is set aside, or the workflow pauses.
        start: The first atom that it takes.
        is_service: Whether it takes questions only, and publishes no stream.
    """

    is_service = False
    on_failure: OnFailure = "set-aside"
    start: Start = "latest"

    def __init__(
        self,
        name: str,
        annotation: Any,
        where: str,
        flow_name: str,
        source: Stream[Any],
        last: FlowNode,
    ) -> None:
        super().__init__(name, annotation, where)
        self.flow_name = flow_name
        self.source = source
        self.last = last
        self.failed: Stream[FailedAtom] = Stream(f"{flow_name}-failed", FailedAtom, where)

    @property
    def pauses(self) -> bool:
        """Whether it pauses at an atom at which a handler fails."""
        return self.on_failure == "pause"


def flow(
    name: str, source: Stream[T], *, on_failure: OnFailure = "set-aside", start: Start = "latest"
) -> Flow[T]:
    """Begin a workflow.

    Args:
        name: The name of the workflow: letters, digits, `-` and `_`.
        source: The stream whose atoms it takes, or the workflow whose output it takes.
        on_failure: With `"set-aside"`, an atom at which a handler fails goes to the stream of failed atoms, and the
            workflow takes the next one. With `"pause"`, the workflow holds this atom, and all that comes after it, in
            order, until it is resumed.
        start: The first atom that the workflow takes, where its source has atoms already: those that come after the
            deployment of the workflow (`"latest"`), all that the journal holds (`"earliest"`), or those from a number
            on. It takes the earlier ones first, in their order. This is for a new workflow: one that has taken atoms
            already would take them again.

    Raises:
        DefinitionError: The source is no stream.
    """
    where = caller_place()
    check_source(source, f"workflow {name}", where)
    return Flow(name, source, FlowNode(FlowOperator.SOURCE, where=where), where, on_failure, start)
