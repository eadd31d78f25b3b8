"""Former classes: the class of an entity as an epoch had it, with the attributes and types of that time.

A class knows its schema versions (`EntityType.learn`). For an epoch before the newest version, the version of that
epoch is built again from its stored shape, and reads rows of the versions before it. The functions of `@migrate` are
those of the present code.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from penstock.base.ids import EntityKey, split_entity_key
from penstock.errors import Diverged, Erased, MigrationFailed
from penstock.model.entity_type import EntityType
from penstock.model.shape import tag_of
from penstock.model.versions.stored_class import learn, stored_type


def type_at(declared: EntityType, epoch: int) -> EntityType:
    """Return a class as an epoch had it: the declared class itself, if its version was in force.

    An epoch before the first version has no rows of the class; it gets the first version.
    """
    versions = declared.versions
    index = max((i for i, version in enumerate(versions) if version.since <= epoch), default=0)
    if not versions or (index == len(versions) - 1 and versions[index].shape == declared.shape):
        return declared
    former = declared.former_types.get(index)
    if former is None:
        former = stored_type(declared.stored_name, versions[index].shape, versions[index].fields)
        former.migrations = declared.migrations
        former.keys = declared.keys
        learn(former, versions[: index + 1])
        declared.former_types[index] = former
    return former


def present_row(entity_type: EntityType, text: str, data: bytes) -> bytes:
    """Return a row as the class is declared now; `text` is the text of its key.

    Raises:
        Diverged: The row has a shape that no version has.
        MigrationFailed: A function of `@migrate` has failed.
    """
    if data.startswith(entity_type.row_head):
        return data
    return entity_type.present(entity_type.key_at(text), data)


def plain_attributes(entity_type: EntityType, text: str, data: bytes) -> dict[str, Any]:
    """Return the attributes of a row by name as MessagePack has them, to be shown; `text` is the text of its key.

    A row whose migration fails is shown by the attributes of its own version.

    Raises:
        Diverged: The row has a shape that no version has, or is not a row.
    """
    try:
        return entity_type.plain(entity_type.key_at(text), present_row(entity_type, text, data))
    except MigrationFailed:
        data = entity_type.opened(entity_type.key_at(text), data)
        tag = tag_of(data)
        version = next(known for known in entity_type.versions if known.shape.tag == tag)
        _, *values = msgspec.msgpack.decode(data)
        return dict(zip(version.attributes, values, strict=True))


def present_rows(
    classes: Mapping[str, EntityType], rows: Iterable[tuple[EntityKey, bytes | None]]
) -> Iterator[tuple[EntityKey, bytes | None]]:
    """Yield rows as the classes are declared now, so that they can be compared with rows that the present code writes.

    A row that no version explains, or whose migration fails, stays as it is stored: a handler that reads it fails.
    """
    changed = {name for name, entity_type in classes.items() if len(entity_type.versions) > 1}
    for key, row in rows if changed else ():
        name, text = split_entity_key(key)
        present = row
        if row is not None and name in changed:
            with suppress(Diverged, MigrationFailed):
                present = present_row(classes[name], text, row)
        yield key, present
    if not changed:
        yield from rows


def are_equal(
    classes: Mapping[str, EntityType], key: EntityKey, row: bytes | None, other_row: bytes | None
) -> bool:
    """Say whether two rows of an entity are equal as the classes are declared now; None is a missing entity."""
    if row == other_row:
        return True
    (_, left), (_, right) = present_rows(classes, ((key, stored) for stored in (row, other_row)))
    return left == right


Presented = bytes | MigrationFailed | Erased
"""A row as its class is declared, or the reason why it cannot be shown."""

Presenting = Callable[[EntityType, Sequence[str], Sequence[bytes]], Sequence[Presented]]
"""Upcasts rows of a class, from the texts of their keys and their states."""


def present_here(
    entity_type: EntityType, texts: Sequence[str], states: Sequence[bytes]
) -> list[Presented]:
    """Upcast rows in this process.

    Args:
        states: The rows as they are stored.

    Returns:
        A row or a reason for each state.
    """
    rows: list[Presented] = []
    for text, state in zip(texts, states, strict=True):
        try:
            rows.append(present_row(entity_type, text, state))
        except (MigrationFailed, Erased) as error:
            rows.append(error)
    return rows


# A function with `@migrate` is user code: it may never return, or end its process. A process that
# must go on, such as the SQL view, chooses another place (`deployment.isolated_upcasts`).
_places: list[Presenting] = [present_here]


def presented(
    entity_type: EntityType, texts: Sequence[str], states: Sequence[bytes]
) -> Sequence[Presented]:
    """Upcast rows in the chosen place; as `present_here`."""
    return _places[-1](entity_type, texts, states)


@contextmanager
def presenting_with(place: Presenting) -> Iterator[None]:
    """Let all threads of this process upcast rows for tables in a place while the block runs."""
    _places.append(place)
    try:
        yield
    finally:
        _places.remove(place)
