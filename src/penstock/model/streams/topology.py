"""The topology of an application: its streams, workflows and portals, and how atoms travel between them.

`App` builds it. It finds the streams and workflows that a member uses, so that a program names the last ones only.
"""

import dis
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias, get_args

from penstock.base.constraint import has_constraints
from penstock.base.record import simplified
from penstock.model.declaration import where_of
from penstock.model.entity_type import EntityType
from penstock.model.resolver import Resolver
from penstock.model.streams.change_stream import ChangeStream
from penstock.model.streams.event_type import EventType
from penstock.model.streams.flow import Flow, OnFailure, Workflow
from penstock.model.streams.generator import Generator
from penstock.model.streams.interface import (
    PortalInterface,
    StreamInterface,
    TableInterface,
    fits,
)
from penstock.model.streams.portal import Portal
from penstock.model.streams.published_table import PublishedTable, changes_of
from penstock.model.streams.routing import Connection, RequestSink, Sequencer, Split, Splitter
from penstock.model.streams.service import Service
from penstock.model.streams.stream import NAME, UNKNOWN, Stream
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.workflow_plan import WorkflowPlan, plan_of
from penstock.model.time_limit import refuse_time

# A handler asks a portal by its name: `take.ask(…)` of a global name, of a name of an enclosing function, or of a name in a
# module. So a portal that no task of the application replies to is found when the application is built. A portal that
# code gets in another way, such as from a list, is found at its first question.


_ASK: Final = "ask"
_MISSING: Final = object()


def asked_portals(cls: type) -> Iterator[tuple[Portal[Any, Any], str]]:
    """Yield each portal that a method of a class, or a function that it calls, asks by name; and `file:line` of the function.

    Functions are followed in the package of the class.
    """
    package = str(cls.__module__).partition(".")[0]
    todo = [
        value for base in cls.__mro__ for value in vars(base).values() if _is_own(value, package)
    ]
    seen: set[Callable[..., Any]] = set()
    while todo:
        function = todo.pop(0)
        if function in seen:
            continue
        seen.add(function)
        for value, attribute in _named_values(function, function.__code__):
            if attribute == _ASK and issubclass(type(value), Portal):
                yield value, where_of(function)
            elif _is_own(value, package):
                todo.append(value)


def _is_own(value: object, package: str) -> bool:
    return type(value) is FunctionType and str(value.__module__).partition(".")[0] == package


def _named_values(function: FunctionType, code: CodeType) -> Iterator[tuple[Any, str]]:
    """Yield the values of the names outside of a function that it loads, and the attribute of each that it takes, if any."""
    loaded: Any = _MISSING
    # The bytecode and not the source: a portal may have any name, and the source may be missing.
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname.startswith("LOAD_GLOBAL"):
            value = function.__globals__.get(name, _MISSING)
        elif instruction.opname.startswith("LOAD_DEREF"):
            value = _of_cell(function, name)
        elif instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and loaded is not _MISSING:
            yield loaded, name
            is_module = isinstance(loaded, ModuleType)
            value = vars(loaded).get(name, _MISSING) if is_module else _MISSING
        else:
            value = _MISSING
        if value is not _MISSING:
            yield value, ""
        loaded = value
    for inner in code.co_consts:
        if isinstance(inner, CodeType):  # a comprehension, or a function in the function
            yield from _named_values(function, inner)


def _of_cell(function: FunctionType, name: str) -> Any:
    cells: tuple[CellType, ...] = function.__closure__ or ()
    for known, cell in zip(function.__code__.co_freevars, cells, strict=False):
        if known == name:
            try:
                return cell.cell_contents
            except ValueError:  # it has no value yet
                return _MISSING
    return _MISSING


Subscriber: TypeAlias = Workflow[Any] | Splitter[Any] | Sequencer[Any] | RequestSink[Any]
"""A consumer of the atoms of a stream."""

StreamMember: TypeAlias = (
    Stream[Any]
    | Splitter[Any]
    | Connection[Any]
    | Portal[Any, Any]
    | RequestSink[Any]
    | Generator[Any]
    | Service
)
"""A member of an application that is neither an entity class nor a function."""


_MEMBERS: Final = (Stream, Splitter, Connection, Portal, RequestSink, Generator, Service, Flow)


def sort_out_streams(members: Iterable[Any]) -> tuple[list[StreamMember | Flow[Any]], list[Any]]:
    """Divide the members of an application into those of its topology, and all others."""
    flowing: list[StreamMember | Flow[Any]] = []
    others: list[Any] = []
    for member in members:
        chosen = flowing if isinstance(member, _MEMBERS) else others
        chosen.append(member)
    return flowing, others


