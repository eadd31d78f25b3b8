"""Checks of what is neither the journal nor local state: log, savepoints, snapshots, checkpoints.

Promises that a log which would make a driver stop is found here first, and that a savepoint or a
snapshot which is sound can be used. Only the log and savepoints are the truth; snapshots are while
the journal does not hold what they were made from.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, Epoch, LogPartition, Lsn, entity_key
from penstock.errors import Corrupt, Diverged
from penstock.files.checksum import size_and_checksum_of
from penstock.history.backup_set import FileEntry, FileMismatch
from penstock.history.copying import check
from penstock.history.verification.finding import (
    Finding,
    NotChecked,
    harmless,
    rebuildable,
    unrecoverable,
)
from penstock.journal.api import Commit, Journal
from penstock.log.cut import examine
from penstock.log.database import Database, end_of, start_of
from penstock.process.data_directory import JOURNAL, LOG
from penstock.retention import savepoints
from penstock.snapshots import snapshot
from penstock.snapshots.snapshot import Manifest, Snapshots
from penstock.snapshots.state_as_of import all_states_as_of, oldest_state
from penstock.state.digest import digest_of_mapping

SPARK: Final = "checkpoint"
DELTA: Final = f"{JOURNAL}/_delta_log/_last_checkpoint"
_LOCK_MS: Final = 5_000
_ATTEMPTS: Final = 3


class _Hint(msgspec.Struct, frozen=True):
    version: int
    tags: dict[str, str] = {}


def check_log(data: Path, journal: Journal, newest: Commit) -> Iterator[Finding]:
    """Check that the log is whole, and reaches as far as the journal has read it."""
    path = data / LOG
    if not path.exists():
        if any(newest.positions.values()):
            yield unrecoverable("the log is missing, with all requests that wait", LOG)
        return
    try:
        database = Database(path, _LOCK_MS)
        try:
            with database.reading() as connection:
                start, end = start_of(connection), end_of(connection)
                for (text,) in connection.execute("PRAGMA quick_check(1)").fetchall():
                    if text != "ok":
                        yield unrecoverable(f"SQLite says: {text}", LOG)
                examine(connection, str(path))
        finally:
            database.close()
    except (Corrupt, sqlite3.Error) as error:
        yield unrecoverable(str(error), LOG)
        return
    reached = newest.positions.get(ONLY_PARTITION, Lsn(0))
    if end < reached:
        yield unrecoverable(
            f"the log ends at {end}, but the journal has read it up to {reached}", LOG
        )
    last = journal.last()  # epochs may have been committed since, and the log truncated behind them
    reached = Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))
    if start > reached:
        yield unrecoverable(
            f"the log begins at {start}, but the journal has read it up to {reached}", LOG
        )


def check_savepoints(data: Path, journal: Journal, newest: Epoch) -> Iterator[Finding]:
    """Check that every savepoint names an epoch whose state can still be told."""
    oldest = oldest_state(journal, Snapshots(data / snapshot.FOLDER, journal.identity))
    for path in savepoints.paths(data):
        where = f"{savepoints.FOLDER}/{path.name}"
        try:
            one = savepoints.find(data, path.stem)
        except Corrupt as error:
            yield unrecoverable(str(error), where)
            continue
        if oldest is None or not oldest <= one.epoch <= newest:
            yield unrecoverable(f"it names epoch {one.epoch}, which is not held", where)


def check_delta(data: Path, journal: Journal, newest: Epoch, parts: set[str]) -> Iterator[Finding]:
    """Check that Delta readers see the files that the commits list.

    Raises:
        NotChecked: Epochs were committed or merged meanwhile.
    """
    root = data / JOURNAL
    if (damage := _checkpoint_damage(data)) is not None:
        yield rebuildable(damage, DELTA)
        return
    seen, failure = _seen_by_delta(root)
    last = journal.last()
    if last is None or last.epoch != newest:
        raise NotChecked("the Delta table of the journal: epochs were committed meanwhile")
    if seen is None:
        yield rebuildable(f"Delta readers cannot open the journal: {failure}", DELTA)
        return
    expected = {path.removeprefix("kind=") for path in parts}
    if seen == expected:
        return
    what = f"Delta readers see {len(seen - expected)} files that no epoch has, and miss "
    what += f"{len(expected - seen)}"
    if all((root / f"kind={path}").exists() for path in seen - expected):
        why = "these were merged, and are still there; upkeep tells other readers of it"
        yield harmless(what, DELTA, why)
    else:
        yield rebuildable(what, DELTA)


def _seen_by_delta(root: Path) -> tuple[set[str] | None, str]:
    """Return the files that a Delta reader sees; None, and why, where it cannot open the table.

    One that opens it while files are merged may find that one is gone, and tries again.
    """
    failure = ""
    for _ in range(_ATTEMPTS):
        try:
            return {uri.rpartition("/kind=")[2] for uri in DeltaTable(root).file_uris()}, ""
        except (DeltaError, OSError) as error:
            failure = str(error)[:200]
    return None, failure


def _checkpoint_damage(data: Path) -> str | None:
    """Return what is wrong with the checkpoint that Delta readers begin with."""
    path = data / DELTA
    try:
        hint = msgspec.json.decode(path.read_bytes(), type=_Hint)
        _, checksum = size_and_checksum_of(path.with_name(f"{hint.version:020}.checkpoint.parquet"))
    except FileNotFoundError as error:
        return None if not path.exists() else f"{error.filename} is missing"
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "it cannot be read"
    fits = checksum == hint.tags.get("penstock.xxh3_128")
    return None if fits else f"the checkpoint of version {hint.version} is damaged"


def check_spark(data: Path, journal: Journal) -> Iterator[Finding]:
    """Check that Spark's checkpoint does not believe more than the journal knows."""
    done = _numbers(data / SPARK / "commits")
    if not done:
        return
    try:
        line = (data / SPARK / "offsets" / str(done[-1])).read_text().splitlines()[-1]
        found = msgspec.json.decode(line, type=dict[str, int | str])
    except FileNotFoundError:
        return  # Spark removes old ones while it runs
    except (OSError, IndexError, msgspec.MsgspecError, UnicodeDecodeError):
        yield rebuildable(f"the offsets of Spark's batch {done[-1]} cannot be read", SPARK)
        return
    last = journal.last()
    positions: Mapping[LogPartition, Lsn] = {} if last is None else last.positions
    for partition, lsn in positions.items():
        at = found.get(str(partition), 0)
        if isinstance(at, int) and at > lsn:
            yield rebuildable(
                f"Spark has finished {at}, and the journal has read up to {lsn}", SPARK
            )


