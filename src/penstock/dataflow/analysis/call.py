"""The abstract interpretation of calls: callee, arguments and result.

Functions of the application are followed into every file. A library function is assumed to call the
functions among its arguments with any elements of its other arguments, and to return any of its
arguments. Calls of entities become edges.
"""

import ast
import inspect
import typing
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from penstock.base.annotations import signature_of
from penstock.dataflow.analysis.hazard import reaches_outside
from penstock.dataflow.analysis.library import (
    CHANGING,
    Arguments,
    container_made,
    container_result,
    has_fields,
    is_orderless,
    library_result,
)
from penstock.dataflow.analysis.outlet import Outlets
from penstock.dataflow.analysis.source import hints_of, plain_function
from penstock.dataflow.analysis.value import (
    NOTHING,
    UNKNOWN,
    Atom,
    BoundMethod,
    Closure,
    StaticObject,
    TypedValue,
    Value,
    constant,
    derived,
    elements,
    entity_of,
    holds_entity,
    is_container,
    is_unknown,
    join,
    lookup,
    of_type,
    origin_of,
    retag,
    single,
)
from penstock.dataflow.graph import UNKNOWN_OPERATOR, Action, Endpoint, Origin
from penstock.model.declaration import CREATIONS, RESERVED
from penstock.model.entity_type import EntityType
from penstock.model.streams.flow import Emit

_ACTIONS: Final = {
    "create": Action.CREATE,
    "upsert": Action.CREATE,
    "delete": Action.DELETE,
    "exists": Action.EXISTS,
}


@dataclass(frozen=True, slots=True)
class Callee:
    """A function to follow: its syntax tree, its class, and the frame around it."""

    node: ast.FunctionDef | ast.Lambda
    function: FunctionType
    owner: type | None = None
    parent: "Calls | None" = None


