"""The running transaction: which entities it holds, what they were, and what they have become.

A transaction keeps one live instance for each entity it touches, loaded from `read` at the first
touch. Nothing is written anywhere while it runs; `changes` compares what entities are with what
they were and returns the difference. So undoing a transaction is forgetting it, and a savepoint is
a copy of the encoded attributes.
"""

import random as _random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import xxhash

from penstock.base.ids import EntityKey, RequestId
from penstock.errors import (
    AlreadyExists,
    NoSuchEntity,
    OutsideTransaction,
    ReadonlyViolation,
    Unencodable,
)
from penstock.model.entity_type import EntityType

Read = Callable[[EntityKey], bytes | None]
"""Gives the committed attributes of an entity, or None where it does not exist."""

Image = tuple[dict[EntityKey, bytes], frozenset[EntityKey]]
"""Encoded attributes of the live entities, and the deleted ones: what a savepoint remembers."""

_ACTIVE: ContextVar["Transaction"] = ContextVar("penstock_transaction")
activate = _ACTIVE.set
deactivate = _ACTIVE.reset


def current() -> "Transaction":
    """Return the running transaction.

    Raises:
        OutsideTransaction: None runs.
    """
    try:
        return _ACTIVE.get()
    except LookupError:
        raise OutsideTransaction(
            "entities can be read, written and called inside a transaction only; "
            "from outside, send a request"
        ) from None


def active() -> "Transaction | None":
    """Return the running transaction, if one runs."""
    return _ACTIVE.get(None)


class Transaction:
    """All that one request touches; see the module for the promise.

    Attributes:
        request_id: Of the request that it processes.
        time_us: When the request was appended.
        instances: Every reference that exists in it, loaded or not, one for each entity.
        before: Encoded attributes of every entity that was read (None: it did not exist).
    """

    __slots__ = (
        "_aliases",
        "_deleted",
        "_random",
        "_read",
        "_uuids",
        "before",
        "instances",
        "request_id",
        "time_us",
    )

    def __init__(self, request_id: RequestId, time_us: int, read: Read) -> None:
        self.request_id = request_id
        self.time_us = time_us
        self.instances: dict[EntityKey, Any] = {}
        self.before: dict[EntityKey, bytes | None] = {}
        self._read = read
        self._deleted: set[EntityKey] = set()
        self._aliases: list[Any] = []
        self._random: _random.Random | None = None
        self._uuids = 0

    def look(self, key: EntityKey) -> bytes | None:
        """Return what an entity was before this transaction, and remember that it was asked."""
        if key in self.before:
            return self.before[key]
        data = self.before[key] = self._read(key)
        return data

    def load(self, kind: EntityType, instance: Any) -> None:
        """Turn a reference into the live entity.

        Raises:
            NoSuchEntity: It does not exist.
        """
        key = kind.key_of(instance)
        held = self.instances.setdefault(key, instance)
        if held is not instance:  # a reference that outlived another transaction
            if type(held) is not kind.cls:
                self.load(kind, held)
            object.__setattr__(instance, "__dict__", object.__getattribute__(held, "__dict__"))
            self._aliases.append(instance)
        else:
            data = None if key in self._deleted else self.look(key)
            if data is None:
                raise NoSuchEntity(f"{kind.name} {key[len(kind.prefix) :]!r} does not exist")
            kind.fill(object.__getattribute__(instance, "__dict__"), data)
        object.__setattr__(instance, "__class__", kind.cls)

    def exists(self, kind: EntityType, key: EntityKey) -> bool:
        """Say whether an entity exists now."""
        if type(self.instances.get(key)) is kind.cls:
            return True
        return key not in self._deleted and self.look(key) is not None

    def create(self, kind: EntityType, key: EntityKey, values: dict[str, Any]) -> Any:
        """Make an entity with these attributes (key included) and return it, live.

        Raises:
            AlreadyExists: The key is taken.
        """
        if self.exists(kind, key):
            raise AlreadyExists(f"{kind.name} {key[len(kind.prefix) :]!r} exists already")
        instance = self.instances.get(key)
        if instance is None:
            instance = self.instances[key] = object.__new__(kind.cls)
        object.__getattribute__(instance, "__dict__").update(values)
        object.__setattr__(instance, "__class__", kind.cls)
        return instance

    def delete(self, kind: EntityType, instance: Any) -> None:
        """Delete a live entity; its references find nothing from now on."""
        key = kind.key_of(instance)
        self._unload(kind, self.instances[key])
        self._unload(kind, instance)
        self._deleted.add(key)

    def changes(self) -> dict[EntityKey, bytes | None]:
        """Return every entity that is not what it was, with its new attributes (None: deleted).

        Raises:
            Unencodable: An attribute does not fit its annotation or cannot be stored.
        """
        found: dict[EntityKey, bytes | None] = {}
        for key, before in self.before.items():
            instance = self.instances.get(key)
            if instance is not None:
                kind: EntityType = type(instance).__reference__
                if type(instance) is kind.cls:
                    if kind.key_of(instance) != key:
                        raise Unencodable(f"the key of {key} was changed to {instance!r}")
                    after = kind.encode(instance.__dict__)
                    if after != before:
                        kind.check(after)
                        found[key] = after
                    continue
            if before is not None and key in self._deleted:
                found[key] = None
        return found

    def release(self) -> None:
        """Make plain references of all entities, so that one kept too long holds no old state."""
        for instance in (*self.instances.values(), *self._aliases):
            kind: EntityType = type(instance).__reference__
            if type(instance) is kind.cls:
                self._unload(kind, instance)

    def image(self) -> Image:
        """Return what all live entities are now."""
        live = {
            key: kind.encode(instance.__dict__)
            for key, instance in self.instances.items()
            if type(instance) is (kind := type(instance).__reference__).cls
        }
        return live, frozenset(self._deleted)

    def restore(self, image: Image) -> None:
        """Make all entities be what they were when `image` was taken.

        Nested lists, dictionaries and sets are new objects afterwards.
        """
        live, deleted = image
        self._deleted = set(deleted)
        self.release()
        for key, instance in self.instances.items():
            if key in live:
                kind: EntityType = type(instance).__reference__
                kind.fill(object.__getattribute__(instance, "__dict__"), live[key])
                object.__setattr__(instance, "__class__", kind.cls)

    @staticmethod
    def _unload(kind: EntityType, instance: Any) -> None:
        values = object.__getattribute__(instance, "__dict__")
        key = values[kind.key_name]
        values.clear()
        values[kind.key_name] = key
        object.__setattr__(instance, "__class__", kind.unloaded)

    def uuid(self) -> UUID:
        """Return the next of this request's ids: the same at every run of it."""
        self._uuids += 1
        digest = xxhash.xxh3_128_digest(f"{self._uuids}/{self.request_id}".encode())
        return UUID(bytes=digest, version=5)

    def random(self) -> _random.Random:
        """Return this request's source of randomness, seeded by the request id."""
        if self._random is None:
            self._random = _random.Random(xxhash.xxh3_128_intdigest(self.request_id.encode()))
        return self._random


