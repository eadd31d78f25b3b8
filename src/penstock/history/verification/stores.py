"""Checks of local state: each store can be read, and equals the journal's state at its epoch.

A process that opens a store rebuilds it if it cannot be read, or is not of this journal; nobody notices a wrong value.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, bucket_of, partition_of
from penstock.errors import Corrupt
from penstock.files.layout import STATE
from penstock.history.verification.finding import Finding, harmless, rebuildable
from penstock.journal.api import Journal, newest_epoch
from penstock.process.presence import boot_id
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.examine import is_sound
from penstock.state.lmdb_reader import LmdbReader

_CLEAN: Final = "clean"

StateAt = Callable[[Epoch], dict[EntityKey, bytes]]
"""Returns all entities after an epoch, encoded."""


class _StoreContent(NamedTuple):
    """A store's metadata, and the digest of its entities."""

    metadata: record.Metadata
    digest: str


def check_states(data: Path, journal: Journal, state_at: StateAt) -> Iterator[Finding]:
    """Check every store that the next start will use.

    Args:
        state_at: Computes the expected state.

    Raises:
        Corrupt: The journal is damaged.
    """
    expected: dict[tuple[Epoch, int], dict[int, str]] = {}
    for path in sorted((data / STATE).glob("partition-*")):
        where = f"{STATE}/{path.name}"
        if not (path / "data.mdb").exists():
            continue
        if _is_stale(path):
            yield harmless("it was not closed before the machine was restarted", where)
        elif not is_sound(path, boot_id()):
            yield harmless("it cannot be read", where)
        elif (content := _read(path)) is not None:
            yield from _compare(content, journal, state_at, expected, where)


def _compare(
    content: _StoreContent,
    journal: Journal,
    state_at: StateAt,
    expected: dict[tuple[Epoch, int], dict[int, str]],
    where: str,
) -> Iterator[Finding]:
    """Compare a store with the journal; `expected` caches digests by epoch and partition count."""
    if (mismatch := _mismatch(content.metadata, journal)) is not None:
        yield harmless(mismatch, where)
        return
    epoch, partitions = content.metadata.epoch, content.metadata.partitions
    if (epoch, partitions) not in expected:
        state = {} if epoch == BEFORE_FIRST else state_at(epoch)
        expected[epoch, partitions] = _digests(state, partitions)
    if content.digest != expected[epoch, partitions][content.metadata.partition]:
        yield rebuildable(f"it differs from the journal's state after epoch {epoch}", where)


def _is_stale(path: Path) -> bool:
    try:
        return (path / "life").read_text() not in (boot_id(), _CLEAN)
    except FileNotFoundError:
        return True


def _read(path: Path) -> _StoreContent | None:
    """Read a store; return None if it is empty, or is removed during the check."""
    environment = environments.attach(path, boot_id())
    try:
        txn = environment.begin_read()
        try:
            stored = txn.get(record.METADATA_KEY)
            if stored is None:
                return None
            metadata = record.unseal_metadata(stored)
            items = LmdbReader(txn, metadata.epoch, path).items()
            return _StoreContent(metadata, digest_of_items(items))
        finally:
            environment.end_read(txn)
    except Corrupt:
        return None  # another process has removed it
    finally:
        environments.detach(environment)


def _mismatch(metadata: record.Metadata, journal: Journal) -> str | None:
    if metadata.journal_identity != journal.identity:
        return "it was built from another journal"
    if metadata.epoch > newest_epoch(journal):
        return f"it is at epoch {metadata.epoch}, which the journal does not have"
    return None


def _digests(state: dict[EntityKey, bytes], partitions: int) -> dict[int, str]:
    """Return the expected digest of each partition's store."""
    states: dict[int, dict[EntityKey, bytes]] = {number: {} for number in range(partitions)}
    for key, data in state.items():
        states[partition_of(bucket_of(key), partitions)][key] = data
    return {number: digest_of_mapping(entities) for number, entities in states.items()}
