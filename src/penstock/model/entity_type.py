"""The description of an entity class: its key, attributes and methods, and how state is encoded.

`EntityType` is made by `@entity` when the class is defined and bound when an application is built,
because only then are all the entity classes known that annotations may name. It promises one
encoding for equal attributes. It knows nothing of transactions; `entity` gives classes their
behaviour, `declaration` finds out what a class declares.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import msgspec

from penstock.base.ids import EntityKey
from penstock.base.schema import (
    Lower,
    decode_key,
    decode_reference,
    encode_key,
    lower_of,
    refuse,
    wire_type,
)
from penstock.errors import Unencodable
from penstock.model.signature import Signature

_ENCODER = msgspec.msgpack.Encoder(enc_hook=refuse)


def _refer_nowhere(text: str, kind: "EntityType") -> object:
    raise Unencodable(f"{kind.name} is no entity yet; {text!r} refers to nothing")


class EntityType:
    """One entity class as Penstock sees it; the class carries it as `__reference__`.

    Attributes:
        name: The class's name, unique in an application.
        cls: The user's class; instances of it are loaded entities.
        unloaded: Its subclass whose instances are references that have not been read yet.
        key_name: The attribute that holds the key.
        where: `file:line` of the class.
        key_annotation, attributes, methods: Known once bound.
        defaults: Attribute to default value, copied for each creation.
        refer: Makes the reference with a key's text; set by `@entity`.
        initializer: The user's own `__init__`, in that style; otherwise None.
    """

    def __init__(self, cls: type, key_name: str, where: str) -> None:
        self.name = cls.__name__
        self.cls = cls
        self.unloaded: type = cls
        self.key_name = key_name
        self.where = where
        self.prefix = f"{cls.__name__}/"
        self.initializer: Callable[..., None] | None = None
        self.defaults: dict[str, Any] = {}
        self.key_annotation: Any = str
        self.attributes: dict[str, Any] = {}
        self.methods: dict[str, Signature] = {}
        self.creation: Signature | None = None
        self.refer: Callable[[str, EntityType], object] = _refer_nowhere
        self.key_is_text = True
        self.bound = False

    def bind(self, key_annotation: Any, attributes: Mapping[str, Any]) -> None:
        """Fix the key's and the attributes' types (the key is not among `attributes`)."""
        self.key_annotation = key_annotation
        self.attributes = dict(attributes)
        self._width = len(attributes) + 1
        self._lowers: list[tuple[int, Lower]] = [
            (index, lower)
            for index, annotation in enumerate(attributes.values())
            if (lower := lower_of(annotation)) is not None
        ]
        names = tuple(attributes)
        self._names = names
        self._pick: Callable[[Mapping[str, Any]], tuple[Any, ...]]
        if len(names) > 1:
            self._pick = itemgetter(*names)
        else:
            self._pick = lambda values: tuple(values[name] for name in names)
        row = tuple[tuple(attributes.values())] if names else tuple[()]  # type: ignore[misc]
        self._decode = msgspec.msgpack.Decoder(row, dec_hook=decode_reference).decode
        wire = tuple(wire_type(one) for one in attributes.values())
        wire_row = tuple[wire] if names else tuple[()]  # type: ignore[misc,valid-type]
        self._check = msgspec.msgpack.Decoder(wire_row, dec_hook=decode_reference).decode
        self.key_is_text = key_annotation is str
        self.bound = True

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Encode an entity's attributes: a MessagePack array in declared order, without the key.

        Raises:
            Unencodable: An attribute is missing, is not declared, or cannot be stored.
        """
        if len(values) != self._width:
            raise Unencodable(self._misfit(values))
        try:
            row = self._pick(values)
            if self._lowers:
                lowered = list(row)
                for index, lower in self._lowers:
                    lowered[index] = lower(lowered[index])
                return _ENCODER.encode(lowered)
            return _ENCODER.encode(row)
        except KeyError:
            raise Unencodable(self._misfit(values)) from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Unencodable(f"{self.name}: {error}") from error

    def fill(self, values: dict[str, Any], data: bytes) -> None:
        """Put what `encode` made back among an instance's attributes.

        Raises:
            Unencodable: An attribute does not fit its annotation; the message names it.
        """
        try:
            values.update(zip(self._names, self._decode(data), strict=True))
        except msgspec.ValidationError as error:
            raise Unencodable(self._explain(str(error))) from error

    def check(self, data: bytes) -> None:
        """Refuse encoded attributes that do not fit their annotations.

        Raises:
            Unencodable: As for `fill`.
        """
        try:
            self._check(data)
        except msgspec.ValidationError as error:
            raise Unencodable(self._explain(str(error))) from error

    def _explain(self, complaint: str) -> str:
        """Replace msgspec's path into the row by the attribute's name."""
        what, _, path = complaint.partition(" - at `$[")
        index, _, rest = path.partition("]")
        if not index.isdigit():
            return f"{self.name}: {complaint}"
        return f"{self.name}.{self._names[int(index)]}{rest.rstrip('`')}: {what}"

    def _misfit(self, values: Mapping[str, Any]) -> str:
        missing = [name for name in self._names if name not in values]
        if missing:
            return f"{self.name} lacks its attribute {', '.join(missing)}"
        extra = [name for name in values if name not in self.attributes and name != self.key_name]
        return f"{self.name} declares no attribute {', '.join(extra)}"

    def key_text(self, key: object) -> str:
        """Return a key's text.

        Raises:
            Unencodable: It is no key of this class.
        """
        if self.key_is_text and type(key) is str and key.isascii() and 0 < len(key) < 128:
            return key
        return encode_key(key, self.key_annotation)

    def key_at(self, text: str) -> Any:
        """Return the key with this text.

        Raises:
            Unencodable: The text is no key of this class.
        """
        return text if self.key_is_text else decode_key(text, self.key_annotation)

    def key_of(self, instance: object) -> EntityKey:
        """Return the entity key of an instance of this class, loaded or not."""
        key = object.__getattribute__(instance, "__dict__")[self.key_name]
        if self.key_is_text and type(key) is str:  # checked when the reference was made
            return EntityKey(self.prefix + key)
        return EntityKey(self.prefix + self.key_text(key))

    def text_of(self, value: object) -> str:
        """Return the key's text of a reference to this class.

        Raises:
            Unencodable: `value` is something else.
        """
        kind = type(value)
        if kind is not self.cls and kind is not self.unloaded:
            raise Unencodable(f"expected a reference to {self.name}, got {value!r}")
        key = object.__getattribute__(value, "__dict__")[self.key_name]
        return key if self.key_is_text and type(key) is str else self.key_text(key)

    def of_text(self, text: str) -> object:
        """Return the reference with this key text."""
        return self.refer(text, self)
