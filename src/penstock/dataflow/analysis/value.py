"""The abstract domain: the values that an expression may have.

A `Value` is a set of atoms; join is union, and the empty set is the bottom element (also the value of None, which
contains no entity). Types are resolved annotations: `list[tuple[Item, int]]` determines the values that a loop over
it binds.
"""

import ast
import collections.abc
import dataclasses
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.schema import reference_type
from penstock.dataflow.graph import Endpoint, Origin
from penstock.model.entity_type import EntityType


class OwnerAttribute(msgspec.Struct, frozen=True):
    """The attribute that contains a mutable value: a change of the value writes the attribute."""

    attribute: Endpoint
    origin: Origin


class TypedValue(msgspec.Struct, frozen=True):
    """A value of an annotated type; `Any` for an unknown type."""

    type: Any
    origin: Origin
    home: OwnerAttribute | None = None


class BuiltValue(msgspec.Struct, frozen=True):
    """A collection or iterator that the method itself builds.

    Attributes:
        iterated: The elements, or the keys of a dictionary.
        looked_up: The result of `[…]`: the elements, or the values of a dictionary.
    """

    iterated: "Value"
    looked_up: "Value"


class TupleValue(msgspec.Struct, frozen=True):
    """A tuple that the method itself builds."""

    items: tuple["Value", ...]


@dataclass(frozen=True, slots=True, eq=False)
class StaticObject:
    """An object that exists before any request: a class, a function, a module, a constant.

    Equal when it is the same object, which need not be hashable.
    """

    thing: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticObject) and other.thing is self.thing

    def __hash__(self) -> int:
        return object.__hash__(self.thing)


class Closure(msgspec.Struct, frozen=True):
    """A function or lambda defined inside a method, with the scope that it sees."""

    node: ast.FunctionDef | ast.Lambda
    scope: Any


class BoundMethod(msgspec.Struct, frozen=True):
    """A method of a value, not called yet."""

    receiver: "Atom"
    name: str


class Question(msgspec.Struct, frozen=True):
    """A question to a portal or to an entity, whose reply the method can await."""

    reply: "Value"


Atom = TypedValue | BuiltValue | TupleValue | StaticObject | Closure | BoundMethod | Question
Value = frozenset[Atom]

NOTHING: Final[Value] = frozenset()
UNKNOWN: Final[Value] = frozenset({TypedValue(Any, Origin.UNKNOWN)})
SCALARS: Final = frozenset({int, float, bool, bytes, str, complex, type(None)})
_ITERABLE: Final = frozenset(
    {
        *(list, dict, tuple, set, frozenset),
        *(collections.deque, collections.defaultdict, collections.OrderedDict, collections.Counter),
        *(collections.abc.Iterable, collections.abc.Iterator, collections.abc.Generator),
        *(collections.abc.Sequence, collections.abc.Collection, collections.abc.Set),
        collections.abc.Mapping,
    }
)
_RANK: Final = {origin: rank for rank, origin in enumerate(Origin)}


def single(atom: Atom) -> Value:
    """Return the value with a single atom."""
    return frozenset({atom})


def built(element: Value, looked_up: Value | None = None) -> Value:
    """Return a collection of elements, or a dictionary of keys and values."""
    return single(BuiltValue(element, element if looked_up is None else looked_up))


def join(values: Iterable[Value]) -> Value:
    """Return the least upper bound: the union."""
    return frozenset().union(*values)


def of_type(annotation: Any, origin: Origin, home: OwnerAttribute | None = None) -> Value:
    """Return the value of an annotated type; a union is each of its members, without None."""
    if typing.get_origin(annotation) is typing.Annotated:
        return of_type(typing.get_args(annotation)[0], origin, home)
    if typing.get_origin(annotation) in UNIONS:
        return join(of_type(member, origin, home) for member in typing.get_args(annotation))
    if annotation is None or annotation is type(None):
        return NOTHING
    if annotation in SCALARS or reference_type(annotation) is not None:
        home = None
    return single(TypedValue(annotation, origin, home))


def constant(thing: Any) -> Value:
    """Return the value of an object that exists before any request."""
    if type(thing) in SCALARS:
        return of_type(type(thing), Origin.CONSTANT)
    return single(StaticObject(thing))


def retag(value: Value, origin: Origin) -> Value:
    """Return the value with another origin."""
    return frozenset(_retag(atom, origin) for atom in value)


def _retag(atom: Atom, origin: Origin) -> Atom:
    match atom:
        case TypedValue(type=annotation):
            return TypedValue(annotation, origin)
        case BuiltValue(iterated=iterated, looked_up=looked_up):
            return BuiltValue(retag(iterated, origin), retag(looked_up, origin))
        case TupleValue(items=items):
            return TupleValue(tuple(retag(item, origin) for item in items))
        case _:
            return atom


def origin_of(value: Value) -> Origin:
    """Return the origin of a value: of its parts, the origin that becomes known last; of none, a constant."""
    return max(map(_origin, value), key=_RANK.__getitem__, default=Origin.CONSTANT)


def _origin(atom: Atom) -> Origin:
    match atom:
        case TypedValue(origin=origin):
            return origin
        case BuiltValue(iterated=iterated, looked_up=looked_up):
            return origin_of(iterated | looked_up)
        case TupleValue(items=items):
            return origin_of(join(items))
        case BoundMethod(receiver=receiver):
            return _origin(receiver)
        case _:
            return Origin.RESULT if isinstance(atom, Question) else Origin.CONSTANT


