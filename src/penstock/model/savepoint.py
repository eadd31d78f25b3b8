"""Blocks of a transaction: `savepoint()` can undo its block, and `@readonly` refuses its changes.

A block costs as much as the entities that are touched while it is open. When a block opens, the live
entities that were touched since the previous block opened fall *asleep*: `__class__` is assigned, and
they become instances of a hidden subclass. Its first touch wakes an entity and takes an `Image` of its
attributes, which cannot have changed in between. If a variable holds an attribute (`items = self.items`),
the entity may change without a touch; so it stays awake, and each block takes its image at once until the
variable is gone.

A block that is undone puts the contents of its images back in place. So a variable that holds a list or a
record of an entity still holds that of the entity, also if the block was the first to read the entity.

Blocks end in reverse order. Only a generator can break that order: if it is suspended inside a block
and dropped, the block ends when the generator is collected. So the transaction fails, and the block
undoes nothing, if the block outlives an outer block, is open at the end, or is left by `GeneratorExit`.
"""

from collections import Counter
from typing import ClassVar, Final, Self

from penstock.base.ids import EntityKey
from penstock.errors import ReadonlyViolation, Unencodable, UserError
from penstock.model.contents import Attributes, Image, RowImage, is_private
from penstock.model.context import current
from penstock.model.entity_type import EntityType
from penstock.model.running_step import Emission

_get: Final = object.__getattribute__
_set: Final = object.__setattr__
_NEVER: Final = 1 << 62


class SavepointBlock:
    """A part of a transaction; it can compare entities with their state at its beginning.

    Attributes:
        images: The contents at the beginning of each entity that was touched since; None for an
            entity that the block created.
        deleted: The number of entities that were deleted at the beginning.
    """

    undoes: ClassVar = True
    """Whether it may have to put contents back."""

    __slots__ = ("_txn", "deleted", "images", "sent")

    def __init__(self) -> None:
        self._txn = current()
        self.images: dict[EntityKey, Image | RowImage | None] = {}
        self.deleted = 0
        self.sent = 0

    def open(self) -> None:
        """Begin the block.

        Raises:
            Unencodable: The contents of an attribute cannot be read.
        """
        txn = self._txn
        touched = txn.touched()
        txn.awake = {}
        self.deleted = len(txn.deleted)
        self.sent = len(txn.outbox)
        txn.blocks.append(self)
        try:
            for key in touched:
                self._look_at(key)
        except BaseException:
            txn.awake.update(dict.fromkeys(touched))
            txn.blocks.remove(self)
            raise

    def _look_at(self, key: EntityKey) -> None:
        """Let an entity fall asleep, or take its image if it could change without a touch."""
        txn = self._txn
        instance = txn.instances[key]
        entity_type: EntityType = type(instance).__reference__
        if type(instance) is not entity_type.cls:
            return
        known: Counter[int] = Counter()
        for block in txn.blocks[:-1]:  # the images of the blocks around are no variables
            if (image := block.images.get(key)) is not None:
                known.update(image.references())
        # No other code holds a part of it, so it cannot change without being touched first: no
        # image is needed.
        if is_private(instance, known) and txn.is_alone(entity_type, key, instance):
            _set(instance, "__class__", entity_type.asleep)
        else:
            self.images[key] = Image(_get(instance, "__dict__"))
            txn.awake[key] = None

    def close(self) -> bool:
        """End the block and the blocks inside it; return False if it has ended before."""
        blocks = self._txn.blocks
        if not any(block is self for block in blocks):
            return False
        while (last := blocks.pop()) is not self:
            self._txn.leave_open()
            last.hand_on(self)
        return True

    def hand_on(self, outer: "SavepointBlock | None" = None) -> None:
        """Give the outer block the images of the touched entities."""
        if outer is None and self._txn.blocks:
            outer = self._txn.blocks[-1]
        if outer is not None:
            for key, image in self.images.items():
                # An image that the outer block has already is older, and stays.
                outer.images.setdefault(key, image)

    def restore(self) -> None:
        """Restore all entities to their state at the beginning, in place."""
        txn = self._txn
        try:
            self._restore()
        except BaseException:  # out of time or memory in the middle
            txn.doom(
                UserError(
                    "a savepoint could not undo its block, because the handler was interrupted"
                )
            )
            raise

    def _restore(self) -> None:
        txn = self._txn
        while len(txn.deleted) > self.deleted:
            txn.deleted.popitem()
        # Events and requests of the block are changes, too.
        del txn.outbox[self.sent :]
        for key, image in self.images.items():
            instance = txn.instances[key]
            entity_type: EntityType = type(instance).__reference__
            txn.part(entity_type, key)
            if image is None:
                txn.unload(entity_type, key, instance)
                continue
            assert isinstance(image, Image), "an image of a row is only in blocks that undo nothing"
            image.restore()
            _set(instance, "__dict__", image.values)
            _set(instance, "__class__", entity_type.cls)
            txn.awake[key] = None
            # A variable may hold a part now, so the entity cannot sleep until the next block looks. It has not changed
            # between the beginnings of the block around and of this block if that block has no image of it.
            if txn.blocks:
                txn.blocks[-1].images.setdefault(key, image)

    def changed(self) -> EntityKey | None:
        """Return the first entity that differs from its state at the beginning; None if all are equal.

        Raises:
            Unencodable: An attribute does not fit its annotation.
        """
        changed = {key for key, image in self.images.items() if self._differs(key, image)}
        return next((key for key in self._txn.before if key in changed), None) if changed else None

    def _differs(self, key: EntityKey, image: Image | RowImage | None) -> bool:
        txn = self._txn
        instance = txn.instances[key]
        entity_type: EntityType = type(instance).__reference__
        now = _get(instance, "__dict__") if txn.is_live(entity_type, instance) else None
        before = txn.before[key]
        if isinstance(image, RowImage):
            return now is None or not _is_row(entity_type, now, before)
        if image is not None and now is not None and image.is_current(now):
            return False
        was = None if txn.deleted.get(key, _NEVER) < self.deleted else before
        if image is not None:
            was = image.then(entity_type.encode)
        if now is not None:
            return entity_type.encode(now) != was
        return was != (None if key in txn.deleted else before)


