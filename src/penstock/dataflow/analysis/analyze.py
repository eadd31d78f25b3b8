"""`analyze_app`: static access inference, from an application to its dataflow graph.

An abstract interpretation of the source of all methods: no code of the application runs. Each method
is interpreted as the root of a request, over abstract values (`value`) that come from the declared
types of parameters and attributes. Functions are summarised for each context of arguments (`frame`).
The result over-approximates the effects of readable source: an unknown receiver becomes an edge to
`?`, and code that the analysis does not read becomes a warning.
"""

import inspect
from collections.abc import Callable
from inspect import Parameter
from types import FunctionType
from typing import Any, Final

from penstock.base.annotations import EVALUATOR, signature_of
from penstock.dataflow.analysis.call import Callee
from penstock.dataflow.analysis.frame import (
    AnalysisContext,
    FunctionSummary,
    describe,
    functions_of,
)
from penstock.dataflow.analysis.hazard import MESSAGES, hazard_of
from penstock.dataflow.analysis.library import Arguments
from penstock.dataflow.analysis.records import factories_of, full_names_of, records_of
from penstock.dataflow.analysis.source import (
    Sources,
    hints_of,
    place_of,
    place_of_class,
    plain_function,
)
from penstock.dataflow.analysis.statement import Body
from penstock.dataflow.analysis.streams import (
    exclusive_tasks,
    feeds_of,
    handlers_of,
    stream_operators,
)
from penstock.dataflow.analysis.type_text import type_text
from penstock.dataflow.analysis.value import UNKNOWN, TypedValue, Value, of_type, single
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
from penstock.model.declaration import where_of
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
        members = [entity.cls for entity in app.entities.values()]
        modules = [cls.__module__ for cls in members]
        modules += [signature.function.__module__ for signature in app.functions.values()]
        modules += [task.cls.__module__ for task in app.topology.tasks.values()]
        packages = frozenset(module.partition(".")[0] for module in modules)
        self._app = app
        self._names = full_names_of(app)
        self._shared: AnalysisContext = describe(app, Sources(packages))
        self._shared.methods = self._method
        self._shared.exclusive = exclusive_tasks(app.topology)
        self._known: dict[tuple[type, str], FunctionSummary] = {}

    def plan(self) -> Plan:
        """Analyse every operator."""
        operators = [self._entity(entity) for entity in self._app.entities.values()]
        summaries: list[FunctionSummary] = []
        for entity in self._app.entities.values():
            summaries += [self._method(entity.cls, name) for name in _members_of(entity)]
            summaries.append(FunctionSummary(warnings=tuple(_unseen(entity))))
        for name, signature in self._app.functions.items():
            operators.append(_function(name, signature, self._names))
            summaries.append(self._body(Endpoint(name, name), signature.function, signature, None))
        streams = stream_operators(self._app.topology)
        summaries += [self._handler(*root) for root in handlers_of(self._app.topology)]
        summaries.append(FunctionSummary(tuple(feeds_of(self._app))))
        summaries += [self._factory(*default) for default in factories_of(self._app)]
        edges = dict.fromkeys(edge for summary in summaries for edge in summary.edges)
        warnings = {warning for summary in summaries for warning in summary.warnings}
        names = [operator.name for operator in operators] + [operator.path for operator in streams]
        rank = {name: index for index, name in enumerate(names)}
        return Plan(
            self._app.name,
            tuple(operators),
            streams,
            tuple(sorted(edges, key=lambda edge: _edge_order(edge, rank))),
            tuple(sorted(warnings)),
            tuple(map(_part, self._app.parts)),
            records_of(self._app, self._names),
            self._app.time_limits,
        )

    def _entity(self, entity: EntityType) -> Operator:
        attributes = tuple(Attribute(*pair) for pair in _shown(entity.attributes, self._names))
        methods = []
        for name in _members_of(entity):
            signature = entity.creation if name == _CREATE else entity.methods.get(name)
            function = self._function_of(entity, name)
            if signature is None:  # private, or a property: known by its source alone
                is_property = isinstance(inspect.getattr_static(entity.cls, name, None), property)
                methods.append(_private(name, function, is_property=is_property))
            else:
                methods.append(_described(name, signature, function, self._names))
        where = place_of_class(entity.cls, entity.where)
        key = Attribute(entity.key_name, type_text(entity.key_annotation))
        return Operator(entity.name, key, attributes, tuple(methods), where, entity.personal)

    def _function_of(self, entity: EntityType, name: str) -> FunctionType:
        thing = entity.initializer if name == _CREATE else inspect.getattr_static(entity.cls, name)
        function = plain_function(thing)
        assert function is not None, f"{entity.name}.{name} is not a function"
        return function

    def _method(self, cls: type, name: str) -> FunctionSummary:
        """Return the summary of a method; during its own analysis its result is unknown."""
        if (cls, name) in self._known:
            return self._known[cls, name]
        self._known[cls, name] = FunctionSummary(returned=UNKNOWN)
        entity: EntityType = cls.__reference__  # type: ignore[attr-defined]
        signature = entity.creation if name == _CREATE else entity.methods.get(name)
        function = self._function_of(entity, name)
        source, owner = Endpoint(entity.name, name), functions_of(cls).get(name, cls)
        summary = self._body(source, function, signature, (cls, owner))
        self._known[cls, name] = summary
        return summary

    def _factory(self, source: Endpoint, cls: type, factory: Callable[[], Any]) -> FunctionSummary:
        """Read a factory of a default, which runs with `create`; its accesses are not those of a handler."""
        function = plain_function(factory)
        if function is not None and self._shared.sources.follows(function):
            return FunctionSummary(warnings=self._body(source, function, [], None).warnings)
        hazard = hazard_of(factory)
        if hazard is None:
            return FunctionSummary()
        message = f"{source.member} {MESSAGES[hazard]}"
        where = place_of_class(cls, where_of(cls))
        return FunctionSummary(warnings=(PlanWarning(where, source, message, hazard),))

    def _handler(self, source: Endpoint, cls: type, function: FunctionType) -> FunctionSummary:
        """Read a handler of a task, with the types that its parameters declare."""
        hints = hints_of(function, self._shared.classes)
        parameters = [
            parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))
            for parameter in list(signature_of(function).parameters.values())[1:]
        ]
        owner = functions_of(cls).get(function.__name__, cls)
        return self._body(source, function, parameters, (cls, owner))

    def _body(
        self,
        source: Endpoint,
        function: Any,
        signature: Signature | list[Parameter] | None,
        method: tuple[type, type] | None,
    ) -> FunctionSummary:
        """Read one method of (class, defining class), or a function, as a root."""
        plain = plain_function(function)
        assert plain is not None, f"{source.text} is not a function"
        frame = Body(self._shared, source, plain, method[1] if method else None)
        tree = self._shared.sources.tree_of(plain)
        if tree is None:
            return _unread(source, plain, "its source cannot be read")
        this: tuple[Value, ...] = (single(TypedValue(method[0], Origin.SELF)),) if method else ()
        if signature is None:
            parameters = list(signature_of(plain).parameters.values())[len(this) :]
        elif isinstance(signature, list):
            parameters = signature
        else:
            parameters = list(signature.parameters.values())
        arguments = Arguments(this, *_declared(parameters))
        try:
            with self._shared.attempt():
                callee = Callee(tree, plain, method[1] if method else None)
                returned = frame.follow(callee, arguments)
        except RecursionError:
            return _unread(source, plain, "its source is nested too deeply")
        summary = frame.summary()
        return FunctionSummary(summary.edges, summary.warnings, returned)


