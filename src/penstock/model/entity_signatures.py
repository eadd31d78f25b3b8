"""The signatures of an entity class: those of its methods, of `create`, and of the methods that each entity has."""

import inspect
from inspect import Parameter
from typing import Any, Final

from penstock.model.declaration import RESERVED, Declaration
from penstock.model.entity_type import EntityType
from penstock.model.resolver import Resolver
from penstock.model.signature import Signature


def methods_of(entity_type: EntityType, resolver: Resolver) -> dict[str, Signature]:
    """Return the signatures of the public methods; of private methods check only that they are sync."""
    signatures: dict[str, Signature] = {}
    for name, function in inspect.getmembers_static(entity_type.cls, inspect.isfunction):
        if name in RESERVED or (name.startswith("__") and name.endswith("__")):
            continue
        label = f"{entity_type.name}.{name}"
        if name.startswith("_"):
            resolver.check_sync(label, function)
        else:
            signatures[name] = resolver.signature(label, function, entity_type.cls)
    return signatures


def creation_of(entity_type: EntityType, declaration: Declaration, resolver: Resolver) -> Signature:
    """Return the signature of `create`: that of `__init__`, or the key and the named attributes."""
    name = f"{entity_type.name}.create"
    if declaration.initializer is not None:
        return resolver.signature(name, declaration.initializer, entity_type.cls)
    parameters = [
        Parameter(
            entity_type.key_name or "key",
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=entity_type.key_annotation,
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
        for attribute, annotation in entity_type.attributes.items()
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
