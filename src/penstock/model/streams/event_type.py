"""The type of events: how a stream, a task or a portal checks, encodes and decodes its values.

An event is encoded when it is published, and decoded for each handler that takes it. So no two handlers share
an object, and a handler that changes an event after it has published it changes nothing.
"""

import typing
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.base.lowering import alike, lower_of
from penstock.base.schema import (
    ENCODER,
    PLAIN,
    UNENCODABLE,
    decode_reference,
    is_exact,
    is_immutable,
    name_of,
    reason_of,
    shown,
)
from penstock.errors import Unencodable

T = TypeVar("T")

_ARRAY: Final = b"\xdd"
"""The first byte of a MessagePack array with a length of 32 bits."""


class EventType(Generic[T]):
    """The type of the values in one place.

    Attributes:
        place: The name of the place in messages: `stream lines`.
        annotation: The type.
        noun: The name of the values in messages.
        is_shared: Whether handlers can share a decoded value, because it never changes.
    """

    __slots__ = (
        "_decode",
        "_decode_list",
        "_exact",
        "_lower",
        "_parts",
        "_plain",
        "annotation",
        "is_shared",
        "noun",
        "place",
    )

    def __init__(self, place: str, annotation: Any, noun: str = "events") -> None:
        """Take a type.

        Args:
            place: The name of the place in messages.
            annotation: A type that can be stored; `schema.complaints_of` has checked it.
            noun: The name of the values in messages.
        """
        self.place = place
        self.noun = noun
        self.annotation = annotation
        self._lower = lower_of(annotation)
        self._plain = annotation if annotation in PLAIN else None
        self._parts = _plain_parts(annotation)
        self._exact = is_exact(annotation)
        self.is_shared = is_immutable(annotation)
        self._decode = msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference).decode
        several = list[annotation]
        self._decode_list = msgspec.msgpack.Decoder(several, dec_hook=decode_reference).decode

    def encode(self, value: T) -> bytes:
        """Return the bytes of a value; equal values have equal bytes.

        Raises:
            Unencodable: The value does not fit the type; the message names the place in the value.
        """
        try:
            data = ENCODER.encode(self._lower(value) if self._lower else value)
        except UNENCODABLE as error:
            raise Unencodable(f"{self.place}: {reason_of(error)}") from error
        given: Any = value
        if type(given) is self._plain:
            return data
        if type(given) is tuple and tuple(map(type, given)) == self._parts:
            return data
        stored = self.decode(data)
        if not (self._exact and stored == value) and not alike(value, stored):
            raise Unencodable(
                f"{self.place} has {self.noun} of type {name_of(self.annotation)}, which cannot hold {shown(value)}"
            )
        return data

    def decode(self, data: bytes) -> T:
        """Return a new value.

        Raises:
            Unencodable: The bytes are not of this type; the message names the place in the value.
        """
        try:
            value: T = self._decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Unencodable(
                f"{self.place} has {self.noun} of type {name_of(self.annotation)}: {reason_of(error)}"
            ) from error
        return value

    def decode_all(self, events: Sequence[bytes]) -> list[T]:
        """Return a new value for each event; raises as `decode`."""
        head = _ARRAY + len(events).to_bytes(4, "big")
        try:
            return self._decode_list(b"".join((head, *events)))
        except (msgspec.MsgspecError, RecursionError):
            return [self.decode(data) for data in events]  # the error is that of the wrong event


def _plain_parts(annotation: Any) -> tuple[Any, ...] | None:
    """Return the types of the parts of a tuple, if all of them are in `PLAIN`; None for other types."""
    parts = typing.get_args(annotation)
    is_plain = typing.get_origin(annotation) is tuple and all(part in PLAIN for part in parts)
    return parts if is_plain else None
