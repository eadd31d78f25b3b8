"""The stream operators of an application, and the ways of atoms between them, from its topology.

The handlers of tasks are analysed like the methods of entities; everything else is known when an application is built.
"""

import sys
import typing
from collections.abc import Iterator, Mapping
from inspect import Parameter
from types import FunctionType
from typing import Any, Final

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
    path_of,
)
from penstock.model.application import App
from penstock.model.declaration import where_of
from penstock.model.streams.flow import Workflow
from penstock.model.streams.generator import Generator
from penstock.model.streams.portal import Portal
from penstock.model.streams.routing import RequestSink, Sequencer, Split, Splitter
from penstock.model.streams.stream import Stream
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.topology import Subscriber, Topology
from penstock.model.streams.workflow_plan import WorkflowPlan


def stream_operators(topology: Topology) -> tuple[StreamOperator, ...]:
    """Return generators, the streams that take appends, then workflows, splitters, sequencers and portals."""
    streams = topology.streams.values()
    places = _Places()
    owners = _owners(topology)
    operators = [_generator_operator(member, places) for member in topology.generators.values()]
    operators += [
        _stream_operator(stream, StreamKind.STREAM, places)
        for stream in streams
        if owners[stream.name].operator == path_of(StreamKind.STREAM, stream.name)
        and (stream.is_open or stream.name in topology.subscribers)
    ]
    operators += [
        _workflow_operator(plan, topology, places) for plan in topology.workflows.values()
    ]
    splitters = {
        split.splitter.name: split.splitter for split in streams if isinstance(split, Split)
    }
    operators += [_splitter_operator(splitter, topology, places) for splitter in splitters.values()]
    operators += [
        _stream_operator(stream, StreamKind.SEQUENCER, places)
        for stream in streams
        if isinstance(stream, Sequencer)
    ]
    operators += [_portal_operator(portal, places) for portal in topology.portals.values()]
    return tuple(operators)


def handlers_of(topology: Topology) -> Iterator[tuple[Endpoint, type, FunctionType]]:
    """Yield the task, the class and the function of each handler of a task."""
    for plan in topology.workflows.values():
        for task in plan.tasks:
            functions = [getattr(task.cls, "on_event", None), task.completion]
            functions += [responder.function for responder in task.responders.values()]
            for function in map(plain_function, functions):
                if function is not None:
                    yield _task_end(plan, task), task.cls, function


def exclusive_tasks(topology: Topology) -> frozenset[Endpoint]:
    """Return the tasks in which the events of a key wait while a handler of that key waits."""
    return frozenset(
        _task_end(plan, task)
        for plan in topology.workflows.values()
        for task in plan.tasks
        if task.exclusive
    )


def feeds_of(app: App) -> Iterator[Edge]:
    """Yield an edge from each stream to each consumer, and from each portal to the task that replies."""
    topology, places = app.topology, _Places()
    owners = _owners(topology)
    for name, subscribers in topology.subscribers.items():
        source = owners[name]
        for subscriber in subscribers:
            action = Action.SEND if isinstance(subscriber, RequestSink) else Action.FEED
            target = _consumer_end(subscriber, app)
            yield _fixed(source, target, action, places.of(subscriber.where))
    for generator in topology.generators.values():
        source = _whole(StreamKind.GENERATOR, generator.name)
        target = _whole(StreamKind.STREAM, generator.stream.name)
        yield _fixed(source, target, Action.FEED, places.of(generator.where))
    for name, (plan, task) in topology.responders.items():
        path = path_of(StreamKind.PORTAL, name)
        where = places.of(where_of(task.responders[name].function))
        yield _fixed(Endpoint(path, path), _task_end(plan, task), Action.REPLY, where)


def _fixed(source: Endpoint, target: Endpoint, action: Action, where: SourceLocation) -> Edge:
    looped = action is Action.SEND  # a request for each event of an atom
    is_entity = looped and not target.is_whole  # the function of a request sink returns its key
    origin = Origin.COMPUTED if is_entity else Origin.CONSTANT
    return Edge(source, target, action, where, looped=looped, conditional=False, origin=origin)


def _whole(operator_kind: StreamKind, name: str) -> Endpoint:
    path = path_of(operator_kind, name)
    return Endpoint(path, path)


def _task_end(plan: WorkflowPlan, task: TaskType) -> Endpoint:
    path = path_of(StreamKind.WORKFLOW, plan.workflow.flow_name)
    return Endpoint(path, task.name.removeprefix(f"{plan.workflow.flow_name}."))


def _owners(topology: Topology) -> dict[str, Endpoint]:
    """Return the operator that publishes each stream, with the path of the stream, by the name of the stream."""
    owners: dict[str, Endpoint] = {}

    def own(operator_kind: StreamKind, name: str, *streams: Stream[Any]) -> None:
        for stream in streams:
            owners[stream.name] = Endpoint(
                path_of(operator_kind, name), path_of(StreamKind.STREAM, stream.name)
            )

    for name, plan in topology.workflows.items():
        own(StreamKind.WORKFLOW, name, plan.workflow, plan.workflow.failed)
    for stream in topology.streams.values():
        match stream:
            case Workflow():
                pass
            case Split():
                own(StreamKind.SPLITTER, stream.splitter.name, stream, stream.splitter.failed)
            case Sequencer():
                owners[stream.name] = _whole(StreamKind.SEQUENCER, stream.name)
            case _:
                owners.setdefault(stream.name, _whole(StreamKind.STREAM, stream.name))
    return owners