def _unread(source: Endpoint, function: FunctionType, why: str) -> FunctionSummary:
    """Return the summary of a function that may call everything."""
    where = place_of(function, function.__code__.co_firstlineno)
    edge = Edge(
        source,
        Endpoint(UNKNOWN_OPERATOR, "?"),
        Action.CALL,
        where,
        looped=True,
        conditional=True,
        origin=Origin.UNKNOWN,
    )
    return FunctionSummary((edge,), (PlanWarning(where, source, f"{why}: its calls are unknown"),))


def _part(app: App) -> Part:
    """Return the operators of an application of a set."""
    streams = [operator.path for operator in stream_operators(app.topology)]
    return Part(app.name, (*app.entities, *app.functions, *streams))


def _declared(parameters: list[Parameter]) -> tuple[tuple[tuple[str, Value], ...], Value, Value]:
    """Return the abstract arguments of a request, from the annotations of the parameters."""
    named: list[tuple[str, Value]] = []
    rest: Value = frozenset()
    more: Value = frozenset()
    for parameter in parameters:
        annotation = Any if parameter.annotation is Parameter.empty else parameter.annotation
        value = of_type(annotation, Origin.ARGUMENT)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            rest = value
        elif parameter.kind is Parameter.VAR_KEYWORD:
            more = value
        else:
            named.append((parameter.name, value))
    return tuple(named), rest, more


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
    function = plain_function(signature.function)
    assert function is not None, f"{name} is not a function"
    method = _described(name, signature, function, full_names)
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