def check_snapshots(data: Path, journal: Journal, *, content: bool) -> Iterator[Finding]:
    """Check every snapshot's files, and that it is what the journal makes of the one before it.

    Raises:
        NotChecked: The content cannot be compared, because the journal is damaged.
    """
    snapshots = Snapshots(data / snapshot.FOLDER, journal.identity)
    sound: list[Manifest] = []
    for epoch in snapshots.epochs():
        where = str(snapshots.path_of(epoch).relative_to(data))
        manifest = snapshots.sound(epoch)
        how = "its manifest is damaged" if manifest is None else _damage(snapshots, manifest)
        if manifest is not None and how is None:
            if manifest.journal == journal.identity:
                sound.append(manifest)
            continue
        if manifest is None and not snapshots.path_of(epoch).exists():
            continue  # it was removed just now
        base = max((one.epoch for one in sound), default=BEFORE_FIRST)
        found = rebuildable if journal.first() <= base + 1 else unrecoverable
        yield found(f"the snapshot of epoch {epoch} is of no use: {how}", where)
    if not content and sound:
        raise NotChecked("the content of snapshots: the journal is damaged")
    for manifest in sound:
        yield from _compare(data, journal, snapshots, manifest)


def _compare(
    data: Path, journal: Journal, snapshots: Snapshots, manifest: Manifest
) -> Iterator[Finding]:
    where = str(snapshots.path_of(manifest.epoch).relative_to(data))
    older = _Older(snapshots.directory, journal.identity, manifest.epoch)
    try:
        expected = _digest(journal, manifest.epoch, older)
    except Diverged:  # it is where history begins
        return
    try:
        if _digest(journal, manifest.epoch, snapshots) != expected:
            yield rebuildable(f"the snapshot of epoch {manifest.epoch} is not what was then", where)
    except Corrupt as error:
        why = "it was removed, or is damaged since"
        yield harmless(f"{error}", where, why)


class _Older(Snapshots):
    """The snapshots before an epoch."""

    def __init__(self, directory: Path, journal: str, before: Epoch) -> None:
        super().__init__(directory, journal)
        self._before = before

    def every(self, upto: Epoch | None = None) -> Iterator[Manifest]:
        """Yield those, the newest first."""
        return (one for one in super().every(upto) if one.epoch < self._before)


def _digest(journal: Journal, epoch: Epoch, snapshots: Snapshots) -> str:
    found = all_states_as_of(journal, epoch, snapshots)
    columns = [found[name].to_pylist() for name in ("entity", "key", "state")]
    entities = zip(*columns, strict=True)
    return digest_of_mapping({entity_key(one, key): state for one, key, state in entities})


def _damage(snapshots: Snapshots, manifest: Manifest) -> str | None:
    """Return what is wrong with a snapshot's files; None where nothing is."""
    for one in manifest.files:
        file = FileEntry(one.path, one.size, one.checksum)
        try:
            check(file, *size_and_checksum_of(snapshots.directory / one.path))
        except FileMismatch as error:
            return f"{one.path} {error}"
        except FileNotFoundError:
            if snapshots.path_of(manifest.epoch).exists():
                return f"{one.path} is missing"
    return None


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