def _consumer_end(subscriber: Subscriber, app: App) -> Endpoint:
    match subscriber:
        case Workflow():
            return _whole(StreamKind.WORKFLOW, subscriber.flow_name)
        case Splitter():
            return _whole(StreamKind.SPLITTER, subscriber.name)
        case Sequencer():
            return _whole(StreamKind.SEQUENCER, subscriber.name)
        case RequestSink():
            return _method_end(subscriber, app)


def _method_end(sink: RequestSink[Any], app: App) -> Endpoint:
    """Return the method that a request sink calls."""
    name = getattr(sink.method, "__name__", "?")
    owner = getattr(sink.method, "__self__", None)
    if isinstance(owner, type) and owner.__name__ in app.entities:  # a creation
        return Endpoint(owner.__name__, name)
    function = plain_function(sink.method)
    for entity in app.entities.values():
        signature = entity.methods.get(name)
        if signature is not None and plain_function(signature.function) is function:
            return Endpoint(entity.name, name)
    return Endpoint(name if name in app.functions else UNKNOWN_OPERATOR, name)


class _Places:
    """Source locations of `file:line`, with files as from the folder that their modules are imported from."""

    def __init__(self) -> None:
        self._modules = {
            getattr(module, "__dict__", {}).get("__file__"): name
            for name, module in sys.modules.copy().items()
        }

    def of(self, where: str) -> SourceLocation:
        """Return the location."""
        filename, _, line = where.rpartition(":")
        module = self._modules.get(filename, "")
        return SourceLocation(file_of(module, filename), int(line) if line.isdigit() else 0)


def _stream_operator(
    stream: Stream[Any], operator_kind: StreamKind, places: _Places
) -> StreamOperator:
    path = path_of(operator_kind, stream.name)
    events = type_text(stream.annotation)
    return StreamOperator(path, operator_kind, stream.name, events, (), places.of(stream.where))


def _generator_operator(generator: Generator[Any], places: _Places) -> StreamOperator:
    path = path_of(StreamKind.GENERATOR, generator.name)
    where = places.of(generator.where)
    return StreamOperator(path, StreamKind.GENERATOR, generator.name, "", (), where)


def _published(stream: Stream[Any], places: _Places) -> StreamMember:
    path = path_of(StreamKind.STREAM, stream.name)
    return StreamMember(path, type_text(stream.annotation), places.of(stream.where))


def _workflow_operator(plan: WorkflowPlan, topology: Topology, places: _Places) -> StreamOperator:
    workflow = plan.workflow
    members = []
    for task in plan.tasks:
        where = places.of(where_of(task.cls))
        members.append(StreamMember(_task_end(plan, task).member, "", where))
    if not workflow.is_service:
        members.append(_published(workflow, places))
    if workflow.failed.name in topology.subscribers:
        members.append(_published(workflow.failed, places))
    name = workflow.flow_name
    path = path_of(StreamKind.WORKFLOW, name)
    where = places.of(workflow.where)
    return StreamOperator(path, StreamKind.WORKFLOW, name, "", tuple(members), where)


def _splitter_operator(
    splitter: Splitter[Any], topology: Topology, places: _Places
) -> StreamOperator:
    members = [_published(split, places) for split in splitter.streams]
    if splitter.failed.name in topology.subscribers:
        members.append(_published(splitter.failed, places))
    path = path_of(StreamKind.SPLITTER, splitter.name)
    where = places.of(splitter.where)
    return StreamOperator(path, StreamKind.SPLITTER, splitter.name, "", tuple(members), where)


def _portal_operator(portal: Portal[Any, Any], places: _Places) -> StreamOperator:
    request, reply = map(type_text, portal.annotations)
    path = path_of(StreamKind.PORTAL, portal.name)
    where = places.of(portal.where)
    return StreamOperator(path, StreamKind.PORTAL, portal.name, f"{request} -> {reply}", (), where)


_NAMES: Final[tuple[tuple[Any, str], ...]] = (
    (Parameter.empty, "Any"),
    (Any, "Any"),
    (Ellipsis, "..."),
    (None, "None"),
    (type(None), "None"),
)
_NO_NAMES: Final[dict[type, str]] = {}


def type_text(annotation: Any, full_names: Mapping[type, str] = _NO_NAMES) -> str:
    """Return a type as in source, without modules, except for the classes that have full names."""
    for known, text in _NAMES:
        if (
            annotation is known
        ):  # the annotation of a private method is not checked, and may have no hash
            return text
    if isinstance(annotation, str):
        return annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list):  # the parameters of a Callable
        arguments = tuple(annotation)
    inner = [type_text(argument, full_names) for argument in arguments]
    if "Union" in getattr(origin, "__name__", str(origin)):
        return " | ".join(inner)
    name = "" if isinstance(annotation, list) else _name_of(origin or annotation, full_names)
    return f"{name}[{', '.join(inner)}]" if inner or not name else name


def _name_of(cls: Any, full_names: Mapping[type, str]) -> str:
    full_name = full_names.get(cls) if isinstance(cls, type) else None
    return full_name or str(getattr(cls, "__name__", cls))
