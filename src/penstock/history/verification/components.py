"""Checks of the log, savepoints, snapshots and checkpoints.

A damaged log is found before it stops a driver; an undamaged savepoint or snapshot can be used. Log
and savepoints cannot be rebuilt. A snapshot can be rebuilt while the journal holds its epochs.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.base.cause import cause_text
from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, Epoch, LogPartition, Lsn, entity_key
from penstock.errors import Corrupt, Diverged
from penstock.files.checksum import size_and_checksum_of
from penstock.files.layout import CHECKPOINT, JOURNAL, LOG, SAVEPOINTS, SNAPSHOTS
from penstock.history.copying import FileEntry, FileMismatch
from penstock.history.verification.finding import (
    Finding,
    NotChecked,
    harmless,
    rebuildable,
    unrecoverable,
)
from penstock.journal.api import Commit, Journal
from penstock.log.copy_prefix import verify_log
from penstock.log.database import LOCK_TIMEOUT_MS, Database, end_of, start_of
from penstock.model.application import App
from penstock.retention import savepoints
from penstock.snapshots.snapshot import Manifest, Snapshots
from penstock.snapshots.snapshot_writer import tables_in
from penstock.snapshots.state_as_of import all_states_as_of, oldest_state
from penstock.state.digest import digest_of_mapping

DELTA: Final = f"{JOURNAL}/_delta_log/_last_checkpoint"
_ATTEMPTS: Final = 3
_REPUBLISH: Final = (
    "penstock verify APP --repair writes it again, from the manifest of the snapshot"
)


class _Hint(msgspec.Struct, frozen=True):
    version: int
    tags: dict[str, str] = {}


def check_log(data: Path, journal: Journal, newest: Commit) -> Iterator[Finding]:
    """Check that the log is undamaged and contains the position that the journal has reached."""
    path = data / LOG
    if not path.exists():
        if any(newest.positions.values()):
            yield unrecoverable("the log is missing, with all waiting requests", LOG)
        return
    try:
        database = Database(path, LOCK_TIMEOUT_MS)
        try:
            with database.reading() as connection:
                start, end = start_of(connection), end_of(connection)
                for (text,) in connection.execute("PRAGMA quick_check(1)").fetchall():
                    if text != "ok":
                        yield unrecoverable(f"SQLite reports: {text}", LOG)
                verify_log(connection, str(path))
        finally:
            database.close()
    except (Corrupt, sqlite3.Error) as error:
        yield unrecoverable(str(error), LOG)
        return
    reached = newest.positions.get(ONLY_PARTITION, Lsn(0))
    if end < reached:
        what = f"the log ends at {end}, but the journal has read it up to {reached}"
        yield unrecoverable(what, LOG)
    last = journal.last()  # newer epochs may be committed now, and the log truncated up to them
    reached = Lsn(0) if last is None else last.positions.get(ONLY_PARTITION, Lsn(0))
    if start > reached:
        what = f"the log begins at {start}, but the journal has read it up to {reached}"
        yield unrecoverable(what, LOG)


def check_savepoints(data: Path, journal: Journal, newest: Epoch) -> Iterator[Finding]:
    """Check that the state after each savepoint's epoch is held."""
    oldest = oldest_state(journal, Snapshots(data / SNAPSHOTS, journal.identity))
    for path in savepoints.paths(data):
        where = f"{SAVEPOINTS}/{path.name}"
        try:
            savepoint = savepoints.find(data, path.stem)
        except Corrupt as error:
            yield unrecoverable(str(error), where)
            continue
        if oldest is None or not oldest <= savepoint.epoch <= newest:
            yield unrecoverable(f"it names epoch {savepoint.epoch}, which is not held", where)


def check_delta(data: Path, journal: Journal, newest: Epoch, parts: set[str]) -> Iterator[Finding]:
    """Check that Delta readers see the files that the commits list.

    Args:
        newest: The epoch up to which `parts` are listed.
        parts: The paths of the listed files, relative to the journal.

    Raises:
        NotChecked: Epochs were committed or merged during the check.
    """
    root = data / JOURNAL
    if (damage := _checkpoint_damage(data)) is not None:
        yield rebuildable(damage, DELTA)
        return
    seen, failure = _files_seen_by_delta(root)
    last = journal.last()
    if last is None or last.epoch != newest:
        raise NotChecked("the journal as a Delta table: epochs were committed during the check")
    if seen is None:
        yield rebuildable(f"Delta readers cannot open the journal: {failure}", DELTA)
        return
    expected = {path.removeprefix("kind=") for path in parts}
    if seen == expected:
        return
    surplus = seen - expected
    what = f"Delta readers see {len(surplus)} files of no epoch, and miss {len(expected - seen)}"
    if all((root / f"kind={path}").exists() for path in surplus):
        why = "the files were merged and still exist; the next maintenance updates the checkpoint"
        yield harmless(what, DELTA, why)
    else:
        yield rebuildable(what, DELTA)


def _files_seen_by_delta(root: Path) -> tuple[set[str] | None, str]:
    """Return the files that a Delta reader sees, or None and the error of opening the table.

    A file may be merged while the table is opened, so this tries several times.
    """
    failure = ""
    for _ in range(_ATTEMPTS):
        try:
            return {uri.rpartition("/kind=")[2] for uri in DeltaTable(root).file_uris()}, ""
        except (DeltaError, OSError) as error:
            failure = cause_text(error)
    return None, failure


def _checkpoint_damage(data: Path) -> str | None:
    """Return the damage of the journal's Delta checkpoint, or None."""
    path = data / DELTA
    try:
        hint = msgspec.json.decode(path.read_bytes(), type=_Hint)
        _, checksum = size_and_checksum_of(path.with_name(f"{hint.version:020}.checkpoint.parquet"))
    except FileNotFoundError as error:
        return None if not path.exists() else f"{error.filename} is missing"
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "it cannot be read"
    matches = checksum == hint.tags.get("penstock.xxh3_128")
    return None if matches else f"the checkpoint of version {hint.version} is damaged"


