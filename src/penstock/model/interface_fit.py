"""Whether an interface fits the thing of another application that it stands for.

Types are compared as they are encoded: two records with the same fields of the same types are equal, also
if they are in different modules. An interface of an entity class may leave out attributes, methods and parameters with defaults.
"""

from collections.abc import Iterator
from inspect import Parameter
from typing import Any

from penstock.base.schema import name_of
from penstock.model.entity_type import EntityType
from penstock.model.shape import described
from penstock.model.signature import Signature
from penstock.model.streams.stream import UNKNOWN


def misfits(interface: EntityType, target: EntityType) -> Iterator[str]:
    """Yield each difference between an interface and its entity class that the interface must not have."""
    key = (interface.key_name, target.key_name)
    if key[0] != key[1] or not same_type(interface.key_annotation, target.key_annotation):
        yield (
            f"its key is {interface.key_name}: {name_of(interface.key_annotation)}, and the class has "
            f"{target.key_name}: {name_of(target.key_annotation)}"
        )
    for name, annotation in interface.attributes.items():
        if name not in target.attributes:
            yield f"{name}: the class has no such attribute"
        elif not same_type(annotation, target.attributes[name]):
            yield (
                f"{name}: {name_of(annotation)}, and the class has {name}: "
                f"{name_of(target.attributes[name])}"
            )
    for name, signature in interface.methods.items():
        if name not in target.methods:
            yield f"{name}(): the class has no such method"
        elif not _accepts(target.methods[name], signature):
            yield f"{_text(name, signature)}, and the class has {_text(name, target.methods[name])}"


def same_type(used: Any, target: Any) -> bool:
    """Say whether the values of two types are encoded alike, or one of the types is not known."""
    both = (used, target)
    return Any in both or UNKNOWN in both or described(used) == described(target)


def _accepts(target: Signature, used: Signature) -> bool:
    """Say whether each call that fits `used` fits `target`, and gives a result of the declared type."""
    if not same_type(used.returns, target.returns):
        return False
    theirs, ours = list(target.parameters.values()), list(used.parameters.values())
    if any(not _same_parameter(mine, its) for mine, its in zip(ours, theirs, strict=False)):
        return False
    more = theirs[len(ours) :]
    return len(ours) <= len(theirs) and all(map(_is_optional, more))


def _same_parameter(used: Parameter, target: Parameter) -> bool:
    same = (used.name, used.kind) == (target.name, target.kind)
    is_filled = used.default is Parameter.empty or target.default is not Parameter.empty
    return same and is_filled and same_type(used.annotation, target.annotation)


def _is_optional(parameter: Parameter) -> bool:
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is not Parameter.empty or parameter.kind in variadic


def _text(name: str, signature: Signature) -> str:
    parameters = ", ".join(
        f"{parameter.name}: {name_of(parameter.annotation)}"
        for parameter in signature.parameters.values()
    )
    return f"{name}({parameters}) -> {name_of(signature.returns)}"
