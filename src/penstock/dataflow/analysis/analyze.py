"""`analyze_app`: static access inference, from an application to its dataflow graph.

An abstract interpretation of the source of all methods: no code of the application runs. Each method
is interpreted as the root of a request, over abstract values (`value`) that come from the declared
types of parameters and attributes. Functions are summarised for each context of arguments (`frame`).
The result over-approximates the effects of readable source: an unknown receiver becomes an edge to
`?`, and code that the analysis does not read becomes a warning.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter
from types import FunctionType
from typing import Any, Final

from penstock.base.annotations import EVALUATOR, signature_of
from penstock.base.record import factory_of, fields_of, is_record, members_of
from penstock.dataflow.analysis.hazard import MESSAGES, hazard_of
from penstock.dataflow.analysis.library import Arguments
from penstock.dataflow.analysis.reading import Known, Reading, Scope
from penstock.dataflow.analysis.source import (
    Sources,
    hints_of,
    place_of,
    place_of_class,
    plain_function,
)
from penstock.dataflow.analysis.streams import (
    exclusive_tasks,
    feeds_of,
    handlers_of,
    stream_operators,
    type_text,
)
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
    Record,
    SourceLocation,
)
from penstock.model.application import App
from penstock.model.attribute import DefaultFactory
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
        streams = stream_operators(app.topology)
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
    streams = [operator.path for operator in stream_operators(app.topology)]
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
