"""The running transaction: which entities it holds, what they were, and what they have become.

A transaction keeps one live instance for each entity it touches, loaded from `read` at the first
touch. Nothing is written anywhere while it runs; `changes` compares what entities are with what
they were and returns the difference. So undoing a transaction is forgetting it. Going back within
one is left to `savepoint`. A process runs one transaction at a time.
"""

import random as _random
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from sys import getrefcount
from typing import Any, Final
from uuid import UUID

from penstock.base.ids import EntityKey, RequestId
from penstock.errors import (
    AlreadyExists,
    IntegrityError,
    NoSuchEntity,
    OutsideTransaction,
    PenstockError,
    Unencodable,
    UserError,
)
from penstock.model.copies import Flat, copied
from penstock.model.entity_type import EntityType
from penstock.model.shape import tag_of

Read = Callable[[EntityKey], bytes | None]
"""Gives the committed attributes of an entity, or None where it does not exist."""


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
        deleted: The deleted entities, numbered in the order in which they were first deleted.
        blocks: The open blocks (`savepoint.Block`), outermost first.
        flats: Of entities that were copied awake, what spares looking at their values again.
        awake: Once a block was opened: the live entities that do not sleep.
        damage: Why an entity could not be read, which is nothing that the request has to do with.
    """

    __slots__ = (
        "_aliases",
        "_doom",
        "_kinds",
        "_random",
        "_read",
        "_secret",
        "_uuids",
        "_watched",
        "awake",
        "before",
        "blocks",
        "damage",
        "deleted",
        "flats",
        "instances",
        "request_id",
        "time_us",
    )

    def __init__(
        self,
        request_id: RequestId,
        time_us: int,
        read: Read,
        kinds: Mapping[str, EntityType],
        secret: bytes = b"",
    ) -> None:
        """Begin.

        Args:
            request_id: Of the request.
            time_us: When it was appended.
            read: Reads committed attributes.
            kinds: The application's entity classes by name; no others may be touched.
            secret: The journal's, which `random` and `uuid` mix in.
        """
        self._secret = secret
        self._kinds = kinds
        self.request_id = request_id
        self.time_us = time_us
        self.instances: dict[EntityKey, Any] = {}
        self.before: dict[EntityKey, bytes | None] = {}
        self._read = read
        self.deleted: dict[EntityKey, int] = {}
        self.blocks: list[Any] = []
        self.awake: dict[EntityKey, None] = {}
        self.flats: dict[EntityKey, dict[str, Flat]] = {}
        self._watched = False
        self._aliases: dict[EntityKey, list[Any]] = {}
        self._random: _random.Random | None = None
        self._uuids = 0
        self._doom: PenstockError | None = None
        self.damage: IntegrityError | None = None

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
            data = None if key in self.deleted else before[key]
        if data is None:
            raise NoSuchEntity(f"{kind.name} {key[len(kind.prefix) :]!r} does not exist")
        try:
            values = kind.decode(name, data)
        except IntegrityError as error:
            if tag_of(data) != kind.shape.tag:  # not what user code raised while it was decoded
                self.damage = error
            raise
        _set(instance, "__dict__", values)
        _set(instance, "__class__", kind.cls)
        if self._watched:
            self._note(key)

    def wake(self, kind: EntityType, instance: Any) -> None:
        """Make an entity that fell asleep a plain object again, and let the open block copy it."""
        key = kind.key_of(instance)
        if self.blocks:
            images = self.blocks[-1].images
            if key not in images:
                images[key] = copied(_get(instance, "__dict__"), {}, {})
        _set(instance, "__class__", kind.cls)
        self.awake[key] = None

    def _note(self, key: EntityKey) -> None:
        """Remember that an entity has become live, and was not when the open block began."""
        self.awake[key] = None
        if self.blocks:
            self.blocks[-1].images.setdefault(key, None)

    def _join(self, kind: EntityType, key: EntityKey, instance: Any, held: Any) -> None:
        """Make a reference that outlived another transaction share the attributes of this one's."""
        if type(held) is kind.asleep:
            self.wake(kind, held)
        elif type(held) is not kind.cls:
            self.load(kind, held)
        _set(instance, "__dict__", held.__dict__)
        _set(instance, "__class__", kind.cls)
        self._aliases.setdefault(key, []).append(instance)

    def exists(self, kind: EntityType, key: EntityKey) -> bool:
        """Say whether an entity exists now."""
        if self.is_live(kind, self.instances.get(key)):
            return True
        if key not in self.before:
            if self._kinds.get(kind.name) is not kind:
                raise self._stranger(kind)
            self.before[key] = self._read(key)
        return key not in self.deleted and self.before[key] is not None

    @staticmethod
    def is_live(kind: EntityType, instance: Any) -> bool:
        """Say whether an instance is an entity now, awake or asleep."""
        return type(instance) is kind.cls or type(instance) is kind.asleep

    @staticmethod
    def _stranger(kind: EntityType) -> UserError:
        return UserError(f"{kind.where}: {kind.name} is no part of this application; name it there")

    def create(self, kind: EntityType, key: EntityKey, instance: Any) -> Any:
        """Let an instance with all its attributes be a new entity; return its reference.

        Raises:
            AlreadyExists: The key is taken; the instance is a plain reference to that entity.
        """
        if self.exists(kind, key):
            self.unload(kind, key, instance)
            raise AlreadyExists(f"{kind.name} {key[len(kind.prefix) :]!r} exists already")
        held = self.instances.setdefault(key, instance)
        if held is not instance:
            _set(held, "__dict__", instance.__dict__)
            _set(held, "__class__", kind.cls)
            self._aliases.setdefault(key, []).append(instance)
        if self._watched:
            self._note(key)
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
        self.unload(kind, key, held)
        self.part(kind, key)
        self.deleted.setdefault(key, len(self.deleted))

    def doom(self, error: PenstockError) -> None:
        """Let the transaction fail with an error at its end, even where the handler catches it."""
        self._doom = self._doom or error

    def leave_open(self) -> None:
        """Let the transaction fail because of a block that did not end where it should."""
        self.doom(
            UserError(
                "a savepoint or a @readonly block was still open when what it lies in had ended: a "
                "generator was suspended inside it and dropped; take the `yield` out of the block"
            )
        )

    def conclude(self) -> dict[EntityKey, bytes | None]:
        """Return the changes of a handler that has returned; see `changes`."""
        if self.blocks:
            self.leave_open()
        return self.changes()

    def changes(self) -> dict[EntityKey, bytes | None]:
        """Return every entity that is not what it was, with its new attributes (None: deleted).

        Raises:
            UserError: What doomed it: a `@readonly` method that changed something, for one.
            Unencodable: An attribute does not fit its annotation or cannot be stored.
        """
        if self._doom is not None:
            raise self._doom
        found: dict[EntityKey, bytes | None] = {}
        instances = self.instances
        for key, before in self.before.items():
            instance = instances.get(key)
            if instance is not None:
                kind: EntityType = type(instance).__reference__
                if type(instance) is kind.cls or type(instance) is kind.asleep:
                    values = _get(instance, "__dict__")
                    after = kind.encode_change(values, before)
                    name = values[kind.key_name]
                    text = name if type(name) is str else kind.key_text(name)
                    if kind.prefix + text != key:
                        raise Unencodable(f"the key of {key} was changed")
                    if after is not None:
                        found[key] = after
                    continue
            if before is not None and key in self.deleted:
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
                if self.is_live(kind, instance):
                    self.unload(kind, key, instance)
        for key, aliases in self._aliases.items():
            for alias in aliases:
                self.unload(type(alias).__reference__, key, alias)
        self._aliases.clear()
        self.blocks.clear()

    def part(self, kind: EntityType, key: EntityKey) -> None:
        """Make plain references of all other instances that share an entity's attributes."""
        for alias in self._aliases.pop(key, ()):
            self.unload(kind, key, alias)

    @staticmethod
    def unload(kind: EntityType, key: EntityKey, instance: Any) -> None:
        """Make a plain reference of an entity, whatever was done to its attributes."""
        text = key[len(kind.prefix) :]
        value = text if kind.key_is_text else kind.key_at(text)
        _set(instance, "__dict__", {kind.key_name: value})
        _set(instance, "__class__", kind.unloaded)

    def touched(self) -> list[EntityKey]:
        """Return the references that may have been touched since a block was opened."""
        if not self._watched:
            self._watched = True
            return list(self.instances)
        return list(self.awake)

    def is_alone(self, kind: EntityType, key: EntityKey, instance: Any) -> bool:
        """Say whether an entity's key tells which it is, and no other instance shares attributes."""
        aliases = self._aliases.get(key)
        if aliases is not None:
            aliases[:] = [one for one in aliases if getrefcount(one) > _ALONE + 1]
            if aliases:
                return False
            del self._aliases[key]
        try:
            return kind.key_of(instance) == key
        except (Unencodable, KeyError):
            return False

    def uuid(self) -> UUID:
        """Return the next of this request's ids: the same at every run of it."""
        self._uuids += 1
        return UUID(bytes=self._derived(b"uuid", f"{self._uuids}/{self.request_id}"), version=5)

    def random(self) -> _random.Random:
        """Return this request's source of randomness, seeded by the request id."""
        if self._random is None:
            self._random = _random.Random(self._derived(b"random", self.request_id))
        return self._random

    def _derived(self, purpose: bytes, text: str) -> bytes:
        """Return 16 bytes that only the request determines, and only the secret lets compute.

        A keyed hash: who knows some of them knows nothing of others (RFC 7693, section 2.9).
        """
        return blake2b(text.encode(), digest_size=16, key=self._secret, person=purpose).digest()


def now() -> datetime:
    """Return when the running request was appended to the log, in UTC; constant while it runs."""
    return _BEGINNING + timedelta(microseconds=current().time_us)


def random() -> _random.Random:
    """Return a `random.Random`: the same numbers at every run of a request, no caller's guess."""
    return current().random()


def uuid() -> UUID:
    """Return a new UUID: the same at every run of a request, no caller's guess."""
    return current().uuid()


def request_id() -> RequestId:
    """Return the id of the running request."""
    return current().request_id
