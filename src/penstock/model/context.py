"""The running transaction: which entities it holds, what they were, and what they have become.

A transaction keeps one live instance for each entity it touches, loaded from `read` at the first
touch. Nothing is written anywhere while it runs; `changes` compares what entities are with what
they were and returns the difference. So undoing a transaction is forgetting it, and a savepoint is
a copy of the attributes. A process runs one transaction at a time.
"""

import random as _random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from sys import getrefcount
from typing import Any, Final
from uuid import UUID

import xxhash

from penstock.base.ids import EntityKey, RequestId
from penstock.errors import (
    AlreadyExists,
    NoSuchEntity,
    OutsideTransaction,
    ReadonlyViolation,
    Unencodable,
    UserError,
)
from penstock.model.entity_type import EntityType

Read = Callable[[EntityKey], bytes | None]
"""Gives the committed attributes of an entity, or None where it does not exist."""

Image = tuple[dict[EntityKey, bytes], frozenset[EntityKey]]
"""Encoded attributes of the live entities, and the deleted ones: what `@readonly` compares."""

Memory = tuple[dict[EntityKey, dict[str, Any]], frozenset[EntityKey]]
"""Copied attributes of the live entities, and the deleted ones: what a savepoint goes back to."""


def _count_alone() -> int:
    """Return what `getrefcount` says of an object that one local variable holds."""
    instance = object()
    return getrefcount(instance)


