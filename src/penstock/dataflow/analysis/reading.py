"""The reading of one method: an abstract interpretation of its source, and of the functions that it calls.

No code of the application runs. Names have abstract values (`value`), which come from declared types, from calls and from
assignments; ways that the code may take are joined. A called function is read again for each context of arguments, because
the same function may get references to several classes. What stays unknown becomes an edge to `?`.
"""

import ast
import builtins
import contextlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from penstock.base.annotations import signature_of
from penstock.dataflow.analysis.hazard import MESSAGES, hazard_of, lost_updates
from penstock.dataflow.analysis.library import (
    CHANGING,
    ORDERLESS,
    Arguments,
    container_made,
    container_result,
    library_result,
)
from penstock.dataflow.analysis.source import (
    Sources,
    Tree,
    hints_of,
    place_of,
    plain_function,
    resolve,
)
from penstock.dataflow.analysis.topology import whole
from penstock.dataflow.analysis.value import (
    NOTHING,
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
    Edge,
    Endpoint,
    Hazard,
    Origin,
    PlanWarning,
    StreamKind,
)
from penstock.model.application import App
from penstock.model.declaration import CREATIONS, RESERVED
from penstock.model.entity_type import EntityType
from penstock.model.index import Index, Lookup, UniqueLookup
from penstock.model.sending import ask, send, send_after, send_at
from penstock.model.streams.ask import gather
from penstock.model.streams.flow import Emit
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import Stream, emit
from penstock.model.streams.task_state import states

_ROUNDS_MAX: Final = 4  # a recursive function settles in two; this bounds the rest
_CONTEXTS_MAX: Final = 64  # readings of one function for one method, with different arguments
_NESTED_MAX: Final = 2
_MISSING: Final = object()
_ACTIONS: Final = {
    **dict.fromkeys(CREATIONS, Action.CREATE),
    "delete": Action.DELETE,
    "exists": Action.EXISTS,
}
_METHOD_AT: Final = ((send, 0), (send_after, 1), (send_at, 1), (ask, 0))
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

    def visible(self, scope: "Scope") -> Mapping[str, Any]:
        """Return the names that an annotation may use."""
        return {**self.classes, **scope.function.__globals__}

    def methods(self) -> Iterator[tuple[Endpoint, Callable[..., Any], Any]]:
        """Yield the functions and methods that requests can call, and the effects, with their results."""
        for name, each in (*self.app.functions.items(), *self.app.effects.items()):
            yield Endpoint(name, name), each.function, each.returns
        for entity in self.app.entities.values():
            for name, each in entity.methods.items():
                yield Endpoint(entity.name, name), each.function, each.returns


@dataclass(slots=True, eq=False)
class Scope:
    """The names of one function while it is read.

    Attributes:
        function: The function, or the function around it: it has the globals and the file.
        owner: The class that defines it, for `super()`.
        shared: The names that a `global` or `nonlocal` declares.
        yielded: The values of all `yield`; None if the function has none.
    """

    function: FunctionType
    owner: type | None = None
    parent: "Scope | None" = None
    names: dict[str, Value] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)
    returned: Value = NOTHING
    yielded: Value | None = None

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


Names: TypeAlias = dict[str, Value]


@dataclass(slots=True)
class _Activation:
    """A function that is being read: its arguments, its result so far, and whether it has called itself."""

    names: Names
    returned: Value = NOTHING
    is_recursive: bool = False


class Call(NamedTuple):
    """A call in the source, with its evaluated arguments."""

    node: ast.Call
    given: Arguments


