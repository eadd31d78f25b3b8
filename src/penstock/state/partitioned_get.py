"""Reading all partitions as one store: the bucket of a key determines the partition.

It is part of the hottest call of the system. So it repeats in one function the work of
`LmdbReader.get` for a key that is found, and calls that method in all other cases.
"""

from collections.abc import Callable, Sequence

import lmdb
import xxhash

from penstock.base.ids import EntityKey
from penstock.native.choice import core
from penstock.state import record
from penstock.state.lmdb_reader import LmdbReader
from penstock.state.partition_spec import bucket_owners


def partitioned_get(readers: Sequence[LmdbReader]) -> Callable[[EntityKey], bytes | None]:
    """Return a `get` over the readers of all partitions, in their order."""
    route = bucket_owners(len(readers)) if len(readers) > 1 else [0]
    fetches = [readers[partition].fetch for partition in route]
    fingerprint, checksum = xxhash.xxh3_64_intdigest, xxhash.xxh3_64_digest
    encode = str.encode
    skip = record.CHECKSUM_SIZE
    last = len(route) - 1  # the number of buckets is a power of two, so this mask is the remainder

    def get(key: EntityKey) -> bytes | None:
        raw = encode(key)
        bucket = fingerprint(raw) & last
        try:
            stored = fetches[bucket](raw)
        except lmdb.Error:
            stored = None
        if stored is not None:
            state = stored[skip:]
            if checksum(raw + state) + state == stored:
                return state
        return readers[route[bucket]].get(key)  # for missing keys, overlong keys and damage

    if core is None:
        return get if len(readers) > 1 else readers[0].get
    compiled: Callable[[EntityKey], bytes | None] = core.stored_read(
        fetches, fingerprint, checksum, skip, get
    )
    return compiled
