"""The type of events: how a stream, a task or a portal checks, encodes and decodes its values.

An event is encoded when it is published, and decoded for each handler that takes it. So no two handlers share
an object, and a handler that changes an event after it has published it changes nothing.

An event that refers to a person is encrypted with the key of this person (`model.sealed_value`). So no file and no row
has readable bytes of it, and no other code needs to know which events these are.
"""

import typing
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from penstock.base.encoder import array_head
from penstock.base.given_type import GivenType
from penstock.base.lowering import alike, changed_part, lower_of
from penstock.base.record import simplified
from penstock.base.schema import (
    ENCODER,
    PLAIN,
    UNENCODABLE,
    decode_reference,
    entities_in,
    is_exact,
    is_immutable,
    name_of,
    reason_of,
    reference_type,
)
from penstock.base.stored_type import stored_decoder
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import ConfigError, Unencodable
from penstock.model.entity_type import EntityType
from penstock.model.references import subject_in
from penstock.model.row_plan import event_plan_of
from penstock.model.sealed_value import (
    EVENT,
    FIRST_BYTES,
    is_erased,
    open_value,
    seal_value,
    subject_of,
)

T = TypeVar("T")

_map, _set, _type, _zip = map, set, type, zip
"""Built-in functions, which a handler can have replaced."""

_ARRAY: Final = b"\xdd"
"""The first byte of a MessagePack array with a length of 32 bits."""


