"""State: the newest attributes of every entity, as a cache that can be rebuilt from the journal.

A store holds one partition (a set of buckets) after one epoch, and records the epoch in the same write
that applies it. This module defines the port; `memory` and `lmdb` are adapters, `stores` feeds them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.base.ids import EntityKey, Epoch

Change = tuple[EntityKey, bytes | None]
"""An entity and its encoded attributes after an epoch; None if it was deleted."""


class Reader(Protocol):
    """The store as of one epoch; later writes do not show."""

    @property
    def epoch(self) -> Epoch:
        """The epoch that this reader sees."""

    def get(self, key: EntityKey) -> bytes | None:
        """Return an entity's encoded attributes; None if it does not exist.

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

    def apply(self, epoch: Epoch, changes: Iterable[Change], expect: Epoch) -> Epoch:
        """Apply changes and record `epoch`, in one write, if the store is still at `expect`.

        Writers exclude each other. If another writer was faster, the store is no longer at `expect`:
        then nothing is written, and the caller continues from the store's epoch.

        Args:
            epoch: The epoch of the store afterwards.
            changes: The changes; of several changes to one entity the last one counts.
            expect: The epoch that the changes build on.

        Returns:
            The epoch of the store.

        Raises:
            StateUnavailable: The disk is full or fails; the store is as before.
        """

    def load(
        self, epoch: Epoch, batches: Callable[[], Iterable[Iterable[Change]]], expect: Epoch
    ) -> None:
        """Replace everything by the entities in `batches`, if the store is still at `expect`.

        It is one write, as for `apply`.

        Args:
            batches: Returns the entities, each of them in one batch; it is called again if the write
                must be repeated.

        Raises:
            StateUnavailable: The disk is full or fails; the store is as before.
        """

    def clear(self) -> None:
        """Remove everything; the store is at epoch -1 afterwards."""

    def close(self) -> None:
        """Release everything."""
