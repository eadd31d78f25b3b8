"""MessagePack: `Encoder`, for a value of unknown size, and arrays of elements that are encoded already.

The encoder of msgspec ends its process by a fault of memory if its own buffer cannot grow. A small value can have a huge
encoding (a list that holds the same list many times), so each value of user code is such a value. A buffer of Python's own
raises `MemoryError` instead, and the process goes on.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

_SCALARS: Final = frozenset({int, bool, float, type(None)})
_SMALL: Final = 1 << 16
"""The longest text or bytes whose encoding is small."""

_HEADS: Final = tuple(msgspec.msgpack.encode([None] * count)[:1] for count in range(16))
"""The first bytes of short arrays, by their length."""

_SINGLE: Final = _HEADS[1]
_decode: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...]).decode


class Encoder:
    """Encodes values as msgspec's own encoder does.

    Args:
        enc_hook: Returns a value of another type that stands for a value of an unknown type.
    """

    __slots__ = ("_encode", "_encode_into")

    def __init__(self, enc_hook: Callable[[Any], Any] | None = None) -> None:
        encoder = msgspec.msgpack.Encoder(enc_hook=enc_hook)
        self._encode = encoder.encode
        self._encode_into = encoder.encode_into

    def encode(self, value: Any) -> bytes:
        """Return the MessagePack of a value.

        Raises:
            MemoryError: The memory limit of the process is reached.
            TypeError, ValueError, OverflowError, RecursionError: As msgspec's encoder.
        """
        cls = type(value)
        if cls in _SCALARS or ((cls is str or cls is bytes) and len(value) < _SMALL):
            return self._encode(value)
        buffer = bytearray()
        self._encode_into(value, buffer)
        return bytes(buffer)


def array_head(count: int) -> bytes:
    """Return the first bytes of an array of `count` elements."""
    if count < len(_HEADS):
        return _HEADS[count]
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def array_elements(data: bytes) -> tuple[bytes, ...]:
    """Return the encoded elements of an array."""
    if data.startswith(_SINGLE):
        return (data[1:],)
    return tuple(map(bytes, _decode(data)))
