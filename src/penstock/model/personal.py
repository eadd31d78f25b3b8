"""Personal classes: entity classes whose rows are encrypted with a key of each entity.

`@entity(personal=True)` declares one. Everything below the model gets encrypted rows: parts of the journal, local
state, snapshots and backups. A row is `[tag, sealed]`; the sealed part is an ordinary row with the same tag, encrypted
with the key of its entity, the *subject*. Equal rows of an entity have equal bytes, so rows are compared as others.
When the key of a subject is destroyed, its rows cannot be read any more (`base.subject_keys`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from penstock.base.ids import EntityKey
from penstock.base.schema import ENCODER
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
    """The description of a personal class."""

    personal: ClassVar = True

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
        if data.startswith(self.row_head):
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
        """Return the name of the subject to which an entity belongs: the entity itself."""
        return EntityKey(self.prefix + self.key_text(key))

    def _sealed(self, key: object, row: bytes) -> bytes:
        sealed = self._held().seal(self.subject(key), row, _ROW)
        return ENCODER.encode((self.shape.tag, msgspec.msgpack.Ext(_EXT, sealed)))

    def _held(self) -> SubjectKeys:
        if self.keys is None:
            raise ConfigError(
                f"{self.name} is a personal class, and this process has no keys of its subjects; open the data "
                "directory first"
            )
        return self.keys


def _sealed_of(data: bytes) -> bytes | None:
    """Return the encrypted data in a row; None for a row of a time when the class was not personal."""
    try:
        return bytes(_SEALED.decode(data)[1].data)
    except msgspec.MsgspecError:
        return None
