"""Checks of local state: each store can be read, and holds the fold of the journal at its epoch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, bucket_of, partition_of
from penstock.errors import Corrupt
from penstock.history.verification.finding import Finding, harmless, rebuildable
from penstock.journal.api import Journal
from penstock.process.data_directory import boot_id
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.examine import is_sound
from penstock.state.lmdb import LmdbReader

FOLDER: Final = "state"
_CLEAN: Final = "clean"

StateAt = Callable[[Epoch], dict[EntityKey, bytes]]
"""Returns every entity after an epoch."""


class _Held(NamedTuple):
    """What a store says that it holds, and the digest of what it holds."""

    metadata: record.Metadata
    digest: str


def check_states(data: Path, journal: Journal, state_at: StateAt) -> Iterator[Finding]:
    """Check every store; those of another boot are not looked at, since none will be used.

    Raises:
        Corrupt: The journal is damaged, so that nothing can be compared.
    """
    expected: dict[tuple[Epoch, int], dict[int, str]] = {}
    for path in sorted((data / FOLDER).glob("partition-*")):
        where = f"{FOLDER}/{path.name}"
        if not (path / "data.mdb").exists():
            continue
        if _is_stale(path):
            why = "it is built anew from the journal when it is opened"
            yield harmless("it was not closed before the machine was started anew", where, why)
        elif not is_sound(path, boot_id()):
            yield rebuildable("it cannot be read", where)
        elif (held := _held(path)) is not None:
            yield from _compare(held, journal, state_at, expected, where)


def _compare(
    held: _Held,
    journal: Journal,
    state_at: StateAt,
    expected: dict[tuple[Epoch, int], dict[int, str]],
    where: str,
) -> Iterator[Finding]:
    """Compare a store with the journal; `expected` remembers digests by epoch and partitions."""
    if (wrong := _misfit(held.metadata, journal)) is not None:
        yield rebuildable(wrong, where)
        return
    epoch, partitions = held.metadata.epoch, held.metadata.partitions
    if (epoch, partitions) not in expected:
        state = {} if epoch == BEFORE_FIRST else state_at(epoch)
        expected[epoch, partitions] = _digests(state, partitions)
    if held.digest != expected[epoch, partitions][held.metadata.partition]:
        yield rebuildable(f"it is not what the journal makes of epoch {epoch}", where)


def _is_stale(path: Path) -> bool:
    try:
        return (path / "life").read_text() not in (boot_id(), _CLEAN)
    except FileNotFoundError:
        return True


def _held(path: Path) -> _Held | None:
    """Read a store at the epoch that it is at; None where it is empty, or goes away meanwhile."""
    environment = environments.attach(path, boot_id())
    try:
        txn = environment.begin_read()
        try:
            stored = txn.get(record.METADATA_KEY)
            if stored is None:
                return None
            metadata = record.unseal_metadata(stored)
            items = LmdbReader(txn, metadata.epoch, path).items()
            return _Held(metadata, digest_of_items(items))
        finally:
            environment.end_read(txn)
    except Corrupt:
        return None  # another process has discarded it
    finally:
        environments.detach(environment)


def _misfit(metadata: record.Metadata, journal: Journal) -> str | None:
    newest = journal.last()
    if metadata.journal_identity != journal.identity:
        return "it was fed from another journal"
    if metadata.epoch > (BEFORE_FIRST if newest is None else newest.epoch):
        return f"it is at epoch {metadata.epoch}, which the journal does not have"
    return None


def _digests(state: dict[EntityKey, bytes], partitions: int) -> dict[int, str]:
    """Return what each partition's store should hold."""
    shares: dict[int, dict[EntityKey, bytes]] = {number: {} for number in range(partitions)}
    for key, data in state.items():
        shares[partition_of(bucket_of(key), partitions)][key] = data
    return {number: digest_of_mapping(share) for number, share in shares.items()}
