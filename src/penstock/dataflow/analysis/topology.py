"""The part of the graph that is declared: streams, workflows and views as operators, and the edges between them.

No source is read for it: `analyze` adds what the handlers do.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from penstock.dataflow.analysis.records import type_text
from penstock.dataflow.analysis.source import file_of, plain_function
from penstock.dataflow.graph import (
    UNKNOWN_OPERATOR,
    Action,
    Edge,
    Endpoint,
    Origin,
    SourceLocation,
    StreamKind,
    StreamMember,
    StreamOperator,
    TableOfView,
    ViewOperator,
    path_of,
)
from penstock.model.application import App
from penstock.model.declaration import where_of
from penstock.model.streams.flow import Workflow
from penstock.model.streams.routing import RequestSink, Sequencer, Split, Splitter
from penstock.model.streams.stream import Stream
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.topology import Subscriber
from penstock.model.streams.workflow_plan import WorkflowPlan
from penstock.model.views.view import (
    ClassTable,
    QueryTable,
    RowTable,
    ShownTable,
    StreamTable,
    ViewPlan,
)


class DeclaredGraph:
    """The stream operators and views of an application, and the edges that its declarations fix."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._topology = app.topology
        tables = [table for plan in app.views.values() for table in plan.tables]
        self._shown = {table.source.name for table in tables if isinstance(table, StreamTable)}
        self._modules = {
            getattr(module, "__dict__", {}).get("__file__"): name
            for name, module in sys.modules.copy().items()
        }
        self._owners = dict(self._published())

    def _published(self) -> Iterator[tuple[str, Endpoint]]:
        """Yield each stream with the operator that publishes it."""
        for stream in self._topology.streams.values():
            owner = whole(StreamKind.STREAM, stream.name)
            match stream:
                case Sequencer():
                    owner = whole(StreamKind.SEQUENCER, stream.name)
                case Split():
                    owner = Endpoint(
                        path_of(StreamKind.SPLITTER, stream.splitter.name), owner.member
                    )
                case _:
                    pass
            yield stream.name, owner
        splitters = {
            path_of(StreamKind.SPLITTER, each.name): (each.failed,) for each in self._splitters()
        }
        workflows = {
            path_of(StreamKind.WORKFLOW, name): (plan.workflow, plan.workflow.failed)
            for name, plan in self._topology.workflows.items()
        }
        for path, streams in (splitters | workflows).items():
            for stream in streams:
                yield stream.name, Endpoint(path, path_of(StreamKind.STREAM, stream.name))

    def _splitters(self) -> list[Splitter[Any]]:
        streams = self._topology.streams.values()
        splitters = {
            each.splitter.name: each.splitter for each in streams if isinstance(each, Split)
        }
        return list(splitters.values())

    def operators(self) -> tuple[StreamOperator, ...]:
        """Return generators, the streams that take appends, then workflows, splitters, sequencers and portals."""
        topology, streams = self._topology, self._topology.streams.values()
        operators = [
            self._operator(StreamKind.GENERATOR, each.name, each.where)
            for each in topology.generators.values()
        ]
        operators += [
            self._operator(StreamKind.STREAM, each.name, each.where, type_text(each.annotation))
            for each in streams
            if self._is_source(each)
        ]
        operators += map(self._workflow, topology.workflows.values())
        operators += [
            self._operator(
                StreamKind.SPLITTER,
                each.name,
                each.where,
                members=self._published_members(each.streams, each.failed),
            )
            for each in self._splitters()
        ]
        operators += [
            self._operator(StreamKind.SEQUENCER, each.name, each.where, type_text(each.annotation))
            for each in streams
            if isinstance(each, Sequencer)
        ]
        operators += [
            self._operator(
                StreamKind.PORTAL,
                each.name,
                each.where,
                " -> ".join(map(type_text, each.annotations)),
            )
            for each in topology.portals.values()
        ]
        return tuple(operators)

    def _is_source(self, stream: Stream[Any]) -> bool:
        """Say whether a stream is an operator: no other operator publishes it, and somebody appends or reads it."""
        name, topology = stream.name, self._topology
        is_used = name in topology.subscribers or name in topology.tables or name in self._shown
        return self._owners[name] == whole(StreamKind.STREAM, name) and (stream.is_open or is_used)

    def _operator(
        self,
        operator_kind: StreamKind,
        name: str,
        where: str,
        events: str = "",
        members: Iterable[StreamMember] = (),
    ) -> StreamOperator:
        path = path_of(operator_kind, name)
        return StreamOperator(path, operator_kind, name, events, tuple(members), self._place(where))

    def _workflow(self, plan: WorkflowPlan) -> StreamOperator:
        workflow = plan.workflow
        tasks = [
            StreamMember(task_end(plan, task).member, "", self._place(where_of(task.cls)))
            for task in plan.tasks
        ]
        own = () if workflow.is_service else (workflow,)
        members = [*tasks, *self._published_members(own, workflow.failed)]
        name, where = workflow.flow_name, workflow.where
        return self._operator(StreamKind.WORKFLOW, name, where, members=members)

    def _published_members(
        self, streams: Iterable[Stream[Any]], failed: Stream[Any]
    ) -> list[StreamMember]:
        """Return the streams that an operator publishes, with that of its failed atoms if somebody takes it."""
        is_taken = failed.name in self._topology.subscribers
        return [
            StreamMember(
                path_of(StreamKind.STREAM, each.name),
                type_text(each.annotation),
                self._place(each.where),
            )
            for each in (*streams, *([failed] if is_taken else ()))
        ]

    def edges(self) -> Iterator[Edge]:
        """Yield an edge from each stream to each consumer, and from each portal to the task that replies."""
        topology = self._topology
        for name, subscribers in topology.subscribers.items():
            for subscriber in subscribers:
                action = Action.SEND if isinstance(subscriber, RequestSink) else Action.FEED
                target = self._consumer(subscriber)
                yield self._edge(self._owners[name], target, action, subscriber.where)
        for table in topology.tables.values():
            assert table.source is not None, "an application was built with the table"
            source, target = entity_end(table.source.name), whole(StreamKind.STREAM, table.name)
            yield self._edge(source, target, Action.FEED, table.where)
        for generator in topology.generators.values():
            source = whole(StreamKind.GENERATOR, generator.name)
            target = whole(StreamKind.STREAM, generator.stream.name)
            yield self._edge(source, target, Action.FEED, generator.where)
        for name, (plan, task) in topology.responders.items():
            source, target = whole(StreamKind.PORTAL, name), task_end(plan, task)
            yield self._edge(source, target, Action.REPLY, where_of(task.responders[name].function))

    def _edge(self, source: Endpoint, target: Endpoint, action: Action, where: str) -> Edge:
        looped = action is Action.SEND  # a request for each event of an atom
        is_entity = looped and not target.is_whole  # the function of a request sink returns its key
        origin = Origin.COMPUTED if is_entity else Origin.CONSTANT
        return Edge(
            source, target, action, self._place(where), looped, conditional=False, origin=origin
        )

    def _consumer(self, subscriber: Subscriber) -> Endpoint:
        match subscriber:
            case Workflow():
                return whole(StreamKind.WORKFLOW, subscriber.flow_name)
            case Splitter():
                return whole(StreamKind.SPLITTER, subscriber.name)
            case Sequencer():
                return whole(StreamKind.SEQUENCER, subscriber.name)
            case RequestSink():
                return self._method(subscriber)

    def _method(self, sink: RequestSink[Any]) -> Endpoint:
        """Return the method that a request sink calls."""
        app, name = self._app, getattr(sink.method, "__name__", "?")
        owner = getattr(sink.method, "__self__", None)
        if isinstance(owner, type) and owner.__name__ in app.entities:  # a creation
            return Endpoint(owner.__name__, name)
        function = plain_function(sink.method)
        for entity in app.entities.values():
            signature = entity.methods.get(name)
            if signature is not None and plain_function(signature.function) is function:
                return Endpoint(entity.name, name)
        return Endpoint(
            name if name in app.functions or name in app.effects else UNKNOWN_OPERATOR, name
        )

    def views(self) -> Iterator[ViewOperator]:
        """Yield the views, with the operators that feed each table."""
        for name, plan in self._app.views.items():
            tables = tuple(self._table(table, plan) for table in plan.tables)
            target, where = plan.target, self._place(plan.where)
            yield ViewOperator(f"views/{name}", name, target.kind, target.personal, tables, where)

    def _table(self, table: ShownTable, plan: ViewPlan) -> TableOfView:
        where = self._place(plan.where)
        match table:
            case ClassTable():
                return TableOfView(table.name, (entity_end(table.source.name),), "", where)
            case RowTable():
                where = self._place(where_of(table.function))
                return TableOfView(table.name, (entity_end(table.source.name),), table.name, where)
            case StreamTable():
                return TableOfView(table.name, (self._owners[table.source.name],), "", where)
            case QueryTable():  # only the SQL view reads the text of a query
                return TableOfView(table.name, (), "", where, table.query)

    def _place(self, where: str) -> SourceLocation:
        """Return a location of `file:line`, with the file as from the folder that its module is imported from."""
        filename, _, line = where.rpartition(":")
        module = self._modules.get(filename, "")
        return SourceLocation(file_of(module, filename), int(line) if line.isdigit() else 0)


def handlers_of(
    workflows: Mapping[str, WorkflowPlan],
) -> Iterator[tuple[Endpoint, type, FunctionType]]:
    """Yield the task, the class and the function of each handler of a task."""
    for plan in workflows.values():
        for task in plan.tasks:
            functions = [getattr(task.cls, "on_event", None), task.completion]
            functions += [responder.function for responder in task.responders.values()]
            for function in map(plain_function, functions):
                if function is not None:
                    yield task_end(plan, task), task.cls, function


def whole(operator_kind: StreamKind, name: str) -> Endpoint:
    """Return the end of an edge that means a stream operator as a whole."""
    return entity_end(path_of(operator_kind, name))


def entity_end(name: str) -> Endpoint:
    """Return the end of an edge that means an operator as a whole."""
    return Endpoint(name, name)


def task_end(plan: WorkflowPlan, task: TaskType) -> Endpoint:
    """Return the end of an edge that means a task of a workflow."""
    workflow = plan.workflow.flow_name
    return Endpoint(path_of(StreamKind.WORKFLOW, workflow), task.name.removeprefix(f"{workflow}."))
