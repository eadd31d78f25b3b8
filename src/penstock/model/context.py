"""The running transaction: its entities, their former state, and their present state.

A transaction keeps one live instance for each entity that it touches; `read` loads the entity at the first touch. A
transaction writes nothing while it runs: `changes` compares the present state of its entities with their former state. To
undo a transaction is to drop it. `savepoint` undoes a part of a transaction. A process runs one transaction at a time.
"""

from builtins import id as identity_of  # for one moment of one process, as `deepcopy` does
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from hashlib import blake2b
from random import Random
from sys import getrefcount
from typing import Any, Final
from uuid import UUID

from penstock.base.ids import EntityKey, RequestId
from penstock.errors import (
    AlreadyExists,
    IntegrityError,
    NoSuchEntity,
    OperationalError,
    OutsideTransaction,
    PenstockError,
    Unencodable,
    UserError,
)
from penstock.model.contents import ALONE, ROW_IMAGE, Attributes, Image, RowImage
from penstock.model.entity_type import EntityType
from penstock.model.running_step import Dispatch, Emission, Outlet, RunningStep
from penstock.native.choice import core


class DerivedValues:
    """Values that depend on a request id, or on the part of a step, and on the secret of the journal."""

    __slots__ = ("_random", "_request_id", "_secret", "_uuids")

    def __init__(self, request_id: RequestId, secret: bytes) -> None:
        self._request_id = request_id
        self._secret = secret
        self._random: Random | None = None
        self._uuids = 0

    def uuid(self) -> UUID:
        """Return the next UUID."""
        self._uuids += 1
        return UUID(bytes=self._derived(b"uuid", f"{self._uuids}/{self._request_id}"), version=5)

    def random(self) -> Random:
        """Return the source of randomness, which is the same object at each call."""
        if self._random is None:
            self._random = Random(self._derived(b"random", self._request_id))
        return self._random

    def _derived(self, purpose: bytes, text: str) -> bytes:
        """Return 16 bytes that depend on the request, and that cannot be computed without the secret.

        This is a keyed BLAKE2 hash (RFC 7693, section 2.9): some results reveal nothing of others.
        """
        return blake2b(text.encode(), digest_size=16, key=self._secret, person=purpose).digest()


Read = Callable[[EntityKey], bytes | None]
"""Returns the committed attributes of an entity, or None if it does not exist."""


_get: Final = object.__getattribute__
_set: Final = object.__setattr__
ACTIVE: ContextVar["Transaction"] = ContextVar("penstock_transaction")
activate = ACTIVE.set


def current() -> "Transaction":
    """Return the running transaction."""
    try:
        return ACTIVE.get()
    except LookupError:
        raise OutsideTransaction(
            "entities can be read, written and called inside a transaction only; "
            "from outside, send a request, as client.call(item.take, 1), or kit.call(item.take, 1) in a test; "
            "client.get('Item', key) and kit.entity('Item', key) read one"
        ) from None


active: Final[Callable[[], "Transaction | None"]] = partial(ACTIVE.get, None)
"""Returns the running transaction; None outside of transactions. Without a frame: each reference calls it."""


