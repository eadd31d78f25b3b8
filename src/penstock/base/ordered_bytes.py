"""Values as bytes that have the order of the values: an index keeps them, and compares nothing else.

Equal values have equal bytes, a smaller value has smaller bytes, and no value's bytes begin with those of another one. So the
bytes of several values can follow each other. `None` comes before every other value.
"""

import struct
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from penstock.base.annotations import UNIONS
from penstock.base.schema import is_enum, name_of, reference_type, shown
from penstock.errors import Unencodable

VALUE_BYTES_MAX: Final = 400
"""The most bytes of a text, or of `bytes`, in an index: as many as a key may have."""

NONE: Final = b"\x00"
_SOME: Final = b"\x01"
_END: Final = b"\x00\x00"
_INT_MIDDLE: Final = 0x80
_DIGITS_MAX: Final = 200
_FLIPPED: Final = bytes(range(255, -1, -1))
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1

Ordered = Callable[[Any], bytes]
"""Returns the bytes of a value of one type.

Raises:
    Unencodable: The value is of another type, or is too large.
"""


def _too_large(what: str, size: int, most: int) -> Unencodable:
    return Unencodable(f"{what} of {size} bytes is too large for an index, which takes {most}")


def _ended(data: bytes, what: str) -> bytes:
    if len(data) > VALUE_BYTES_MAX:
        raise _too_large(what, len(data), VALUE_BYTES_MAX)
    if b"\x00" in data:
        data = data.replace(b"\x00", b"\x00\xff")
    return data + _END


def _text(value: str) -> bytes:
    return _ended(value.encode(), "a text")


def _raw(value: bytes) -> bytes:
    return _ended(value, "a value")


def _integer(value: int) -> bytes:
    """Return the number of bytes, and the bytes; a negative number has both from the other end."""
    size = (abs(value).bit_length() + 7) // 8
    if size >= _INT_MIDDLE:
        raise _too_large("a number", size, _INT_MIDDLE - 1)
    if value >= 0:
        return bytes((_INT_MIDDLE + size,)) + value.to_bytes(size, "big")
    return bytes((_INT_MIDDLE - size,)) + (value + (1 << 8 * size)).to_bytes(size, "big")


def _boolean(value: bool) -> bytes:  # noqa: FBT001 -- one of the encoders
    return b"\x01" if value else b"\x00"


def _float(value: float) -> bytes:
    if value != value:
        raise Unencodable("NaN has no place in an index; use None")
    bits: int = struct.unpack(">Q", struct.pack(">d", value + 0.0))[0]  # -0.0 equals 0.0
    return ((~bits & _ALL) if bits & _SIGN else bits | _SIGN).to_bytes(8, "big")


def _decimal(value: Decimal) -> bytes:
    """Return sign, exponent and digits, so that 1.0 and 1.00 are equal."""
    if value.is_nan():
        raise Unencodable("NaN has no place in an index; use None")
    if value.is_infinite():
        return b"\x04" if value > 0 else b"\x00"
    sign, digits, _ = value.as_tuple()
    while digits and digits[-1] == 0:
        digits = digits[:-1]
    if not digits:
        return b"\x02"
    if len(digits) > _DIGITS_MAX:
        raise _too_large("a Decimal", len(digits), _DIGITS_MAX)
    size = _integer(value.adjusted()) + bytes(digit + 1 for digit in digits) + b"\x00"
    return b"\x01" + size.translate(_FLIPPED) if sign else b"\x03" + size


def _instant(value: datetime) -> bytes:
    if value.utcoffset() is None:
        raise Unencodable(f"{value!r} has no time zone, so its instant is unknown")
    return ((value - _BEGINNING) // _MICROSECOND + _SIGN).to_bytes(8, "big")


def _day(value: date) -> bytes:
    return value.toordinal().to_bytes(4, "big")


def _time_of_day(value: time) -> bytes:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond).to_bytes(5, "big")


def _duration(value: timedelta) -> bytes:
    return _integer(value // _MICROSECOND)


def _uuid(value: UUID) -> bytes:
    return value.bytes


_BY_TYPE: Final[Mapping[type, Ordered]] = MappingProxyType(
    {
        str: _text,
        bytes: _raw,
        int: _integer,
        bool: _boolean,
        float: _float,
        Decimal: _decimal,
        datetime: _instant,
        date: _day,
        time: _time_of_day,
        timedelta: _duration,
        UUID: _uuid,
    }
)

TYPES_TEXT: Final = "str, bytes, int, bool, float, Decimal, datetime, date, time, timedelta, UUID, an Enum, a Literal, or a reference"


def ordered_by(annotation: Any, *, has_order: bool) -> Ordered | str:
    """Return the function that makes bytes of the values of a type, or why that is impossible.

    Args:
        annotation: A simplified type; `None` may be one of its members.
        has_order: Whether the order of the bytes must be the order of the values.
    """
    inner, is_optional = annotation, False
    if typing.get_origin(annotation) in UNIONS:
        members = [each for each in typing.get_args(annotation) if each is not type(None)]
        is_optional = len(members) < len(typing.get_args(annotation))
        if len(members) != 1:
            return f"{name_of(annotation)} has values of several types; an index takes {TYPES_TEXT}"
        inner = members[0]
    if typing.get_origin(inner) is typing.Literal:
        is_optional = is_optional or None in typing.get_args(inner)
    made = _of_one_type(inner, has_order=has_order)
    if isinstance(made, str):
        return made
    encode = made

    def ordered(value: Any) -> bytes:
        if value is None and is_optional:
            return NONE
        return _SOME + encode(value)

    return ordered


def _of_one_type(annotation: Any, *, has_order: bool) -> Ordered | str:
    reference = reference_type(annotation)
    if reference is not None or is_enum(annotation):
        if has_order:
            return f"{name_of(annotation)} has no order"
        return _by_reference(reference) if reference is not None else _by_value(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return f"{name_of(annotation)} has no order" if has_order else _by_choice(annotation)
    known = _BY_TYPE.get(annotation)
    if known is None:
        return f"{name_of(annotation)} cannot be in an index, which takes {TYPES_TEXT}"
    encode = known

    def exact(value: Any) -> bytes:
        if type(value) is not annotation:
            raise Unencodable(f"expected {name_of(annotation)}, got {shown(value)}")
        return encode(value)

    return exact


def _by_reference(reference: Any) -> Ordered:
    def encode(value: Any) -> bytes:
        is_reference = reference_type(type(value)) is reference
        text = reference.text_of(value) if is_reference else reference.key_text(value)
        return _text(text)

    return encode


def _by_value(annotation: Any) -> Ordered:
    def encode(value: Any) -> bytes:
        if type(value) is not annotation:
            raise Unencodable(f"expected {name_of(annotation)}, got {shown(value)}")
        return _text(value.value) if isinstance(value.value, str) else _integer(value.value)

    return encode


def _by_choice(annotation: Any) -> Ordered | str:
    """Return the function for a `Literal`: a value has the bytes that it has as text or as number."""
    choices = [each for each in typing.get_args(annotation) if each is not None]
    if len({*map(type, choices)}) != 1:
        return f"{name_of(annotation)} has values of several types; an index takes {TYPES_TEXT}"
    encode = _BY_TYPE[type(choices[0])]

    def chosen(value: Any) -> bytes:
        if type(value) is not type(choices[0]) or value not in choices:
            raise Unencodable(f"expected {name_of(annotation)}, got {shown(value)}")
        return encode(value)

    return chosen
