"""Plans: rows of a class as the compiled implementation of `penstock.native` reads and writes them.

A class has a plan if all of its attributes have types that the compiled implementation knows. The rows of all other classes,
and each value that is not exactly of the type in the plan, are read and written in Python.
"""

import typing
from collections.abc import Mapping
from typing import Any, Final

from penstock.base.schema import reference_type
from penstock.base.union import UNIONS
from penstock.native.choice import core

_DEPTH_MAX: Final = 16
_SCALARS: Final[Mapping[Any, str]] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "str",
    bytes: "bytes",
    type(None): "none",
}
_KEYS: Final = frozenset({int, bool, str, bytes})
"""Types of the keys of dictionaries and of the members of sets: their hashes run no code of a user."""

_ONE_TYPE: Final[Mapping[Any, str]] = {list: "list", set: "set", frozenset: "frozenset"}


def plan_of(entity_type: Any) -> Any:
    """Return the plan of a class whose shape is settled; None if Python reads and writes its rows."""
    if core is None or entity_type.personal:
        return None
    nodes = [_node(annotation, 0) for annotation in entity_type.attributes.values()]
    if None in nodes:
        return None
    return core.Plan(entity_type, entity_type.row_head, tuple(entity_type.attributes), tuple(nodes))


def _node(annotation: Any, depth: int) -> Any:
    """Return the node of a type; None if the compiled implementation does not know the type."""
    assert core is not None, "only a compiled implementation has nodes"
    if annotation in _SCALARS:
        return core.Node(_SCALARS[annotation])
    reference = reference_type(annotation)
    if (
        reference is not None
    ):  # one without this attribute belongs to the former class of stored rows
        return core.Node("reference", (), reference) if hasattr(reference, "unloaded") else None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if depth == _DEPTH_MAX or not arguments:
        return None
    word = ""
    if origin in UNIONS and len(arguments) == 2 and type(None) in arguments:
        word = "optional"
        arguments = tuple(member for member in arguments if member is not type(None))
    elif origin is dict:
        word = "dict" if arguments[0] in _KEYS else ""
    elif origin is tuple:
        word = "array" if arguments[-1] is Ellipsis else "tuple"
        arguments = tuple(part for part in arguments if part is not Ellipsis)
    elif origin in _ONE_TYPE:
        is_known = origin is list or arguments[0] in _KEYS
        word = _ONE_TYPE[origin] if is_known else ""
    inside = tuple(_node(part, depth + 1) for part in arguments) if word else (None,)
    return None if None in inside else core.Node(word, inside)
