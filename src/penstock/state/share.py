"""Share: which part of all entities one store holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from penstock.base.ids import BUCKETS, EntityKey, partition_of


@dataclass(frozen=True, slots=True)
class Share:
    """One partition out of so many; repartitioning moves buckets, so nothing else is needed."""

    partition: int
    partitions: int

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.partitions <= BUCKETS:
            message = f"there is no partition {self.partition} of {self.partitions}"
            raise ValueError(message)

    def owned(self, keys: Sequence[EntityKey]) -> npt.NDArray[np.bool_]:
        """Return for each key whether this share holds it."""
        if self.partitions == 1:
            return np.ones(len(keys), dtype=np.bool_)
        fingerprints = np.fromiter(
            map(xxhash.xxh3_64_intdigest, map(str.encode, keys)), dtype=np.uint64, count=len(keys)
        )
        owners = np.array(routes(self.partitions), dtype=np.int32)
        mask: npt.NDArray[np.bool_] = owners[fingerprints % np.uint64(BUCKETS)] == self.partition
        return mask


def routes(partitions: int) -> list[int]:
    """Return the owner of every bucket, in bucket order."""
    return [partition_of(bucket, partitions) for bucket in range(BUCKETS)]


WHOLE: Final = Share(0, 1)
"""All entities in one store."""