class Calls(Outlets, ABC):
    """A frame that evaluates calls; a subclass interprets the bodies of functions."""

    @abstractmethod
    def follow(self, callee: Callee, arguments: Arguments) -> Value:
        """Analyse a called function, record its effects, and return its result."""

    def _at_call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Name) and (special := self._special(node)) is not None:
            return special
        called = self.evaluate(node.func)
        if any(isinstance(atom, StaticObject) and is_orderless(atom.thing) for atom in called):
            self.orderless.update(node.args)
        arguments = self._arguments(node)
        if not called:
            return self._change_empty(node, arguments)
        return join(self._call(node, atom, arguments) for atom in called)

    def _change_empty(self, node: ast.Call, arguments: Arguments) -> Value:
        """Evaluate a method of an element of a collection that is still empty."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            given = join(arguments.all)
            self.change(node.func.value, NOTHING, join((given, *map(elements, given))))
        return NOTHING

    def _arguments(self, node: ast.Call) -> Arguments:
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        starred = [argument for argument in node.args if isinstance(argument, ast.Starred)]
        positional = tuple(self.evaluate_all(plain))
        rest = join(self.evaluate_all(starred))
        named = [(key.arg, self.evaluate(key.value)) for key in node.keywords]
        more = join(lookup(atom) for name, value in named if name is None for atom in value)
        known = tuple((name, value) for name, value in named if name is not None)
        return Arguments(positional, known, rest, more)

    def _special(self, node: ast.Call) -> Value | None:
        """Evaluate built-in functions for attributes and types."""
        name = ast.unparse(node.func)
        if name not in ("getattr", "setattr", "hasattr", "super", "type") or name in self.names:
            return None
        if name == "super":
            return self._super(node)
        values = self.evaluate_all(node.args)
        base = values[0] if values else NOTHING
        if name == "type":
            return join(constant(entity.cls) for atom in base if (entity := entity_of(atom)))
        match node.args[1:]:
            case [ast.Constant(value=str(attribute)), *_]:
                return self._named_attribute(node, (name, attribute), base, values[2:])
            case _:
                return self._any_attribute(node, name, base)

    def _named_attribute(
        self, node: ast.Call, asked: tuple[str, str], base: Value, values: list[Value]
    ) -> Value:
        name, attribute = asked
        if name == "setattr":
            for atom in base:
                self.write(node, atom, attribute)
            return NOTHING
        read = join(self.read(node, atom, attribute) for atom in base)
        return join((read, *values)) if name == "getattr" else of_type(bool, Origin.STATE)

    def _any_attribute(self, node: ast.Call, name: str, base: Value) -> Value:
        """Record an access to an attribute whose name is known only at run time."""
        action = Action.WRITE if name == "setattr" else Action.READ
        for atom in base:
            entity = entity_of(atom)
            if entity is not None or is_unknown(atom):
                owner = entity.name if entity else UNKNOWN_OPERATOR
                self.edge(node, action, Endpoint(owner, "?"), origin_of(single(atom)))
        return UNKNOWN

    def _super(self, node: ast.Call) -> Value:
        """Return the value of `super()`: the receiver, with the lookup from the next class on."""
        if node.args or self.owner is None:
            return UNKNOWN
        this = self.function.__code__.co_varnames[:1]
        receiver = self.names.get(this[0], NOTHING) if this else NOTHING
        return frozenset(BoundMethod(atom, "super") for atom in receiver)

    def _call(self, node: ast.Call, atom: Atom, arguments: Arguments) -> Value:
        given = UNKNOWN
        match atom:
            case Closure(node=tree, frame=frame):
                given = self.follow(Callee(tree, frame.function, frame.owner, frame), arguments)
            case BoundMethod(receiver=BoundMethod(receiver=receiver, name="super"), name=name):
                given = self._call_super(receiver, name, arguments)
            case BoundMethod(receiver=StaticObject(thing=thing), name=name) if _is_entity_class(
                thing
            ):
                given = self._call_class(node, thing.__reference__, name, arguments)
            case BoundMethod(receiver=receiver, name=name):
                given = self._call_method(node, receiver, name, arguments)
            case StaticObject(thing=thing):
                given = self._call_thing(node, thing, arguments)
            case TypedValue(type=annotation) if typing.get_origin(annotation) is not Emit:
                self.unknown(node, Action.CALL, ast.unparse(node.func))
            case _:
                pass
        return given

    def _call_super(self, receiver: Atom, name: str, arguments: Arguments) -> Value:
        entity = entity_of(receiver)
        lineage = entity.cls.__mro__ if entity else getattr(receiver, "type", object).__mro__
        behind = lineage[lineage.index(self.owner) + 1 :] if self.owner in lineage else ()
        for owner in behind:
            function = plain_function(vars(owner).get(name))
            if function is not None:
                return self._follow_function(function, _first(receiver, arguments), owner)
        return UNKNOWN

    def _call_class(
        self, node: ast.Call, entity: EntityType, name: str, arguments: Arguments
    ) -> Value:
        """Record `Item.create(…)`, `Item.exists(…)`; `Item.delete(item)` names it as argument."""
        origin = _key_origin(entity, arguments) if name in CREATIONS else _first_origin(arguments)
        self.edge(node, _ACTIONS[name], Endpoint(entity.name, name), origin)
        return of_type(bool, Origin.STATE) if name == "exists" else of_type(entity.cls, origin)

    def _call_method(
        self, node: ast.Call, receiver: Atom, name: str, arguments: Arguments
    ) -> Value:
        entity = entity_of(receiver)
        if entity is not None:
            return self._call_entity(node, receiver, entity, (name, arguments))
        if (question := self.question(node, receiver, name)) is not None:
            return question
        if is_unknown(receiver):
            if name in self.application.method_names:
                self.unknown(node, Action.CALL, name)
            return join((self._apply(node, arguments), UNKNOWN))
        return self._call_plain(node, receiver, name, arguments)

    def _call_plain(self, node: ast.Call, receiver: Atom, name: str, arguments: Arguments) -> Value:
        """Evaluate a method of a value that is no entity."""
        cls = receiver.type if isinstance(receiver, TypedValue) else _class_of(receiver)
        if cls is None or is_container(cls):
            return self._call_container(node, receiver, name, arguments)
        member = inspect.getattr_static(cls, name, None)
        function = plain_function(member)
        if function is not None and self.application.sources.follows(function):
            return self._follow_function(function, _first(receiver, arguments), cls)
        if reaches_outside(function or member):
            self.check(function or member, ast.unparse(node.func), node)
        return self._library(node, None, arguments)

    def _call_entity(
        self, node: ast.Call, receiver: Atom, entity: EntityType, asked: tuple[str, Arguments]
    ) -> Value:
        name, arguments = asked
        origin = origin_of(single(receiver))
        if name in RESERVED:
            wanted = _first_origin(arguments) if name == "exists" else origin
            self.edge(node, _ACTIONS[name], Endpoint(entity.name, name), wanted)
            return of_type(bool, Origin.STATE) if name == "exists" else NOTHING
        member = inspect.getattr_static(entity.cls, name, None)
        if isinstance(member, staticmethod | classmethod):
            first = () if isinstance(member, staticmethod) else (constant(entity.cls),)
            passed = Arguments((*first, *arguments.positional), *_tail(arguments))
            return self._call_function(node, member, passed)
        self.edge(node, Action.CALL, Endpoint(entity.name, name), origin)
        signature = entity.methods.get(name)
        if signature is not None and signature.returns is not Any:
            return of_type(signature.returns, Origin.RESULT)
        return retag(self.application.methods(entity.cls, name).returned, Origin.RESULT)

    def _call_container(
        self, node: ast.Call, receiver: Atom, name: str, arguments: Arguments
    ) -> Value:
        """Evaluate a method of a list, dictionary, set or iterator."""
        given = join(arguments.all)
        if name in CHANGING:
            base = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            many = name in ("extend", "update", "extendleft")
            added = join(map(elements, given)) if many else given
            self.change(base, single(receiver), added)
        return container_result(receiver, name, given, self._apply(node, arguments))

    def _call_thing(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        if _is_entity_class(thing):
            first = join(arguments.positional[:1])
            if any(entity_of(atom) for atom in first):  # Item(item) is item
                return first
            return of_type(thing, _first_origin(arguments))
        if isinstance(thing, type):
            return self._construct(node, thing, arguments)
        return self._call_function(node, thing, arguments)

    def _call_function(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        if (published := self.outlet(node, thing, arguments)) is not None:
            return published
        function = plain_function(thing)
        if function is None or not self.application.sources.follows(function):
            return self._library(node, thing, arguments)
        known = self.application.app.functions.get(function.__name__)
        if known is not None and plain_function(known.function) is function:
            name = function.__name__
            self.edge(node, Action.CALL, Endpoint(name, name), Origin.CONSTANT)
            return of_type(known.returns, Origin.RESULT)
        if inspect.ismethod(thing):
            arguments = Arguments(
                (constant(thing.__self__), *arguments.positional), *_tail(arguments)
            )
        return self._follow_function(function, arguments)

    def _follow_function(
        self, function: FunctionType, arguments: Arguments, owner: type | None = None
    ) -> Value:
        tree = self.application.sources.tree_of(function)
        if tree is None:
            where = f"{function.__module__}.{function.__qualname__}"
            self.warn(ast.Pass(), f"the source of {where} cannot be read: its calls are unknown")
            self.unknown(ast.Pass(), Action.CALL, function.__qualname__)
            return UNKNOWN
        value = self.follow(Callee(tree, function, owner), arguments)
        if not any(map(is_unknown, value)):
            return value
        returns = hints_of(function, self.visible).get("return", Any)
        return value if returns is Any else of_type(returns, origin_of(value))

    def _construct(self, node: ast.Call, cls: type, arguments: Arguments) -> Value:
        """Evaluate a call of a plain class."""
        if is_container(cls):
            return container_made(cls, arguments)
        given = join(arguments.all)
        made = of_type(cls, derived(given))
        initializer = plain_function(vars(cls).get("__init__"))
        if initializer is not None and self.application.sources.follows(initializer):
            if self.application.sources.tree_of(initializer) is not None:
                for atom in made:
                    self._follow_function(initializer, _first(atom, arguments), cls)
            return made
        if has_fields(cls) or (cls.__module__ != "builtins" and not holds_entity(given)):
            return made
        return self._library(node, cls, arguments)

    def _library(self, node: ast.Call, thing: Any, arguments: Arguments) -> Value:
        """Evaluate a call of a library function."""
        given = library_result(thing, arguments, self._apply(node, arguments))
        function = plain_function(thing)
        if function is None or not any(map(is_unknown, given)):
            return given
        returns = hints_of(function, {}).get("return", Any)
        return given if returns is Any else of_type(returns, origin_of(given))

    def _apply(self, node: ast.Call, arguments: Arguments) -> Value:
        """Call the functions among the arguments, any number of times."""
        given = arguments.all
        callables = [atom for value in given for atom in value if _is_function(atom)]
        if not callables:
            return NOTHING
        others = join(given)
        if isinstance(node.func, ast.Attribute):  # `items.sort(key=…)` passes elements of its own
            others = join((others, *map(elements, self.evaluate(node.func.value))))
        reached = join((others, *map(elements, others)))
        passed = Arguments(rest=frozenset(atom for atom in reached if not _is_function(atom)))
        with self.loop(), self.branch():
            return join(self._call(node, atom, passed) for atom in callables)


def _class_of(receiver: Atom) -> type | None:
    return type(receiver.thing) if isinstance(receiver, StaticObject) else None


def _is_entity_class(thing: Any) -> bool:
    return isinstance(thing, type) and isinstance(getattr(thing, "__reference__", None), EntityType)


def _is_function(atom: Atom) -> bool:
    if isinstance(atom, BoundMethod):
        return True
    return isinstance(atom, Closure) or (
        isinstance(atom, StaticObject) and plain_function(atom.thing) is not None
    )


def _first(receiver: Atom, arguments: Arguments) -> Arguments:
    return Arguments((single(receiver), *arguments.positional), *_tail(arguments))


def _tail(arguments: Arguments) -> tuple[tuple[tuple[str, Value], ...], Value, Value]:
    return arguments.named, arguments.rest, arguments.more


def _first_origin(arguments: Arguments) -> Origin:
    return origin_of(join((*arguments.positional[:1], arguments.rest)))


def _key_origin(entity: EntityType, arguments: Arguments) -> Origin:
    """Return the origin of the key of a created entity."""
    if entity.initializer is not None:
        return _bound_origin(entity, arguments)
    for name, value in arguments.named:
        if name == entity.key_name:
            return origin_of(value)
    if arguments.positional or arguments.rest or arguments.more:
        return _first_origin(arguments)
    return Origin.COMPUTED  # derived from the request id


def _bound_origin(entity: EntityType, arguments: Arguments) -> Origin:
    """Find the key among the arguments of `__init__`: by its name, else it may be any of them."""
    parameters = list(signature_of(entity.initializer).parameters)[1:] if entity.initializer else []
    passed = {**dict(zip(parameters, arguments.positional, strict=False)), **dict(arguments.named)}
    return origin_of(passed.get(entity.key_name, join(arguments.all)))
