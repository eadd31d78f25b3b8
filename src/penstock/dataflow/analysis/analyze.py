"""`analyze_app`: static access inference, from an application to its dataflow graph.

An abstract interpretation of the source of all methods: no code of the application runs. Each method
is interpreted as the root of a request, over abstract values (`value`) that come from the declared
types of parameters and attributes. Functions are summarised for each context of arguments (`frame`).
The result over-approximates the effects of readable source: an unknown receiver becomes an edge to
`?`, and code that the analysis does not read becomes a warning.
"""

import ast
import builtins
import contextlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter
from types import FunctionType, ModuleType
from typing import Any, Final

from penstock.base.annotations import EVALUATOR, signature_of
from penstock.base.record import factory_of, fields_of, is_record, members_of
from penstock.dataflow.analysis.hazard import MESSAGES, hazard_of, lost_updates
from penstock.dataflow.analysis.source import (
    Sources,
    file_of,
    hints_of,
    place_of,
    place_of_class,
    plain_function,
    resolve,
)
from penstock.dataflow.analysis.value import (
    NOTHING,
    SCALARS,
    UNKNOWN,
    Atom,
    BoundMethod,
    BuiltValue,
    Closure,
    OwnerAttribute,
    Question,
    StaticObject,
    TupleValue,
    TypedValue,
    Value,
    any_unknown,
    built,
    constant,
    derived,
    elements,
    entity_of,
    field_types,
    holds_entity,
    is_container,
    is_mapping,
    is_set,
    is_unknown,
    item,
    join,
    known_by,
    lookup,
    of_type,
    origin_of,
    retag,
    single,
    unpack,
)
from penstock.dataflow.graph import (
    UNKNOWN_OPERATOR,
    Action,
    Attribute,
    Edge,
    Endpoint,
    Hazard,
    Method,
    Operator,
    Origin,
    Part,
    Plan,
    PlanWarning,
    Record,
    SourceLocation,
    StreamKind,
    StreamMember,
    StreamOperator,
    TableOfView,
    ViewOperator,
    path_of,
)
from penstock.model.application import App
from penstock.model.attribute import DefaultFactory
from penstock.model.declaration import CREATIONS, RESERVED, where_of
from penstock.model.entity_type import EntityType
from penstock.model.sending import ask, send, send_after, send_at
from penstock.model.signature import Signature
from penstock.model.streams.ask import gather
from penstock.model.streams.flow import Emit, Workflow
from penstock.model.streams.generator import Generator
from penstock.model.streams.portal import Portal
from penstock.model.streams.routing import RequestSink, Sequencer, Split, Splitter
from penstock.model.streams.stream import Stream, emit
from penstock.model.streams.task_state import states
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.topology import Subscriber, Topology
from penstock.model.streams.workflow_plan import WorkflowPlan
from penstock.model.views.view import (
    ClassTable,
    QueryTable,
    RowTable,
    ShownTable,
    StreamTable,
    ViewPlan,
)

CHANGING: Final = frozenset(
    (
        *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend"),
        *("extendleft", "insert", "intersection_update", "pop", "popitem", "popleft", "remove"),
        *("reverse", "rotate", "setdefault", "sort", "symmetric_difference_update", "update"),
    )
)
"""The methods that change a list, dictionary or set."""

ORDERLESS: Final = (any, all, len, max, min, sorted, sum, set, frozenset)
"""The functions whose result is independent of the order of their argument."""

_RESULTS: Final = {
    "len": int,
    "abs": int,
    "round": int,
    "sum": int,
    "repr": str,
    "isinstance": bool,
    "any": bool,
    "all": bool,
    "print": type(None),
}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call; `rest` are the values in `*args` and `**kwargs`."""

    positional: tuple[Value, ...] = ()
    named: dict[str, Value] = field(default_factory=dict)
    rest: Value = NOTHING

    @property
    def every(self) -> Value:
        """All argument values."""
        return join((*self.positional, *self.named.values(), self.rest))

    @property
    def first(self) -> Value:
        """The first argument, which may be in `*args`."""
        return join((*self.positional[:1], self.rest))

    def behind(self, first: Value) -> "Arguments":
        """Return the arguments behind another one."""
        return replace(self, positional=(first, *self.positional))


def container_made(cls: type, arguments: Arguments) -> Value:
    """Return the result of a call of a built-in class."""
    first = join(arguments.positional[:1])
    if cls in SCALARS:
        return of_type(cls, derived(first))
    if not issubclass(cls, dict):
        return built(join((*map(elements, first), arguments.rest)))
    keys, values = NOTHING, join((*arguments.named.values(), arguments.rest))
    for atom in first:
        if not isinstance(atom, TypedValue | BuiltValue):
            continue  # a function is the argument of `defaultdict`
        pairs = elements(atom)
        if is_mapping(getattr(atom, "type", None)) or elements(atom) != lookup(atom):
            pairs = single(TupleValue((elements(atom), lookup(atom))))
        for key, value in (unpack(pair, 2) for pair in pairs):
            keys, values = keys | key, values | value
    return built(keys, values)


def container_result(receiver: Atom, name: str, given: Value, applied: Value) -> Value:
    """Return the result of a method of a list, dictionary, set, text or iterator."""
    pair = single(TupleValue((elements(receiver), lookup(receiver))))
    itself = single(receiver)
    results = {
        "items": built(pair),
        "values": built(lookup(receiver)),
        **dict.fromkeys(("get", "pop", "setdefault"), lookup(receiver) | given),
        **dict.fromkeys(("popleft", "__next__"), elements(receiver)),
        "popitem": pair,
    }
    otherwise = itself | applied if holds_entity(itself) else retag(itself, derived(itself))
    return results.get(name, otherwise)


def library_result(thing: Any, arguments: Arguments, applied: Value) -> Value:
    """Return the result of a function that is not followed; `applied` joins the results of its function arguments."""
    given = arguments.every
    inner = join(map(elements, given))
    is_builtin = getattr(thing, "__module__", None) == "builtins"
    name = str(getattr(thing, "__name__", "")) if is_builtin else ""
    columns = tuple(join(map(elements, value)) for value in arguments.positional)
    if name in _RESULTS:
        return of_type(_RESULTS[name], derived(given))
    results = {
        "enumerate": built(single(TupleValue((of_type(int, Origin.COMPUTED), inner)))),
        "zip": built(single(TupleValue(columns))),
        **dict.fromkeys(("sorted", "reversed", "iter", "filter"), built(inner)),
        **dict.fromkeys(("min", "max", "next"), join((inner, *arguments.positional[1:]))),
        "map": built(applied),
        "range": built(of_type(int, derived(given))),
    }
    if name in results:
        return results[name]
    # An unknown function may return any of its arguments, or a part of them.
    if holds_entity(given) or applied:
        return given | inner | built(join((inner, *map(elements, inner)))) | applied
    return of_type(Any, derived(given))


def stream_operators(topology: Topology, shown: Collection[str] = ()) -> tuple[StreamOperator, ...]:
    """Return generators, the streams that take appends, then workflows, splitters, sequencers and portals.

    Args:
        shown: The streams that views show.
    """
    streams = topology.streams.values()
    places = _Places()
    owners = _owners(topology)
    operators = [_generator_operator(member, places) for member in topology.generators.values()]
    operators += [
        _stream_operator(stream, StreamKind.STREAM, places)
        for stream in streams
        if owners[stream.name].operator == path_of(StreamKind.STREAM, stream.name)
        and (
            stream.is_open
            or stream.name in topology.subscribers
            or stream.name in topology.tables
            or stream.name in shown
        )
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
    for table in topology.tables.values():
        assert table.source is not None, "an application was built with the table"
        published = Endpoint(table.source.name, table.source.name)
        target = _whole(StreamKind.STREAM, table.name)
        yield _fixed(published, target, Action.FEED, places.of(table.where))
    for generator in topology.generators.values():
        source = _whole(StreamKind.GENERATOR, generator.name)
        target = _whole(StreamKind.STREAM, generator.stream.name)
        yield _fixed(source, target, Action.FEED, places.of(generator.where))
    for name, (plan, task) in topology.responders.items():
        path = path_of(StreamKind.PORTAL, name)
        where = places.of(where_of(task.responders[name].function))
        yield _fixed(Endpoint(path, path), _task_end(plan, task), Action.REPLY, where)


def shown_streams(app: App) -> frozenset[str]:
    """Return the names of the streams that views show."""
    tables = [table for plan in app.views.values() for table in plan.tables]
    return frozenset(table.source.name for table in tables if isinstance(table, StreamTable))


def views_of(app: App) -> Iterator[ViewOperator]:
    """Yield the views, with the operators that feed each table."""
    places = _Places()
    owners = _owners(app.topology)
    for name, plan in app.views.items():
        tables = tuple(_table_of(table, plan, owners, places) for table in plan.tables)
        target, where = plan.target, places.of(plan.where)
        yield ViewOperator(f"views/{name}", name, target.kind, target.personal, tables, where)


def _table_of(
    table: ShownTable, plan: ViewPlan, owners: Mapping[str, Endpoint], places: "_Places"
) -> TableOfView:
    where = places.of(plan.where)
    match table:
        case ClassTable():
            return TableOfView(table.name, (_entity_end(table.source),), "", where)
        case RowTable():
            function = places.of(where_of(table.function))
            return TableOfView(table.name, (_entity_end(table.source),), table.name, function)
        case StreamTable():
            return TableOfView(table.name, (owners[table.source.name],), "", where)
        case QueryTable():  # only the SQL view reads the text of a query
            return TableOfView(table.name, (), "", where, table.query)


def _entity_end(entity: EntityType) -> Endpoint:
    return Endpoint(entity.name, entity.name)


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


_ROUNDS_MAX: Final = 4  # a recursive function settles in two; this bounds the rest
_CONTEXTS_MAX: Final = 64  # readings of one function for one method, with different arguments
_NESTED_MAX: Final = 2
_MISSING: Final = object()
_ACTIONS: Final = {
    "create": Action.CREATE,
    "upsert": Action.CREATE,
    "delete": Action.DELETE,
    "exists": Action.EXISTS,
}
_METHOD_AT: Final = {send: 0, send_after: 1, send_at: 1, ask: 0}
"""The position of the method among the arguments."""


@dataclass(slots=True)
class Known:
    """The state that all readings of an application share.

    Attributes:
        method_names, attribute_names: The names of all entities, for accesses to unknown receivers.
        returned: Returns the result of a method of an entity class.
        exclusive: The tasks whose handlers never run between the steps of a waiting handler of the same key.
    """

    app: App
    sources: Sources
    classes: Mapping[str, type]
    method_names: frozenset[str]
    attribute_names: frozenset[str]
    returned: Callable[[type, str], Value]
    exclusive: frozenset[Endpoint]


@dataclass(slots=True, eq=False)
class Scope:
    """The names of one function while it is read.

    Attributes:
        function: The function, or the function around it: it has the globals and the file.
        owner: The class that defines it, for `super()`.
        shared: The names that a `global` or `nonlocal` declares.
    """

    function: FunctionType
    owner: type | None = None
    parent: "Scope | None" = None
    names: dict[str, Value] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    returned: Value = NOTHING
    yielded: Value = NOTHING

    def holder(self, name: str) -> "Scope | None":
        """Return the innermost scope that has a value of a name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope

    def outer(self, name: str) -> Any:
        """Return the object of a name outside all functions."""
        free = self.function.__code__.co_freevars
        for each, cell in zip(free, self.function.__closure__ or (), strict=True):
            if each == name:
                with contextlib.suppress(ValueError):  # a cell that is not filled yet
                    return cell.cell_contents
        return self.function.__globals__.get(name, getattr(builtins, name, _MISSING))

    def is_outer(self, name: str) -> bool:
        """Whether a name refers to an object that outlives the transaction."""
        holder = self.holder(name)
        is_own = holder is not None and name not in holder.shared
        return not is_own and self.outer(name) is not _MISSING

    def bind(self, name: str, value: Value) -> None:
        """Assign to a name, in the scope that it belongs to."""
        holder = self.parent.holder(name) if self.parent and name in self.shared else None
        if holder is not None:
            holder.names[name] |= value
        else:
            self.names[name] = value


