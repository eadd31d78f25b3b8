"""Values from outside: their constraints hold, and a record has no field that its class does not declare.

msgspec drops unknown fields of records, because data of another version of the code may have them. Stored values are
read so. A caller who gives a field that nothing reads has made a mistake. `GivenType` decodes the values of callers:
after msgspec has decoded a value, a twin of its type without any freedom reads it once more, in C.

msgspec also rounds an integer to the float that is declared. `refuse_rounded` finds it: a caller's number is kept or refused.
"""

import json
import typing
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.json_floats import decode_json
from penstock.base.lowering import lower_reply
from penstock.base.misfit import UNKNOWN_FIELD
from penstock.base.record import (
    RecordKind,
    fields_of,
    is_record,
    kind_of,
    simplified,
    tag_of_record,
)
from penstock.base.schema import ENCODER, decode_reference, wire_type

_MARK: Final = "\ufeff".encode()
_PARTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_SERIES: Final = (list, set, frozenset, deque)
_UNSIGNED: Final = b"\xcf"
_SIGNED: Final = b"\xd3"
"""The first byte of a signed integer of 64 bits in MessagePack, as `_UNSIGNED` is of an unsigned one; floats hold all others."""


class GivenType:
    """A type as callers have to keep to it.

    Decoding may run code of the application, as `base.class_code` says.

    Attributes:
        has_records: Whether values have records in them.
    """

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        self._json = msgspec.json.Decoder(annotation, dec_hook=decode_reference).decode
        self._msgpack = msgspec.msgpack.Decoder(annotation, dec_hook=decode_reference).decode
        closed = _closed(simplified(annotation), {})
        self.has_records = closed is not None
        self._is_list = typing.get_origin(annotation) is list
        element = typing.get_args(annotation)[0] if self._is_list else annotation
        self._repeats = RepeatedNames(element)
        self._closed_json = None if closed is None else msgspec.json.Decoder(closed).decode
        self._closed_msgpack = None if closed is None else msgspec.msgpack.Decoder(closed).decode

    def of_json(self, text: str | bytes | msgspec.Raw, *, is_open: bool = False) -> Any:
        """Return the value of a JSON text; see `decode_json`.

        Args:
            is_open: Whether records may have fields that their classes do not declare.
        """
        try:
            value = self._json(text)
        except msgspec.ValidationError:
            value = decode_json(text, self.annotation)
        if self._closed_json is not None and not is_open:
            _refuse_unknown(self._closed_json, text)
        if self._repeats.may_be:
            self._repeats.refuse(text, len(value) if self._is_list else None)
        return value

    def of_msgpack(self, data: bytes | msgspec.Raw) -> Any:
        """Return the value of MessagePack; raises as `of_json`."""
        value = self._msgpack(data)
        refuse_rounded(data, value)
        self.check_msgpack(data)
        return value

    def check_msgpack(self, data: bytes | msgspec.Raw) -> None:
        """Refuse MessagePack that has a field which no record declares; raises as `of_json`."""
        if self._closed_msgpack is not None:
            _refuse_unknown(self._closed_msgpack, data)

    def converted(self, value: Any, *, strict: bool = True, is_open: bool = False) -> Any:
        """Return the value of plain Python objects, such as the row of a table; like `of_json`."""
        made = msgspec.convert(
            value, self.annotation, strict=strict, dec_hook=decode_reference, str_keys=not strict
        )
        if self._closed_msgpack is not None and not is_open:
            self.check_msgpack(msgspec.msgpack.encode(value))
        return made


def may_be_rounded(data: bytes | msgspec.Raw) -> bool:
    """Say whether MessagePack may have an integer that no float equals; nearly always it has none."""
    given = bytes(data)
    return _UNSIGNED in given or _SIGNED in given


def refuse_rounded(data: bytes | msgspec.Raw, value: Any) -> None:
    """Raise `msgspec.ValidationError` if decoding has rounded an integer to a float.

    Numbers of JSON are rounded, as in every reader of JSON, because they have no types.

    Args:
        data: MessagePack.
        value: The value that it was decoded to.
    """
    if not may_be_rounded(data):
        return
    rounded = [
        (place, number)
        for place, number in _numbers_in(msgspec.msgpack.decode(data), "$")
        if type(number) is int and float(number) != number
    ]
    if not rounded:
        return
    read = msgspec.msgpack.decode(ENCODER.encode(lower_reply(value)))
    numbers = [*_numbers_in(read, "$")]
    there = {place: number for place, number in numbers if type(number) is int}
    kept = Counter((type(number), number) for _, number in numbers)
    # First by place, for the message. The rest by number alone: a set has an order of its own, and the code of a record may
    # move values.
    moved = [(place, number) for place, number in rounded if there.get(place) != number]
    kept.subtract((int, number) for place, number in rounded if there.get(place) == number)
    for place, number in moved:
        if kept[int, number] > 0:
            kept[int, number] -= 1
        elif kept[float, float(number)]:
            raise msgspec.ValidationError(
                f"a float cannot hold {number}, only {float(number)!r} - at {place}"
            )


def _numbers_in(value: Any, path: str, mark: str = "") -> Iterator[tuple[str, int | float]]:
    """Yield the numbers in plain data, each with its place as msgspec writes it."""
    if type(value) in (int, float):
        yield f"{mark}`{path}`", value
    elif type(value) is dict:
        for name, item in value.items():
            yield from _numbers_in(name, path, "`key` in ")
            yield from _numbers_in(item, f"{path}.{name}" if type(name) is str else f"{path}[...]")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _numbers_in(item, path if mark else f"{path}[{index}]", mark)


