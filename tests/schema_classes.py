"""Classes in several versions, for tests of schema changes."""

from collections.abc import Callable
from typing import Any

from penstock import App, entity, key, migrate
from penstock.model.entity_type import EntityType
from penstock.model.schema_version import SchemaVersion, first_version
from penstock.model.versions.schema_change import change_of


def item(
    attributes: dict[str, Any], *functions: Callable[..., Any], key_type: Any = str, **defaults: Any
) -> EntityType:
    """Return a class `Item` with these attributes, bound in an application."""
    values = {"item_id": key(), **defaults, "__module__": __name__}
    cls = entity(
        type("Item", (), {"__annotations__": {"item_id": key_type, **attributes}, **values})
    )
    marked = [migrate(cls, since=2 + index)(function) for index, function in enumerate(functions)]
    return App("shop", cls, *marked).entities["Item"]


def history(entity_type: EntityType) -> tuple[SchemaVersion, ...]:
    return (first_version(entity_type.shape, entity_type.attributes, 0),)


def upcast(former: EntityType, present: EntityType, **values: Any) -> dict[str, Any]:
    """Write a row as the former class, and read it as the present class."""
    versions = history(former)
    change = change_of(versions, present, 7)
    assert change is not None
    assert change.refusals == []
    present.learn((*versions, change.version))
    data = former.encode({"item_id": "i1", **values})
    row = present.present("i1", data)
    decoded = present.decode("i1", data)
    assert present.encode(decoded) == row, "an upcast row is canonical"
    assert present.plain("i1", data) == present.plain("i1", row)
    del decoded["item_id"]
    return decoded
