"""Partition specification: the part of all entities that a store holds."""

from functools import cache
from typing import Final

import msgspec

from penstock.base.ids import BUCKETS, partition_of


class PartitionSpec(msgspec.Struct, frozen=True):
    """One partition of a number of partitions; partitions are runs of buckets."""

    partition: int
    partitions: int

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.partitions <= BUCKETS:
            message = f"there is no partition {self.partition} of {self.partitions}"
            raise ValueError(message)


def name_of(spec: PartitionSpec) -> str:
    """Return the name of a store's directory."""
    return f"partition-{spec.partition}-of-{spec.partitions}"


def overlap(left: PartitionSpec, right: PartitionSpec) -> bool:
    """Say whether two partitions, of any two numbers, hold a common bucket."""
    pairs = zip(bucket_owners(left.partitions), bucket_owners(right.partitions), strict=True)
    return (left.partition, right.partition) in pairs


@cache
def bucket_owners(partitions: int) -> tuple[int, ...]:
    """Return the partition of every bucket, in bucket order."""
    return tuple(partition_of(bucket, partitions) for bucket in range(BUCKETS))


WHOLE: Final = PartitionSpec(0, 1)
"""All entities in one store."""