class Reading:
    """Reads one method, with the functions that it calls."""

    def __init__(self, known: Known, source: Endpoint) -> None:
        self.edges: dict[Edge, None] = {}
        self.warnings: dict[PlanWarning, None] = {}
        self._known = known
        self._source = source
        self._scope: Scope
        self._looped = self._conditional = False
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
        edge = Edge(self._source, target, action, where, self._looped, self._conditional, origin)
        self.edges[edge] = None

    def _unknown(self, node: ast.AST, action: Action, member: str) -> None:
        self._edge(node, action, Endpoint(UNKNOWN_OPERATOR, member), Origin.UNKNOWN)

    @contextlib.contextmanager
    def _within(self, *, loop: bool = False, branch: bool = False) -> Iterator[None]:
        """Read a part that may run any number of times, or not at all."""
        before = self._looped, self._conditional
        self._looped, self._conditional = self._looped or loop, self._conditional or branch
        yield
        self._looped, self._conditional = before

    # Functions

    def follow(self, node: Tree, scope: Scope, arguments: Arguments) -> Value:
        """Read a called function in its new scope, and return its result."""
        names = self._bound(node, scope, arguments)
        running = self._active.get(node)
        if running is not None:
            running.is_recursive = True
            running.names = _merged((running.names, names))
            return running.returned
        called = node, scope.function  # functions of one lambda differ in their cells
        key = called, scope.parent, self._looped, self._conditional, frozenset(names.items())
        if key not in self._finished:
            self._contexts[called] = self._contexts.get(called, 0) + 1
            if self._contexts[called] > _CONTEXTS_MAX:
                return UNKNOWN
            self._finished[key] = self._settle(node, scope, names)
        return self._finished[key]

    def _settle(self, node: Tree, scope: Scope, names: Names) -> Value:
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
            yielded = self._scope.yielded
            running.returned = returned if yielded is None else built(yielded)
            if not running.is_recursive or known == (running.names, running.returned):
                break
        del self._active[node]
        if outside is not None:
            self._scope = outside
        effects = self.edges
        if running.is_recursive:  # its effects repeat
            effects = {msgspec.structs.replace(edge, looped=True): None for edge in effects}
        self.edges = before | effects
        return running.returned

    def _bound(self, node: Tree, scope: Scope, arguments: Arguments) -> Names:
        """Return the values of the parameters; annotations replace unknown values."""
        positional = [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)]
        every = [*positional, *(parameter.arg for parameter in node.args.kwonlyargs)]
        given = dict(zip(positional, arguments.positional, strict=False)) | arguments.named
        hints = {} if scope.parent else hints_of(scope.function, self._known.visible(scope))
        result = {
            name: known_by(given.get(name, arguments.rest), hints.get(name, Any)) for name in every
        }
        if node.args.vararg is not None:
            beyond = arguments.positional[len(positional) :]
            result[node.args.vararg.arg] = built(join((*beyond, arguments.rest)))
        if node.args.kwarg is not None:
            extra = [value for name, value in arguments.named.items() if name not in every]
            result[node.args.kwarg.arg] = built(NOTHING, join((*extra, arguments.rest)))
        return result

    # Statements

    def _run(self, statements: Sequence[ast.stmt], *, perhaps: bool = False) -> None:
        with self._within(branch=perhaps):
            for statement in statements:
                do: Callable[[Any], object] = getattr(
                    self, f"_do_{type(statement).__name__.lower()}", self._parts
                )
                do(statement)
                self._conditional |= _leaves(statement)

    def _ways(self, ways: Iterable[Callable[[], None]]) -> None:
        """Read alternatives, each with the names of before, and join their names."""
        before, after = self._scope.names, []
        for way in ways:
            self._scope.names = dict(before)
            way()
            after.append(self._scope.names)
        self._scope.names = _merged(after)

    def _do_return(self, node: ast.Return) -> None:
        self._scope.returned |= self._evaluate(node.value)

    def _do_assign(self, node: ast.Assign) -> None:
        self._warn_of_lost_updates(node)
        value = self._evaluate(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            resolved = resolve(node.annotation, self._known.visible(self._scope))
            self._assign(node.target, known_by(self._evaluate(node.value), resolved))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        before = self._evaluate(node.target)
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
        bodies = node.body, node.orelse
        self._ways([partial(self._run, each, perhaps=True) for each in bodies])

    def _do_for(self, node: ast.For) -> None:
        source = self._evaluate(node.iter)
        self._repeat(node, lambda: self._iterate(node.iter, node.target, source))

    def _do_while(self, node: ast.While) -> None:
        self._repeat(node, lambda: self._evaluate(node.test))

    def _repeat(self, node: ast.For | ast.While, begin: Callable[[], object]) -> None:
        """Read a loop; `begin` is the first part of each iteration."""

        def once() -> None:
            with self._within(loop=True):
                begin()
                self._run(node.body)

        for _ in range(2):  # so that the names of one iteration reach the next
            before = dict(self._scope.names)
            self._ways((lambda: None, once))
            if self._scope.names == before:
                break
        self._run(node.orelse)

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
            self._run(handler.body, perhaps=True)

        handlers = [lambda each=each: handled(each) for each in node.handlers]
        self._ways([lambda: self._run(node.orelse, perhaps=bool(handlers)), *handlers])
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
            with self._within(branch=True):
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
            self._scope.names[alias.asname or name] = (
                UNKNOWN if module is None else constant(module)
            )

    def _do_importfrom(self, node: ast.ImportFrom) -> None:
        name = "." * node.level + (node.module or "")
        package = self._scope.function.__globals__.get("__package__") or ""
        full = importlib.util.resolve_name(name, package) if package or not node.level else name
        # The application is loaded, and so are most modules that a handler imports; a picture imports nothing.
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
        value = self._at_name(root)
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

    _at_slice = _parts

    def _at_other(self, node: ast.expr) -> Value:
        self._parts(node)
        return UNKNOWN

    def _at_constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _at_name(self, node: ast.Name) -> Value:
        holder = self._scope.holder(node.id)
        if holder is not None:
            return holder.names[node.id]
        thing = self._scope.outer(node.id)
        if thing is _MISSING:
            return UNKNOWN
        self._check(thing, node.id, node)
        return constant(thing)

    def _at_attribute(self, node: ast.Attribute) -> Value:
        base = self._evaluate(node.value)
        able = [atom for atom in base if _has(atom, node.attr)]
        return join(self._read(node, atom, node.attr) for atom in able or base)

    def _read(self, node: ast.expr, atom: Atom, name: str) -> Value:
        """Return an attribute of a value, and record the read."""
        entity = entity_of(atom)
        match atom:
            case TypedValue() if entity is not None:
                is_class = name == "__class__"
                return (
                    constant(entity.cls)
                    if is_class
                    else self._read_entity(node, atom, entity, name)
                )
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
        if member is not _MISSING:
            return single(BoundMethod(atom, name)) if _is_method(member) else constant(member)
        self._warn(node, f"{entity.name} has no attribute or method {name}")
        return UNKNOWN

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
        base, index = self._evaluate(node.value), self._evaluate(node.slice)
        match node.slice:
            case ast.Slice():
                return base
            case ast.Constant(value=int(position)):
                return join(item(atom, position) for atom in base)
            case _:
                looked, origin = join(map(lookup, base)), origin_of(index)
        return retag(looked, origin) if origin.dynamic and not origin_of(looked).dynamic else looked

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
        with self._within(branch=True):
            return join((first, *self._all(node.values[1:])))

    def _at_ifexp(self, node: ast.IfExp) -> Value:
        self._evaluate(node.test)
        with self._within(branch=True):
            return join(self._all((node.body, node.orelse)))

    def _at_binop(self, node: ast.BinOp) -> Value:
        value = join(self._all((node.left, node.right)))
        is_built = any(isinstance(atom, BuiltValue | TupleValue) for atom in value)
        return value if is_built else retag(value, derived(value))

    def _at_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self._evaluate(node.operand)
        return of_type(bool, derived(value)) if isinstance(node.op, ast.Not) else value

    def _at_compare(self, node: ast.Compare) -> Value:
        return of_type(bool, derived(self._parts(node)))

    def _at_joinedstr(self, node: ast.JoinedStr) -> Value:
        return of_type(str, derived(self._parts(node)))

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
        with self._within(loop=True):
            self._iterate(first.iter, first.target, source, ordered=ordered)
            self._all(first.ifs)
            with self._within(branch=bool(first.ifs)):
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
        return self._yield(self._evaluate(node.value))

    def _at_yieldfrom(self, node: ast.YieldFrom) -> Value:
        return self._yield(join(map(elements, self._evaluate(node.value))))

    def _yield(self, value: Value) -> Value:
        self._scope.yielded = (self._scope.yielded or NOTHING) | value
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
        call = Call(node, self._arguments(node))
        if not called and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            # The receiver is an element of a collection that is still empty.
            self._change(node.func.value, NOTHING, _inside(call.given.every))
        return join(self._call(call, atom) for atom in called)

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

    def _call(self, call: Call, atom: Atom) -> Value:
        match atom:
            case Closure(node=tree, scope=outer):
                return self.follow(tree, Scope(outer.function, outer.owner, outer), call.given)
            case BoundMethod(receiver=receiver, name=name):
                return self._call_method(call, receiver, name)
            case StaticObject(thing=thing):
                return self._call_thing(call, thing)
            case TypedValue(type=annotation) if typing.get_origin(annotation) is not Emit:
                self._unknown(call.node, Action.CALL, ast.unparse(call.node.func))
            case _:
                pass
        return UNKNOWN

    def _call_method(self, call: Call, receiver: Atom, name: str) -> Value:
        match receiver:
            case BoundMethod(receiver=this, name="super"):
                return self._call_super(call, this, name)
            case StaticObject(thing=thing) if _is_entity_class(thing):
                return self._call_class(call, thing.__reference__, name)
            case StaticObject(thing=Portal() as portal) if name == "ask":
                end = whole(StreamKind.PORTAL, portal.name)
                self._edge(call.node, Action.ASK, end, Origin.CONSTANT)
                return single(Question(of_type(portal.annotations[1], Origin.RESULT)))
            case _ if (entity := entity_of(receiver)) is not None:
                return self._call_entity(call, receiver, entity, name)
            case _:
                return self._call_object(call, receiver, name)

    def _call_super(self, call: Call, receiver: Atom, name: str) -> Value:
        entity = entity_of(receiver)
        lineage = entity.cls.__mro__ if entity else getattr(receiver, "type", object).__mro__
        owner = self._scope.owner
        behind = lineage[lineage.index(owner) + 1 :] if owner in lineage else ()
        for cls in behind:
            function = plain_function(vars(cls).get(name))
            if function is not None:
                return self._follow_function(function, call.given.behind(single(receiver)), cls)
        return UNKNOWN

    def _call_class(self, call: Call, entity: EntityType, name: str) -> Value:
        """Record `Item.create(…)`, `Item.exists(…)`; `Item.delete(item)` names it as argument."""
        given = call.given
        origin = _key_origin(entity, name, given) if name in CREATIONS else origin_of(given.first)
        self._edge(call.node, _ACTIONS[name], Endpoint(entity.name, name), origin)
        return of_type(bool, Origin.STATE) if name == "exists" else of_type(entity.cls, origin)

    def _call_entity(self, call: Call, receiver: Atom, entity: EntityType, name: str) -> Value:
        origin, target = origin_of(single(receiver)), Endpoint(entity.name, name)
        if name in RESERVED:
            is_asked = name == "exists"
            origin = origin_of(call.given.first) if is_asked else origin
            self._edge(call.node, _ACTIONS[name], target, origin)
            return of_type(bool, Origin.STATE) if is_asked else NOTHING
        member = inspect.getattr_static(entity.cls, name, None)
        if isinstance(member, staticmethod):
            return self._call_function(call, member)
        if isinstance(member, classmethod):
            given = call.given.behind(constant(entity.cls))
            return self._call_function(call._replace(given=given), member)
        self._edge(call.node, Action.CALL, target, origin)
        signature = entity.methods.get(name)
        # The declared result is checked when a handler runs; without one, the method itself is read.
        if signature is not None and signature.returns is not Any:
            return of_type(signature.returns, Origin.RESULT)
        return retag(self._known.returned(entity.cls, name), Origin.RESULT)

    def _call_object(self, call: Call, receiver: Atom, name: str) -> Value:
        if is_unknown(receiver):
            if name in self._known.method_names:
                self._unknown(call.node, Action.CALL, name)
            return self._apply(call) | UNKNOWN
        thing = receiver.thing if isinstance(receiver, StaticObject) else None
        cls = receiver.type if isinstance(receiver, TypedValue) else type(thing)
        if (thing is None and not isinstance(receiver, TypedValue)) or is_container(cls):
            return self._call_container(call, receiver, name)
        member = inspect.getattr_static(cls, name, None)
        function = plain_function(member)
        if function is not None and self._known.sources.follows(function):
            return self._follow_function(function, call.given.behind(single(receiver)), cls)
        if hazard_of(function or member) is Hazard.OUTSIDE:
            self._check(function or member, ast.unparse(call.node.func), call.node)
        return self._library(call, None)

    def _call_container(self, call: Call, receiver: Atom, name: str) -> Value:
        """Evaluate a method of a list, dictionary, set or iterator."""
        node, given = call.node, call.given.every
        if name in CHANGING:
            base = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            many = name in ("extend", "update", "extendleft")
            self._change(base, single(receiver), join(map(elements, given)) if many else given)
        return container_result(receiver, name, given, self._apply(call))

    def _call_thing(self, call: Call, thing: Any) -> Value:
        if isinstance(thing, Lookup | UniqueLookup):
            return self._find(call, thing.index)
        if _is_entity_class(thing):
            first = join(call.given.positional[:1])
            if any(entity_of(atom) for atom in first):  # Item(item) is item
                return first
            return of_type(thing, origin_of(call.given.first))
        if isinstance(thing, type):
            return self._construct(call, thing)
        return self._call_function(call, thing)

    def _find(self, call: Call, index: Index) -> Value:
        """Record `Item.by_name(…)`, which finds one entity or a list of them."""
        entity = index.entity_type
        self._edge(call.node, Action.FIND, Endpoint(entity.name, index.name), Origin.COMPUTED)
        annotation: Any = entity.cls if index.is_unique else list[entity.cls]  # type: ignore[name-defined]
        return of_type(annotation, Origin.STATE)

    def _call_function(self, call: Call, thing: Any) -> Value:
        if (published := self._outlet(call, thing)) is not None:
            return published
        function = plain_function(thing)
        if function is None or not self._known.sources.follows(function):
            return self._library(call, thing)
        name, arguments = function.__name__, call.given
        known = self._known.app.functions.get(name)
        if known is not None and plain_function(known.function) is function:
            self._edge(call.node, Action.CALL, Endpoint(name, name), Origin.CONSTANT)
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
        value = self.follow(tree, Scope(function, owner), arguments)
        if not any_unknown(value):
            return value
        names = self._known.visible(self._scope)
        return known_by(value, hints_of(function, names).get("return", Any))

    def _construct(self, call: Call, cls: type) -> Value:
        """Evaluate a call of a plain class."""
        if is_container(cls):
            return container_made(cls, call.given)
        given = call.given.every
        made = of_type(cls, derived(given))
        initializer = plain_function(vars(cls).get("__init__"))
        if initializer is not None and self._known.sources.follows(initializer):
            if self._known.sources.tree_of(initializer) is not None:
                self._follow_function(initializer, call.given.behind(made), cls)
            return made
        has_fields = hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")
        if has_fields or (cls.__module__ != "builtins" and not holds_entity(given)):
            return made
        return self._library(call, cls)

    def _library(self, call: Call, thing: Any) -> Value:
        given = library_result(thing, call.given, self._apply(call))
        function = plain_function(thing)
        if function is None or not any_unknown(given):
            return given
        return known_by(given, hints_of(function, {}).get("return", Any))

    def _apply(self, call: Call) -> Value:
        """Call the functions among the arguments, any number of times."""
        node, others = call.node, call.given.every
        callables = [atom for atom in others if _is_callable(atom)]
        if not callables:
            return NOTHING
        if isinstance(node.func, ast.Attribute):  # `items.sort(key=…)` passes elements of its own
            others |= join(map(elements, self._evaluate(node.func.value)))
        passed = frozenset(atom for atom in _inside(others) if not _is_callable(atom))
        inner = Call(node, Arguments(rest=passed))
        with self._within(loop=True, branch=True):
            return join(self._call(inner, atom) for atom in callables)

    # Events, requests and questions: an edge names the stream, the method or the portal if the source does

    def _outlet(self, call: Call, thing: Any) -> Value | None:
        """Evaluate a function of Penstock that publishes, sends or asks; None for another function."""
        first = join(call.given.positional[:1])
        if thing is emit:
            things = [atom.thing for atom in first if isinstance(atom, StaticObject)]
            streams = [each for each in things if isinstance(each, Stream)]
            for stream in streams:
                end = whole(StreamKind.STREAM, stream.name)
                self._edge(call.node, Action.EMIT, end, Origin.CONSTANT)
            if not streams:
                self._unknown(call.node, Action.EMIT, _word(call.node, 0))
            return NOTHING
        if thing is gather:
            return built(_replies(_inside(call.given.every)))
        if thing is states:
            return built(single(TupleValue((of_type(str, Origin.STATE), first))))
        at = next((at for known, at in _METHOD_AT if thing is known), None)
        return None if at is None else self._send(call, at, is_question=thing is ask)

    def _send(self, call: Call, at: int, *, is_question: bool) -> Value:
        """Record a request to the method that is the argument at a position."""
        action, given = Action.ASK if is_question else Action.SEND, call.given
        replies, is_known = NOTHING, False
        for atom in join(given.positional[at : at + 1]):
            for target, returns in self._methods(atom):
                receiver = join((*given.positional[at + 1 : at + 2], given.rest))
                if isinstance(atom, BoundMethod) and entity_of(atom.receiver) is not None:
                    receiver = single(atom.receiver)
                origin = Origin.CONSTANT if target.is_whole else origin_of(receiver)
                self._edge(call.node, action, target, origin)
                replies |= of_type(returns, Origin.RESULT)
                is_known = True
        if not is_known:
            self._unknown(call.node, action, _word(call.node, at))
            replies = UNKNOWN
        return single(Question(replies)) if is_question else NOTHING

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
                for end, method, returns in self._known.methods():
                    if plain_function(method) is function:
                        yield end, returns
            case _:
                pass


def _merged(ways: Iterable[Mapping[str, Value]]) -> Names:
    merged: Names = {}
    for name, value in chain.from_iterable(way.items() for way in ways):
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


def _key_origin(entity: EntityType, method: str, arguments: Arguments) -> Origin:
    """Return the origin of the key that a creation gets."""
    parameters: list[str] = []
    initializer = entity.initializer if entity.runs_initializer(method) else None
    if initializer is not None:
        parameters = list(signature_of(initializer).parameters)[1:]
    passed = dict(zip(parameters, arguments.positional, strict=False)) | arguments.named
    if entity.key_name in passed:
        return origin_of(passed[entity.key_name])
    if initializer is not None:
        return origin_of(arguments.every)
    if arguments.positional or arguments.rest:
        return origin_of(arguments.first)
    return Origin.COMPUTED  # derived from the request id


def _changes_in_place(atom: Atom) -> bool:
    """Whether `name += …` changes the value of an attribute; an immutable value, as a time, is replaced by another."""
    if not isinstance(atom, TypedValue) or atom.home is None:
        return False
    cls = typing.get_origin(atom.type) or atom.type
    is_known = isinstance(cls, type) and cls is not object
    return not is_known or hasattr(cls, "__iadd__") or hasattr(cls, "__ior__")


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


def _word(node: ast.Call, position: int) -> str:
    """Return the source of an argument."""
    return ast.unparse(node.args[position]) if len(node.args) > position else "?"
