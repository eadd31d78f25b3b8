"""Checksums of stored bytes: XXH3-128, in hexadecimal. They find damage; they do not authenticate."""

from pathlib import Path

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
