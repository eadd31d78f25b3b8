"""Identities: types for all ids, and the stable hashes that assign entities to partitions.

Hashes are XXH3-64 of the UTF-8 text, never Python's `hash`, so they agree between processes, machines
and versions. If two fingerprints collide, two independent transactions look related; no outcome changes.
"""

from hashlib import blake2b
from typing import Final, NewType

import xxhash

Lsn = NewType("Lsn", int)
"""Log sequence number: the position of a record in its log partition, from 0, without gaps."""

LogPartition = NewType("LogPartition", int)
"""A totally ordered part of the log."""

ONLY_PARTITION: Final = LogPartition(0)
"""The partition of an embedded log, which has no other."""

Epoch = NewType("Epoch", int)
"""The number of a committed micro-batch, from 0, without gaps; -1 before the first."""

RequestId = NewType("RequestId", str)
"""The id that the caller chose for a request; two appends with the same id are the same request."""

PRINCIPAL_SEPARATOR: Final = "~"
"""Between principal and id in a stored request id; URLs do not escape it."""

DERIVED_MARK: Final = 2 * PRINCIPAL_SEPARATOR
"""Between the id of a record and the rest of the id of a request that its cascade sends; no chosen id has it."""

EntityKey = NewType("EntityKey", str)
"""A reference as text: the name of the class, a slash, the text of the key. `Item/i1`."""

Fingerprint = NewType("Fingerprint", int)
"""A stable 64-bit hash of an entity key."""

Bucket = NewType("Bucket", int)
"""One of the `BUCKETS` slots into which entity keys are hashed."""

BUCKETS: Final = 1024
BEFORE_FIRST: Final = Epoch(-1)

_TEXT_BYTES: Final = 400
"""The longest text of a key of a system row."""


def bounded(text: str) -> str:
    """Return a text, or a hash of a long one."""
    if len(text) * 4 > _TEXT_BYTES and len(text.encode()) > _TEXT_BYTES:
        return blake2b(text.encode(), digest_size=32).hexdigest()
    return text


def entity_key(class_name: str, key_text: str) -> EntityKey:
    """Join a class name (which has no slash) and a key's text."""
    return EntityKey(f"{class_name}/{key_text}")


def split_entity_key(key: EntityKey) -> tuple[str, str]:
    """Return class name and key text."""
    class_name, _, key_text = key.partition("/")
    return class_name, key_text


def is_system(class_name: str) -> bool:
    """Say whether rows of the state belong to the engine: their class name begins with `$`.

    A user's class cannot have such a name.
    """
    return class_name.startswith("$")


def epochs_text(first: int, last: int) -> str:
    """Return a range of epochs as text, both included: `epoch 3`, or `epochs 3 to 9`."""
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"


def fingerprint_of(key: str) -> Fingerprint:
    """Return the stable 64-bit hash of an entity key or another text."""
    return Fingerprint(xxhash.xxh3_64_intdigest(key.encode()))


def bucket_of(key: EntityKey) -> Bucket:
    """Return the bucket of an entity; the number of partitions does not change it."""
    return Bucket(fingerprint_of(key) % BUCKETS)


def partition_of(bucket: int, partitions: int) -> int:
    """Return the partition that owns a bucket; partitions own ranges whose sizes differ by at most 1."""
    return bucket * partitions // BUCKETS