class Transaction:
    """The entities that a request touches, and their changes.

    Attributes:
        time_us: The time at which the request was appended, in microseconds since the Unix epoch.
        instances: The references by entity, loaded or not; an entity has one reference.
        lookups: What each index knows of the touched entities; None before the first lookup.
        before: The encoded attributes of every entity that was read; None if it did not exist.
        deleted: The deleted entities, numbered in the order of their first deletion.
        blocks: The open blocks (`savepoint.Block`), outermost first.
        awake: The live entities that do not sleep; unused before the first block opens.
        damage: The error of a state that cannot be read, for which the request is not responsible.
        outlets: The application, where the runtime takes events and requests of handlers; else None.
        outbox: The events and requests that leave the transaction when it takes effect.
        turn: The number of the running turn of a task's handler, from 1; each has its own randomness. Else 0.
        step: The step of a workflow that runs; None in the transaction of a request.
        rights: The rights of the caller, as the request holds them; see `model.principal`.
        routing: The function of a stream that runs outside of workflows, for an error; else empty.

    Args:
        time_us: The time at which the request was appended, in microseconds since the Unix epoch.
        entity_types: The entity classes of the application by name; a handler uses only these.
        secret: The secret of the journal, which `random` and `uuid` depend on.
    """

    __slots__ = (
        "_aliases",
        "_derived",
        "_doom",
        "_entity_types",
        "_read",
        "_secret",
        "_watched",
        "awake",
        "before",
        "blocks",
        "damage",
        "deleted",
        "instances",
        "lookups",
        "outbox",
        "outlets",
        "request_id",
        "rights",
        "routing",
        "step",
        "time_us",
        "turn",
    )

    def __init__(
        self,
        request_id: RequestId,
        time_us: int,
        read: Read,
        entity_types: Mapping[str, EntityType],
        secret: bytes = b"",
    ) -> None:
        self._secret = secret
        self._entity_types = entity_types
        self.request_id = request_id
        self.time_us = time_us
        self.instances: dict[EntityKey, Any] = {}
        self.lookups: dict[Any, Any] | None = None
        self.before: dict[EntityKey, bytes | None] = {}
        self._read = read
        self.deleted: dict[EntityKey, int] = {}
        self.blocks: list[Any] = []
        self.awake: dict[EntityKey, None] = {}
        self._watched = False
        self._aliases: dict[EntityKey, list[Any]] = {}
        self._derived: dict[int, DerivedValues] = {}
        self.turn = 0
        self._doom: PenstockError | None = None
        self.damage: IntegrityError | OperationalError | None = None
        self.outlets: Outlet | None = None
        self.outbox: list[Emission | Dispatch] = []
        self.step: RunningStep | None = None
        self.routing = ""
        self.rights = b""

    def load(self, entity_type: EntityType, instance: Any) -> None:
        """Turn a reference into the live entity."""
        name = _get(instance, "__dict__")[entity_type.key_name]
        is_text = entity_type.key_is_text
        key: Any = entity_type.prefix + name if is_text else entity_type.key_of(instance)
        # One live instance for each entity, so that a change is seen through each of its
        # references.
        held = self.instances.setdefault(key, instance)
        if held is not instance:
            self._join(entity_type, key, instance, held)
            return
        before = self.before
        if key not in before:
            if self._entity_types.get(entity_type.name) is not entity_type:
                raise self.stranger(entity_type)
            data = before[key] = self._read(key)
        else:
            data = None if key in self.deleted else before[key]
        if data is None:
            raise NoSuchEntity(
                f"{entity_type.name} {key[len(entity_type.prefix) :]!r} does not exist"
            )
        # An earlier version; from here on, `before` is the upcast row, so that reading alone
        # changes nothing.
        if not data.startswith(entity_type.row_head):
            data = before[key] = self._present(entity_type, name, data)
        _set(instance, "__dict__", entity_type.decode(name, data))
        _set(instance, "__class__", entity_type.cls)
        if self._watched:
            self._note(key)

    def row(self, key: EntityKey) -> bytes | None:
        """Return a row before the transaction, which thereby depends on it; None if it did not exist."""
        before = self.before
        if key not in before:
            before[key] = self._read(key)
        return before[key]

    def reaches(self, entity_type: EntityType) -> bool:
        """Say whether handlers of this transaction may load entities of a class."""
        return self._entity_types.get(entity_type.name) is entity_type

    def _present(self, entity_type: EntityType, name: object, data: bytes) -> bytes:
        """Return a row of an earlier version as the class declares it."""
        try:
            return entity_type.present(name, data)
        except IntegrityError as error:
            self.damage = error
            raise

    def wake(self, entity_type: EntityType, instance: Any) -> None:
        """Make a sleeping entity a plain object again; the open block reads its contents first."""
        key = entity_type.key_of(instance)
        if self.blocks:
            images = self.blocks[-1].images
            if key not in images:
                images[key] = Image(_get(instance, "__dict__"))
        _set(instance, "__class__", entity_type.cls)
        self.awake[key] = None

    def _note(self, key: EntityKey, *, is_new: bool = False) -> None:
        """Note that an entity has become live since the open block began: it was read, or it is new."""
        self.awake[key] = None
        if self.blocks:
            images = self.blocks[-1].images
            if key not in images:
                images[key] = None if is_new else self._image_of_loaded(key)

    def _image_of_loaded(self, key: EntityKey) -> Image | RowImage:
        """Return the contents of an entity that was read just now."""
        # Its row tells whether it has changed since; only a block that can be undone needs more.
        if any(block.undoes for block in self.blocks):
            return Image(_get(self.instances[key], "__dict__"))
        return ROW_IMAGE

    def _join(self, entity_type: EntityType, key: EntityKey, instance: Any, held: Any) -> None:
        """Let a reference from an earlier transaction share the attributes of the live instance."""
        if type(held) is entity_type.asleep:
            self.wake(entity_type, held)
        elif type(held) is not entity_type.cls:
            self.load(entity_type, held)
        _set(instance, "__dict__", held.__dict__)
        _set(instance, "__class__", entity_type.cls)
        self._aliases.setdefault(key, []).append(instance)
        if self.step is not None:
            self.step.note_joined(entity_type, key, instance.__dict__)

    def exists(self, entity_type: EntityType, key: EntityKey) -> bool:
        """Say whether an entity exists now."""
        if self.is_live(entity_type, self.instances.get(key)):
            return True
        if key not in self.before:
            if self._entity_types.get(entity_type.name) is not entity_type:
                raise self.stranger(entity_type)
            self.before[key] = self._read(key)
        return key not in self.deleted and self.before[key] is not None

    @staticmethod
    def is_live(entity_type: EntityType, instance: Any) -> bool:
        """Say whether an instance is an entity now, awake or asleep."""
        return type(instance) is entity_type.cls or type(instance) is entity_type.asleep

    def stranger(self, entity_type: EntityType) -> UserError:
        """Return the error about a class of which handlers of this transaction may load no entities."""
        user = self.routing if self.step is None else "a handler or function of a workflow"
        if user:
            return UserError(
                f"{user} cannot use the entity {entity_type.name}; use the values of its event, and let a method "
                "that `call(…)` names use the entity"
            )
        return UserError(
            f"{entity_type.where}: {entity_type.name} is not part of this application; name it there"
        )

    def create(self, entity_type: EntityType, key: EntityKey, instance: Any) -> Any:
        """Make an instance with all its attributes a new entity, and return its reference."""
        if self.exists(entity_type, key):
            self.unload(entity_type, key, instance)
            raise AlreadyExists(
                f"{entity_type.name} {key[len(entity_type.prefix) :]!r} exists already"
            )
        held = self.instances.setdefault(key, instance)
        if held is not instance:
            _set(held, "__dict__", instance.__dict__)
            _set(held, "__class__", entity_type.cls)
            self._aliases.setdefault(key, []).append(instance)
        if self._watched:
            self._note(key, is_new=True)
        return held

    def delete(self, entity_type: EntityType, instance: Any) -> None:
        """Delete a live entity; a later use of its references raises `NoSuchEntity`.

        Raises:
            Unencodable: The key attribute was changed, so the entity is unknown.
        """
        key = entity_type.key_of(instance)
        held = self.instances.get(key)
        if held is None or held.__dict__ is not instance.__dict__:
            raise Unencodable(f"the key of an entity was changed to {key}")
        self.unload(entity_type, key, held)
        self.part(entity_type, key)
        # The number says which deletion came first, also after a new creation.
        self.deleted.setdefault(key, len(self.deleted))

    def outlet(self) -> Outlet:
        """Return the application for events and requests of handlers."""
        if self.step is not None:
            raise UserError(
                "the handler of a task publishes events with its `out`, and reaches entities with `await ask(…)` or by "
                "`call(…)` on its workflow; it cannot emit or send"
            )
        if self.outlets is None:
            raise UserError("a @readonly read cannot emit events or send requests")
        return self.outlets

    def doom(self, error: PenstockError) -> None:
        """Let the transaction fail with an error at its end, even if the handler catches the error."""
        # The first error is the cause; a handler that catches it may run into others.
        self._doom = self._doom or error

    def leave_open(self) -> None:
        """Let the transaction fail because a block did not end in its place."""
        self.doom(
            UserError(
                "a savepoint or a @readonly block was still open when the code around it had ended: a "
                "generator was suspended inside it and dropped; take the `yield` out of the block"
            )
        )

    def conclude(self) -> dict[EntityKey, bytes | None]:
        """Return the changes after the handler has returned; see `changes`."""
        if self.blocks:
            self.leave_open()
        return self.changes()

    def changes(self) -> dict[EntityKey, bytes | None]:
        """Return the changed entities with their new encoded attributes; None for a deleted entity.

        Raises:
            Unencodable: An attribute does not fit its annotation or cannot be stored.
        """
        if self._doom is not None:
            raise self._doom
        changes: dict[EntityKey, bytes | None] = {}
        instances = self.instances
        for key, before in self.before.items():
            instance = instances.get(key)
            if instance is not None:
                entity_type: EntityType = type(instance).__reference__
                if type(instance) is entity_type.cls or type(instance) is entity_type.asleep:
                    values = _get(instance, "__dict__")
                    after = entity_type.encode_change(values, before)
                    name = values[entity_type.key_name]
                    text = name if type(name) is str else entity_type.key_text(name)
                    if entity_type.prefix + text != key:
                        raise Unencodable(f"the key of {key} was changed")
                    if after is not None:
                        changes[key] = after
                    continue
            if before is not None and key in self.deleted:
                changes[key] = None
        return changes

    def release(self) -> None:
        """End the transaction: make each entity that user code still holds a plain reference.

        A reference that outlives its transaction therefore keeps no old state. An entity that only this transaction
        holds becomes garbage, so it stays as it is: to count its references is cheaper than to change it. The order
        matters: an entity comes before the entities that it refers to.
        """
        instances = self.instances
        for key in tuple(instances):
            instance = instances.pop(key)
            if getrefcount(instance) > ALONE:
                entity_type: EntityType = type(instance).__reference__
                if self.is_live(entity_type, instance):
                    self.unload(entity_type, key, instance)
        for key, aliases in self._aliases.items():
            for alias in aliases:
                self.unload(type(alias).__reference__, key, alias)
        self._aliases.clear()
        self.blocks.clear()

    def forget(self) -> None:
        """Let go of all entities, between two parts of a transaction that only reads: later uses read them again."""
        self.release()
        self.before.clear()
        self.awake.clear()
        self.lookups = None

    def part(self, entity_type: EntityType, key: EntityKey) -> None:
        """Make each other instance that shares an entity's attributes a plain reference."""
        for alias in self._aliases.pop(key, ()):
            self.unload(entity_type, key, alias)

    @staticmethod
    def unload(entity_type: EntityType, key: EntityKey, instance: Any) -> None:
        """Make an entity a plain reference, even if user code damaged its attributes."""
        text = key[len(entity_type.prefix) :]
        value = text if entity_type.key_is_text else entity_type.key_at(text)
        _set(instance, "__dict__", {entity_type.key_name: value})
        _set(instance, "__class__", entity_type.unloaded)

    def sharing(self, key: EntityKey) -> dict[int, int]:
        """Return how many other instances share an entity's attributes, by the identity of these."""
        aliases = self._aliases.get(key)
        return {identity_of(_get(self.instances[key], "__dict__")): len(aliases)} if aliases else {}

    def replace(self, key: EntityKey, values: Attributes) -> None:
        """Let an entity, and all instances that share its attributes, have other attributes."""
        for instance in (self.instances[key], *self._aliases.get(key, ())):
            _set(instance, "__dict__", values)

    def touched(self) -> list[EntityKey]:
        """Return the references that may have been touched since the last block opened."""
        if not self._watched:
            self._watched = True
            return list(self.instances)
        return list(self.awake)

    def is_alone(self, entity_type: EntityType, key: EntityKey, instance: Any) -> bool:
        """Say whether an entity's key is right and no other instance shares its attributes."""
        aliases = self._aliases.get(key)
        if aliases is not None:
            # References that no code holds any more need no share of a later change.
            aliases[:] = [alias for alias in aliases if getrefcount(alias) > ALONE + 1]
            if aliases:
                return False
            del self._aliases[key]
        try:
            return entity_type.key_of(instance) == key
        except (Unencodable, KeyError):
            return False

    @property
    def derived(self) -> DerivedValues:
        """The randomness and the UUIDs of this request, or of the running turn of a step."""
        if self.turn not in self._derived:
            # Each turn has its own: a resumption runs a handler again from its start, and repeats
            # the values of its turns.
            name = RequestId(f"{self.request_id}!{self.turn}") if self.turn else self.request_id
            self._derived[self.turn] = DerivedValues(name, self._secret)
        return self._derived[self.turn]


CREATING: Final = Transaction.create.__code__
EXISTING: Final = Transaction.exists.__code__
"""The code that runs where a traced handler creates or looks for an entity, in either implementation."""

if core is not None:  # the compiled methods do the same, and call these where they give up
    core.replace_methods(Transaction, Transaction(RequestId(""), 0, lambda _: None, {}))