def _is_row(entity_type: EntityType, values: Attributes, row: bytes | None) -> bool:
    """Say whether attributes are those of a row."""
    if entity_type.is_row(values, row) or entity_type.encode(values) == row:
        return True
    # The key of a person may be another one since the row was encrypted.
    return entity_type.personal and entity_type.encode_change(values, row) is None


class SavepointContext(SavepointBlock):
    """The context manager of `with savepoint():`."""

    __slots__ = ()

    def __enter__(self) -> None:
        self.open()

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        ended = not self.close()
        # The generator was dropped while it was suspended here; the block ends at a place that the
        # handler does not know.
        if error_type is GeneratorExit:
            self._txn.leave_open()
        if ended:
            return
        if error_type is None or error_type is GeneratorExit:
            self.hand_on()
        else:
            self.restore()
        self.images = {}  # a variable may hold the block


class Unchanged(SavepointBlock):
    """The block of a `@readonly` call, which must not change entities.

    Raises:
        ReadonlyViolation: The block changed, created or deleted an entity; also when it raises.
    """

    undoes = False

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if not self.close():
            return
        self.hand_on()
        if error_type is None or issubclass(error_type, Exception):
            self._confirm()
            return
        try:  # it goes on, and may still be caught
            self._confirm()
        except (ReadonlyViolation, Unencodable) as violation:
            self._txn.doom(violation)

    def refused(self, what: str) -> ReadonlyViolation:
        """Return an error, and let the transaction fail with it even if the handler catches it."""
        violation = ReadonlyViolation(f"{self._name} is @readonly and {what}")
        self._txn.doom(violation)
        return violation

    def _confirm(self) -> None:
        key = self.changed()
        if key is not None:
            raise self.refused(f"changed {key}")
        if len(self._txn.outbox) > self.sent:
            match self._txn.outbox[-1]:
                case Emission(stream):
                    raise self.refused(f"emitted an event on stream {stream}")
                case _:
                    raise self.refused("sent a request")


def savepoint() -> SavepointContext:
    """Undo the changes of the block to entities if the block raises; the exception propagates.

    Lists, dictionaries, sets and records of the entities get their contents back and stay the same objects,
    so a variable that holds one can be used further. Other values that the block computed stay. A generator may be suspended inside the block
    only if it is resumed and leaves it, as in a function marked `@contextmanager`.
    """
    return SavepointContext()
