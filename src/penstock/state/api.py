"""State: for every entity its newest attributes, as a cache of the journal that is never precious.

A store holds one partition (a set of buckets) after one epoch, which it records in the same write
that applies it. This module fixes the port; `memory` and `lmdb` adapt it, `catchup` feeds it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.base.ids import EntityKey, Epoch

Change = tuple[EntityKey, bytes | None]
"""An entity and its encoded attributes after an epoch, or None where it was deleted."""


class Reader(Protocol):
    """The store as of one epoch; later writes do not show."""

    @property
    def epoch(self) -> Epoch:
        """The epoch that this reader sees."""

    def get(self, key: EntityKey) -> bytes | None:
        """Return an entity's encoded attributes, or None where it does not exist.

        Raises:
            Corrupt: The stored checksum does not fit; the store must be rebuilt.
        """

    def items(self) -> Iterator[tuple[EntityKey, bytes]]:
        """Yield every entity in key order (bytes of the UTF-8 text), checksums verified."""


class State(Protocol):
    """One partition's store; one writer and many readers at once, in several processes."""

    @property
    def epoch(self) -> Epoch:
        """The newest epoch applied; -1 when empty."""

    def reader(self) -> AbstractContextManager[Reader]:
        """Open a stable view of the newest applied epoch."""

    def apply(self, epoch: Epoch, changes: Iterable[Change], expect: Epoch) -> None:
        """Apply changes and record `epoch`, in one write, if the store still is at `expect`.

        Writers exclude each other. When another writer was faster (the store is no longer at
        `expect`), nothing is written; the caller looks at `epoch` and goes on from there.

        Raises:
            StateUnavailable: The disk is full or fails; the store is as before.
        """

    def load(
        self, epoch: Epoch, batches: Callable[[], Iterable[Iterable[Change]]], expect: Epoch
    ) -> None:
        """Replace everything by the entities in `batches`, if the store still is at `expect`.

        In one write, as `apply`. No two batches hold one entity; `batches` may be called again when
        the write has to be begun anew.

        Raises:
            StateUnavailable: The disk is full or fails; the store is as before.
        """

    def clear(self) -> None:
        """Forget everything; the store is at epoch -1."""

    def close(self) -> None:
        """Release everything."""
