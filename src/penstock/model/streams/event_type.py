"""The type of events: how a stream, a task or a portal checks, encodes and decodes its values.

An event is encoded when it is published, and decoded for each handler that takes it. So no two handlers share
an object, and a handler that changes an event after it has published it changes nothing.
"""

from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.base.lowering import alike, lower_of
from penstock.base.schema import (
    ENCODER,
    UNENCODABLE,
    decode_reference,
    is_exact,
    name_of,
    reason_of,
    shown,
)
from penstock.errors import Unencodable

T = TypeVar("T")

_AS_IT_IS: Final = frozenset({str, int, bool, bytes, type(None)})
"""Types whose values fit if they have the type itself; an `int` of over 64 bits cannot be encoded."""


class EventType(Generic[T]):
    """The type of the values in one place.

    Attributes:
        place: The name of the place in messages: `stream lines`.
        annotation: The type.
        noun: The name of the values in messages.
    """

    __slots__ = ("_decode", "_exact", "_lower", "_plain", "annotation", "noun", "place")

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
        self._plain = annotation in _AS_IT_IS
        self._exact = is_exact(annotation)
        self._decode = msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference).decode

    def encode(self, value: T) -> bytes:
        """Return the bytes of a value; equal values have equal bytes.

        Raises:
            Unencodable: The value does not fit the type; the message names the place in the value.
        """
        if self._plain and type(value) is self.annotation:
            return self._packed(value)
        data = self._packed(value)
        stored = self.decode(data)
        if not (self._exact and stored == value) and not alike(value, stored):
            raise Unencodable(
                f"{self.place} has {self.noun} of type {name_of(self.annotation)}, which cannot hold {shown(value)}"
            )
        return data

    def _packed(self, value: Any) -> bytes:
        try:
            return ENCODER.encode(self._lower(value) if self._lower else value)
        except UNENCODABLE as error:
            raise Unencodable(f"{self.place}: {reason_of(error)}") from error

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
