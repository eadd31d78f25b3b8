"""`analyze_app`: static access inference, from an application to its dataflow graph.

The declared part of the graph (`topology`) and the reading of each method (`reading`) become one plan. No code of the
application runs. The result over-approximates the effects of readable source: an unknown receiver becomes an edge to `?`,
and code that the analysis does not read becomes a warning.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter
from types import FunctionType
from typing import Any, Final

import msgspec

from penstock.base.annotations import EVALUATOR, signature_of
from penstock.dataflow.analysis.hazard import MESSAGES, hazard_of
from penstock.dataflow.analysis.library import Arguments
from penstock.dataflow.analysis.reading import Known, Reading, Scope
from penstock.dataflow.analysis.records import (
    factories_of,
    full_names_of,
    records_of,
    shown,
    type_text,
)
from penstock.dataflow.analysis.source import (
    Sources,
    hints_of,
    place_of,
    place_of_class,
    plain_function,
)
from penstock.dataflow.analysis.topology import DeclaredGraph, handlers_of, task_end
from penstock.dataflow.analysis.value import NOTHING, UNKNOWN, TypedValue, Value, of_type, single
from penstock.dataflow.graph import (
    UNKNOWN_OPERATOR,
    Action,
    Attribute,
    Edge,
    Endpoint,
    Method,
    Operator,
    Origin,
    Part,
    Plan,
    PlanWarning,
    SourceLocation,
)
from penstock.model.application import App
from penstock.model.declaration import RESERVED, where_of
from penstock.model.entity_type import EntityType
from penstock.model.signature import Signature

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
        entities, workflows = app.entities.values(), app.topology.workflows.values()
        modules = [entity.cls.__module__ for entity in entities]
        modules += [signature.function.__module__ for signature in app.functions.values()]
        modules += [task.cls.__module__ for task in app.topology.tasks.values()]
        methods = {name for entity in entities for name in _functions_of(entity.cls)}
        self._app = app
        self._names = full_names_of(app)
        self._known = Known(
            app,
            Sources(frozenset(module.partition(".")[0] for module in modules)),
            {name: entity.cls for name, entity in app.entities.items()},
            frozenset(methods.union(RESERVED)),
            frozenset(name for entity in entities for name in entity.attributes),
            self._method,
            frozenset(
                task_end(plan, task) for plan in workflows for task in plan.tasks if task.exclusive
            ),
        )
        self._returned: dict[tuple[type, str], Value] = {}
        self._edges: dict[Edge, None] = {}
        self._warnings: set[PlanWarning] = set()

    def plan(self) -> Plan:
        """Analyse every operator."""
        app, declared = self._app, DeclaredGraph(self._app)
        operators = list(map(self._entity, app.entities.values()))
        for entity in app.entities.values():
            for name in _members_of(entity):
                self._method(entity.cls, name)
            self._warnings.update(_unseen(entity))
        for name, signature in app.functions.items():
            method = self._described(name, signature, _plain(signature.function))
            operators.append(Operator(name, None, (), (method,), method.where))
            parameters = signature.parameters.values()
            self._body(Endpoint(name, name), _plain(signature.function), parameters)
        for name, signature in app.effects.items():
            method = self._described(name, signature, _plain(signature.function))
            operators.append(Operator(name, None, (), (method,), method.where, effect=True))
        for source, cls, function in handlers_of(app.topology.workflows):
            self._handler(source, cls, function)
        for source, cls, factory in factories_of(app):
            self._factory(source, cls, factory)
        self._edges |= dict.fromkeys(declared.edges())
        streams = declared.operators()
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
            tuple(declared.views()),
        )

    def _entity(self, entity: EntityType) -> Operator:
        methods = tuple(self._member(entity, name) for name in _members_of(entity))
        where = place_of_class(entity.cls, entity.where)
        key = Attribute(entity.key_name, type_text(entity.key_annotation))
        attributes = shown(entity.attributes, self._names)
        indexes = tuple(index.text for index in entity.indexes)
        return Operator(
            entity.name, key, attributes, methods, where, entity.personal, indexes=indexes
        )

    def _member(self, entity: EntityType, name: str) -> Method:
        signature, function = _signature_of(entity, name), _function_of(entity, name)
        if signature is not None:
            described = self._described(name, signature, function)
            return msgspec.structs.replace(described, internal=name in entity.internal)
        # Private, or a property: known by its source alone.
        plain = signature_of(function)
        parameters = _annotations_of(list(plain.parameters.values())[1:])
        is_property = isinstance(inspect.getattr_static(entity.cls, name, None), property)
        returns, where = type_text(plain.return_annotation), _place(function)
        return Method(name, shown(parameters), returns, False, where, is_property)  # noqa: FBT003 -- not readonly

    def _described(self, name: str, signature: Signature, function: FunctionType) -> Method:
        parameters = _annotations_of(signature.parameters.values())
        returns = type_text(signature.returns, self._names)
        if name == _CREATE:
            returns = signature.name.partition(".")[0]
        where = _place(function)
        known = shown(parameters, self._names)
        return Method(name, known, returns, signature.readonly, where, internal=signature.internal)

    def _method(self, cls: type, name: str) -> Value:
        """Read a method once, and return its result; while it is read, its result is unknown."""
        if (cls, name) not in self._returned:
            self._returned[cls, name] = UNKNOWN
            entity: EntityType = cls.__reference__  # type: ignore[attr-defined]
            signature, function = _signature_of(entity, name), _function_of(entity, name)
            parameters = list(signature_of(function).parameters.values())[1:]
            if signature is not None:
                parameters = list(signature.parameters.values())
            method = (cls, _functions_of(cls).get(name, cls))
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
        owner = _functions_of(cls).get(function.__name__, cls)
        self._body(source, function, parameters, (cls, owner))

    def _body(
        self,
        source: Endpoint,
        function: FunctionType,
        parameters: Iterable[Parameter],
        method: tuple[type, type] | None = None,
    ) -> Value:
        """Read one method of (class, defining class), or a function, and return its result."""
        tree = self._known.sources.tree_of(function)
        if tree is None:
            return self._unread(source, function, "its source cannot be read")
        reading = Reading(self._known, source)
        scope = Scope(function, method[1] if method else None)
        this = (single(TypedValue(method[0], Origin.SELF)),) if method else ()
        try:
            returned = reading.follow(tree, scope, _declared(this, parameters))
        except RecursionError:
            return self._unread(source, function, "its source is nested too deeply")
        self._edges |= reading.edges
        self._warnings.update(reading.warnings)
        return returned

    def _unread(self, source: Endpoint, function: FunctionType, why: str) -> Value:
        """Note a function that may call everything."""
        where, target = _place(function), Endpoint(UNKNOWN_OPERATOR, "?")
        edge = Edge(
            source, target, Action.CALL, where, looped=True, conditional=True, origin=Origin.UNKNOWN
        )
        self._edges[edge] = None
        self._warnings.add(PlanWarning(where, source, f"{why}: its calls are unknown"))
        return UNKNOWN


def _plain(thing: Any) -> FunctionType:
    function = plain_function(thing)
    assert function is not None, f"{thing} is not a function"
    return function


def _place(function: FunctionType) -> SourceLocation:
    return place_of(function, function.__code__.co_firstlineno)


def _function_of(entity: EntityType, name: str) -> FunctionType:
    is_creation = name == _CREATE
    return _plain(entity.initializer if is_creation else inspect.getattr_static(entity.cls, name))


def _signature_of(entity: EntityType, name: str) -> Signature | None:
    """Return the signature of a method that requests can call; None for a private one, or a property."""
    return entity.creation if name == _CREATE else entity.methods.get(name)


def _functions_of(cls: type) -> dict[str, type]:
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
    streams = [operator.path for operator in DeclaredGraph(app).operators()]
    return Part(app.name, (*app.entities, *app.functions, *app.effects, *streams))


def _declared(this: tuple[Value, ...], parameters: Iterable[Parameter]) -> Arguments:
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


def _annotations_of(parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return the types of parameters by their names, with the stars of those that take the other arguments."""
    stars: dict[object, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
    return {f"{stars.get(each.kind, '')}{each.name}": each.annotation for each in parameters}


def _members_of(entity: EntityType) -> list[str]:
    """Return the names to analyse in an entity class, in the order of definition."""
    created = [_CREATE] if entity.initializer is not None else []
    return created + [
        name
        for name in _functions_of(entity.cls)
        if plain_function(inspect.getattr_static(entity.cls, name)) is not None
    ]


def _unseen(entity: EntityType) -> Iterator[PlanWarning]:
    """Warn of special methods, because operators call them without a call in the source."""
    for owner in entity.cls.__mro__:
        for name, member in vars(owner).items():
            function = plain_function(member) if inspect.isfunction(member) else None
            if function is None or name in _SILENT or not name.startswith("__"):
                continue
            if name.endswith("__") and not (function.__module__ or "").startswith("penstock."):
                message = f"calls through {name} are not in the plan"
                yield PlanWarning(_place(function), Endpoint(entity.name, name), message)


def _edge_order(
    edge: Edge, rank: Mapping[str, int]
) -> tuple[int, SourceLocation, int, Action, Endpoint, Origin]:
    source, target = rank[edge.source.operator], rank.get(edge.target.operator, len(rank))
    return source, edge.where, target, edge.action, edge.target, edge.origin
