"""Digest: one hash of a whole state, to compare runs, runtimes and partitionings.

Two states have the same digest if they hold the same entities with the same encoded attributes. The
number of partitions, the kind of store and the epochs make no difference.
"""

from collections.abc import Iterable, Mapping

import xxhash

from penstock.base.ids import EntityKey


def digest_of_items(items: Iterable[tuple[EntityKey, bytes]]) -> str:
    """Return the XXH3-128 of entities that come in key order, as `Reader.items` yields them.

    The lengths of key and state are hashed before them, so that no two states have one encoding.
    """
    hasher = xxhash.xxh3_128()
    update = hasher.update
    previous = ""
    for key, state in items:
        if key <= previous:
            message = f"keys are out of order: {key!r} after {previous!r}"
            raise ValueError(message)
        previous = key
        raw = key.encode()
        update(b"%d:%d:%b%b" % (len(raw), len(state), raw, state))
    return hasher.hexdigest()


def digest_of_mapping(states: Mapping[EntityKey, bytes]) -> str:
    """Return the digest of a mapping; it equals the digest of a store with the same content."""
    return digest_of_items(sorted(states.items()))