def _adds_constraint(source: Stream[Any], target: Stream[Any]) -> bool:
    """Say whether a stream whose events go on as they are would have constraints that they do not keep."""
    if target.declared is UNKNOWN:
        return False
    types = [simplified(each.declared, constrained=True) for each in (source, target)]
    return has_constraints(types[1]) and types[0] != types[1]


@dataclass(slots=True)
class Topology:
    """The streams of an application and their consumers.

    Attributes:
        streams: All streams by name, also those of workflows, splitters and sequencers.
        subscribers: The consumers of each stream, by the name of the stream, in the order of the members.
        responders: The workflow and the task that reply to a portal, by the name of the portal.
        blank_rows: The row of a key without state, by the name of its entity class.
        interfaces: The streams and portals of other applications.
        late_workflows: The workflows that declare where in their source they start, by name.
        tables: The published tables, by name.
        tables_of: The published tables of each class that has some, by the name of the stream of its changed entities.
        copies: The workflows that begin with the rows of a table, by name; they are not among the late ones.
        captures: The streams of the changes of a database, by name.
    """

    streams: dict[str, Stream[Any]] = field(default_factory=dict)
    workflows: dict[str, WorkflowPlan] = field(default_factory=dict)
    portals: dict[str, Portal[Any, Any]] = field(default_factory=dict)
    generators: dict[str, Generator[Any]] = field(default_factory=dict)
    subscribers: dict[str, list[Subscriber]] = field(default_factory=dict)
    responders: dict[str, tuple[WorkflowPlan, TaskType]] = field(default_factory=dict)
    tasks: dict[str, TaskType] = field(default_factory=dict)
    rows: dict[str, EntityType] = field(default_factory=dict)
    blank_rows: dict[str, bytes] = field(default_factory=dict)
    interfaces: list[StreamInterface[Any] | PortalInterface[Any, Any]] = field(default_factory=list)
    late_workflows: dict[str, Workflow[Any]] = field(default_factory=dict)
    tables: dict[str, PublishedTable[Any]] = field(default_factory=dict)
    tables_of: dict[str, list[PublishedTable[Any]]] = field(default_factory=dict)
    copies: dict[str, Workflow[Any]] = field(default_factory=dict)
    captures: dict[str, ChangeStream[Any]] = field(default_factory=dict)

    def settle(self) -> None:
        """Settle the types of all events, after the entity classes."""
        for event_type in self.event_types():
            event_type.settle()

    def event_types(self) -> Iterator[EventType[Any]]:
        """Yield the types of the events, of the requests to portals and of their replies, in each place."""
        for place in (*self.streams.values(), *self.portals.values(), *self.interfaces):
            own = (
                (place.event_type,)
                if isinstance(place, Stream)
                else (place.request_type, place.reply_type)
            )
            yield from (event_type for event_type in own if event_type is not None)
        for task in self.tasks.values():
            yield from (each for each in (task.event, task.output) if each is not None)


def topology_of(members: Iterable[StreamMember | Flow[Any]], resolver: Resolver) -> Topology:
    """Return the topology of an application; mistakes become complaints of the resolver."""
    building = _Building(resolver)
    for member in members:
        if isinstance(member, Flow):
            resolver.complaints.append(f"{member.where}: {member!r}: end it with .sink(name)")
        else:
            building.add(member)
    building.plan()
    return building.topology


