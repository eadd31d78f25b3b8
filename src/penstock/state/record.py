"""Records: the form of an entity in a key-value store, with a checksum.

A record is an 8-byte XXH3-64 over key and state, followed by the state. The key is the UTF-8 text
of the entity key, so byte order is key order. A key that the store cannot hold (LMDB: over 511
bytes) is replaced by its hash, and its text is stored before the state.

A record that was damaged, or that belongs to another key, does not fit its checksum of 64 bits.
"""

import hashlib
from typing import Final

import msgspec
import xxhash

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import Corrupt

CHECKSUM_SIZE: Final = 8
LONGEST_KEY: Final = 511  # bytes; LMDB's limit, fixed when it is compiled
FORMAT: Final = 1

# Entity keys begin with a class name, hence with no control character.
METADATA_KEY: Final = b"\x00penstock"
LONG_KEY_PREFIX: Final = b"\x01"
FIRST_PLAIN_KEY: Final = b"\x02"
_LENGTH_SIZE: Final = 4


class Metadata(msgspec.Struct, frozen=True, array_like=True):
    """The format, journal, partition and epoch of a store; written together with the entities."""

    format: int
    journal_identity: str
    partition: int
    partitions: int
    epoch: Epoch

    def seal(self) -> bytes:
        """Return the checked record of this metadata."""
        return seal(METADATA_KEY, msgspec.msgpack.encode(self))


def unseal_metadata(record: bytes) -> Metadata:
    """Return the metadata in a record.

    Raises:
        Corrupt: The checksum does not fit, or the content is not metadata.
    """
    try:
        return msgspec.msgpack.decode(unseal(METADATA_KEY, record), type=Metadata)
    except msgspec.DecodeError as error:
        message = "the state store's metadata cannot be read; the store can be rebuilt"
        raise Corrupt(message) from error


def seal(raw: bytes, state: bytes) -> bytes:
    """Put the checksum over key and state in front of the state."""
    return xxhash.xxh3_64_digest(raw + state) + state


def unseal(raw: bytes, record: bytes) -> bytes:
    """Return the state in a record.

    Raises:
        Corrupt: The checksum does not fit the key and the state.
    """
    state = record[CHECKSUM_SIZE:]
    if xxhash.xxh3_64_digest(raw + state) + state != record:
        message = f"the state of {raw!r} fails its checksum; the store can be rebuilt"
        raise Corrupt(message)
    return state


def is_plain(raw: bytes) -> bool:
    """Say whether a key is stored as it is."""
    return len(raw) <= LONGEST_KEY


def long_key(raw: bytes) -> bytes:
    """Return the key under which an overlong key is stored; cryptographic, so never shared."""
    return LONG_KEY_PREFIX + hashlib.blake2b(raw).digest()


def long_state(raw: bytes, state: bytes) -> bytes:
    """Put an overlong key in front of its state."""
    return len(raw).to_bytes(_LENGTH_SIZE, "big") + raw + state


def split_long_state(stored: bytes) -> tuple[EntityKey, bytes]:
    """Return the overlong key and the state that `long_state` joined."""
    end = _LENGTH_SIZE + int.from_bytes(stored[:_LENGTH_SIZE], "big")
    return EntityKey(stored[_LENGTH_SIZE:end].decode()), stored[end:]
