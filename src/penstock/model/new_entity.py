"""New entities: an instance with all its attributes, from the arguments of `create` and `upsert`."""

from typing import Any, Final

from penstock.base.ids import EntityKey
from penstock.errors import OutsideTransaction, UserError
from penstock.model.attribute import new_value
from penstock.model.context import current
from penstock.model.entity_type import EntityType

_SHARED: Final = frozenset({int, str, bool, float, bytes, type(None)})
"""The types of immutable defaults, which need no copy."""


def made(
    cls: type, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[EntityType, EntityKey, Any]:
    """Return a new instance with all its attributes; the transaction does not hold it yet."""
    entity_type: EntityType = cls.__reference__  # type: ignore[attr-defined]
    current()  # raises OutsideTransaction if no transaction runs
    if entity_type.creation is None:
        raise OutsideTransaction(
            f"{entity_type.name} belongs to no application yet; build an App with it"
        )
    instance: Any = object.__new__(entity_type.cls)
    if entity_type.initializer is not None:
        entity_type.initializer(instance, *arguments, **named)
    else:
        instance.__dict__.update(_values(entity_type, arguments, named))
    values = instance.__dict__
    if entity_type.key_name not in values:
        values[entity_type.key_name] = _derived_key(entity_type)
    entity_type.check_new_key(values[entity_type.key_name])
    text = entity_type.key_text(values[entity_type.key_name])
    values[entity_type.key_name] = entity_type.key_at(text)
    return entity_type, EntityKey(entity_type.prefix + text), instance


def _values(
    entity_type: EntityType, arguments: tuple[Any, ...], named: dict[str, Any]
) -> dict[str, Any]:
    """Return the key and the attributes that `create` got by name, with defaults."""
    if len(arguments) > 1:
        raise TypeError(
            f"{entity_type.name}.create takes its key by position and attributes by name"
        )
    values = dict(named)
    if arguments:
        if entity_type.key_name in named:
            raise TypeError(f"{entity_type.name}.create got its key {entity_type.key_name} twice")
        values[entity_type.key_name] = arguments[0]
    if values.get(entity_type.key_name, ...) is None:
        del values[entity_type.key_name]  # derived from the request
    for name, default in entity_type.defaults.items():
        if name not in values:
            values[name] = default if type(default) in _SHARED else new_value(default)
    names = values.keys() - {entity_type.key_name}
    if names != entity_type.attributes.keys():
        missing = ", ".join(sorted(entity_type.attributes.keys() - names)) or "nothing else"
        extra = ", ".join(sorted(names - entity_type.attributes.keys())) or "nothing else"
        raise TypeError(f"{entity_type.name}.create lacks {missing} and does not know {extra}")
    return values


def _derived_key(entity_type: EntityType) -> Any:
    made = current().derived.uuid()
    if entity_type.key_annotation is str:
        return str(made)
    if isinstance(entity_type.key_annotation, type) and isinstance(
        made, entity_type.key_annotation
    ):
        return made
    raise UserError(
        f"{entity_type.name} needs a key: none can be derived for {entity_type.key_annotation}"
    )
