"""Identities: types for every id, and the stable hashes that place entities.

Hashes are XXH3-64 of the UTF-8 text, never Python's `hash`, so they agree between processes,
machines and versions. A collision of fingerprints only makes two transactions look related when
they are not; it never changes an outcome.
"""

from typing import Final, NewType

import xxhash

Lsn = NewType("Lsn", int)
"""Log sequence number: position of a record in its log partition, from 0, without gaps."""

LogPartition = NewType("LogPartition", int)
"""One totally ordered part of the log."""

ONLY_PARTITION: Final = LogPartition(0)
"""The partition of an embedded log, which has no other."""

Epoch = NewType("Epoch", int)
"""Number of a committed micro-batch, from 0, without gaps. -1 means before the first."""

RequestId = NewType("RequestId", str)
"""Chosen by the caller; two appends with one id are one request."""

EntityKey = NewType("EntityKey", str)
"""Reference to an entity as text: class name, a slash, the key's text. `Item/i1`."""

Fingerprint = NewType("Fingerprint", int)
"""64-bit stable hash of an entity key."""

Bucket = NewType("Bucket", int)
"""One of `BUCKETS` slots that an entity key hashes into."""

BUCKETS: Final = 1024
BEFORE_FIRST: Final = Epoch(-1)


def entity_key(class_name: str, key_text: str) -> EntityKey:
    """Join a class name (which has no slash) and a key's text."""
    return EntityKey(f"{class_name}/{key_text}")


def split_entity_key(key: EntityKey) -> tuple[str, str]:
    """Return class name and key text."""
    class_name, _, key_text = key.partition("/")
    return class_name, key_text


def fingerprint_of(key: str) -> Fingerprint:
    """Hash an entity key (or any text) to 64 bits, the same everywhere and for ever."""
    return Fingerprint(xxhash.xxh3_64_intdigest(key.encode()))


def bucket_of(key: EntityKey) -> Bucket:
    """Return the slot of an entity, which no repartitioning ever changes."""
    return Bucket(fingerprint_of(key) % BUCKETS)


def partition_of(bucket: int, partitions: int) -> int:
    """Return which of `partitions` owns a bucket: runs of neighbouring buckets, sizes within one."""
    return bucket * partitions // BUCKETS
