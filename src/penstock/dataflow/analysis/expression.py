"""The abstract interpretation of expressions: their values, and their effects on entities.

Each method `_at_…` of `Expressions` takes the syntax node of that name and returns its value. For other
nodes the parts are evaluated, and the value is unknown.
"""

import ast
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Final

from penstock.dataflow.analysis.frame import Frame
from penstock.dataflow.analysis.source import resolve
from penstock.dataflow.analysis.value import (
    NOTHING,
    UNKNOWN,
    Atom,
    BoundMethod,
    Closure,
    CollectionValue,
    DictValue,
    OwnerAttribute,
    StaticObject,
    TupleValue,
    TypedValue,
    Value,
    constant,
    derived,
    elements,
    entity_of,
    field_types,
    is_container,
    is_set,
    is_unknown,
    item,
    join,
    lookup,
    of_type,
    origin_of,
    retag,
    single,
    unpack,
)
from penstock.dataflow.graph import Action, Endpoint, Hazard, Origin
from penstock.model.declaration import RESERVED
from penstock.model.entity_type import EntityType

_MISSING: Final = object()
_DEPTH_MAX: Final = 2


class Expressions(Frame):
    """A frame that evaluates expressions; a subclass evaluates calls.

    Attributes:
        orderless: Comprehensions whose result does not depend on their order: `sum(… for …)`.
    """

    @functools.cached_property
    def orderless(self) -> set[ast.expr]:
        """Empty at first."""
        return set()

    def evaluate(self, node: ast.expr | None) -> Value:
        """Return the value of an expression, and record its effects."""
        if node is None:
            return NOTHING
        read: Callable[[Any], Value] = getattr(
            self, f"_at_{type(node).__name__.lower()}", self._at_other
        )
        return read(node)

    def evaluate_all(self, nodes: Iterable[ast.expr | None]) -> list[Value]:
        """Evaluate in order."""
        return [self.evaluate(node) for node in nodes]

    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind a target of an assignment, a loop or a `with`."""
        match target:
            case ast.Name(id=name):
                if name in self.shared_names and self.is_outer(name):
                    self.warn_global(target, name)
                self.bind(name, value)
            case ast.Starred(value=inner):
                self.assign(inner, single(CollectionValue(value)))
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._assign_each(targets, value)
            case ast.Attribute(value=base, attr=name):
                for atom in self.evaluate(base):
                    self.write(target, atom, name)
            case ast.Subscript(value=base, slice=index):
                self.evaluate(index)
                self.change(base, self.evaluate(base), value)
            case _:
                pass

    def _assign_each(self, targets: Sequence[ast.expr], value: Value) -> None:
        if any(isinstance(target, ast.Starred) for target in targets):
            values = [join(map(elements, value))] * len(targets)
        else:
            unpacked = [unpack(atom, len(targets)) for atom in value]
            values = [join(column) for column in zip(*unpacked, strict=True)] or [NOTHING] * len(
                targets
            )
        for target, part in zip(targets, values, strict=True):
            self.assign(target, part)

    def write(self, node: ast.expr, atom: Atom, name: str) -> None:
        """Record an assignment to an attribute."""
        entity = entity_of(atom)
        if entity is not None:
            if name not in entity.attributes and name != entity.key_name:
                self.warn(node, f"{entity.name} declares no attribute {name}; assigning it fails")
            self.edge(node, Action.WRITE, Endpoint(entity.name, name), origin_of(single(atom)))
            return
        match atom:
            case StaticObject(thing=thing):
                owner = getattr(thing, "__name__", type(thing).__name__)
                self.warn_global(node, f"{owner}.{name}")
            case TypedValue(home=OwnerAttribute() as home):
                self.edge(node, Action.WRITE, home.attribute, home.origin)
            case TypedValue() if is_unknown(atom) and name in self.application.attribute_names:
                self.unknown(node, Action.WRITE, name)

    def change(self, node: ast.expr, value: Value, added: Value = NOTHING) -> None:
        """Record a change of a list, dictionary or set, and add to its elements."""
        for atom in value:
            match atom:
                case TypedValue(home=OwnerAttribute() as home):
                    self.edge(node, Action.WRITE, home.attribute, home.origin)
                case StaticObject(thing=list() | dict() | set() as thing):
                    name = ast.unparse(node)
                    message = f"{name} is a global {type(thing).__name__} and not part of the state"
                    self.warn(node, message, Hazard.GLOBAL)
                case _:
                    pass
        if added:
            self._widen(node, added)

    def _widen(self, node: ast.expr, added: Value) -> None:
        """Add elements to the collection that a name refers to, at any depth."""
        depth, root = 0, node
        while isinstance(root, ast.Subscript | ast.Attribute | ast.Call):
            depth += not isinstance(root, ast.Attribute)
            root = root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name) or self.is_outer(root.id):
            return
        value = self.look(root.id, root)
        for _ in range(min(depth, _DEPTH_MAX) + 1):
            added = join((single(DictValue(NOTHING, added)), single(CollectionValue(added))))
        if any(_is_built(atom) for atom in value):
            self.bind(root.id, join((value, added)))

    def read(self, node: ast.expr, atom: Atom, name: str) -> Value:
        """Return an attribute of a value, and record the read."""
        entity = entity_of(atom)
        if entity is not None and isinstance(atom, TypedValue):
            return self._read_entity(node, atom, entity, name)
        match atom:
            case StaticObject(thing=thing):
                return self._read_thing(node, atom, thing, name)
            case TypedValue() if is_unknown(atom):
                known = self.application
                if name in known.attribute_names and name not in known.method_names:
                    self.unknown(node, Action.READ, name)
                return single(BoundMethod(atom, name))
            case TypedValue(type=annotation, origin=origin, home=home):
                return self._read_plain(atom, annotation, name, origin, home)
            case _:
                return single(BoundMethod(atom, name))

    def _read_entity(
        self, node: ast.expr, atom: TypedValue, entity: EntityType, name: str
    ) -> Value:
        if name == entity.key_name:
            return of_type(entity.key_annotation, atom.origin)
        if name in entity.attributes:
            home = Endpoint(entity.name, name)
            self.edge(node, Action.READ, home, atom.origin)
            return of_type(entity.attributes[name], Origin.STATE, OwnerAttribute(home, atom.origin))
        return self._read_member(node, atom, entity, name)

    def _read_member(
        self, node: ast.expr, atom: TypedValue, entity: EntityType, name: str
    ) -> Value:
        if name == "__class__":
            return single(StaticObject(entity.cls))
        member = inspect.getattr_static(entity.cls, name, _MISSING)
        if isinstance(member, property):
            self.edge(node, Action.CALL, Endpoint(entity.name, name), atom.origin)
            return retag(self.application.methods(entity.cls, name).returned, Origin.RESULT)
        if member is _MISSING:
            self.warn(node, f"{entity.name} has no attribute or method {name}")
            return UNKNOWN
        asked = callable(member) or _is_wrapped(member)
        return single(BoundMethod(atom, name)) if asked else constant(member)

    def _read_thing(self, node: ast.expr, atom: StaticObject, thing: Any, name: str) -> Value:
        if isinstance(thing, type) and hasattr(thing, "__reference__") and name in RESERVED:
            return single(BoundMethod(atom, name))
        if isinstance(thing, ModuleType | type):
            member = getattr(thing, name, _MISSING)
            if member is _MISSING:
                return UNKNOWN
            self.check(member, ast.unparse(node), node)
            return constant(member)
        return single(BoundMethod(atom, name))

    def _read_plain(
        self,
        atom: TypedValue,
        annotation: Any,
        name: str,
        origin: Origin,
        home: OwnerAttribute | None,
    ) -> Value:
        fields = field_types(annotation)
        if name in fields:
            return of_type(fields[name], origin, home)
        if is_container(annotation):
            return single(BoundMethod(atom, name))
        member = inspect.getattr_static(annotation, name, None)
        if callable(member) or _is_wrapped(member):
            return single(BoundMethod(atom, name))
        return of_type(Any, derived(single(atom)))

    def _at_constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _at_name(self, node: ast.Name) -> Value:
        return self.look(node.id, node)

    def _at_attribute(self, node: ast.Attribute) -> Value:
        base = self.evaluate(node.value)
        able = [atom for atom in base if _has(atom, node.attr)]
        return join(self.read(node, atom, node.attr) for atom in able or base)

    def _at_subscript(self, node: ast.Subscript) -> Value:
        base = self.evaluate(node.value)
        index = self.evaluate(node.slice)
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
        return join(self.evaluate_all((node.lower, node.upper, node.step)))

    def _at_tuple(self, node: ast.Tuple) -> Value:
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return single(CollectionValue(join(self.evaluate_all(node.elts))))
        return single(TupleValue(tuple(self.evaluate_all(node.elts))))

    def _at_list(self, node: ast.List | ast.Set) -> Value:
        return single(CollectionValue(join(self.evaluate_all(node.elts))))

    _at_set = _at_list

    def _at_dict(self, node: ast.Dict) -> Value:
        keys, values = NOTHING, NOTHING
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self.evaluate(value)
            if key is None:  # `**other`
                keys = join((keys, *map(elements, inner)))
                values = join((values, *map(lookup, inner)))
            else:
                keys, values = join((keys, self.evaluate(key))), join((values, inner))
        return single(DictValue(keys, values))

    def _at_starred(self, node: ast.Starred) -> Value:
        return join(map(elements, self.evaluate(node.value)))

    def _at_namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.assign(node.target, value)
        return value

    def _at_boolop(self, node: ast.BoolOp) -> Value:
        values = [self.evaluate(node.values[0])]
        with self.branch():
            values += self.evaluate_all(node.values[1:])
        return join(values)

    def _at_ifexp(self, node: ast.IfExp) -> Value:
        self.evaluate(node.test)
        with self.branch():
            return join(self.evaluate_all((node.body, node.orelse)))

    def _at_binop(self, node: ast.BinOp) -> Value:
        value = join(self.evaluate_all((node.left, node.right)))
        return value if any(_is_built(atom) for atom in value) else retag(value, derived(value))

    def _at_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        return of_type(bool, derived(value)) if isinstance(node.op, ast.Not) else value

    def _at_compare(self, node: ast.Compare) -> Value:
        value = join(self.evaluate_all((node.left, *node.comparators)))
        return of_type(bool, derived(value))

    def _at_joinedstr(self, node: ast.JoinedStr) -> Value:
        value = join(self.evaluate_all(node.values))
        return of_type(str, derived(value))

    def _at_formattedvalue(self, node: ast.FormattedValue) -> Value:
        self.evaluate(node.format_spec)
        value = self.evaluate(node.value)
        return of_type(str, origin_of(value))

    def _at_lambda(self, node: ast.Lambda | ast.FunctionDef) -> Value:
        return single(Closure(node, self))

    def _at_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        ordered = not isinstance(node, ast.SetComp) and node not in self.orderless
        return single(
            CollectionValue(self._comprehend(node.generators, [node.elt], ordered=ordered)[0])
        )

    _at_setcomp = _at_listcomp
    _at_generatorexp = _at_listcomp

    def _at_dictcomp(self, node: ast.DictComp) -> Value:
        keys, values = self._comprehend(node.generators, [node.key, node.value], ordered=False)
        return single(DictValue(keys, values))

    def _comprehend(
        self, generators: list[ast.comprehension], wanted: list[ast.expr], *, ordered: bool
    ) -> list[Value]:
        """Bind the loops of a comprehension, outermost first; then restore its names."""
        if not generators:
            return self.evaluate_all(wanted)
        first, inner = generators[0], generators[1:]
        targets = [part.id for part in ast.walk(first.target) if isinstance(part, ast.Name)]
        kept = {name: self.names[name] for name in targets if name in self.names}
        source = self.evaluate(first.iter)
        with self.loop():
            self.iterate(first.iter, first.target, source, ordered=ordered)
            self.evaluate_all(first.ifs)
            with self.branch(taken=bool(first.ifs)):
                values = self._comprehend(inner, wanted, ordered=ordered)
        for name in targets:
            self.names.pop(name, None)
        self.names.update(kept)
        return values

    def iterate(
        self, node: ast.expr, target: ast.expr, source: Value, *, ordered: bool = True
    ) -> None:
        """Bind the target of a loop."""
        if ordered and any(map(is_set, source)):
            message = f"the order of the set {ast.unparse(node)} differs between processes; sort it"
            self.warn(node, message, Hazard.SET_ORDER)
        self.assign(target, join(map(elements, source)))

    def _at_yield(self, node: ast.Yield) -> Value:
        self.yielded = join((self.yielded, self.evaluate(node.value)))
        return NOTHING

    def _at_yieldfrom(self, node: ast.YieldFrom) -> Value:
        inner = self.evaluate(node.value)
        self.yielded = join((self.yielded, *map(elements, inner)))
        return NOTHING

    def _at_other(self, node: ast.expr) -> Value:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)
        return UNKNOWN

    def annotated(self, annotation: ast.expr | None, value: Value) -> Value:
        """Return a known value, or else the value of its annotation."""
        if annotation is None or (value and not any(map(is_unknown, value))):
            return value
        resolved = resolve(annotation, self.visible)
        return value if resolved is Any else of_type(resolved, origin_of(value))


def _has(atom: Atom, name: str) -> bool:
    """Whether a value may have an attribute."""
    entity = entity_of(atom)
    return (
        entity is None or name in (*entity.attributes, entity.key_name) or hasattr(entity.cls, name)
    )


def _is_built(atom: Atom) -> bool:
    return isinstance(atom, CollectionValue | TupleValue | DictValue)


def _is_wrapped(member: object) -> bool:
    return isinstance(member, staticmethod | classmethod | property)
