"""The rows of a task: hidden entity classes that hold the state of its keys.

A task gets a hidden subclass of the user's class that is an entity class, so its instances load, change and are
stored as entities are. A key has a row once a handler has changed its attributes, until `clear`. Attributes marked
`PerTask` are in one row of the task, in an entity class of their own.
"""

import inspect
from collections.abc import Mapping
from dataclasses import MISSING
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from penstock.base.annotations import annotations_of, evaluate
from penstock.base.schema import reference_type
from penstock.errors import UserError
from penstock.model.declaration import RESERVED, where_of
from penstock.model.entity import declaration_of, entity, key
from penstock.model.entity_type import EntityType
from penstock.model.personal import PersonalType
from penstock.model.resolver import Resolver
from penstock.model.streams.stream import UNKNOWN
from penstock.model.streams.task_type import KEY, ONLY_KEY, TaskType

T = TypeVar("T")

_PER_TASK: Final = "per task"
PerTask = Annotated[T, _PER_TASK]
"""Marks an attribute that all keys of a task share: `total: PerTask[int] = 0`."""


def row_types(
    cls: Any, name: str, key_annotation: Any, resolver: Resolver
) -> tuple[EntityType, EntityType | None]:
    """Return the entity classes of a task's rows.

    Args:
        name: Workflow and task: `wordcount.Count`.
        key_annotation: The type of the keys; None for a task without keys.

    Returns:
        The class of the rows by key, and that of the row that all keys share; None without such attributes.
    """
    sharing = _shared_attributes(cls, resolver) if key_annotation is not None else {}
    stored_key = str if key_annotation in (None, UNKNOWN) else key_annotation
    shared_type = None
    properties: dict[str, Any] = {}
    if sharing:
        members = {shared: inspect.getattr_static(cls, shared, MISSING) for shared in sharing}
        defaults = {shared: value for shared, value in members.items() if value is not MISSING}
        shared_type = _entity_class(
            type(
                f"{name}.task",
                (),
                {
                    "__annotations__": {
                        name: annotation for name, (annotation, _) in sharing.items()
                    },
                    **defaults,
                    **_module(cls),
                },
            ),
            cls,
            str,
            {name: owner for name, (_, owner) in sharing.items()},
            resolver,
        )
        properties = {shared: _shared_property(shared_type, shared) for shared in sharing}
    rows_cls = type(name, (cls,), _module(cls))
    by_key = {
        attribute: owner
        for owner in reversed(cls.__mro__)
        for attribute in annotations_of(owner)
        if attribute not in sharing
    }
    rows = _entity_class(rows_cls, cls, stored_key, by_key, resolver)
    for (
        attribute,
        shared,
    ) in properties.items():  # `entity` has removed the defaults of the attributes
        setattr(rows_cls, attribute, shared)
    return rows, shared_type


def _module(cls: type) -> dict[str, Any]:
    return {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}


def _entity_class(
    made: type, cls: type, key_annotation: Any, stored: Mapping[str, type], resolver: Resolver
) -> EntityType:
    """Make a class an entity class with a key of its own, and bind its attributes.

    Args:
        made: The class, derived from the user's class or without a base.
        stored: The attributes, each with the class in the lineage of `cls` that declares it.
    """
    where = where_of(cls)
    made.__annotations__ = {**annotations_of(made), KEY: key_annotation}
    setattr(made, KEY, key())
    entity(personal=_is_personal(key_annotation))(made)
    declaration = declaration_of(made)
    entity_type: EntityType = made.__reference__  # type: ignore[attr-defined]
    entity_type.where = where
    resolver.complaints += [
        f"{where}: {complaint.partition(': ')[2]}" for complaint in declaration.complaints
    ]
    if declaration.initializer is not None:
        resolver.complaints.append(
            f"{where}: {made.__name__}: a task has no __init__; give its attributes defaults"
        )
    attributes: dict[str, Any] = {}
    for name, annotation, _ in declaration.sources:
        if name == KEY or name not in stored:
            continue
        what = f"{made.__name__}.{name}"
        attributes[name] = resolver.resolve(annotation, stored[name], where, what, cls=cls)
        if name not in declaration.defaults:
            resolver.complaints.append(f"{where}: {what}: an attribute of a task needs a default")
        if name in RESERVED or name.startswith("__"):
            resolver.complaints.append(f"{where}: {what}: Penstock keeps this name; choose another")
    entity_type.defaults = {name: declaration.defaults.get(name) for name in attributes}
    entity_type.bind(key_annotation, attributes)
    entity_type.settle()
    return entity_type


def _is_personal(key_annotation: Any) -> bool:
    """Say whether the keys are persons, so that the row of each key is encrypted with the key of the person."""
    return isinstance(reference_type(key_annotation), PersonalType)


def _shared_attributes(cls: type, resolver: Resolver) -> dict[str, tuple[Any, type]]:
    """Return annotation and owner of each attribute that a class or its bases mark `PerTask`, by name."""
    annotations = {
        name: (annotation, owner)
        for owner in reversed(cls.__mro__)
        for name, annotation in annotations_of(owner).items()
    }
    return {
        name: (annotation, owner)
        for name, (annotation, owner) in annotations.items()
        if _is_shared(annotation, resolver.names_at(owner))
    }


def _is_shared(annotation: Any, names: Mapping[str, Any]) -> bool:
    try:
        hint = evaluate({"it": annotation}, names, include_extras=True)["it"]
    except (NameError, SyntaxError, TypeError, AttributeError):  # the resolver complains of it
        return False
    return _PER_TASK in getattr(hint, "__metadata__", ())


def _shared_property(entity_type: EntityType, name: str) -> property:
    """Return the property by which an instance of any key reads and writes a shared attribute."""

    def get(_: Any) -> Any:
        return getattr(entity_type.of_text(ONLY_KEY), name)

    def put(_: Any, value: Any) -> None:
        setattr(entity_type.of_text(ONLY_KEY), name, value)

    return property(get, put)


def completing_class(task: TaskType) -> type:
    """Return the class of `self` in `on_atom_complete` of a task with keys."""

    def refuse(name: str, *_: Any) -> Any:
        raise UserError(
            f"{task.name}.on_atom_complete has no current key, so it has no {name}; "
            "`for key, state in states(self)` gives the state of each key"
        )

    def put(instance: Any, name: str, value: Any) -> None:
        declared = getattr(type(instance), name, None)
        if not isinstance(declared, property):
            refuse(name)
        else:
            object.__setattr__(instance, name, value)

    names: dict[str, Any] = {"__setattr__": put, "__task__": task, **_module(task.cls)}
    for name in task.rows.attributes:
        names[name] = property(partial(lambda given, _: refuse(given), name), partial(refuse, name))
    for name in task.shared.attributes if task.shared else ():
        assert task.shared is not None, "the loop runs over its attributes"
        names[name] = _shared_property(task.shared, name)
    return type(task.cls.__name__, (task.cls,), names)
