"""Models of library functions: the abstract results of functions that are not followed.

Built-in functions and methods that return their arguments are known by name. Every other function is
assumed to return any of its arguments, and no other entity.
"""

from dataclasses import dataclass
from typing import Any, Final

from penstock.dataflow.analysis.value import (
    NOTHING,
    Atom,
    BoundMethod,
    Closure,
    CollectionValue,
    DictValue,
    StaticObject,
    TupleValue,
    TypedValue,
    Value,
    derived,
    elements,
    holds_entity,
    is_mapping,
    join,
    lookup,
    of_type,
    retag,
    single,
    unpack,
)
from penstock.dataflow.graph import Origin

CHANGING: Final = frozenset(
    (
        *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend"),
        *("extendleft", "insert", "intersection_update", "pop", "popitem", "popleft", "remove"),
        *("reverse", "rotate", "setdefault", "sort", "symmetric_difference_update", "update"),
    )
)
_SCALARS: Final[dict[Any, type]] = {
    len: int,
    repr: str,
    abs: int,
    round: int,
    isinstance: bool,
    any: bool,
    all: bool,
    sum: int,
    print: type(None),
}
_SCALAR_TYPES: Final = (int, float, str, bool, bytes, complex)
_ORDERLESS: Final = (any, all, len, max, min, sorted, sum, set, frozenset)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call; `rest` and `more` are the values in `*args` and `**kwargs`."""

    positional: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    rest: Value = NOTHING
    more: Value = NOTHING

    @property
    def all(self) -> tuple[Value, ...]:
        """All argument values."""
        return (*self.positional, *(value for _, value in self.named), self.rest, self.more)


def is_orderless(thing: Any) -> bool:
    """Whether the result of a built-in function is independent of the order of its argument."""
    return any(thing is known for known in _ORDERLESS)


def has_fields(cls: type) -> bool:
    """Whether a class is a dataclass or a named tuple."""
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")


def container_made(cls: type, arguments: Arguments) -> Value:
    """Return the result of a call of a built-in class."""
    first = join(arguments.positional[:1])
    if cls in _SCALAR_TYPES:
        return of_type(cls, derived(first))
    if issubclass(cls, dict):
        return _dictionary(first, arguments)
    return single(CollectionValue(join((*map(elements, first), arguments.rest))))


def _dictionary(first: Value, arguments: Arguments) -> Value:
    """Return the result of `dict(…)` for a dictionary or pairs, and named values."""
    keys, values = NOTHING, join((*(value for _, value in arguments.named), arguments.more))
    for atom in first:
        if isinstance(atom, DictValue) or (isinstance(atom, TypedValue) and is_mapping(atom.type)):
            keys, values = join((keys, elements(atom))), join((values, lookup(atom)))
        elif not isinstance(atom, StaticObject | Closure | BoundMethod):
            # The elements are pairs; a function is the argument of `defaultdict`.
            for pair in elements(atom):
                key, value = unpack(pair, 2)
                keys, values = join((keys, key)), join((values, value))
    return single(DictValue(keys, values))


def container_result(receiver: Atom, name: str, given: Value, applied: Value) -> Value:
    """Return the result of a method of a list, dictionary, set, text or iterator."""
    match name:
        case "items":
            result = single(
                CollectionValue(single(TupleValue((elements(receiver), lookup(receiver)))))
            )
        case "values":
            result = single(CollectionValue(lookup(receiver)))
        case "get" | "pop" | "setdefault":
            result = join((lookup(receiver), given))
        case "popleft" | "__next__":
            result = elements(receiver)
        case "popitem":
            result = single(TupleValue((elements(receiver), lookup(receiver))))
        case _ if holds_entity(single(receiver)):
            result = join((single(receiver), applied))
        case _:
            value = single(receiver)
            result = retag(value, derived(value))
    return result


def library_result(thing: Any, arguments: Arguments, applied: Value) -> Value:
    """Return the result of a function; `applied` joins the results of its function arguments."""
    given = join(arguments.all)
    inner = join(map(elements, given))
    match _name(thing):
        case "enumerate":
            result = single(
                CollectionValue(single(TupleValue((of_type(int, Origin.COMPUTED), inner))))
            )
        case "zip":
            columns = (join(map(elements, value)) for value in arguments.positional)
            result = single(CollectionValue(single(TupleValue(tuple(columns)))))
        case "sorted" | "reversed" | "iter" | "filter":
            result = single(CollectionValue(inner))
        case "min" | "max" | "next":
            result = join((inner, *arguments.positional[1:]))
        case "map":
            result = single(CollectionValue(applied))
        case "range":
            result = single(CollectionValue(of_type(int, derived(given))))
        case _:
            result = _other(thing, given, inner, applied)
    return result


def _other(thing: Any, given: Value, inner: Value, applied: Value) -> Value:
    for known, scalar in _SCALARS.items():
        if known is thing:
            return of_type(scalar, derived(given))
    if holds_entity(given) or applied:
        return join(
            (given, inner, single(CollectionValue(join((inner, *map(elements, inner))))), applied)
        )
    return of_type(Any, derived(given))


def _name(thing: Any) -> str:
    """Return the name of a built-in function or class."""
    builtin = getattr(thing, "__module__", None) == "builtins"
    return str(getattr(thing, "__name__", "")) if builtin else ""
