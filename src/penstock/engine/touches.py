"""What a task says of the entities that its transactions touched: columns of numbers, no keys."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.uint32]
"""Positions of transactions in their epoch, from 0, in log order."""

Fingerprints = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Touches:
    """Who touched what: row *i* says that `position[i]` touched the entity `entity[i]`.

    Attributes:
        position: Of the transaction.
        entity: Fingerprint of the entity's key.
        wrote: Whether it changed the entity, or only looked.
    """

    position: Positions
    entity: Fingerprints
    wrote: Flags

    @classmethod
    def none(cls) -> Self:
        """Return no touches."""
        return cls(np.empty(0, np.uint32), np.empty(0, np.uint64), np.empty(0, np.bool_))

    def and_also(self, others: list["Touches"]) -> "Touches":
        """Return these touches and those of others."""
        every = [self, *others]
        return Touches(
            np.concatenate([one.position for one in every]),
            np.concatenate([one.entity for one in every]),
            np.concatenate([one.wrote for one in every]),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """What one task reports: what its transactions touched, and which of them escaped."""

    touches: Touches
    escaped: Positions