def derived(value: Value) -> Origin:
    """Return the origin of a result that is computed from a value."""
    origin = origin_of(value)
    return Origin.COMPUTED if origin in (Origin.SELF, Origin.ARGUMENT) else origin


def is_unknown(atom: Atom) -> bool:
    """Whether the type is unknown, so that the value may be an entity."""
    return isinstance(atom, TypedValue) and (atom.type is Any or atom.type is object)


def any_unknown(value: Value) -> bool:
    """Whether a part of a value is unknown."""
    return any(map(is_unknown, value))


def known_by(value: Value, annotation: Any) -> Value:
    """Return a value, or the value of its annotation if that says more."""
    if annotation is Any or (value and not any_unknown(value)):
        return value
    return of_type(annotation, origin_of(value))


def entity_of(atom: Atom) -> EntityType | None:
    """Return the entity class of a reference."""
    entity_type = reference_type(atom.type) if isinstance(atom, TypedValue) else None
    return entity_type if isinstance(entity_type, EntityType) else None


def holds_entity(value: Value) -> bool:
    """Whether a value is, or contains, a known reference to an entity."""
    return any(
        entity_of(atom) is not None
        or (_may_hold(atom) and holds_entity(elements(atom) | lookup(atom)))
        for atom in value
    )


def _may_hold(atom: Atom) -> bool:
    if isinstance(atom, TypedValue):
        return typing.get_args(atom.type) != ()
    return isinstance(atom, BuiltValue | TupleValue)


def elements(atom: Atom) -> Value:
    """Return the elements of an iteration."""
    match atom:
        case BuiltValue(iterated=iterated):
            return iterated
        case TupleValue(items=items):
            return join(items)
        case TypedValue():
            return _elements_of_type(atom)
        case StaticObject(thing=list() | tuple() | set() | frozenset() | dict() as things):
            return join(map(constant, things))
        case _:
            is_thing = isinstance(atom, StaticObject) and not callable(atom.thing)
            return UNKNOWN if is_thing else NOTHING


def _elements_of_type(atom: TypedValue) -> Value:
    outer, arguments = typing.get_origin(atom.type) or atom.type, typing.get_args(atom.type)
    if outer is str:
        return of_type(str, atom.origin)
    if outer in SCALARS or reference_type(outer) is not None:
        return NOTHING
    if outer is tuple and arguments:
        members = [member for member in arguments if member is not Ellipsis]
        return join(of_type(member, atom.origin, atom.home) for member in members)
    element = arguments[0] if arguments and outer in _ITERABLE else Any
    return of_type(element, atom.origin, atom.home)


def unpack(atom: Atom, count: int) -> list[Value]:
    """Return the values that `a, b, c = …` binds."""
    match atom:
        case TupleValue(items=items) if len(items) == count:
            return list(items)
        case TypedValue(type=annotation, origin=origin, home=home):
            members = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else ()
            if len(members) == count and Ellipsis not in members:
                return [of_type(member, origin, home) for member in members]
        case _:
            pass
    return [elements(atom)] * count


def lookup(atom: Atom) -> Value:
    """Return the value of `atom[…]`: an element of a sequence, or a value of a dictionary."""
    match atom:
        case BuiltValue(looked_up=looked_up):
            return looked_up
        case TypedValue(type=annotation, origin=origin, home=home) if is_mapping(annotation):
            arguments = typing.get_args(annotation)
            return of_type(arguments[1] if len(arguments) == 2 else Any, origin, home)
        case StaticObject(thing=dict() as things):
            return join(map(constant, things.values()))
        case _:
            return elements(atom)


def item(atom: Atom, position: int) -> Value:
    """Return the value of `atom[3]`."""
    match atom:
        case TupleValue(items=items):
            count = len(items)
        case TypedValue(type=annotation) if typing.get_origin(annotation) is tuple:
            count = len(typing.get_args(annotation))
        case _:
            count = 0
    if -count <= position < count:
        return unpack(atom, count)[position]
    return lookup(atom)


def is_mapping(annotation: Any) -> bool:
    """Whether an annotation is of a dictionary."""
    outer = typing.get_origin(annotation) or annotation
    return isinstance(outer, type) and issubclass(outer, collections.abc.Mapping)


def is_set(atom: Atom) -> bool:
    """Whether the order of iteration may differ between processes."""
    if not isinstance(atom, TypedValue):
        return False
    outer, arguments = typing.get_origin(atom.type) or atom.type, typing.get_args(atom.type)
    return outer in (set, frozenset) and arguments not in ((int,), (bool,))


def is_container(annotation: Any) -> bool:
    """Whether a type is built in, so that its methods call no entities."""
    outer = typing.get_origin(annotation) or annotation
    return outer in SCALARS or outer in _ITERABLE or outer is typing.Literal


def field_types(cls: Any) -> Mapping[str, Any]:
    """Return the annotated attributes of a plain class, such as a dataclass."""
    cls = typing.get_origin(cls) or cls
    if not isinstance(cls, type) or cls.__module__ == "builtins":
        return {}
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        if dataclasses.is_dataclass(cls):
            return {field.name: Any for field in dataclasses.fields(cls)}
        return {}
