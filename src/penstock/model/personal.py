"""Personal classes: entity classes whose rows are encrypted with a key of each entity.

`@entity(personal=True)` declares one. Everything below the model gets encrypted rows: parts of the journal, local
state, snapshots and backups. A row is `[tag, sealed]`; the sealed part is an ordinary row with the same tag, encrypted
with the key of its entity, the *subject*. Equal rows of an entity have equal bytes, so rows are compared as others.
When the key of a subject is destroyed, its rows cannot be read any more (`base.subject_keys`).

The rows of a task whose keys are references to persons belong to these persons, too.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from penstock.base.ids import EntityKey, entity_key, split_entity_key
from penstock.base.schema import ENCODER, reference_type
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import ConfigError, Erased
from penstock.model.entity_type import EntityType, row_head
from penstock.model.shape import Shape

ERASED: Final = "<erased>"
"""The text that stands for each attribute of an erased subject."""

_ROW: Final = b"row "
_SEALED: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.msgpack.Ext])
_EXT: Final = 80


class PersonalType(EntityType):
    """The description of a personal class.

    Attributes:
        blank: A row that is not encrypted, because it says nothing about a person: that of a task's key without state.
    """

    personal: ClassVar = True
    blank: bytes | None = None

    def settle(self, shape: Shape | None = None) -> None:
        """Fix the shape of rows; see `EntityType`."""
        super().settle(shape)
        self.row_head = row_head(self.shape.tag, 1)

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Encode the attributes of an entity, encrypted; raises as `EntityType.encode`."""
        return self._sealed(values[self.key_name], super().encode(values))

    def encode_change(self, values: Mapping[str, Any], before: bytes | None) -> bytes | None:
        """Encode attributes, encrypted; return None if they are equal to the row `before`."""
        key = values.get(self.key_name)
        former = None if before is None else self.opened(key, before)
        after = super().encode_change(values, former)
        return None if after is None else self._sealed(key, after)

    def present(self, key: object, data: bytes) -> bytes:
        """Return a row as the declared class stores it; raises as `EntityType.present`, and `Erased`."""
        if data.startswith(self.row_head) or data == self.blank:
            return data
        return self._sealed(key, super().present(key, self.opened(key, data)))

    def decode(self, key: object, data: bytes) -> dict[str, Any]:
        """Return the attributes of a row, and the key; raises as `EntityType.decode`, and `Erased`."""
        return super().decode(key, self.opened(key, data))

    def plain(self, key: object, data: bytes) -> dict[str, Any]:
        """Return the attributes by name as MessagePack has them; each is `<erased>` if the subject was erased."""
        try:
            return super().plain(key, self.opened(key, data))
        except Erased:
            return dict.fromkeys(self.attributes, ERASED)

    def opened(self, key: object, data: bytes) -> bytes:
        """Return the row that is encrypted in a row; a row that is not encrypted is returned as it is.

        Raises:
            Erased: The key of the subject is destroyed.
            Corrupt: The row was changed, or is encrypted with other keys.
        """
        sealed = _sealed_of(data)
        return data if sealed is None else self._held().unseal(self.subject(key), sealed, _ROW)

    def is_erased(self, key: object, data: bytes) -> bool:
        """Say whether a row belongs to an erased subject; this decrypts nothing."""
        sealed = _sealed_of(data)
        return sealed is not None and self._held().is_erased(self.subject(key), sealed)

    def subject(self, key: object) -> EntityKey:
        """Return the name of the subject to which a row belongs: the entity itself, or the person who is the key."""
        reference: Any = reference_type(self.key_annotation)
        if reference is None:
            return EntityKey(self.prefix + self.key_text(key))
        return entity_key(reference.stored_name, reference.text_of(key))

    def pseudonym(self, value: bytes) -> str:
        """Return a hash of values of a person, which cannot be computed without the file of keys."""
        return self._held().pseudonym(value)

    def _sealed(self, key: object, row: bytes) -> bytes:
        if row == self.blank:
            return row
        sealed = self._held().seal(self.subject(key), row, _ROW)
        return ENCODER.encode((self.shape.tag, msgspec.msgpack.Ext(_EXT, sealed)))

    def _held(self) -> SubjectKeys:
        if self.keys is None:
            raise ConfigError(
                f"{self.name} is a personal class, and this process has no keys of its subjects; open the data "
                "directory first"
            )
        return self.keys


def rows_of(classes: Iterable[EntityType], subject: EntityKey) -> list[EntityKey]:
    """Return the keys of the rows that an erasure deletes: the entity, and the rows of tasks whose key it is."""
    name, text = split_entity_key(subject)
    keyed: list[Any] = [(each, reference_type(each.key_annotation)) for each in classes]
    return [
        subject,
        *(EntityKey(each.prefix + text) for each, key in keyed if key and key.stored_name == name),
    ]


def _sealed_of(data: bytes) -> bytes | None:
    """Return the encrypted data in a row; None for a row of a time when the class was not personal."""
    try:
        return bytes(_SEALED.decode(data)[1].data)
    except msgspec.MsgspecError:
        return None