def now() -> datetime:
    """Return when the running request was appended to the log, in UTC; constant while it runs."""
    return datetime.fromtimestamp(current().time_us / 1_000_000, UTC)


def random() -> _random.Random:
    """Return a `random.Random` seeded by the request id: the same numbers at every run."""
    return current().random()


def uuid() -> UUID:
    """Return a new UUID derived from the request id: the same at every run."""
    return current().uuid()


def request_id() -> RequestId:
    """Return the id of the running request."""
    return current().request_id


@contextmanager
def savepoint() -> Iterator[None]:
    """Undo what the block did to entities when it raises; the exception goes on.

    Values that the block computed stay; lists, dictionaries and sets inside restored entities are
    new objects, so read them again from the entity.
    """
    txn = current()
    image = txn.image()
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            txn.restore(image)


@contextmanager
def unchanged(name: str) -> Iterator[None]:
    """Refuse changes to entities in the block: what `@readonly` promises.

    Raises:
        ReadonlyViolation: The block changed, created or deleted an entity.
    """
    txn = current()
    live, deleted = txn.image()
    yield
    after, deleted_after = txn.image()
    for key, data in after.items():
        if data != live.get(key, txn.before.get(key)):
            raise ReadonlyViolation(f"{name} is @readonly and changed {key}")
    if deleted_after != deleted:
        raise ReadonlyViolation(f"{name} is @readonly and deleted {min(deleted_after - deleted)}")


def fresh(value: Any) -> Any:
    """Return a copy of a default value that shares nothing with it."""
    return deepcopy(value)
