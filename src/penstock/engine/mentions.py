"""Mentions: the references in the rows that transactions write.

A checkout names its order; the stored order mentions its user and its items, so the checkout will probably access them.
`access_memory` uses mentions for roots whose accesses are unknown. They change no outcome.

The compiled implementation finds mentions while it writes rows; Python finds none. It skips a row whose references were all
loaded by the transaction that wrote it, because the access set of this transaction has them.
"""

from itertools import chain
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import xxhash

from penstock.base.ids import EntityKey
from penstock.native.choice import core

Mentions = npt.NDArray[np.uint64]
"""Fingerprints of an entity and of an entity that its row mentions; shape (n, 2), the mentions of an entity together."""

NONE: Final[Mentions] = np.empty((0, 2), np.uint64)


class MentionCollector:
    """Collects the mentions in the rows that are written inside of a `with` block."""

    def __init__(self) -> None:
        self._found: list[tuple[EntityKey, list[EntityKey]]] = []

    def __enter__(self) -> Self:
        if core is not None:
            core.watch_mentions(self._found)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if core is not None:
            core.watch_mentions(None)

    def mentions(self) -> Mentions:
        """Return the mentions that were collected."""
        if not self._found:
            return NONE
        every_key = chain.from_iterable((key, *keys) for key, keys in self._found)
        hashes = map(xxhash.xxh3_64_intdigest, map(str.encode, every_key))  # `fingerprint_of`
        sizes = np.array([len(keys) for _, keys in self._found])
        flat = np.fromiter(hashes, np.uint64, int(sizes.sum()) + sizes.size)
        owners = np.cumsum(sizes + 1) - sizes - 1
        return np.column_stack([np.repeat(flat[owners], sizes), np.delete(flat, owners)])