class _Building:
    """Collects the parts of a topology, and then checks them together."""

    def __init__(self, resolver: Resolver) -> None:
        self.topology = Topology()
        self._resolver = resolver
        self._seen: list[object] = []
        self._workflows: list[Workflow[Any]] = []
        self._connections: list[tuple[Stream[Any], Sequencer[Any], str]] = []

    def add(self, member: StreamMember) -> None:
        """Add a member, and first each member that it uses."""
        # By identity: members may define equality, and a union or a cycle names one twice.
        if any(seen is member for seen in self._seen):
            return
        self._seen.append(member)
        match member:
            case Stream():
                self._add_stream_member(member)
            case Connection():
                self.add(member.target)
                self.add(member.source)
                self._connect(member.source, member.target, member.where)
            case Splitter():
                self._add_splitter(member)
            case RequestSink():
                self._add_request_sink(member)
            case Portal() | Service():
                self._add_answering(member)
            case Generator():
                self._add_generator(member)

    def _add_stream_member(self, stream: Stream[Any]) -> None:
        match stream:
            case StreamInterface():
                self._add_interface(stream)
            case Workflow():
                self._add_workflow(stream)
            case Sequencer():
                self._add_stream(stream)
                for source in stream.inputs:
                    self.add(source)
                    self._connect(source, stream, stream.where)
            case Split():
                self._add_stream(stream)
                self.add(stream.splitter)
            case PublishedTable():
                self._add_table(stream)
            case ChangeStream():
                self._add_stream(stream)
                stream.plan(self._resolver.complaints)
                self.topology.captures[stream.name] = stream
            case _:
                self._add_stream(stream)

    def _add_table(self, table: PublishedTable[Any]) -> None:
        table.plan(self._resolver)
        self._add_stream(table)
        self._add_stream(table.failed)
        if table.source is not None:
            self.topology.tables[table.name] = table
            changes = changes_of(table.source.stored_name)
            self.topology.tables_of.setdefault(changes, []).append(table)

    def _add_workflow(self, workflow: Workflow[Any]) -> None:
        self.add(workflow.source)
        if self._has_name(workflow):
            return  # the names of its streams would be complaints, too
        if workflow.on_failure not in get_args(OnFailure):
            what = f'on_failure is "set-aside" or "pause", not {workflow.on_failure!r}'
            self._complain(workflow.where, f"workflow {workflow.flow_name}: {what}")
        if isinstance(workflow.source, PublishedTable | TableInterface):
            self._check_copy(workflow)
        elif workflow.start != "latest":
            self._check_start(workflow)
            self.topology.late_workflows[workflow.flow_name] = workflow
        self._workflows.append(workflow)
        self._add_stream(workflow)
        self._add_stream(workflow.failed)
        self._subscribe(workflow.source, workflow)

    def _add_answering(self, member: Portal[Any, Any] | Service) -> None:
        if isinstance(member, Service):
            self._add_service(member.workflow)
        else:
            self._add_portal(member)

    def _add_service(self, workflow: Workflow[Any]) -> None:
        """Add a workflow that takes questions only; its source and its own stream are no streams of the application."""
        if self._has_name(workflow):
            return
        self._workflows.append(workflow)
        workflow.source.bind(self._resolver.complaints)
        workflow.bind(self._resolver.complaints)
        self._add_stream(workflow.failed)

    def _has_name(self, workflow: Workflow[Any]) -> bool:
        """Say whether another workflow has the name of a workflow, after a complaint."""
        self._check_name("workflow", workflow.flow_name, workflow.where)
        has_name = any(other.flow_name == workflow.flow_name for other in self._workflows)
        if has_name:
            self._complain(workflow.where, f"two workflows are named {workflow.flow_name}")
        return has_name

    def _check_copy(self, workflow: Workflow[Any]) -> None:
        """Note a workflow that begins with the rows of a table."""
        if workflow.start == "earliest":
            self.topology.copies[workflow.flow_name] = workflow
        elif workflow.start != "latest":
            what = (
                f'its source is a published table, so start is "earliest", for the rows that are there and then the '
                f'changes, or "latest", for new changes only; not {workflow.start!r}'
            )
            self._complain(workflow.where, f"workflow {workflow.flow_name}: {what}")

    def _check_start(self, workflow: Workflow[Any]) -> None:
        start, name = workflow.start, f"workflow {workflow.flow_name}"
        if start != "earliest" and (type(start) is not int or start < 0):
            what = f'start is "earliest", "latest" or the number of an atom, not {start!r}'
            self._complain(workflow.where, f"{name}: {what}")
        if workflow.pauses:
            what = 'with start, on_failure is "set-aside": a pause would let newer atoms overtake'
            self._complain(workflow.where, f"{name}: {what}")

    def _add_stream(self, stream: Stream[Any]) -> None:
        self._check_name("stream", stream.name, stream.where)
        other = self.topology.streams.setdefault(stream.name, stream)
        if other is not stream:
            self._complain(
                stream.where, f"the name {stream.name} is taken by the stream of {other.where}"
            )

    def _add_splitter(self, splitter: Splitter[Any]) -> None:
        self._check_splitter(splitter)
        for output, predicate in zip(splitter.streams, splitter.predicates, strict=True):
            what = f"stream {output.label} of splitter {splitter.name}"
            refuse_time(predicate, splitter.where, what, self._resolver.complaints)
        self.add(splitter.source)
        self._subscribe(splitter.source, splitter)
        for split in (*splitter.streams, splitter.failed):
            self.add(split)

    def _add_request_sink(self, sink: RequestSink[Any]) -> None:
        self._resolver.check_method(sink.where, sink.method)
        what = f"the function of call {sink.name}"
        refuse_time(sink.arguments, sink.where, what, self._resolver.complaints)
        self.add(sink.source)
        self._subscribe(sink.source, sink)
        self.add(sink.failed)

    def _add_generator(self, generator: Generator[Any]) -> None:
        self.add(generator.stream)
        self._check_name("generator", generator.name, generator.where)
        other = self.topology.generators.setdefault(generator.name, generator)
        if other is not generator:
            what = f"the name {generator.name} is taken by the generator of {other.where}"
            self._complain(generator.where, what)
        what = f"the source of generator {generator.name}"
        refuse_time(generator.source, generator.where, what, self._resolver.complaints)
        for complaint in generator.complaints():
            self._complain(generator.where, f"generator {generator.name}: {complaint}")

    def _add_interface(self, member: StreamInterface[Any] | PortalInterface[Any, Any]) -> None:
        self.topology.interfaces.append(member)
        member.bind(self._resolver.complaints)

    def _add_portal(self, portal: Portal[Any, Any]) -> None:
        if isinstance(portal, PortalInterface):
            self._add_interface(portal)
            return
        self._check_name("portal", portal.name, portal.where)
        other = self.topology.portals.setdefault(portal.name, portal)
        if other is not portal:
            self._complain(
                portal.where, f"the name {portal.name} is taken by the portal of {other.where}"
            )

    def _connect(self, source: Stream[Any], target: Sequencer[Any], where: str) -> None:
        sequencer = target.origin
        if isinstance(
            sequencer, Sequencer
        ):  # else it is one of another application, which is not here yet
            self._subscribe(source, sequencer)
        self._connections.append((source, target, where))

    def _subscribe(self, source: Stream[Any], subscriber: Subscriber) -> None:
        self.topology.subscribers.setdefault(source.name, []).append(subscriber)

    def plan(self) -> None:
        """Plan the workflows, check the connections, and bind all types."""
        for workflow in self._workflows:  # a workflow follows its source, so types flow forwards
            plan = plan_of(workflow, self._resolver)
            self.topology.workflows[workflow.flow_name] = plan
            for task in plan.tasks:
                self._add_task(plan, task)
        for source, target, where in self._connections:
            if not fits(source.annotation, target.annotation):
                what = (
                    f"sequencer {target.name} has events of another type than stream {source.name}"
                )
                self._complain(where, what)
            elif _adds_constraint(source, target):
                what = f"sequencer {target.name} has constraints that its input {source.name} does not have"
                self._complain(where, f"{what}; declare both with one type")
        for task in self.topology.tasks.values():
            self._check_asked(task)
        self._bind()

    def _check_asked(self, task: TaskType) -> None:
        """Complain of each portal that a handler asks, and that the application does not have."""
        has = [*self.topology.portals.values(), *self.topology.interfaces]
        for portal, where in dict.fromkeys(asked_portals(task.cls)):
            if any(portal is known for known in has):
                continue
            if isinstance(portal, PortalInterface):
                remedy = f"name the portal of {portal.where}, {portal.path}, as a member of the App"
            else:
                remedy = (
                    f"name the workflow of the task that replies to the portal of {portal.where} as a member of the "
                    "App; for a portal of another application, use registry.portal"
                )
            what = f"{task.name} asks portal {portal.name}, and no task of this application replies to it"
            self._complain(where, f"{what}: {remedy}")

    def _bind(self) -> None:
        complaints = self._resolver.complaints
        for stream in self.topology.streams.values():
            if isinstance(stream, Split):
                stream.annotation = stream.splitter.source.annotation
                stream.declared = stream.splitter.source.declared
            stream.bind(complaints)
        for portal in self.topology.portals.values():
            if portal.name not in self.topology.responders:
                what = f"no task replies to portal {portal.name}; mark a method of a task with its `reply`"
                self._complain(portal.where, what)
            portal.bind(complaints)

    def _add_task(self, plan: WorkflowPlan, task: TaskType) -> None:
        topology = self.topology
        topology.tasks[task.name] = task
        topology.rows[task.rows.name] = task.rows
        if task.shared is not None:
            topology.rows[task.shared.name] = task.shared
        if not self._resolver.complaints:
            topology.blank_rows.update(task.blank_rows())
        for responder in task.responders.values():
            portal = responder.portal
            self._add_portal(portal)
            _, other = topology.responders.setdefault(portal.name, (plan, task))
            if other is not task:
                self._complain(
                    task.where,
                    f"two tasks reply to portal {portal.name}: {other.name} and {task.name}",
                )

    def _check_splitter(self, splitter: Splitter[Any]) -> None:
        self._check_name("splitter", splitter.name, splitter.where)
        if not splitter.streams or not all(map(callable, splitter.predicates)):
            what = f"splitter {splitter.name} needs a function for each stream: even=lambda number: number % 2 == 0"
            self._complain(splitter.where, what)

    def _check_name(self, what: str, name: object, where: str) -> None:
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            rule = "a name is a letter, and then at most 63 letters, digits, - and _"
            self._complain(where, f"{name!r} cannot name a {what}: {rule}")

    def _complain(self, where: str, complaint: str) -> None:
        self._resolver.complaints.append(f"{where}: {complaint}")
