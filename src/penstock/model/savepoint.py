"""Blocks of a transaction: `savepoint()` undoes what its block did, `@readonly` refuses that it did.

A block costs what is touched while it is open. When it opens, the live entities that were touched
since the last block opened fall *asleep*: by assigning `__class__` they become instances of a hidden
subclass, whose first touch wakes them and copies their attributes, which nobody can have changed in
between. An entity whose attributes somebody else holds (`items = self.items`) may change without
being touched, so it stays awake and is copied at once, by each block until they are let go.

Blocks end in the order in which they began, reversed. Only generators can break that: one that is
suspended inside a block, and then dropped, would end it whenever it is collected. So a block that
outlives another that began before it, that is open at the end, or is left by `GeneratorExit`,
undoes nothing and lets the transaction fail, whenever that is found.
"""

from types import TracebackType
from typing import Any, Final, Self

from penstock.base.ids import EntityKey
from penstock.errors import ReadonlyViolation, Unencodable
from penstock.model.context import current
from penstock.model.copies import Attributes, are_same, copied, is_private
from penstock.model.entity_type import EntityType

_get: Final = object.__getattribute__
_set: Final = object.__setattr__
_NEVER: Final = 1 << 62


class Block:
    """A stretch of a transaction that has a beginning to look back at.

    Attributes:
        images: Of each entity touched while it was open, the attributes at the beginning; None of
            those that were not live then.
        deleted: How many entities were deleted at the beginning.
    """

    __slots__ = ("_txn", "deleted", "images")

    def __init__(self) -> None:
        self._txn = current()
        self.images: dict[EntityKey, Attributes | None] = {}
        self.deleted = 0

    def open(self) -> None:
        """Begin.

        Raises:
            Unencodable: An attribute holds what cannot be copied.
        """
        txn = self._txn
        memo: dict[int, Any] = {}
        touched = txn.touched()
        txn.awake = {}
        self.deleted = len(txn.deleted)
        txn.blocks.append(self)
        try:
            for key in touched:
                self._look_at(key, memo)
        except BaseException:
            txn.awake.update(dict.fromkeys(touched))
            txn.blocks.remove(self)
            raise

    def _look_at(self, key: EntityKey, memo: dict[int, Any]) -> None:
        """Let an entity fall asleep, or copy it where it could change in its sleep."""
        txn = self._txn
        instance = txn.instances[key]
        kind: EntityType = type(instance).__reference__
        if type(instance) is not kind.cls:
            return
        if is_private(instance) and txn.is_alone(kind, key, instance):
            _set(instance, "__class__", kind.asleep)
        else:
            flats = txn.flats.setdefault(key, {})
            self.images[key] = copied(_get(instance, "__dict__"), memo, flats)
            txn.awake[key] = None

    def close(self) -> bool:
        """End, with all that began inside and is still open; False where it has ended already."""
        blocks = self._txn.blocks
        if not any(one is self for one in blocks):
            return False
        while (last := blocks.pop()) is not self:
            self._txn.leave_open()
            last.hand_on(self)
        return True

    def hand_on(self, outer: "Block | None" = None) -> None:
        """Let the block around it know what was touched."""
        if outer is None and self._txn.blocks:
            outer = self._txn.blocks[-1]
        if outer is not None:
            for key, image in self.images.items():
                outer.images.setdefault(key, image)

    def restore(self) -> None:
        """Make all entities be what they were at the beginning."""
        txn = self._txn
        outer = txn.blocks[-1].images if txn.blocks else None
        while len(txn.deleted) > self.deleted:
            txn.deleted.popitem()
        for key, image in self.images.items():
            instance = txn.instances[key]
            kind: EntityType = type(instance).__reference__
            txn.part(kind, key)
            if image is None:
                txn.unload(kind, key, instance)
                continue
            txn.flats.pop(key, None)  # its copies are the attributes now
            _set(instance, "__dict__", image)
            if outer is None or key in outer:
                _set(instance, "__class__", kind.cls)
                txn.awake[key] = None
            else:  # as it was when the block around began, and so are all copies inside it
                _set(instance, "__class__", kind.asleep)

    def changed(self) -> EntityKey | None:
        """Return the first entity that is not what it was at the beginning; None where all are.

        Raises:
            Unencodable: An attribute does not fit its annotation.
        """
        found = {key for key, image in self.images.items() if self._differs(key, image)}
        return next((key for key in self._txn.before if key in found), None) if found else None

    def _differs(self, key: EntityKey, image: Attributes | None) -> bool:
        txn = self._txn
        instance = txn.instances[key]
        kind: EntityType = type(instance).__reference__
        now = _get(instance, "__dict__") if txn.is_live(kind, instance) else None
        if are_same(image, now, txn.flats.get(key, {})):
            return False
        before = txn.before[key]
        was = None if txn.deleted.get(key, _NEVER) < self.deleted else before
        if image is not None:
            was = kind.encode(image)
        if now is not None:
            return kind.encode(now) != was
        return was != (None if key in txn.deleted else before)


class Savepoint(Block):
    """What `with savepoint():` enters."""

    __slots__ = ()

    def __enter__(self) -> None:
        self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ended = not self.close()
        if kind is GeneratorExit:
            self._txn.leave_open()
        if ended:
            return
        if kind is None or kind is GeneratorExit:
            self.hand_on()
        else:
            self.restore()


class Unchanged(Block):
    """A block that must not change entities: what `@readonly` promises.

    Raises:
        ReadonlyViolation: The block changed, created or deleted an entity; also when it raises.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.close():
            return
        self.hand_on()
        if kind is None or issubclass(kind, Exception):
            self._confirm()
            return
        try:  # it goes on, and may still be caught
            self._confirm()
        except (ReadonlyViolation, Unencodable) as violation:
            self._txn.doom(violation)

    def refused(self, what: str) -> ReadonlyViolation:
        """Let the transaction fail, for good, so that catching the error saves nothing; return it."""
        violation = ReadonlyViolation(f"{self._name} is @readonly and {what}")
        self._txn.doom(violation)
        return violation

    def _confirm(self) -> None:
        key = self.changed()
        if key is not None:
            raise self.refused(f"changed {key}")


def savepoint() -> Savepoint:
    """Undo what the block did to entities when it raises; the exception goes on.

    Values that the block computed stay; lists, dictionaries and sets inside restored entities are
    new objects, so read them again from the entity. A generator may be suspended inside the block
    only if it is resumed and leaves it, as in a function marked `@contextmanager`.
    """
    return Savepoint()