@dataclass(slots=True)
class _Activation:
    """A function that is being read: its arguments, its result so far, and whether it has called itself."""

    names: dict[str, Value]
    returned: Value = NOTHING
    is_recursive: bool = False


class Reading:
    """Reads one method, with the functions that it calls."""

    def __init__(self, known: Known, source: Endpoint) -> None:
        self.edges: dict[Edge, None] = {}
        self.warnings: dict[PlanWarning, None] = {}
        self._known = known
        self._source = source
        self._scope: Scope
        self._loops = self._branches = 0
        self._active: dict[ast.AST, _Activation] = {}
        self._finished: dict[object, Value] = {}
        self._contexts: dict[tuple[ast.AST, FunctionType], int] = {}
        self._orderless: set[ast.expr] = set()  # `sum(… for …)` does not depend on the order

    # The record of effects

    def _warn(self, node: ast.AST, message: str, hazard: Hazard | None = None) -> None:
        where = place_of(self._scope.function, getattr(node, "lineno", 0))
        self.warnings[PlanWarning(where, self._source, message, hazard)] = None

    def _warn_global(self, node: ast.AST, name: str) -> None:
        self._warn(node, f"{name} is global, so its value is not part of the state", Hazard.GLOBAL)

    def _check(self, thing: Any, name: str, node: ast.AST) -> None:
        if hazard := hazard_of(thing):
            self._warn(node, f"{name} {MESSAGES[hazard]}", hazard)

    def _edge(self, node: ast.AST, action: Action, target: Endpoint, origin: Origin) -> None:
        where = place_of(self._scope.function, getattr(node, "lineno", 0))
        looped, conditional = self._loops > 0, self._branches > 0
        edge = Edge(self._source, target, action, where, looped, conditional, origin)
        self.edges[edge] = None

    def _unknown(self, node: ast.AST, action: Action, member: str) -> None:
        self._edge(node, action, Endpoint(UNKNOWN_OPERATOR, member), Origin.UNKNOWN)

    @contextlib.contextmanager
    def _loop(self) -> Iterator[None]:
        self._loops += 1
        yield
        self._loops -= 1

    @contextlib.contextmanager
    def _branch(self, *, taken: bool = True) -> Iterator[None]:
        self._branches += taken
        yield
        self._branches -= taken

    # Functions

    def follow(
        self,
        node: ast.FunctionDef | ast.Lambda,
        scope: Scope,
        arguments: Arguments,
    ) -> Value:
        """Read a called function in its new scope, and return its result."""
        names = self._bound(node, scope, arguments)
        running = self._active.get(node)
        if running is not None:
            running.is_recursive = True
            running.names = _merged((running.names, names))
            return running.returned
        flags = self._loops > 0, self._branches > 0
        called = node, scope.function  # functions of one lambda differ in their cells
        key = called, scope.parent, flags, frozenset(names.items())
        if key not in self._finished:
            self._contexts[called] = self._contexts.get(called, 0) + 1
            if self._contexts[called] > _CONTEXTS_MAX:
                return UNKNOWN
            self._finished[key] = self._settle(node, scope, names)
        return self._finished[key]

    def _settle(
        self, node: ast.FunctionDef | ast.Lambda, scope: Scope, names: dict[str, Value]
    ) -> Value:
        """Read a function until its result, and the arguments of its calls of itself, are a fixed point."""
        before, self.edges = self.edges, {}
        outside = getattr(self, "_scope", None)
        running = self._active[node] = _Activation(names)
        for _ in range(_ROUNDS_MAX):
            known = running.names, running.returned
            self._scope = replace(scope, names=dict(running.names), shared=set())
            if isinstance(node, ast.Lambda):
                returned = self._evaluate(node.body)
            else:
                self._run(node.body)
                returned = self._scope.returned
            running.returned = built(self._scope.yielded) if _is_generator(node) else returned
            if not running.is_recursive or known == (running.names, running.returned):
                break
        del self._active[node]
        if outside is not None:
            self._scope = outside
        effects = self.edges
        if running.is_recursive:  # its effects repeat
            effects = {replace(edge, looped=True): None for edge in effects}
        self.edges = before | effects
        return running.returned

    def _bound(
        self, node: ast.FunctionDef | ast.Lambda, scope: Scope, arguments: Arguments
    ) -> dict[str, Value]:
        """Return the values of the parameters; annotations replace unknown values."""
        listed = [*node.args.posonlyargs, *node.args.args]
        positional = [parameter.arg for parameter in listed]
        names = dict(zip(positional, arguments.positional, strict=False))
        names |= arguments.named
        hints = {} if scope.parent else hints_of(scope.function, self._visible(scope))
        every = [*positional, *(parameter.arg for parameter in node.args.kwonlyargs)]
        result = {
            name: known_by(names.get(name, arguments.rest), hints.get(name, Any)) for name in every
        }
        if node.args.vararg is not None:
            beyond = join((*arguments.positional[len(listed) :], arguments.rest))
            result[node.args.vararg.arg] = built(beyond)
        if node.args.kwarg is not None:
            extra = [value for name, value in arguments.named.items() if name not in every]
            result[node.args.kwarg.arg] = built(NOTHING, join((*extra, arguments.rest)))
        return result

    def _visible(self, scope: Scope) -> Mapping[str, Any]:
        """Return the names that an annotation may use."""
        return {**self._known.classes, **scope.function.__globals__}

    # Statements

    def _run(self, statements: Sequence[ast.stmt]) -> None:
        left = 0
        for statement in statements:
            with self._branch(taken=left > 0):
                do: Callable[[Any], None] = getattr(
                    self, f"_do_{type(statement).__name__.lower()}", self._do_other
                )
                do(statement)
            left += _leaves(statement)

    def _ways(self, ways: Iterable[Callable[[], None]]) -> None:
        """Read alternatives, each with the names of before, and join their names."""
        before, after = self._scope.names, []
        for way in ways:
            self._scope.names = dict(before)
            way()
            after.append(self._scope.names)
        self._scope.names = _merged(after)

    def _perhaps(self, body: Sequence[ast.stmt]) -> None:
        with self._branch():
            self._run(body)

    def _do_return(self, node: ast.Return) -> None:
        self._scope.returned |= self._evaluate(node.value)

    def _do_assign(self, node: ast.Assign) -> None:
        self._warn_of_lost_updates(node)
        value = self._evaluate(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            resolved = resolve(node.annotation, self._visible(self._scope))
            self._assign(node.target, known_by(self._evaluate(node.value), resolved))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        before = self._evaluate(_as_read(node.target))
        value = before | self._evaluate(node.value)
        if isinstance(node.target, ast.Name):
            self._change(node.target, frozenset(filter(_changes_in_place, before)))
        self._warn_of_lost_updates(node)
        self._assign(node.target, value)

    def _warn_of_lost_updates(self, node: ast.Assign | ast.AugAssign) -> None:
        if self._source not in self._known.exclusive:
            for wait, message in lost_updates(node):
                self._warn(wait, message)

    def _do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._scope.names.pop(target.id, None)
            else:
                self._assign(target, NOTHING)

    def _do_if(self, node: ast.If) -> None:
        self._evaluate(node.test)
        self._ways((lambda: self._perhaps(node.body), lambda: self._perhaps(node.orelse)))

    def _do_for(self, node: ast.For) -> None:
        source = self._evaluate(node.iter)

        def once() -> None:
            with self._loop():
                self._iterate(node.iter, node.target, source)
                self._run(node.body)

        self._repeat(once, node.orelse)

    def _do_while(self, node: ast.While) -> None:
        def once() -> None:
            with self._loop():
                self._evaluate(node.test)
                self._run(node.body)

        self._repeat(once, node.orelse)

    def _repeat(self, once: Callable[[], None], orelse: Sequence[ast.stmt]) -> None:
        for _ in range(2):  # so that the names of one iteration reach the next
            before = dict(self._scope.names)
            self._ways((lambda: None, once))
            if self._scope.names == before:
                break
        self._run(orelse)

    def _do_try(self, node: ast.Try) -> None:
        before = dict(self._scope.names)
        self._run(node.body)
        # A handler may run after any statement of the body.
        between = _merged((before, self._scope.names))

        def handled(handler: ast.ExceptHandler) -> None:
            self._scope.names = dict(between)
            self._evaluate(handler.type)
            if handler.name:
                self._scope.names[handler.name] = of_type(BaseException, Origin.COMPUTED)
            self._perhaps(handler.body)

        def unhandled() -> None:
            with self._branch(taken=bool(node.handlers)):
                self._run(node.orelse)

        handlers = [lambda each=each: handled(each) for each in node.handlers]
        self._ways([unhandled, *handlers])
        self._run(node.finalbody)

    _do_trystar = _do_try

    def _do_with(self, node: ast.With) -> None:
        for entered in node.items:
            value = self._evaluate(entered.context_expr)
            if entered.optional_vars is not None:
                self._assign(entered.optional_vars, _inside(value))
        self._run(node.body)

    def _do_match(self, node: ast.Match) -> None:
        subject = self._evaluate(node.subject)

        def taken(case: ast.match_case) -> None:
            self._capture(case.pattern, subject)
            with self._branch():
                self._evaluate(case.guard)
                self._run(case.body)

        cases = [lambda each=each: taken(each) for each in node.cases]
        self._ways([lambda: None, *cases])

    def _capture(self, pattern: ast.pattern, subject: Value) -> None:
        """Bind the names of a pattern; all parts of the subject are joined."""
        within = subject if isinstance(pattern, ast.MatchAs | ast.MatchOr) else _inside(subject)
        if isinstance(pattern, ast.MatchAs) and isinstance(pattern.pattern, ast.MatchClass):
            things = [getattr(atom, "thing", None) for atom in self._evaluate(pattern.pattern.cls)]
            origin = origin_of(subject)
            kinds = [of_type(cls, origin) for cls in things if isinstance(cls, type)]
            within = join(kinds) or subject
        for child in ast.iter_child_nodes(pattern):
            if isinstance(child, ast.pattern):
                self._capture(child, within)
            elif isinstance(child, ast.expr):
                self._evaluate(child)
        if name := getattr(pattern, "name", None):
            self._scope.bind(name, within if isinstance(pattern, ast.MatchAs) else built(subject))

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        self._all([*node.args.defaults, *node.args.kw_defaults])
        self._scope.names[node.name] = single(Closure(node, self._scope))

    def _do_global(self, node: ast.Global | ast.Nonlocal) -> None:
        self._scope.shared.update(node.names)

    _do_nonlocal = _do_global

    def _do_import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            module = sys.modules.get(name)
            bound = alias.asname or name
            self._scope.names[bound] = UNKNOWN if module is None else constant(module)

    def _do_importfrom(self, node: ast.ImportFrom) -> None:
        name = "." * node.level + (node.module or "")
        package = self._scope.function.__globals__.get("__package__") or ""
        full = importlib.util.resolve_name(name, package) if package or not node.level else name
        # The application is loaded, and so are most modules that a handler imports; nothing is imported
        # for a picture.
        module = sys.modules.get(full)
        for alias in node.names:
            thing = getattr(module, alias.name, None) or sys.modules.get(f"{full}.{alias.name}")
            known = UNKNOWN if thing is None else constant(thing)
            self._scope.names[alias.asname or alias.name] = known
            if thing is not None:
                self._check(thing, alias.name, node)

    def _do_classdef(self, node: ast.ClassDef) -> None:
        # A class in a function is rare in handlers, and its methods are not followed.
        self._scope.names[node.name] = UNKNOWN

    def _do_other(self, node: ast.stmt) -> None:
        self._parts(node)

    # Names, attributes and elements that are assigned or changed

    def _assign(self, target: ast.expr, value: Value) -> None:
        """Bind a target of an assignment, a loop or a `with`."""
        match target:
            case ast.Name(id=name):
                if name in self._scope.shared and self._scope.is_outer(name):
                    self._warn_global(target, name)
                self._scope.bind(name, value)
            case ast.Starred(value=inner):
                self._assign(inner, built(value))
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for each, part in zip(targets, _unpacked(targets, value), strict=True):
                    self._assign(each, part)
            case ast.Attribute(value=base, attr=name):
                self._write(target, name, self._evaluate(base))
            case ast.Subscript(value=base, slice=index):
                self._evaluate(index)
                self._change(base, self._evaluate(base), value)
            case _:
                pass

    def _write(self, node: ast.expr, name: str, value: Value) -> None:
        """Record an assignment to an attribute of a value."""
        for atom in value:
            entity = entity_of(atom)
            match atom:
                case TypedValue(origin=origin) if entity is not None:
                    if name not in entity.attributes and name != entity.key_name:
                        message = f"{entity.name} declares no attribute {name}; assigning it fails"
                        self._warn(node, message)
                    self._edge(node, Action.WRITE, Endpoint(entity.name, name), origin)
                case StaticObject(thing=thing):
                    owner = getattr(thing, "__name__", type(thing).__name__)
                    self._warn_global(node, f"{owner}.{name}")
                case TypedValue(home=OwnerAttribute() as home):
                    self._edge(node, Action.WRITE, home.attribute, home.origin)
                case TypedValue() if is_unknown(atom) and name in self._known.attribute_names:
                    self._unknown(node, Action.WRITE, name)
                case _:
                    pass

    def _change(self, node: ast.expr, value: Value, added: Value = NOTHING) -> None:
        """Record a change of a list, dictionary or set, and add to its elements."""
        for atom in value:
            match atom:
                case TypedValue(home=OwnerAttribute() as home):
                    self._edge(node, Action.WRITE, home.attribute, home.origin)
                case StaticObject(thing=list() | dict() | set() as thing):
                    name = ast.unparse(node)
                    message = f"{name} is a global {type(thing).__name__} and not part of the state"
                    self._warn(node, message, Hazard.GLOBAL)
                case _:
                    pass
        if added:
            self._widen(node, added)

    def _widen(self, node: ast.expr, added: Value) -> None:
        """Add elements to the collection that a name refers to, at any depth: `groups[name].append(item)`."""
        depth, root = 0, node
        while isinstance(root, ast.Subscript | ast.Attribute | ast.Call):
            depth += not isinstance(root, ast.Attribute)
            root = root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name) or self._scope.is_outer(root.id):
            return
        value = self._name(root.id, root)
        for _ in range(min(depth, _NESTED_MAX) + 1):
            added = built(NOTHING, added) | built(added)
        if any(isinstance(atom, BuiltValue | TupleValue) for atom in value):
            self._scope.bind(root.id, value | added)

    # Expressions

    def _evaluate(self, node: ast.expr | None) -> Value:
        """Return the value of an expression, and record its effects."""
        if node is None:
            return NOTHING
        at: Callable[[Any], Value] = getattr(
            self, f"_at_{type(node).__name__.lower()}", self._at_other
        )
        return at(node)

    def _all(self, nodes: Iterable[ast.expr | None]) -> list[Value]:
        return [self._evaluate(node) for node in nodes]

    def _parts(self, node: ast.AST) -> Value:
        """Evaluate the expressions inside of a node, and return their join."""
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return join(self._all(inner))

    def _at_other(self, node: ast.expr) -> Value:
        self._parts(node)
        return UNKNOWN

    def _at_constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _at_name(self, node: ast.Name) -> Value:
        return self._name(node.id, node)

    def _name(self, name: str, node: ast.AST) -> Value:
        holder = self._scope.holder(name)
        if holder is not None:
            return holder.names[name]
        thing = self._scope.outer(name)
        if thing is _MISSING:
            return UNKNOWN
        self._check(thing, name, node)
        return constant(thing)

    def _at_attribute(self, node: ast.Attribute) -> Value:
        base = self._evaluate(node.value)
        able = [atom for atom in base if _has(atom, node.attr)]
        return join(self._read(node, atom, node.attr) for atom in able or base)

    def _read(self, node: ast.expr, atom: Atom, name: str) -> Value:
        """Return an attribute of a value, and record the read."""
        entity = entity_of(atom)
        if isinstance(atom, TypedValue) and entity is not None:
            is_class = name == "__class__"
            return constant(entity.cls) if is_class else self._read_entity(node, atom, entity, name)
        match atom:
            case StaticObject(thing=thing):
                return self._read_thing(node, atom, thing, name)
            case TypedValue() if is_unknown(atom):
                known = self._known
                if name in known.attribute_names and name not in known.method_names:
                    self._unknown(node, Action.READ, name)
            case TypedValue(type=annotation, origin=origin, home=home):
                fields = field_types(annotation)
                if name in fields:
                    return of_type(fields[name], origin, home)
                member = inspect.getattr_static(annotation, name, None)
                if not is_container(annotation) and not _is_method(member):
                    return of_type(Any, derived(single(atom)))
            case _:
                pass
        return single(BoundMethod(atom, name))

    def _read_entity(
        self, node: ast.expr, atom: TypedValue, entity: EntityType, name: str
    ) -> Value:
        if name == entity.key_name:
            return of_type(entity.key_annotation, atom.origin)
        home = Endpoint(entity.name, name)
        if name in entity.attributes:
            self._edge(node, Action.READ, home, atom.origin)
            return of_type(entity.attributes[name], Origin.STATE, OwnerAttribute(home, atom.origin))
        member = inspect.getattr_static(entity.cls, name, _MISSING)
        if isinstance(member, property):
            self._edge(node, Action.CALL, home, atom.origin)
            return retag(self._known.returned(entity.cls, name), Origin.RESULT)
        if member is _MISSING:
            self._warn(node, f"{entity.name} has no attribute or method {name}")
            return UNKNOWN
        return single(BoundMethod(atom, name)) if _is_method(member) else constant(member)

    def _read_thing(self, node: ast.expr, atom: StaticObject, thing: Any, name: str) -> Value:
        is_reserved = _is_entity_class(thing) and name in RESERVED
        if is_reserved or not isinstance(thing, ModuleType | type):
            return single(BoundMethod(atom, name))
        member = getattr(thing, name, _MISSING)
        if member is _MISSING:
            return UNKNOWN
        self._check(member, ast.unparse(node), node)
        return constant(member)

    def _at_subscript(self, node: ast.Subscript) -> Value:
        base = self._evaluate(node.value)
        index = self._evaluate(node.slice)
        match node.slice:
            case ast.Slice():
                return base
            case ast.Constant(value=int(position)):
                return join(item(atom, position) for atom in base)
            case _:
                pass
        looked, origin = join(map(lookup, base)), origin_of(index)
        return retag(looked, origin) if origin.dynamic and not origin_of(looked).dynamic else looked

    def _at_slice(self, node: ast.Slice) -> Value:
        return self._parts(node)

    def _at_tuple(self, node: ast.Tuple) -> Value:
        if any(isinstance(part, ast.Starred) for part in node.elts):
            return self._at_list(node)
        return single(TupleValue(tuple(self._all(node.elts))))

    def _at_list(self, node: ast.List | ast.Set | ast.Tuple) -> Value:
        return built(join(self._all(node.elts)))

    _at_set = _at_list

    def _at_dict(self, node: ast.Dict) -> Value:
        keys, values = NOTHING, NOTHING
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self._evaluate(value)
            if key is None:  # `**other`
                keys |= join(map(elements, inner))
                values |= join(map(lookup, inner))
            else:
                keys, values = keys | self._evaluate(key), values | inner
        return built(keys, values)

    def _at_starred(self, node: ast.Starred) -> Value:
        return join(map(elements, self._evaluate(node.value)))

    def _at_namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self._evaluate(node.value)
        self._assign(node.target, value)
        return value

    def _at_boolop(self, node: ast.BoolOp) -> Value:
        first = self._evaluate(node.values[0])
        with self._branch():
            return join((first, *self._all(node.values[1:])))

    def _at_ifexp(self, node: ast.IfExp) -> Value:
        self._evaluate(node.test)
        with self._branch():
            return join(self._all((node.body, node.orelse)))

    def _at_binop(self, node: ast.BinOp) -> Value:
        value = join(self._all((node.left, node.right)))
        is_built = any(isinstance(atom, BuiltValue | TupleValue) for atom in value)
        return value if is_built else retag(value, derived(value))

    def _at_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self._evaluate(node.operand)
        return of_type(bool, derived(value)) if isinstance(node.op, ast.Not) else value

    def _at_compare(self, node: ast.Compare | ast.JoinedStr) -> Value:
        cls = bool if isinstance(node, ast.Compare) else str
        return of_type(cls, derived(self._parts(node)))

    _at_joinedstr = _at_compare

    def _at_formattedvalue(self, node: ast.FormattedValue) -> Value:
        return of_type(str, origin_of(self._parts(node)))

    def _at_lambda(self, node: ast.Lambda) -> Value:
        return single(Closure(node, self._scope))

    def _at_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        ordered = not isinstance(node, ast.SetComp) and node not in self._orderless
        return built(self._comprehend(node.generators, [node.elt], ordered=ordered)[0])

    _at_setcomp = _at_generatorexp = _at_listcomp

    def _at_dictcomp(self, node: ast.DictComp) -> Value:
        return built(*self._comprehend(node.generators, [node.key, node.value], ordered=False))

    def _comprehend(
        self, generators: list[ast.comprehension], parts: list[ast.expr], *, ordered: bool
    ) -> list[Value]:
        """Bind the loops of a comprehension, outermost first; then restore its names."""
        if not generators:
            return self._all(parts)
        first, inner = generators[0], generators[1:]
        kept = dict(self._scope.names)
        source = self._evaluate(first.iter)
        with self._loop():
            self._iterate(first.iter, first.target, source, ordered=ordered)
            self._all(first.ifs)
            with self._branch(taken=bool(first.ifs)):
                values = self._comprehend(inner, parts, ordered=ordered)
        for part in ast.walk(first.target):
            if isinstance(part, ast.Name):
                self._scope.names.pop(part.id, None)
                if part.id in kept:
                    self._scope.names[part.id] = kept[part.id]
        return values

    def _iterate(
        self, node: ast.expr, target: ast.expr, source: Value, *, ordered: bool = True
    ) -> None:
        if ordered and any(map(is_set, source)):
            message = f"the order of the set {ast.unparse(node)} differs between processes; sort it"
            self._warn(node, message, Hazard.SET_ORDER)
        self._assign(target, join(map(elements, source)))

    def _at_yield(self, node: ast.Yield) -> Value:
        self._scope.yielded |= self._evaluate(node.value)
        return NOTHING

    def _at_yieldfrom(self, node: ast.YieldFrom) -> Value:
        self._scope.yielded |= join(map(elements, self._evaluate(node.value)))
        return NOTHING

    def _at_await(self, node: ast.Await) -> Value:
        return _replies(self._evaluate(node.value))

    # Calls

    def _at_call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and (special := self._special(node)) is not None:
            return special
        called = self._evaluate(node.func)
        things = [atom.thing for atom in called if isinstance(atom, StaticObject)]
        if any(thing is known for thing in things for known in ORDERLESS):
            self._orderless.update(node.args)
        arguments = self._arguments(node)
        if not called and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            # The receiver is an element of a collection that is still empty.
            self._change(node.func.value, NOTHING, _inside(arguments.every))
        return join(self._call(node, atom, arguments) for atom in called)

    def _arguments(self, node: ast.Call) -> Arguments:
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        starred = [argument for argument in node.args if isinstance(argument, ast.Starred)]
        positional, rest = tuple(self._all(plain)), join(self._all(starred))
        named = [(keyword.arg, self._evaluate(keyword.value)) for keyword in node.keywords]
        more = [lookup(atom) for name, value in named if name is None for atom in value]
        known = {name: value for name, value in named if name is not None}
        return Arguments(positional, known, join((rest, *more)))

    def _special(self, node: ast.Call) -> Value | None:
        """Evaluate the built-in functions for attributes and types; None for every other function."""
        name = ast.unparse(node.func)
        if name in self._scope.names or name not in ("getattr", "setattr", "hasattr", "type"):
            return self._super(node) if name == "super" else None
        base, *values = self._all(node.args) or [NOTHING]
        if name == "type":
            return join(constant(entity.cls) for atom in base if (entity := entity_of(atom)))
        attribute = getattr(node.args[1], "value", None) if len(node.args) > 1 else None
        if not isinstance(attribute, str):  # only the run knows the name
            action = Action.WRITE if name == "setattr" else Action.READ
            for atom in base:
                entity = entity_of(atom)
                if entity is not None or is_unknown(atom):
                    end = Endpoint(entity.name if entity else UNKNOWN_OPERATOR, "?")
                    self._edge(node, action, end, origin_of(single(atom)))
            return UNKNOWN
        if name == "setattr":
            self._write(node, attribute, base)
            return NOTHING
        read = join((*(self._read(node, atom, attribute) for atom in base), *values[1:]))
        return read if name == "getattr" else of_type(bool, Origin.STATE)

    def _super(self, node: ast.Call) -> Value:
        """Return the value of `super()`: the receiver, with the lookup from the next class on."""
        if node.args or self._scope.owner is None:
            return UNKNOWN
        this = self._scope.function.__code__.co_varnames[:1]
        receiver = self._scope.names.get(this[0], NOTHING) if this else NOTHING
        return frozenset(BoundMethod(atom, "super") for atom in receiver)

    def _call(self, node: ast.Call, atom: Atom, arguments: Arguments) -> Value:
        match atom:
            case Closure(node=tree, scope=outer):
                return self.follow(tree, Scope(outer.function, outer.owner, outer), arguments)
            case BoundMethod(receiver=receiver, name=name):
                return self._call_method(node, receiver, name, arguments)
            case StaticObject(thing=thing):
                return self._call_thing(node, thing, arguments)
            case TypedValue(type=annotation) if typing.get_origin(annotation) is not Emit:
                self._unknown(node, Action.CALL, ast.unparse(node.func))
            case _:
                pass
        return UNKNOWN

    def _call_method(
        self, node: ast.Call, receiver: Atom, name: str, arguments: Arguments
    ) -> Value:
        match receiver:
            case BoundMethod(receiver=this, name="super"):
                return self._call_super(this, name, arguments)
            case StaticObject(thing=thing) if _is_entity_class(thing):
                return self._call_class(node, thing.__reference__, name, arguments)
            case StaticObject(thing=Portal() as portal) if name == "ask":
                path = path_of(StreamKind.PORTAL, portal.name)
                self._edge(node, Action.ASK, Endpoint(path, path), Origin.CONSTANT)
                return single(Question(of_type(portal.annotations[1], Origin.RESULT)))
            case _:
                return self._call_object(node, receiver, name, arguments)

    def _call_super(self, receiver: Atom, name: str, arguments: Arguments) -> Value:
        entity = entity_of(receiver)
        lineage = entity.cls.__mro__ if entity else getattr(receiver, "type", object).__mro__
        owner = self._scope.owner
        behind = lineage[lineage.index(owner) + 1 :] if owner in lineage else ()
        for cls in behind:
            function = plain_function(vars(cls).get(name))
            if function is not None:
                return self._follow_function(function, arguments.behind(single(receiver)), cls)
        return UNKNOWN

    def _call_class(
        self, node: ast.Call, entity: EntityType, name: str, arguments: Arguments
    ) -> Value:
        """Record `Item.create(…)`, `Item.exists(…)`; `Item.delete(item)` names it as argument."""
        origin = _key_origin(entity, arguments) if name in CREATIONS else origin_of(arguments.first)
        self._edge(node, _ACTIONS[name], Endpoint(entity.name, name), origin)
        return of_type(bool, Origin.STATE) if name == "exists" else of_type(entity.cls, origin)

    def _call_object(
        self, node: ast.Call, receiver: Atom, name: str, arguments: Arguments
    ) -> Value:
        entity = entity_of(receiver)
        if entity is not None:
            return self._call_entity(node, receiver, entity, (name, arguments))
        if is_unknown(receiver):
            if name in self._known.method_names:
                self._unknown(node, Action.CALL, name)
            return self._apply(node, arguments) | UNKNOWN
        thing = receiver.thing if isinstance(receiver, StaticObject) else None
        cls = receiver.type if isinstance(receiver, TypedValue) else type(thing)
        if (thing is None and not isinstance(receiver, TypedValue)) or is_container(cls):
            return self._call_container(node, receiver, name, arguments)
        member = inspect.getattr_static(cls, name, None)
        function = plain_function(member)
        if function is not None and self._known.sources.follows(function):
            return self._follow_function(function, arguments.behind(single(receiver)), cls)
        if hazard_of(function or member) is Hazard.OUTSIDE:
            self._check(function or member, ast.unparse(node.func), node)
        return self._library(node, None, arguments)

    def _call_entity(
        self, node: ast.Call, receiver: Atom, entity: EntityType, asked: tuple[str, Arguments]
    ) -> Value:
        name, arguments = asked
        origin = origin_of(single(receiver))
        target = Endpoint(entity.name, name)
        if name in RESERVED:
            exists = name == "exists"
            self._edge(
                node, _ACTIONS[name], target, origin_of(arguments.first) if exists else origin
            )
            return of_type(bool, Origin.STATE) if exists else NOTHING
        member = inspect.getattr_static(entity.cls, name, None)
        if isinstance(member, staticmethod):
            return self._call_function(node, member, arguments)
        if isinstance(member, classmethod):
            return self._call_function(node, member, arguments.behind(constant(entity.cls)))
        self._edge(node, Action.CALL, target, origin)
        signature = entity.methods.get(name)
        # The declared result is checked when a handler runs; without one, the method itself is
        # read.
        if signature is not None and signature.returns is not Any:
            return of_type(signature.returns, Origin.RESULT)
        return retag(self._known.returned(entity.cls, name), Origin.RESULT)

    def _call_container(
        self, node: ast.Call, receiver: Atom, name: str, arguments: Arguments
    ) -> Value:
        """Evaluate a method of a list, dictionary, set or iterator."""
        given = arguments.every
        if name in CHANGING:
            base = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            many = name in ("extend", "update", "extendleft")
            self._change(base, single(receiver), join(map(elements, given)) if many else given)
        return container_result(receiver, name, given, self._apply(node, arguments))

    def _call_thing(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        if _is_entity_class(thing):
            first = join(arguments.positional[:1])
            if any(entity_of(atom) for atom in first):  # Item(item) is item
                return first
            return of_type(thing, origin_of(arguments.first))
        if isinstance(thing, type):
            return self._construct(node, thing, arguments)
        return self._call_function(node, thing, arguments)

    def _call_function(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        if (published := self._outlet(node, thing, arguments)) is not None:
            return published
        function = plain_function(thing)
        if function is None or not self._known.sources.follows(function):
            return self._library(node, thing, arguments)
        name = function.__name__
        known = self._known.app.functions.get(name)
        if known is not None and plain_function(known.function) is function:
            self._edge(node, Action.CALL, Endpoint(name, name), Origin.CONSTANT)
            return of_type(known.returns, Origin.RESULT)
        if inspect.ismethod(thing):
            arguments = arguments.behind(constant(thing.__self__))
        return self._follow_function(function, arguments)

    def _follow_function(
        self, function: FunctionType, arguments: Arguments, owner: type | None = None
    ) -> Value:
        tree = self._known.sources.tree_of(function)
        if tree is None:
            where = f"{function.__module__}.{function.__qualname__}"
            self._warn(ast.Pass(), f"the source of {where} cannot be read: its calls are unknown")
            self._unknown(ast.Pass(), Action.CALL, function.__qualname__)
            return UNKNOWN
        # Read again for each context of arguments: the same helper may get references to several
        # classes.
        value = self.follow(tree, Scope(function, owner), arguments)
        if not any_unknown(value):
            return value
        return known_by(value, hints_of(function, self._visible(self._scope)).get("return", Any))

    def _construct(self, node: ast.Call, cls: type, arguments: Arguments) -> Value:
        """Evaluate a call of a plain class."""
        if is_container(cls):
            return container_made(cls, arguments)
        given = arguments.every
        made = of_type(cls, derived(given))
        initializer = plain_function(vars(cls).get("__init__"))
        if initializer is not None and self._known.sources.follows(initializer):
            if self._known.sources.tree_of(initializer) is not None:
                self._follow_function(initializer, arguments.behind(made), cls)
            return made
        has_fields = hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")
        if has_fields or (cls.__module__ != "builtins" and not holds_entity(given)):
            return made
        return self._library(node, cls, arguments)

    def _library(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        given = library_result(thing, arguments, self._apply(node, arguments))
        function = plain_function(thing)
        if function is None or not any_unknown(given):
            return given
        return known_by(given, hints_of(function, {}).get("return", Any))

    def _apply(self, node: ast.Call, arguments: Arguments) -> Value:
        """Call the functions among the arguments, any number of times."""
        callables = [atom for atom in arguments.every if _is_callable(atom)]
        if not callables:
            return NOTHING
        others = arguments.every
        if isinstance(node.func, ast.Attribute):  # `items.sort(key=…)` passes elements of its own
            others |= join(map(elements, self._evaluate(node.func.value)))
        passed = frozenset(atom for atom in _inside(others) if not _is_callable(atom))
        with self._loop(), self._branch():
            return join(self._call(node, atom, Arguments(rest=passed)) for atom in callables)

    # Events, requests and questions: an edge names the stream, the method or the portal if the source does

    def _outlet(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value | None:
        """Evaluate a function of Penstock that publishes, sends or asks; None for another function."""
        if thing is emit:
            streams = [
                atom.thing
                for atom in join(arguments.positional[:1])
                if isinstance(atom, StaticObject) and isinstance(atom.thing, Stream)
            ]
            for stream in streams:
                path = path_of(StreamKind.STREAM, stream.name)
                self._edge(node, Action.EMIT, Endpoint(path, path), Origin.CONSTANT)
            if not streams:
                self._unknown(node, Action.EMIT, _word(node, 0))
            return NOTHING
        if thing is gather:
            return built(_replies(_inside(arguments.every)))
        if thing is states:
            keyed = of_type(str, Origin.STATE), join(arguments.positional[:1])
            return built(single(TupleValue(keyed)))
        if any(thing is known for known in _METHOD_AT):
            return self._send(node, thing, arguments)
        return None

    def _send(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        action = Action.ASK if thing is ask else Action.SEND
        at = _METHOD_AT[thing]
        replies = NOTHING
        targets = [
            (atom, *method)
            for atom in join(arguments.positional[at : at + 1])
            for method in self._methods(atom)
        ]
        for atom, target, returns in targets:
            given = join((*arguments.positional[at + 1 : at + 2], arguments.rest))
            if isinstance(atom, BoundMethod) and entity_of(atom.receiver) is not None:
                given = single(atom.receiver)
            origin = Origin.CONSTANT if target.is_whole else origin_of(given)
            self._edge(node, action, target, origin)
            replies |= of_type(returns, Origin.RESULT)
        if not targets:
            self._unknown(node, action, _word(node, at))
            replies = UNKNOWN
        return single(Question(replies)) if thing is ask else NOTHING

    def _methods(self, atom: Atom) -> Iterator[tuple[Endpoint, Any]]:
        """Yield the methods of the application that a value can be, with their results."""
        match atom:
            case BoundMethod(receiver=StaticObject(thing=cls), name=name):
                if _is_entity_class(cls):
                    end = Endpoint(cls.__reference__.name, name)
                    yield end, cls if name in CREATIONS else Any
            case BoundMethod(receiver=receiver, name=name):
                entity = entity_of(receiver)
                if entity is not None and name in entity.methods:
                    yield Endpoint(entity.name, name), entity.methods[name].returns
            case StaticObject(thing=thing) if (function := plain_function(thing)) is not None:
                for end, signature in self._signatures():
                    if plain_function(signature.function) is function:
                        yield end, signature.returns
            case _:
                pass

    def _signatures(self) -> Iterator[tuple[Endpoint, Signature]]:
        for name, signature in self._known.app.functions.items():
            yield Endpoint(name, name), signature
        for entity in self._known.app.entities.values():
            for name, signature in entity.methods.items():
                yield Endpoint(entity.name, name), signature


def _merged(ways: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    merged: dict[str, Value] = {}
    for way in ways:
        for name, value in way.items():
            merged[name] = merged.get(name, NOTHING) | value
    return merged


def _unpacked(targets: Sequence[ast.expr], value: Value) -> list[Value]:
    """Return the value of each target of `a, b = …`."""
    if not value or any(isinstance(target, ast.Starred) for target in targets):
        return [join(map(elements, value))] * len(targets)
    return [
        join(column) for column in zip(*(unpack(atom, len(targets)) for atom in value), strict=True)
    ]


def _inside(value: Value) -> Value:
    return join((value, *map(elements, value)))


def _replies(value: Value) -> Value:
    """Return the replies to questions; any other awaited value is its own result."""
    return join(atom.reply if isinstance(atom, Question) else single(atom) for atom in value)


def _has(atom: Atom, name: str) -> bool:
    """Whether a value may have an attribute."""
    entity = entity_of(atom)
    return (
        entity is None or name in (*entity.attributes, entity.key_name) or hasattr(entity.cls, name)
    )


def _is_method(member: object) -> bool:
    return callable(member) or isinstance(member, staticmethod | classmethod | property)


def _is_entity_class(thing: Any) -> bool:
    return isinstance(thing, type) and isinstance(getattr(thing, "__reference__", None), EntityType)


def _is_callable(atom: Atom) -> bool:
    if isinstance(atom, StaticObject):
        return plain_function(atom.thing) is not None
    return isinstance(atom, BoundMethod | Closure)


def _key_origin(entity: EntityType, arguments: Arguments) -> Origin:
    """Return the origin of the key of a created entity."""
    parameters: list[str] = []
    if entity.initializer is not None:
        parameters = list(signature_of(entity.initializer).parameters)[1:]
    passed = dict(zip(parameters, arguments.positional, strict=False)) | arguments.named
    if entity.key_name in passed:
        return origin_of(passed[entity.key_name])
    if entity.initializer is not None:
        return origin_of(arguments.every)
    if arguments.positional or arguments.rest:
        return origin_of(arguments.first)
    return Origin.COMPUTED  # derived from the request id


def _changes_in_place(atom: Atom) -> bool:
    """Whether `name += …` changes the value of an attribute; an immutable value, as a time, is replaced by another."""
    if not isinstance(atom, TypedValue) or atom.home is None:
        return False
    cls = typing.get_origin(atom.type) or atom.type
    return (
        not isinstance(cls, type)
        or cls is object
        or hasattr(cls, "__iadd__")
        or hasattr(cls, "__ior__")
    )


def _as_read(target: ast.expr) -> ast.expr:
    """Return the expression that reads the target of an augmented assignment."""
    read = ast.parse(ast.unparse(target), mode="eval").body
    for node in ast.walk(read):
        ast.copy_location(node, target)
    return read


def _leaves(node: ast.stmt, *, looped: bool = False, guarded: bool = False) -> bool:
    """Whether a statement may skip the statements after it in a transaction that takes effect.

    An exception that nothing here catches undoes the transaction, so `raise` counts inside `try`
    only; `break` and `continue` count for the loop that they are in.
    """
    match node:
        case ast.Return():
            return True
        case ast.Raise():
            return guarded
        case ast.Break() | ast.Continue():
            return not looped
        case ast.FunctionDef() | ast.ClassDef():
            return False
        case _:
            looped = looped or isinstance(node, ast.For | ast.While)
            guarded = guarded or (isinstance(node, ast.Try) and bool(node.handlers))
    return any(_leaves(inner, looped=looped, guarded=guarded) for inner in _statements_in(node))


def _statements_in(node: ast.AST) -> Iterable[ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements_in(child)


def _is_generator(node: ast.FunctionDef | ast.Lambda) -> bool:
    pending: list[ast.AST] = list(node.body) if isinstance(node, ast.FunctionDef) else [node.body]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(part, ast.FunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(part))
    return False


def _word(node: ast.Call, position: int) -> str:
    """Return the source of an argument."""
    return ast.unparse(node.args[position]) if len(node.args) > position else "?"


_CREATE: Final = "create"
_SILENT: Final = frozenset(
    {"__init__", "__key__", "__repr__", "__str__", "__init_subclass__", EVALUATOR}
)


def analyze_app(app: App) -> Plan:
    """Return the dataflow graph of an application. The same application gives the same plan."""
    return _Analysis(app).plan()


class _Analysis:
    """The analysis of one application."""

    def __init__(self, app: App) -> None:
        entities = app.entities.values()
        modules = [entity.cls.__module__ for entity in entities]
        modules += [signature.function.__module__ for signature in app.functions.values()]
        modules += [task.cls.__module__ for task in app.topology.tasks.values()]
        self._app = app
        self._names = full_names_of(app)
        self._known = Known(
            app,
            Sources(frozenset(module.partition(".")[0] for module in modules)),
            {name: entity.cls for name, entity in app.entities.items()},
            frozenset(name for entity in entities for name in functions_of(entity.cls)).union(
                RESERVED
            ),
            frozenset(name for entity in entities for name in entity.attributes),
            self._method,
            exclusive_tasks(app.topology),
        )
        self._returned: dict[tuple[type, str], Value] = {}
        self._edges: dict[Edge, None] = {}
        self._warnings: set[PlanWarning] = set()

    def plan(self) -> Plan:
        """Analyse every operator."""
        app = self._app
        operators = [self._entity(entity) for entity in app.entities.values()]
        for entity in app.entities.values():
            for name in _members_of(entity):
                self._method(entity.cls, name)
            self._warnings.update(_unseen(entity))
        for name, signature in app.functions.items():
            operators.append(_function(name, signature, self._names))
            parameters = list(signature.parameters.values())
            self._body(Endpoint(name, name), _plain(signature.function), parameters)
        for source, cls, function in handlers_of(app.topology):
            self._handler(source, cls, function)
        for source, cls, factory in factories_of(app):
            self._factory(source, cls, factory)
        self._edges |= dict.fromkeys(feeds_of(app))
        streams = stream_operators(app.topology, shown_streams(app))
        names = [operator.name for operator in operators] + [operator.path for operator in streams]
        rank = {name: index for index, name in enumerate(names)}
        return Plan(
            app.name,
            tuple(operators),
            streams,
            tuple(sorted(self._edges, key=lambda edge: _edge_order(edge, rank))),
            tuple(sorted(self._warnings)),
            tuple(map(_part, app.parts)),
            records_of(app, self._names),
            app.time_limits,
            tuple(views_of(app)),
        )

    def _entity(self, entity: EntityType) -> Operator:
        attributes = tuple(Attribute(*pair) for pair in _shown(entity.attributes, self._names))
        methods = []
        for name in _members_of(entity):
            signature, function = _signature_of(entity, name), _function_of(entity, name)
            if signature is None:  # private, or a property: known by its source alone
                is_property = isinstance(inspect.getattr_static(entity.cls, name, None), property)
                methods.append(_private(name, function, is_property=is_property))
            else:
                methods.append(_described(name, signature, function, self._names))
        where = place_of_class(entity.cls, entity.where)
        key = Attribute(entity.key_name, type_text(entity.key_annotation))
        return Operator(entity.name, key, attributes, tuple(methods), where, entity.personal)

    def _method(self, cls: type, name: str) -> Value:
        """Read a method once, and return its result; while it is read, its result is unknown."""
        if (cls, name) not in self._returned:
            self._returned[cls, name] = UNKNOWN
            entity: EntityType = cls.__reference__  # type: ignore[attr-defined]
            signature, function = _signature_of(entity, name), _function_of(entity, name)
            parameters = [*signature_of(function).parameters.values()][1:]
            if signature is not None:
                parameters = [*signature.parameters.values()]
            method = (cls, functions_of(cls).get(name, cls))
            source = Endpoint(entity.name, name)
            self._returned[cls, name] = self._body(source, function, parameters, method)
        return self._returned[cls, name]

    def _factory(self, source: Endpoint, cls: type, factory: Callable[[], Any]) -> None:
        """Read a factory of a default, which runs with `create`; its accesses are not those of a handler."""
        function = plain_function(factory)
        if function is not None and self._known.sources.follows(function):
            edges = dict(self._edges)
            self._body(source, function, [])
            self._edges = edges
        elif hazard := hazard_of(factory):
            message = f"{source.member} {MESSAGES[hazard]}"
            where = place_of_class(cls, where_of(cls))
            self._warnings.add(PlanWarning(where, source, message, hazard))

    def _handler(self, source: Endpoint, cls: type, function: FunctionType) -> None:
        """Read a handler of a task, with the types that its parameters declare."""
        hints = hints_of(function, self._known.classes)
        parameters = [
            parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
            for parameter in list(signature_of(function).parameters.values())[1:]
        ]
        owner = functions_of(cls).get(function.__name__, cls)
        self._body(source, function, parameters, (cls, owner))

    def _body(
        self,
        source: Endpoint,
        function: FunctionType,
        parameters: list[Parameter],
        method: tuple[type, type] | None = None,
    ) -> Value:
        """Read one method of (class, defining class), or a function, and return its result."""
        tree = self._known.sources.tree_of(function)
        if tree is None:
            return self._unread(source, function, "its source cannot be read")
        this = (single(TypedValue(method[0], Origin.SELF)),) if method else ()
        reading = Reading(self._known, source)
        scope = Scope(function, method[1] if method else None)
        try:
            returned = reading.follow(tree, scope, _declared(this, parameters))
        except RecursionError:
            return self._unread(source, function, "its source is nested too deeply")
        self._edges |= reading.edges
        self._warnings.update(reading.warnings)
        return returned

    def _unread(self, source: Endpoint, function: FunctionType, why: str) -> Value:
        """Note a function that may call everything."""
        where = place_of(function, function.__code__.co_firstlineno)
        target = Endpoint(UNKNOWN_OPERATOR, "?")
        how = {"looped": True, "conditional": True, "origin": Origin.UNKNOWN}
        self._edges[Edge(source, target, Action.CALL, where, **how)] = None  # type: ignore[arg-type]
        self._warnings.add(PlanWarning(where, source, f"{why}: its calls are unknown"))
        return UNKNOWN


def _plain(thing: Any) -> FunctionType:
    function = plain_function(thing)
    assert function is not None, f"{thing} is not a function"
    return function


def _function_of(entity: EntityType, name: str) -> FunctionType:
    is_creation = name == _CREATE
    return _plain(entity.initializer if is_creation else inspect.getattr_static(entity.cls, name))


def _signature_of(entity: EntityType, name: str) -> Signature | None:
    """Return the signature of a method that requests can call; None for a private one, or a property."""
    return entity.creation if name == _CREATE else entity.methods.get(name)


def functions_of(cls: type) -> dict[str, type]:
    """Return the user's functions and properties of an entity class, with the defining class."""
    return {
        name: owner
        for owner in reversed(cls.__mro__)
        if owner is not object
        for name, member in vars(owner).items()
        if isinstance(member, FunctionType | property)
        and not (name.startswith("__") and name.endswith("__"))
        and name not in RESERVED
    }


def _part(app: App) -> Part:
    """Return the operators of an application of a set."""
    streams = [operator.path for operator in stream_operators(app.topology, shown_streams(app))]
    return Part(app.name, (*app.entities, *app.functions, *streams))


def _declared(this: tuple[Value, ...], parameters: list[Parameter]) -> Arguments:
    """Return the abstract arguments of a request, from the annotations of the parameters."""
    named: dict[str, Value] = {}
    rest = NOTHING
    for parameter in parameters:
        annotation = Any if parameter.annotation is Parameter.empty else parameter.annotation
        value = of_type(annotation, Origin.ARGUMENT)
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            rest |= value
        else:
            named[parameter.name] = value
    return Arguments(this, named, rest)


def _members_of(entity: EntityType) -> list[str]:
    """Return the names to analyse in an entity class, in the order of definition."""
    created = [_CREATE] if entity.initializer is not None else []
    return created + [
        name
        for name in functions_of(entity.cls)
        if plain_function(inspect.getattr_static(entity.cls, name)) is not None
    ]


def _unseen(entity: EntityType) -> list[PlanWarning]:
    """Warn of special methods, because operators call them without a call in the source."""
    warnings = []
    for owner in entity.cls.__mro__:
        for name, member in vars(owner).items():
            function = plain_function(member) if inspect.isfunction(member) else None
            if function is None or name in _SILENT or not name.startswith("__"):
                continue
            if name.endswith("__") and not (function.__module__ or "").startswith("penstock."):
                where = place_of(function, function.__code__.co_firstlineno)
                message = f"calls through {name} are not in the plan"
                warnings.append(PlanWarning(where, Endpoint(entity.name, name), message))
    return warnings


def _function(name: str, signature: Signature, full_names: dict[type, str]) -> Operator:
    method = _described(name, signature, _plain(signature.function), full_names)
    return Operator(name, None, (), (method,), method.where)


def _described(
    name: str, signature: Signature, function: FunctionType, full_names: dict[type, str]
) -> Method:
    hints = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    shown = _shown(hints, full_names)
    returns = type_text(signature.returns, full_names)
    if name == _CREATE:
        returns = signature.name.partition(".")[0]
    parameters = tuple(Attribute(*pair) for pair in shown)
    where = place_of(function, function.__code__.co_firstlineno)
    return Method(name, parameters, returns, signature.readonly, where)


def _private(name: str, function: FunctionType, *, is_property: bool) -> Method:
    parameters = list(signature_of(function).parameters.values())[1:]
    shown = tuple(
        Attribute(parameter.name, type_text(parameter.annotation)) for parameter in parameters
    )
    returns = type_text(signature_of(function).return_annotation)
    where = place_of(function, function.__code__.co_firstlineno)
    return Method(name, shown, returns, readonly=False, where=where, is_property=is_property)


def _shown(annotations: dict[str, Any], full_names: dict[type, str]) -> list[tuple[str, str]]:
    return [(name, type_text(annotation, full_names)) for name, annotation in annotations.items()]


def _edge_order(
    edge: Edge, rank: dict[str, int]
) -> tuple[int, SourceLocation, int, Action, Endpoint, Origin]:
    source, target = rank[edge.source.operator], rank.get(edge.target.operator, len(rank))
    return source, edge.where, target, edge.action, edge.target, edge.origin


def records_of(app: App, full_names: Mapping[type, str]) -> tuple[Record, ...]:
    """Return the records that attributes hold, also inside of other types; `full_names` are as of `full_names_of`."""
    records: dict[str, Record] = {}
    for hint in _records_in(_attributes(app)):
        fields = [(member.wire, field) for member, field in fields_of(hint)]
        shown = tuple(Attribute(name, type_text(field, full_names)) for name, field in fields)
        name = type_text(hint, full_names)
        records.setdefault(name, Record(name, shown))
    return tuple(records.values())


def factories_of(app: App) -> Iterator[tuple[Endpoint, type, Callable[[], Any]]]:
    """Yield the factory of each default: its attribute, its class and the function."""
    for entity in app.stored.values():
        for name, default in entity.defaults.items():
            if isinstance(default, DefaultFactory):
                yield Endpoint(entity.name, name), entity.cls, default.make
    for hint in _records_in([*_attributes(app), *_arguments(app)]):
        cls = typing.get_origin(hint) or hint
        for member in members_of(hint):
            if factory := factory_of(hint, member.name):
                yield Endpoint(cls.__name__, member.name), cls, factory


def full_names_of(app: App) -> dict[type, str]:
    """Return the names with modules of the records that share their name with another record, or with an entity class."""
    hints = [*_attributes(app), *_arguments(app)]
    classes: dict[str, set[Any]] = {name: {app.entity(name).cls} for name in app.entities}
    for hint in _records_in(hints):
        cls = typing.get_origin(hint) or hint
        classes.setdefault(cls.__name__, set()).add(cls)
    return {
        cls: f"{cls.__module__}.{cls.__qualname__}".replace(".<locals>", "")
        for same in classes.values()
        if len(same) > 1
        for cls in same
        if is_record(cls)
    }


def _attributes(app: App) -> list[Any]:
    return [hint for entity in app.entities.values() for hint in entity.attributes.values()]


def _arguments(app: App) -> list[Any]:
    signatures = [
        *(method for entity in app.entities.values() for method in entity.methods.values()),
        *app.functions.values(),
    ]
    parameters = [each for called in signatures for each in called.parameters.values()]
    results = [signature.returns for signature in signatures]
    return [*results, *(parameter.annotation for parameter in parameters)]


def _records_in(hints: Iterable[Any]) -> Iterator[Any]:
    """Yield each record in these types once, also inside of others."""
    left, seen = list(hints), []
    while left:
        hint = left.pop(0)
        left += typing.get_args(hint)
        if is_record(hint) and hint not in seen:
            seen.append(hint)
            yield hint
            left += [field for _, field in fields_of(hint)]
