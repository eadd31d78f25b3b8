"""The dataflow graph of an application, as frozen plain data.

Operators are entity classes and functions; edges are the possible effects of their methods on
operators. Stream operators are generators, streams, workflows, splitters, sequencers and portals; edges show the way of atoms
between them, and the events, requests and questions of handlers. A view has the classes and streams that its tables show. The graph over-approximates: every possible edge of readable source is in it, an edge with
an unknown receiver leads to the operator `?`, and some edges never happen. It contains names and
source locations only, so it can be stored, compared and drawn without the application.
`dataflow.analysis` creates it.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final

import msgspec

UNKNOWN_OPERATOR: Final = "?"

STREAMS: Final = "streams/"
"""The beginning of the path of each stream."""


@unique
class Action(StrEnum):
    """The effect of a method on an operator.

    `read` and `write` name an attribute, and `find` an index. `emit` publishes an event on a stream, `send` sends a request, and `ask`
    asks a portal or an entity. `reply` leads from a portal to the task that replies, and `feed` from a stream to a
    consumer.
    """

    CALL = "call"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    EXISTS = "exists"
    FIND = "find"
    EMIT = "emit"
    SEND = "send"
    ASK = "ask"
    REPLY = "reply"
    FEED = "feed"


@unique
class Origin(StrEnum):
    """The origin of a reference in a method, analysed as the root of a request.

    In the order in which they become known: the first three before the method runs, the others
    only while it runs.
    """

    CONSTANT = "constant"
    SELF = "self"
    ARGUMENT = "argument"
    COMPUTED = "computed"
    STATE = "state"
    RESULT = "result"
    UNKNOWN = "unknown"

    @property
    def dynamic(self) -> bool:
        """Whether the entity cannot be known before the method runs."""
        return self not in (Origin.CONSTANT, Origin.SELF, Origin.ARGUMENT)


class SourceLocation(msgspec.Struct, frozen=True, order=True):
    """A line of source. `file` is relative to the folder from which its module is imported."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """As editors link it."""
        return f"{self.file}:{self.line}"


class Attribute(msgspec.Struct, frozen=True):
    """An attribute (or parameter) and its type, as in source."""

    name: str
    type: str

    @property
    def text(self) -> str:
        """The text in source."""
        return f"{self.name}: {self.type}"


class Record(msgspec.Struct, frozen=True):
    """A dataclass, or another record, that attributes hold: its type as in source, and its fields."""

    name: str
    fields: tuple[Attribute, ...]


class Method(msgspec.Struct, frozen=True):
    """A method, which a request can call unless its name starts with an underscore; or a property, which is a value.

    A method that is `internal` is called by the application alone.
    """

    name: str
    parameters: tuple[Attribute, ...]
    returns: str
    readonly: bool
    where: SourceLocation
    is_property: bool = False
    internal: bool = False

    @property
    def text(self) -> str:
        """Its signature, as in source; a property is shown as an attribute is."""
        if self.is_property:
            return f"{self.name}: {self.returns}"
        shown = ", ".join(parameter.text for parameter in self.parameters)
        return f"{self.name}({shown}) -> {self.returns}"


class Operator(msgspec.Struct, frozen=True):
    """An entity class, or a function without state: it has no key, and one method of its name.

    The entities of a `personal` class are persons, whose data are encrypted. An `effect` is a function that calls the outside,
    after the transaction; nothing is known of its own calls. `indexes` are texts: `by_owner(owner), ordered by due`.
    """

    name: str
    key: Attribute | None
    attributes: tuple[Attribute, ...]
    methods: tuple[Method, ...]
    where: SourceLocation
    personal: bool = False
    effect: bool = False
    indexes: tuple[str, ...] = ()


@unique
class StreamKind(StrEnum):
    """The kind of a stream operator."""

    GENERATOR = "generator"
    STREAM = "stream"
    WORKFLOW = "workflow"
    SPLITTER = "splitter"
    SEQUENCER = "sequencer"
    PORTAL = "portal"


def path_of(operator_kind: StreamKind, name: str) -> str:
    """Return the path of a stream operator, or of a stream: `workflows/digest`."""
    return f"{operator_kind.value}s/{name}"


class StreamMember(msgspec.Struct, frozen=True):
    """A task of a workflow, or a stream that a workflow or a splitter publishes.

    Attributes:
        name: The name of the task, or the path of the stream: `streams/orders`.
        type: The type of the events that a stream has; empty for a task.
    """

    name: str
    type: str
    where: SourceLocation

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream."""
        return self.name.startswith(STREAMS)

    @property
    def title(self) -> str:
        """The name without the path."""
        return self.name.removeprefix(STREAMS)


class StreamOperator(msgspec.Struct, frozen=True):
    """A generator, a stream that takes appends, a workflow, a splitter, a sequencer or a portal.

    Attributes:
        path: The kind and the name: `workflows/digest`. It is unique, also among the names of operators.
        events: The type of the events of a stream or sequencer; requests and replies of a portal; else empty.
        members: The tasks of a workflow, then the streams that it publishes.
    """

    path: str
    kind: StreamKind
    name: str
    events: str
    members: tuple[StreamMember, ...]
    where: SourceLocation


