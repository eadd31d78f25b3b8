"""The signatures of an entity class: those of its methods, of `create`, and of the methods that each entity has."""

import functools
import inspect
from inspect import Parameter
from types import FunctionType
from typing import Any, Final, overload

from penstock.model.declaration import RESERVED, Declaration, where_of
from penstock.model.entity_type import EntityType
from penstock.model.handler import function_in, misplaced_mark
from penstock.model.resolver import Resolver
from penstock.model.signature import Signature

CALL: Final = "__call__"
_OVERLOADED: Final = overload(lambda: None).__code__
_AT_MODULE_LEVEL: Final = "write a function with @transactional in its place; if handlers alone use it, let its name begin with _"
_AS_METHOD: Final = "write a method with def"
_REMEDIES: Final[tuple[tuple[Any, str], ...]] = (
    ((staticmethod, classmethod), _AT_MODULE_LEVEL),
    (functools.cached_property, "use property: the cached value would be an undeclared attribute"),
    (
        (functools.partialmethod, functools.singledispatchmethod, functools.partial),
        _AS_METHOD,
    ),
)


def methods_of(entity_type: EntityType, resolver: Resolver) -> dict[str, Signature]:
    """Return the signatures of the public methods, and complain of members that only look like handlers.

    A private method is a helper of handlers. It must be sync, and cannot have the marks that requests obey.
    """
    signatures: dict[str, Signature] = {}
    for name, member in inspect.getmembers_static(entity_type.cls):
        if name in RESERVED or (name.startswith("__") and name.endswith("__") and name != CALL):
            continue
        label = f"{entity_type.name}.{name}"
        complaint = misplaced_mark(member, is_handler=_is_public(name)) or _no_handler(name, member)
        if complaint:
            resolver.complaints.append(f"{_where(member, entity_type)}: {label} {complaint}")
        elif not isinstance(member, FunctionType):
            if isinstance(member, property) and member.fget is not None:
                resolver.check_sync(label, member.fget)
        elif _is_public(name):
            signatures[name] = resolver.signature(label, member, entity_type.cls)
        else:
            resolver.check_sync(label, member)
    return signatures


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _where(member: Any, entity_type: EntityType) -> str:
    function = function_in(member)
    is_foreign = function is None or function.__code__ is _OVERLOADED
    return entity_type.where if is_foreign else where_of(function)


def _no_handler(name: str, member: Any) -> str:
    """Say why no request can call a member that looks like a handler; empty for handlers and for all other members."""
    is_function = isinstance(member, FunctionType)
    if name == CALL and is_function:
        return "serves no request, because it has no name; give the method a name"
    if not _is_public(name) or isinstance(member, property | type):
        return ""
    if is_function:
        overloaded = member.__code__ is _OVERLOADED
        return f"has overloads and no implementation; {_AS_METHOD}" if overloaded else ""
    remedy = next((hint for kinds, hint in _REMEDIES if isinstance(member, kinds)), "")
    if (
        not remedy and callable(member) and hasattr(member, "__wrapped__")
    ):  # such as functools.cache
        remedy = _AS_METHOD
    return f"is a {type(member).__name__}, which no request can call; {remedy}" if remedy else ""


def creation_of(entity_type: EntityType, declaration: Declaration, resolver: Resolver) -> Signature:
    """Return the signature of `create`: that of `__init__`, or the key and the named attributes."""
    name = f"{entity_type.name}.create"
    if declaration.initializer is not None:
        return resolver.signature(name, declaration.initializer, entity_type.cls)
    parameters = [
        Parameter(
            entity_type.key_name or "__key__",  # without a key there is a complaint
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=entity_type.constrained_key,
            default=None,  # derived from the request
        )
    ]
    parameters += [
        Parameter(
            attribute,
            Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=entity_type.defaults.get(attribute, Parameter.empty),
        )
        for attribute, annotation in entity_type.constrained.items()
    ]
    return Signature(name, entity_type.cls.create, parameters, Any, entity_type.where)  # type: ignore[attr-defined]


def _exists_at(reference: Any) -> bool:
    return bool(type(reference).exists(reference))


_exists_at.__readonly__ = True  # type: ignore[attr-defined]  # it needs no block that enforces it
BUILT_IN: Final = {
    "delete": Signature("delete", lambda reference: reference.delete(), [], type(None), "penstock"),
    "exists": Signature("exists", _exists_at, [], bool, "penstock"),
}
"""The signatures of the methods that each entity has, by name."""