def has_records(annotation: Any) -> bool:
    """Say whether values of a type have records in them."""
    return _closed(simplified(annotation), {}) is not None


class RepeatedNames:
    """Finds names that stand twice in an object of JSON, of which decoding would keep the last value.

    Attributes:
        may_be: Whether a value may have an object.
    """

    def __init__(self, annotation: Any, names: Iterable[str] = ()) -> None:
        plain = simplified(annotation)
        declared = _names_in(plain, dict.fromkeys(names), [])
        self._names = None if declared is None else [*map(msgspec.json.encode, declared)]
        self.may_be = self._names is None or bool(self._names)
        fields = fields_of(plain) if is_record(plain) else []
        needed = {each.member.wire for each in fields if not each.member.has_default}
        self._has_all = declared is not None and needed == declared.keys()

    def refuse(self, text: str | bytes | msgspec.Raw, count: int | None = None) -> None:
        """Raise `msgspec.ValidationError` for an object with a name that stands twice.

        Args:
            text: JSON of the type; JSON of a list of it if there is a count.
            count: The number of elements of the list, which fit the type.
        """
        names = self._names
        if not self.may_be:
            return
        given = text.encode() if isinstance(text, str) else bytes(text)
        # If each of so many elements has a name, and the name stands as often in all of them, none has it twice.
        if self._has_all and count is not None and not _has_escapes(given):
            counts = {given.count(name) for name in names or ()}
            if counts == {count}:
                return
        for part in (given,) if count is None else map(bytes, _PARTS.decode(given)):
            # A name that is there once cannot stand twice: to count takes less time than to read the objects.
            if names is None or _has_escapes(part) or _has_twice(part, names):
                json.loads(part, object_pairs_hook=_unrepeated)


def _has_escapes(part: bytes) -> bool:
    """Say whether a name may be written in another way than `msgspec` writes it."""
    return b"\\u" in part or b"\\/" in part


def _has_twice(part: bytes, names: Iterable[bytes]) -> bool:
    count = part.count
    for name in names:  # noqa: SIM110 -- `any` takes twice as long, and each element of each list comes here
        if count(name) > 1:
            return True
    return False


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for name in names if names.count(name) > 1)
        raise msgspec.ValidationError(f"Object contains the field `{name}` twice")
    return made


def _names_in(
    annotation: Any, names: dict[str, None] | None, seen: list[Any]
) -> dict[str, None] | None:
    """Add the names in the objects of a type; return None if objects may have any names."""
    if names is None or annotation in (Any, dict):
        return None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        return None
    if origin is typing.Literal or annotation in seen:
        return names
    if is_record(annotation):
        seen.append(annotation)
        fields = fields_of(annotation)
        names |= dict.fromkeys(each.member.wire for each in fields)
        arguments = tuple(each.annotation for each in fields)
    for part in arguments:
        names = None if part is Any else _names_in(part, names, seen)
    return names


def without_mark(text: bytes) -> bytes:
    """Return text without the byte order mark that some programs write at the beginning of a file."""
    return text.removeprefix(_MARK)


def _refuse_unknown(decode: Any, data: str | bytes | msgspec.Raw) -> None:
    try:
        decode(data)
    except msgspec.ValidationError as error:
        # The value itself fits. A twin is narrower in other ways, such as for texts that are floats.
        if str(error).startswith(UNKNOWN_FIELD):
            raise


def _closed(annotation: Any, made: dict[Any, Any]) -> Any:
    """Return the type that reads the fields of the records in values of a type; None without records.

    Args:
        annotation: The type, without constraints.
        made: The types of the records that were made before, because a record may contain itself.
    """
    if is_record(annotation):
        return _closed_record(annotation, made)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return None
    inner = [None if part is Ellipsis else _closed(part, made) for part in arguments]
    return _closed_around(origin, arguments, inner) if any(inner) else None


def _closed_around(origin: Any, arguments: tuple[Any, ...], inner: list[Any]) -> Any:
    """Return the closed type of a union or a collection, of which some parts have records in them."""
    if origin in UNIONS:
        members = zip(inner, arguments, strict=True)
        return typing.Union[tuple(twin or wire_type(member) for twin, member in members)]  # noqa: UP007
    if origin is dict:
        return dict.__class_getitem__((Any, inner[1] or msgspec.Raw))
    if origin is tuple and Ellipsis not in arguments:
        return tuple.__class_getitem__(tuple(part or msgspec.Raw for part in inner))
    assert origin in _SERIES or origin is tuple, "no other type has types inside"
    return list.__class_getitem__(inner[0])


def _closed_record(annotation: Any, made: dict[Any, Any]) -> Any:
    if annotation in made:
        return made[annotation]
    fields = fields_of(annotation)
    tag_field, tag = tag_of_record(annotation) or (None, None)
    names = [f"field_{index}" for index in range(len(fields))]
    made[annotation] = twin = msgspec.defstruct(
        "Closed",
        [(name, Any, msgspec.UNSET) for name in names],
        rename={name: each.member.wire for name, each in zip(names, fields, strict=True)},
        tag_field=tag_field,
        tag=tag,
        array_like=kind_of(annotation) is RecordKind.NAMED_TUPLE,
        forbid_unknown_fields=True,
    )
    hints = [_closed(each.annotation, made) or msgspec.Raw for each in fields]
    # msgspec reads them when a decoder is made: a record in its own field is known only now.
    twin.__annotations__ = dict(zip(names, hints, strict=True))
    return twin
