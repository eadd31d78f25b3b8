"""The records that attributes hold, so that a reader of the plan knows the references inside of them."""

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from penstock.base.record import factory_of, fields_of, is_record, members_of
from penstock.dataflow.analysis.type_text import type_text
from penstock.dataflow.graph import Attribute, Endpoint, Record
from penstock.model.application import App
from penstock.model.attribute import DefaultFactory


def records_of(app: App, full_names: Mapping[type, str]) -> tuple[Record, ...]:
    """Return the records that attributes hold, also inside of other types; `full_names` are as of `full_names_of`."""
    records: dict[str, Record] = {}
    for hint in _records_in(_attributes(app)):
        fields = [(member.wire, field) for member, field in fields_of(hint)]
        shown = tuple(Attribute(name, type_text(field, full_names)) for name, field in fields)
        name = type_text(hint, full_names)
        records.setdefault(name, Record(name, shown))
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
    hints = [*_attributes(app), *_arguments(app)]
    classes: dict[str, set[Any]] = {name: {app.entity(name).cls} for name in app.entities}
    for hint in _records_in(hints):
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
    signatures = [
        *(method for entity in app.entities.values() for method in entity.methods.values()),
        *app.functions.values(),
    ]
    parameters = [each for called in signatures for each in called.parameters.values()]
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
