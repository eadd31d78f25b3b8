"""Types as text, as in source, and the records that an application stores or sends."""

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter
from types import MappingProxyType
from typing import Any, Final

from penstock.base.record import factory_of, fields_of, is_record, members_of
from penstock.dataflow.graph import Attribute, Endpoint, Record
from penstock.model.application import App
from penstock.model.attribute import DefaultFactory

_NAMES: Final[tuple[tuple[Any, str], ...]] = (
    (Parameter.empty, "Any"),
    (Any, "Any"),
    (Ellipsis, "..."),
    (None, "None"),
    (type(None), "None"),
)
_NO_NAMES: Final[Mapping[type, str]] = MappingProxyType({})


def type_text(annotation: Any, full_names: Mapping[type, str] = _NO_NAMES) -> str:
    """Return a type as in source, without modules, except for the classes that have full names."""
    for known, text in _NAMES:
        # The annotation of a private method is not checked, and may have no hash.
        if annotation is known:
            return text
    if isinstance(annotation, str):
        return annotation
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list):  # the parameters of a Callable
        arguments = tuple(annotation)
    inner = [type_text(argument, full_names) for argument in arguments]
    if "Union" in getattr(origin, "__name__", str(origin)):
        return " | ".join(inner)
    name = "" if isinstance(annotation, list) else _name_of(origin or annotation, full_names)
    return f"{name}[{', '.join(inner)}]" if inner or not name else name


def _name_of(cls: Any, full_names: Mapping[type, str]) -> str:
    full_name = full_names.get(cls) if isinstance(cls, type) else None
    return full_name or str(getattr(cls, "__name__", cls))


def shown(
    annotations: Mapping[str, Any], full_names: Mapping[type, str] = _NO_NAMES
) -> tuple[Attribute, ...]:
    """Return attributes, fields or parameters with their types as text."""
    return tuple(Attribute(name, type_text(hint, full_names)) for name, hint in annotations.items())


def records_of(app: App, full_names: Mapping[type, str]) -> tuple[Record, ...]:
    """Return the records that attributes hold, also inside of other types; `full_names` are as of `full_names_of`."""
    records: dict[str, Record] = {}
    for hint in _records_in(_attributes(app)):
        name = type_text(hint, full_names)
        fields = {member.wire: field for member, field in fields_of(hint)}
        records.setdefault(name, Record(name, shown(fields, full_names)))
    return tuple(records.values())


def factories_of(app: App) -> Iterator[tuple[Endpoint, type, Callable[[], Any]]]:
    """Yield the factory of each default: its attribute, its class and the function."""
    for entity in app.stored.values():
        for name, default in entity.defaults.items():
            if isinstance(default, DefaultFactory):
                yield Endpoint(entity.name, name), entity.cls, default.make
    for hint in _records_in([*_attributes(app), *_arguments(app)]):
        cls = typing.get_origin(hint) or hint
        for member in members_of(hint):
            if factory := factory_of(hint, member.name):
                yield Endpoint(cls.__name__, member.name), cls, factory


def full_names_of(app: App) -> dict[type, str]:
    """Return the names with modules of the records that share their name with another record, or with an entity class."""
    classes: dict[str, set[Any]] = {name: {entity.cls} for name, entity in app.entities.items()}
    for hint in _records_in([*_attributes(app), *_arguments(app)]):
        cls = typing.get_origin(hint) or hint
        classes.setdefault(cls.__name__, set()).add(cls)
    return {
        cls: f"{cls.__module__}.{cls.__qualname__}".replace(".<locals>", "")
        for same in classes.values()
        if len(same) > 1
        for cls in same
        if is_record(cls)
    }


def _attributes(app: App) -> list[Any]:
    return [hint for entity in app.entities.values() for hint in entity.attributes.values()]


def _arguments(app: App) -> list[Any]:
    """Return the types of the results and the parameters of all methods and functions."""
    signatures = [method for each in app.entities.values() for method in each.methods.values()]
    signatures += app.functions.values()
    parameters = [each for signature in signatures for each in signature.parameters.values()]
    results = [signature.returns for signature in signatures]
    return [*results, *(parameter.annotation for parameter in parameters)]


def _records_in(hints: Iterable[Any]) -> Iterator[Any]:
    """Yield each record in these types once, also inside of others."""
    left, seen = list(hints), []
    while left:
        hint = left.pop(0)
        left += typing.get_args(hint)
        if is_record(hint) and hint not in seen:
            seen.append(hint)
            yield hint
            left += [field for _, field in fields_of(hint)]
