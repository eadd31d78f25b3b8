"""References in values, and the check of attributes that are declared with `reference(exists=True)`.

The check runs when the handler has returned. It looks at each entity that the transaction changed and, if the
transaction deleted an entity, at each other entity that it touched. It reads the entities that they refer to,
so the order of requests decides between a new reference and a deletion. It does not search for entities that
refer to a deleted entity and that the transaction never touched, because that would be a scan.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from penstock.base.ids import EntityKey
from penstock.base.record import is_record, members_of
from penstock.base.schema import reference_type
from penstock.errors import DanglingReference
from penstock.model.context import Transaction
from penstock.model.entity_type import EntityType


def require_references(txn: Transaction, changes: Mapping[EntityKey, bytes | None]) -> None:
    """Check the references of a transaction that is about to take effect.

    Args:
        txn: The transaction, after its handler has returned.
    """
    deletes = None in changes.values()
    for key in list(txn.instances) if deletes else list(changes):
        instance = txn.instances.get(key)
        if instance is None:
            continue
        entity_type: EntityType = type(instance).__reference__
        if entity_type.must_exist and txn.is_live(entity_type, instance):
            _check(txn, entity_type, key, instance)


def _check(txn: Transaction, entity_type: EntityType, key: EntityKey, instance: Any) -> None:
    values = object.__getattribute__(instance, "__dict__")
    for name in entity_type.must_exist:
        for reference in references_in(values[name]):
            target: EntityType = type(reference).__reference__
            target_key = target.key_of(reference)
            if not txn.exists(target, target_key):
                raise DanglingReference(
                    f"{entity_type.name} {key[len(entity_type.prefix) :]!r}: {name} refers to "
                    f"{target.name} {target_key[len(target.prefix) :]!r}, which does not exist; create it in "
                    "the same transaction, or change the reference before the entity is deleted"
                )


def subject_in(value: Any) -> EntityKey | None:
    """Return the entity of a personal class that a value refers to, at any depth; None without any.

    Of several, it is the first one in the order of texts, because a set has no order.
    """
    return min(_subjects_in(value), default=None)


def _subjects_in(value: Any) -> Iterator[EntityKey]:
    for reference in references_in(value):
        entity_type = type(reference).__reference__
        if isinstance(entity_type, EntityType) and entity_type.personal:
            yield entity_type.key_of(reference)


def references_in(value: Any) -> Iterator[Any]:
    """Yield the references in a value, at any depth."""
    cls = type(value)
    if reference_type(cls) is not None:
        yield value
        return
    inside: Iterable[Any] = ()
    if isinstance(value, dict):
        inside = chain.from_iterable(value.items())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        inside = value
    elif is_record(cls):
        inside = [getattr(value, member.name) for member in members_of(cls)]
    for item in inside:
        yield from references_in(item)