class Endpoint(msgspec.Struct, frozen=True, order=True):
    """One end of an edge: a member of an operator.

    The member is a method, an attribute, a task, or the path of a published stream. An endpoint whose member equals
    its operator means the operator as a whole: a function, a stream, or a workflow that takes atoms.
    """

    operator: str
    member: str

    @property
    def text(self) -> str:
        """`Item.add`; a function is its own name."""
        return self.member if self.is_whole else f"{self.operator}.{self.member}"

    @property
    def is_whole(self) -> bool:
        """Whether it means the operator as a whole."""
        return self.operator == self.member

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream, with the operator that publishes it."""
        return self.member.startswith((STREAMS, path_of(StreamKind.SEQUENCER, "")))


class Edge(msgspec.Struct, frozen=True):
    """A possible effect of a method on an operator.

    Attributes:
        target: The operator is `?` if it is unknown.
        looped: It may happen any number of times.
        conditional: It may not happen at all.
    """

    source: Endpoint
    target: Endpoint
    action: Action
    where: SourceLocation
    looped: bool
    conditional: bool
    origin: Origin

    @property
    def dynamic(self) -> bool:
        """Whether the target entity cannot be known before the source method runs."""
        return self.origin.dynamic


class TableOfView(msgspec.Struct, frozen=True):
    """A table of a view.

    Attributes:
        sources: The entity classes or streams whose changes it shows.
        function: The row function that makes its rows; empty if it shows entities or events as they are.
        query: The query whose answer it shows; empty for another table. Its text says from which classes it reads.
    """

    name: str
    sources: tuple[Endpoint, ...]
    function: str
    where: SourceLocation
    query: str = ""


class ViewOperator(msgspec.Struct, frozen=True):
    """A view: tables in a store outside, fed from the log.

    Attributes:
        path: `views/reporting`; unique among the operators.
        target: The kind of its target, such as `postgres`.
        personal: Whether it may show personal data.
    """

    path: str
    name: str
    target: str
    personal: bool
    tables: tuple[TableOfView, ...]
    where: SourceLocation


@unique
class Hazard(StrEnum):
    """A property of a line that makes a later run of a handler differ, or changes its process."""

    CLOCK = "clock"
    CHANCE = "chance"
    UUID = "uuid"
    HASH = "hash"
    SET_ORDER = "set order"
    GLOBAL = "global"
    ENVIRONMENT = "environment"
    OUTSIDE = "outside"
    SETTING = "setting"


@dataclass(frozen=True, slots=True, order=True)
class PlanWarning:
    """A line of a handler that makes replay differ, or fails when it runs.

    Attributes:
        hazard: The hazard; None if the warning is of another sort.
    """

    where: SourceLocation
    source: Endpoint
    message: str
    hazard: Hazard | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """One line: location, method, message."""
        return f"{self.where.text}: {self.source.text}: {self.message}"


class Part(msgspec.Struct, frozen=True):
    """An application of a set.

    Attributes:
        operators: The names of its operators, and the paths of its stream operators.
    """

    name: str
    operators: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True):
    """The graph of one application, or of a set of applications.

    Attributes:
        app: The name of the application, or of the set.
        applications: The applications of a set; empty for a single application.
        views: The views; their tables have the edges to them.
        time_limits: The milliseconds of each method, function and workflow with `@limit(time=…)`, by its name.
    """

    app: str
    operators: tuple[Operator, ...]
    stream_operators: tuple[StreamOperator, ...]
    edges: tuple[Edge, ...]
    warnings: tuple[PlanWarning, ...]
    applications: tuple[Part, ...] = ()
    records: tuple[Record, ...] = ()
    time_limits: Mapping[str, int] = msgspec.field(default_factory=dict)
    views: tuple[ViewOperator, ...] = ()

    @property
    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Cycles of operators that can call each other: `("A", "B", "A")`.

        Every operator on a cycle is on one of the returned cycles. An entity that calls another
        entity of its class is a cycle, `("A", "A")`; an entity that calls itself is not.
        """
        return _cycles(
            (edge.source.operator, edge.target.operator)
            for edge in self.edges
            if edge.action is Action.CALL
            and edge.target.operator != UNKNOWN_OPERATOR
            and not (edge.source.operator == edge.target.operator and edge.origin is Origin.SELF)
        )


def _cycles(links: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return the nodes with an edge to themselves, then cycles that cover all other nodes on cycles."""
    ahead: dict[str, dict[str, None]] = {}
    cycles: list[tuple[str, ...]] = []
    for source, target in links:
        if source != target:
            ahead.setdefault(source, {})[target] = None
        elif (source, source) not in cycles:
            cycles.append((source, source))
    covered: set[str] = set()
    for node in ahead:
        if node not in covered and (cycle := _shortest_cycle(ahead, node)):
            cycles.append(cycle)
            covered.update(cycle)
    return tuple(cycles)


def _shortest_cycle(ahead: Mapping[str, Iterable[str]], start: str) -> tuple[str, ...]:
    """Return a shortest path from `start` back to it, by breadth-first search; empty without one."""
    ways: deque[tuple[str, ...]] = deque([(start,)])
    seen: set[str] = set()
    while ways:
        way = ways.popleft()
        for target in ahead.get(way[-1], ()):
            if target == start:
                return (*way, start)
            if target not in seen:
                seen.add(target)
                ways.append((*way, target))
    return ()