_ALONE: Final = _count_alone()
_get: Final = object.__getattribute__
_set: Final = object.__setattr__
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
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
        "_kinds",
        "_random",
        "_read",
        "_uuids",
        "_violation",
        "before",
        "instances",
        "request_id",
        "time_us",
    )

    def __init__(
        self, request_id: RequestId, time_us: int, read: Read, kinds: Mapping[str, EntityType]
    ) -> None:
        """Begin; `kinds` are the application's entity classes by name, no others may be touched."""
        self._kinds = kinds
        self.request_id = request_id
        self.time_us = time_us
        self.instances: dict[EntityKey, Any] = {}
        self.before: dict[EntityKey, bytes | None] = {}
        self._read = read
        self._deleted: set[EntityKey] = set()
        self._aliases: dict[EntityKey, list[Any]] = {}
        self._random: _random.Random | None = None
        self._uuids = 0
        self._violation: ReadonlyViolation | None = None

    def load(self, kind: EntityType, instance: Any) -> None:
        """Turn a reference into the live entity.

        Raises:
            NoSuchEntity: It does not exist.
            UserError: Its class is no part of the application.
        """
        name = _get(instance, "__dict__")[kind.key_name]
        key: Any = kind.prefix + name if kind.key_is_text else kind.key_of(instance)
        held = self.instances.setdefault(key, instance)
        if held is not instance:
            self._join(kind, key, instance, held)
            return
        before = self.before
        if key not in before:
            if self._kinds.get(kind.name) is not kind:
                raise self._stranger(kind)
            data = before[key] = self._read(key)
        else:
            data = None if key in self._deleted else before[key]
        if data is None:
            raise NoSuchEntity(f"{kind.name} {key[len(kind.prefix) :]!r} does not exist")
        _set(instance, "__dict__", kind.decode(name, data))
        _set(instance, "__class__", kind.cls)

    def _join(self, kind: EntityType, key: EntityKey, instance: Any, held: Any) -> None:
        """Make a reference that outlived another transaction share the attributes of this one's."""
        if type(held) is not kind.cls:
            self.load(kind, held)
        _set(instance, "__dict__", held.__dict__)
        _set(instance, "__class__", kind.cls)
        self._aliases.setdefault(key, []).append(instance)

    def exists(self, kind: EntityType, key: EntityKey) -> bool:
        """Say whether an entity exists now."""
        if type(self.instances.get(key)) is kind.cls:
            return True
        if key not in self.before:
            if self._kinds.get(kind.name) is not kind:
                raise self._stranger(kind)
            self.before[key] = self._read(key)
        return key not in self._deleted and self.before[key] is not None

    @staticmethod
    def _stranger(kind: EntityType) -> UserError:
        return UserError(f"{kind.where}: {kind.name} is no part of this application; name it there")

    def create(self, kind: EntityType, key: EntityKey, instance: Any) -> Any:
        """Let an instance with all its attributes be a new entity; return its reference.

        Raises:
            AlreadyExists: The key is taken; the instance is a plain reference to that entity.
        """
        if self.exists(kind, key):
            self._unload(kind, key, instance)
            raise AlreadyExists(f"{kind.name} {key[len(kind.prefix) :]!r} exists already")
        held = self.instances.setdefault(key, instance)
        if held is not instance:
            _set(held, "__dict__", instance.__dict__)
            _set(held, "__class__", kind.cls)
            self._aliases.setdefault(key, []).append(instance)
        return held

    def delete(self, kind: EntityType, instance: Any) -> None:
        """Delete a live entity; its references find nothing from now on.

        Raises:
            Unencodable: Its key was changed, so that nobody knows which entity is meant.
        """
        key = kind.key_of(instance)
        held = self.instances.get(key)
        if held is None or held.__dict__ is not instance.__dict__:
            raise Unencodable(f"the key of an entity was changed to {key}")
        self._unload(kind, key, held)
        for alias in self._aliases.pop(key, ()):
            self._unload(kind, key, alias)
        self._deleted.add(key)

    def changes(self) -> dict[EntityKey, bytes | None]:
        """Return every entity that is not what it was, with its new attributes (None: deleted).

        Raises:
            ReadonlyViolation: A `@readonly` method changed something, even where that was caught.
            Unencodable: An attribute does not fit its annotation or cannot be stored.
        """
        if self._violation is not None:
            raise self._violation
        found: dict[EntityKey, bytes | None] = {}
        instances = self.instances
        for key, before in self.before.items():
            instance = instances.get(key)
            if instance is not None:
                kind: EntityType = type(instance).__reference__
                if type(instance) is kind.cls:
                    values = instance.__dict__
                    after = kind.encode_change(values, before)
                    name = values[kind.key_name]
                    text = name if type(name) is str else kind.key_text(name)
                    if kind.prefix + text != key:
                        raise Unencodable(f"the key of {key} was changed")
                    if after is not None:
                        found[key] = after
                    continue
            if before is not None and key in self._deleted:
                found[key] = None
        return found

    def release(self) -> None:
        """End: make plain references of all entities that somebody still holds.

        So one that is kept too long holds no old state. What only this transaction holds is
        garbage in a moment and left alone; counting its references is cheaper than changing it.
        The order matters: entities come before those whose references they hold.
        """
        instances = self.instances
        for key in tuple(instances):
            instance = instances.pop(key)
            if getrefcount(instance) > _ALONE:
                kind: EntityType = type(instance).__reference__
                if type(instance) is kind.cls:
                    self._unload(kind, key, instance)
        self._release_aliases()

    def _release_aliases(self) -> None:
        for key, instances in self._aliases.items():
            for instance in instances:
                self._unload(type(instance).__reference__, key, instance)
        self._aliases.clear()

    @staticmethod
    def _unload(kind: EntityType, key: EntityKey, instance: Any) -> None:
        """Make a plain reference of an entity, whatever was done to its attributes."""
        text = key[len(kind.prefix) :]
        value = text if kind.key_is_text else kind.key_at(text)
        _set(instance, "__dict__", {kind.key_name: value})
        _set(instance, "__class__", kind.unloaded)

    def _live(self) -> Iterator[tuple[EntityKey, EntityType, Any]]:
        for key, instance in self.instances.items():
            kind: EntityType = type(instance).__reference__
            if type(instance) is kind.cls:
                yield key, kind, instance

    def remember(self) -> Memory:
        """Copy what all live entities are now.

        Raises:
            Unencodable: An attribute holds what cannot be copied.
        """
        try:
            live = deepcopy({key: one.__dict__ for key, _, one in self._live()})
        except (TypeError, RecursionError) as error:
            raise Unencodable(f"an attribute cannot be copied at a savepoint: {error}") from error
        return live, frozenset(self._deleted)

    def restore(self, memory: Memory) -> None:
        """Make all entities be what they were at `remember`, which can be gone back to once.

        Nested lists, dictionaries and sets are new objects afterwards.
        """
        live, deleted = memory
        self._deleted = set(deleted)
        for key, kind, instance in self._live():
            self._unload(kind, key, instance)
        self._release_aliases()
        for key, values in live.items():
            instance = self.instances[key]
            _set(instance, "__dict__", values)
            _set(instance, "__class__", type(instance).__reference__.cls)

    def image(self) -> Image:
        """Encode what all live entities are now."""
        live = {key: kind.encode(one.__dict__) for key, kind, one in self._live()}
        return live, frozenset(self._deleted)

    def confirm(self, image: Image, name: str) -> None:
        """Refuse changes since `image`: for good, so that catching the error saves nothing.

        Raises:
            ReadonlyViolation: An entity was changed, created or deleted.
        """
        now = self.image()
        for key in self.before:
            if self._at(image, key) != self._at(now, key):
                self._violation = ReadonlyViolation(f"{name} is @readonly and changed {key}")
                raise self._violation

    def _at(self, image: Image, key: EntityKey) -> bytes | None:
        live, deleted = image
        return live.get(key, None if key in deleted else self.before[key])

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
    return _BEGINNING + timedelta(microseconds=current().time_us)


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
    memory = txn.remember()
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            txn.restore(memory)


class Unchanged:
    """A block that must not change entities: what `@readonly` promises.

    Raises:
        ReadonlyViolation: The block changed, created or deleted an entity; also when it raises.
    """

    __slots__ = ("_image", "_name", "_txn")

    def __init__(self, name: str) -> None:
        self._name = name
        self._txn = current()

    def __enter__(self) -> None:
        self._image = self._txn.image()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):  # others end the transaction anyway
            self._txn.confirm(self._image, self._name)


def fresh(value: Any) -> Any:
    """Return a copy of a default value that shares nothing with it."""
    return deepcopy(value)
