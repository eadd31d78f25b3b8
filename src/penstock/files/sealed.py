"""Sealed files: one JSON value together with its checksum.

The file is the JSON object `{"checksum": …, NAME: …}`, where the checksum covers the value's bytes
as they are written. A changed byte is noticed before the value is decoded.
"""

from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash


def checksum_of(data: bytes | memoryview) -> str:
    """Return the checksum of bytes."""
    return xxhash.xxh3_128_hexdigest(data)


def size_and_checksum_of(path: Path) -> tuple[int, str]:
    """Return the size in bytes and the checksum of a file, which may be larger than memory.

    Raises:
        OSError: The file cannot be read.
    """
    hasher, size = xxhash.xxh3_128(), 0
    with path.open("rb") as source:
        while chunk := source.read(1 << 20):
            hasher.update(chunk)
            size += len(chunk)
    return size, hasher.hexdigest()


T = TypeVar("T")


def seal(name: str, value: object) -> bytes:
    """Return the content of a file that holds a value under a name."""
    encoded = msgspec.json.encode(value)
    return msgspec.json.encode({"checksum": checksum_of(encoded), name: msgspec.Raw(encoded)})


def field_of(data: bytes) -> str:
    """Return the name under which a file holds its value; empty if the content is damaged."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return next((name for name in fields if name != "checksum"), "")


def unseal(name: str, data: bytes, value_type: type[T]) -> T:
    """Return the value in the content of a file.

    Raises:
        ValueError: The content is damaged; the message says how, and begins with a verb.
    """
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if msgspec.json.decode(fields["checksum"]) == checksum_of(fields[name]):
            return msgspec.json.decode(fields[name], type=value_type)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise ValueError(f"is damaged ({error})") from error
    raise ValueError("does not have its checksum")
