"""Arrays of MessagePack whose elements are encoded already."""

from typing import Final

import msgspec

_HEADS: Final = tuple(msgspec.msgpack.encode([None] * count)[:1] for count in range(16))
"""The first bytes of short arrays, by their length."""

_SINGLE: Final = _HEADS[1]
_decode: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...]).decode


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