def check_spark(data: Path, journal: Journal) -> Iterator[Finding]:
    """Check that Spark's checkpoint is not ahead of the journal."""
    batches = data / CHECKPOINT / "commits"
    names = [path.name for path in batches.iterdir()] if batches.is_dir() else []
    done = max((int(name) for name in names if name.isdigit()), default=None)
    if done is None:
        return
    try:
        line = (data / CHECKPOINT / "offsets" / str(done)).read_text().splitlines()[-1]
        offsets = msgspec.json.decode(line, type=dict[str, int | str])
    except FileNotFoundError:
        return  # a running Spark removes old ones
    except (OSError, IndexError, msgspec.MsgspecError, UnicodeDecodeError):
        why = "Spark begins a new checkpoint then; the journal has the positions"
        yield harmless(f"the offsets of Spark's batch {done} cannot be read", CHECKPOINT, why)
        return
    last = journal.last()
    positions: Mapping[LogPartition, Lsn] = {} if last is None else last.positions
    for partition, reached in positions.items():
        offset = offsets.get(str(partition), 0)
        if isinstance(offset, int) and offset > reached:
            what = f"Spark has read up to {offset}, and the journal up to {reached}"
            yield rebuildable(what, CHECKPOINT)


def check_snapshots(data: Path, journal: Journal, *, content: bool) -> Iterator[Finding]:
    """Check the files of each snapshot, and its content against the journal and older snapshots.

    Raises:
        NotChecked: `content` is false, because the journal is damaged.
    """
    snapshots = Snapshots(data / SNAPSHOTS, journal.identity)
    sound: list[Manifest] = []
    for epoch in snapshots.epochs():
        path = snapshots.path_of(epoch)
        manifest = snapshots.sound(epoch)
        damage = "its manifest is damaged" if manifest is None else _damage(snapshots, manifest)
        if manifest is not None and damage is None:
            if manifest.journal == journal.identity:
                sound.append(manifest)
            continue
        if manifest is None and not path.exists():
            continue  # maintenance has removed the snapshot
        base = max((older.epoch for older in sound), default=BEFORE_FIRST)
        finding = rebuildable if journal.first() <= base + 1 else unrecoverable
        what = f"the snapshot of epoch {epoch} is damaged: {damage}"
        yield finding(what, str(path.relative_to(data)))
    if sound and not content:
        raise NotChecked("the content of the snapshots: the journal is damaged")
    for manifest in sound:
        yield from _compare(data, journal, snapshots, manifest)


def check_tables(data: Path, app: App, journal: Journal) -> Iterator[Finding]:
    """Check that Delta readers see the newest snapshot.

    Raises:
        NotChecked: A snapshot was written or removed during the check, or is damaged.
    """
    snapshots = Snapshots(data / SNAPSHOTS, journal.identity)
    manifest = snapshots.newest()
    if manifest is None:
        return
    try:
        tables = list(tables_in(snapshots, manifest, app))
        differences = [
            (table, table.difference(manifest.epoch))
            for table in tables
            if not table.is_ahead(manifest.epoch)
        ]
    except Corrupt as error:
        raise NotChecked(f"the snapshots as Delta tables: {error}") from None
    if snapshots.newest() != manifest:
        raise NotChecked("the snapshots as Delta tables: a snapshot was written during the check")
    for table, difference in differences:
        if difference is not None and (table.files or table.log.exists()):
            yield rebuildable(difference, str(table.log.relative_to(data)), _REPUBLISH)


def _compare(
    data: Path, journal: Journal, snapshots: Snapshots, manifest: Manifest
) -> Iterator[Finding]:
    """Compare a snapshot with the state that follows from the journal and older snapshots."""
    where = str(snapshots.path_of(manifest.epoch).relative_to(data))
    older = _OlderSnapshots(snapshots.directory, journal.identity, manifest.epoch)
    try:
        expected = _digest(journal, manifest.epoch, older)
    except Diverged:  # the journal begins after this snapshot
        return
    try:
        if _digest(journal, manifest.epoch, snapshots) != expected:
            yield rebuildable(f"the snapshot of epoch {manifest.epoch} has another state", where)
    except Corrupt as error:
        yield harmless(str(error), where, "it was removed or damaged during the check")


class _OlderSnapshots(Snapshots):
    """The snapshots before an epoch."""

    def __init__(self, directory: Path, journal: str, before: Epoch) -> None:
        super().__init__(directory, journal)
        self._before = before

    def every(self, upto: Epoch | None = None) -> Iterator[Manifest]:
        """Yield their manifests, the newest first."""
        return (manifest for manifest in super().every(upto) if manifest.epoch < self._before)


def _digest(journal: Journal, epoch: Epoch, snapshots: Snapshots) -> str:
    states = all_states_as_of(journal, epoch, snapshots)
    columns = [states[name].to_pylist() for name in ("entity", "key", "state")]
    rows = zip(*columns, strict=True)
    return digest_of_mapping({entity_key(entity, key): state for entity, key, state in rows})


def _damage(snapshots: Snapshots, manifest: Manifest) -> str | None:
    """Return the damage of a snapshot's files, or None; a removed snapshot is not damaged."""
    for file in manifest.files:
        try:
            entry = FileEntry(file.path, file.size, file.checksum)
            entry.check_file(snapshots.directory / file.path)
        except FileMismatch as error:
            if snapshots.path_of(manifest.epoch).exists():
                return f"{file.path} {error}"
    return None
