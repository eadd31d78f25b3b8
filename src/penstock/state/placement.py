"""Placement: each partition of the state is on a few hosts.

It follows from the names of the hosts alone, so all processes that know them agree. A host that joins or leaves moves little:
each partition goes to the hosts that are first in an order of its own (rendezvous hashing: Thaler and Ravishankar, 1998), of
those that have room left (bounded loads: Mirrokni, Thorup and Zadimoghaddam, 2018). The bound is the even share: for 64
partitions on 3 to 10 hosts, a join then moves 1.2 to 1.4 times as many as it must, and no host has 1.13 times the average.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import ceil

import xxhash

from penstock.state.partition_spec import bucket_owners

Placement = tuple[tuple[str, ...], ...]
"""The hosts of each partition, in the order in which they are asked."""


@lru_cache(64)
def placed(hosts: tuple[str, ...], partitions: int, copies: int) -> Placement:
    """Return the hosts of each partition: `copies` different ones, or all if there are fewer.

    Args:
        hosts: The names of the hosts, in any order.
    """
    copies = min(copies, len(hosts))
    most = ceil(partitions * copies / max(1, len(hosts)))
    held: Counter[str] = Counter()
    every = []
    for partition in range(partitions):
        # The first bucket names a partition: if their number doubles, every second one stays where it is.
        first = bucket_owners(partitions).index(partition)
        order = sorted(hosts, key=lambda host: _weight(host, first), reverse=True)
        # A partition whose last hosts have no room takes them nevertheless: a copy too few would be worse.
        order.sort(key=lambda host: held[host] >= most)
        chosen = tuple(order[:copies])
        held.update(chosen)
        every.append(chosen)
    return tuple(every)


def held_by(host: str, hosts: Sequence[str], partitions: int, copies: int) -> frozenset[int]:
    """Return the partitions of a host."""
    every = placed(tuple(sorted(hosts)), partitions, copies)
    return frozenset(number for number, chosen in enumerate(every) if host in chosen)


def _weight(host: str, bucket: int) -> tuple[int, str]:
    return xxhash.xxh3_64_intdigest(f"{bucket}/{host}".encode()), host
