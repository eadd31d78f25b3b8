"""What functions and classes that are not followed return: the containers of Python, and libraries."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.dataflow.analysis.value import (
    NOTHING,
    SCALARS,
    Atom,
    BuiltValue,
    TupleValue,
    TypedValue,
    Value,
    built,
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