class EventType(Generic[T]):
    """The type of the values in one place.

    Attributes:
        place: The name of the place in messages: `stream lines`.
        constrained: The type with its constraints.
        is_shared: Whether handlers can share a decoded value, because it never changes.
        keys: The keys of the persons that values refer to, from `App.use_keys`.
        plan: The plan of the values for `penstock.native`; None if Python encodes them.

    Args:
        annotation: A type that can be stored; `schema.complaints_of` has checked it.
    """

    __slots__ = (
        "_check",
        "_decode",
        "_decode_list",
        "_entities",
        "_exact",
        "_given",
        "_is_personal",
        "_lower",
        "_may_be_sealed",
        "_parts",
        "_plain",
        "annotation",
        "constrained",
        "is_shared",
        "keys",
        "noun",
        "place",
        "plan",
    )

    def __init__(self, place: str, annotation: Any, noun: str = "events") -> None:
        self.place = place
        self.noun = noun
        self.constrained = constrained = simplified(annotation, constrained=True)
        self.annotation = annotation = simplified(annotation)
        self._given: list[GivenType] = []
        self._lower = lower_of(annotation)
        has_constraints = constrained != annotation
        self._plain = annotation if annotation in PLAIN and not has_constraints else None
        self._parts = None if has_constraints else _plain_parts(annotation)
        self._exact = is_exact(annotation)
        self._entities = entities_in(annotation)
        self._is_personal: bool | None = None
        self._may_be_sealed = bool(self._entities) or annotation is Any
        self.is_shared = is_immutable(annotation)
        self.keys: SubjectKeys | None = None
        self.plan: Any = None
        self._decode = stored_decoder(annotation)
        self._decode_list: Callable[[bytes], list[T]] = stored_decoder(list[annotation])
        # Only new values have to keep to the constraints: an older one may be from before them.
        self._check = msgspec.msgpack.Decoder(constrained, dec_hook=decode_reference).decode

    def settle(self) -> None:
        """Make the plan, after `bind` of every class that a value may refer to; no transaction runs code of a type."""
        if self.constrained == self.annotation:
            self.plan = event_plan_of(self.annotation)

    @property
    def given(self) -> GivenType:
        """The type of values from outside."""
        return self._from_outside()[0]

    @property
    def given_list(self) -> GivenType:
        """The type of lists of values from outside."""
        return self._from_outside()[1]

    def _from_outside(self) -> list[GivenType]:
        if not self._given:  # only a stream that takes appends needs them
            annotations = (self.constrained, list.__class_getitem__(self.constrained))
            self._given = [*map(GivenType, annotations)]
        return self._given

    @property
    def is_personal(self) -> bool:
        """Whether values can refer to persons, so that they are encrypted; known when the application is built."""
        if self._is_personal is None:
            described = map(reference_type, self._entities)
            # Only now: classes are bound after the streams are declared.
            self._is_personal = any(
                isinstance(each, EntityType) and each.personal for each in described
            )
        return self._is_personal

    def encode(self, value: T) -> bytes:
        """Return the bytes of a value, encrypted if the value refers to a person; equal values have equal bytes.

        Raises:
            Unencodable: The value does not fit the type; the message names the place in the value.
            ConfigError: The value must be encrypted, and this process has no keys.
        """
        if type(value) is self._plain:  # nearly always: it fits, and refers to nobody
            try:
                return ENCODER.encode(value)
            except UNENCODABLE:
                pass  # the error comes below
        data = self.encode_readable(value)
        return self._sealed(data) if self._entities and self.is_personal else data

    def _sealed(self, data: bytes) -> bytes:
        """Encrypt data if its value refers to a person."""
        # Of the stored form: a property of the value itself could name another person.
        subject = subject_in(self._decode(data))
        if subject is None:
            return data
        if self.keys is None:
            raise ConfigError(
                f"{self.place}: the {self.noun} refer to {subject} of a personal class, and this process has no keys to "
                "encrypt them; open the data directory first"
            )
        return seal_value(self.keys, subject, data, EVENT)

    def encode_readable(self, value: T) -> bytes:
        """Return the bytes of a value, never encrypted, for a gateway, which encrypts them."""
        if self.plan is not None:
            planned: bytes | None = self.plan.encode(value)
            if planned is not None:
                return planned
        try:
            data = ENCODER.encode(self._lower(value) if self._lower else value)
        except UNENCODABLE as error:
            raise Unencodable(f"{self.place}: {reason_of(error)}") from error
        # Such bytes would be taken for encrypted ones when they are read.
        if self.annotation is Any and subject_of(data) is not None:
            raise Unencodable(f"{self.place}: an extension of MessagePack cannot be stored")
        given: Any = value
        if type(given) is self._plain:
            return data
        if type(given) is tuple and tuple(map(type, given)) == self._parts:
            return data
        # A value that is restored as another would change a replay.
        stored = self._readable(data, self._check)
        if not (self._exact and stored == value) and not alike(value, stored):
            path, change = changed_part(value, stored)
            at = f" at {path}" if path else ""
            raise Unencodable(
                f"{self.place} has {self.noun} of type {name_of(self.annotation)}, which {change}{at}"
            )
        return data

    @property
    def is_plain(self) -> bool:
        """Whether values are of built-in types that cannot change, and fit if they have the type itself."""
        return self._plain is not None or self._parts is not None

    def packed(self, values: Sequence[T]) -> bytes | None:
        """Return the bytes of several values, without anything between them.

        Returns:
            What `encode` returns for each of them. None if it would raise for one of them, for values that do not have the
            type itself, and for values that only Python encodes, or that may have to be encrypted.

        Raises:
            RecursionError: Too few frames are left.
        """
        if not self.is_plain and self.plan is not None:
            return None if self._entities and self.is_personal else self.plan.encode_all([*values])
        if not self._have_type(values):
            return None
        try:
            data = ENCODER.encode(values)
        except RecursionError:  # of a handler that has called deeply, and not of the values
            raise
        except UNENCODABLE:
            return None
        return data[len(array_head(len(values))) :]

    def _have_type(self, values: Sequence[Any]) -> bool:
        """Say whether all values have the plain type itself; so none of them can change, or has ever changed."""
        if self._parts is None:
            return _set(_map(_type, values)) <= {self._plain}
        if not _set(_map(_type, values)) <= {tuple}:
            return False
        try:
            columns = [*_zip(*values, strict=True)]
        except ValueError:  # they have not the same length
            return False
        return [_set(_map(_type, column)) for column in columns] == [{part} for part in self._parts]

    def opened(self, data: bytes) -> bytes:
        """Return the readable bytes of a value.

        Raises:
            Erased: The value refers to a person who was erased.
            Corrupt: The bytes were changed, or are encrypted with other keys.
        """
        if subject_of(data) is None:
            return data
        if self.keys is None:
            raise ConfigError(
                f"{self.place}: the {self.noun} are encrypted, and this process has no keys to read them; open the data "
                "directory first"
            )
        return open_value(self.keys, data, EVENT)

    def without_erased(self, events: Sequence[bytes]) -> Sequence[bytes]:
        """Return the events that can be read, in order."""
        if self.keys is None:
            return events
        return [data for data in events if not is_erased(self.keys, data)]

    def has_erased(self, data: bytes) -> bool:
        """Say whether a value cannot be read, or lacks a part, because a person was erased."""
        return is_erased(self.keys, data)

    def decode(self, data: bytes) -> T:
        """Return a new value.

        Raises:
            Unencodable: The bytes are not of this type; the message names the place in the value.
            Erased, Corrupt, ConfigError: See `opened`.
        """
        if self._may_be_sealed and data.startswith(FIRST_BYTES):
            data = self.opened(data)
        try:
            value: T = self._decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            if subject_of(data) is not None:  # of a time when the type had references
                return self._readable(self.opened(data))
            raise self._unreadable(error) from error
        return value

    def _readable(self, data: bytes, decode: Callable[[bytes], T] | None = None) -> T:
        """Return a new value of readable bytes."""
        try:
            value: T = (decode or self._decode)(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._unreadable(error) from error
        return value

    def _unreadable(self, error: Exception) -> Unencodable:
        return Unencodable(
            f"{self.place} has {self.noun} of type {name_of(self.annotation)}: {reason_of(error)}"
        )

    def decode_all(self, events: Sequence[bytes]) -> list[T]:
        """Return a new value for each event; raises as `decode`."""
        # One call of the decoder for all events is several times as fast as one for each.
        head = _ARRAY + len(events).to_bytes(4, "big")
        if self._may_be_sealed:
            events = [self.opened(data) for data in events]
        try:
            return self._decode_list(b"".join((head, *events)))
        except (msgspec.MsgspecError, RecursionError):
            return [self.decode(data) for data in events]  # the error is that of the wrong event


def _plain_parts(annotation: Any) -> tuple[Any, ...] | None:
    """Return the types of the parts of a tuple, if all of them are in `PLAIN`; None for other types."""
    parts = typing.get_args(annotation)
    is_plain = typing.get_origin(annotation) is tuple and all(part in PLAIN for part in parts)
    return parts if is_plain else None
