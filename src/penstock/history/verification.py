"""Verification of a data directory: all checksums and invariants, and the remedy of each damage.

The application may run: the check covers the epochs that exist when it begins, follows files that
move, and reports what it could not check. It writes only a retention lease, so that no file is
removed during the check. `repair` removes damaged files that can be rebuilt.
"""

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from enum import StrEnum
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from penstock.base.cause import cause_text
from penstock.base.ids import (
    BEFORE_FIRST,
    ONLY_PARTITION,
    EntityKey,
    Epoch,
    LogPartition,
    Lsn,
    bucket_of,
    entity_key,
    epochs_text,
    is_system,
    partition_of,
)
from penstock.deployment.archives import Archives
from penstock.deployment.archives import file_of as archive_file
from penstock.errors import ConfigError, Corrupt, Diverged, OperationalError, Truncated
from penstock.files import durable
from penstock.files.durable import is_read_only
from penstock.files.file_entry import FileEntry, FileMismatch
from penstock.files.key_file import KEYS_REMEDY, KeyFile
from penstock.files.layout import (
    CHECKPOINT,
    ERASURES,
    HELD_STATE,
    JOURNAL,
    LOG,
    SHARED,
    SNAPSHOTS,
    STATE,
    SUBJECT_KEYS,
)
from penstock.files.roots import journal_root, shared_root, snapshots_root
from penstock.files.sealed import size_and_checksum_of
from penstock.files.shared_root import SharedRoot
from penstock.history.backup_set import no_history
from penstock.history.moved_log import APART
from penstock.history.reader import HistoryReader
from penstock.journal.action import CommitFlaw, parse
from penstock.journal.api import SCHEMAS, Commit, Journal, PartKind, newest_epoch
from penstock.journal.atoms import decode_atom
from penstock.journal.commits import LOG as COMMITS
from penstock.journal.delta import DeltaJournal
from penstock.journal.deployments import NAME as DEPLOYMENTS
from penstock.journal.deployments import Deployments, needed_archives
from penstock.journal.inventory import EpochUnit, Inventory, commit_name, newest_listed
from penstock.journal.parquet import epoch_of, epoch_rows, stored_names
from penstock.journal.shapes import NAME as SHAPES
from penstock.journal.shapes import versions_in
from penstock.log.api import Log
from penstock.log.clock import wall_clock_us
from penstock.log.copy_prefix import verify_log
from penstock.log.database import LOCK_TIMEOUT_MS, Database, end_of, start_of
from penstock.model.application import App
from penstock.model.entity_type import row_head
from penstock.model.shape import is_personal
from penstock.orders.erasure_order import ORDER
from penstock.orders.order import control_id
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate, Erasures
from penstock.process.presence import boot_id
from penstock.retention import savepoints
from penstock.retention.leases import lease
from penstock.snapshots.delta_table import LOG_FOLDER, remove_table
from penstock.snapshots.snapshot import Manifest, Snapshots
from penstock.snapshots.snapshot_writer import publish_tables, snapshot_lock, tables_in
from penstock.snapshots.state_as_of import all_states_as_of, oldest_state
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.examine import damaged_of
from penstock.state.lmdb_reader import LmdbReader


class Remedy(StrEnum):
    """The kind of action that a finding needs."""

    NONE = "none"  # nothing: it is temporary, or harmless
    REBUILD = "rebuild"  # repair it: it follows from undamaged data
    BACKUP = "backup"  # restore it: only a backup has it


class Finding(msgspec.Struct, frozen=True):
    """One problem.

    Attributes:
        what: The problem, in a sentence.
        where: The file or folder, relative to the data directory.
        how: The action, in a sentence.
    """

    what: str
    where: str
    remedy: Remedy
    how: str

    @property
    def is_problem(self) -> bool:
        """Whether the user must act."""
        return self.remedy is not Remedy.NONE


_REBUILD: Final = "penstock verify APP --repair removes it; it is rebuilt when it is needed"
_BY_ITSELF: Final = "the next process that needs it rebuilds it"


class NotChecked(Exception):
    """A check was not possible now; the message says which, and why."""


def unrecoverable(what: str, where: str) -> Finding:
    """Return the finding of a damaged file that only a backup has."""
    how = "restore a backup to another directory (penstock restore DIR NEW_DATA) and copy the file"
    return Finding(what, where, Remedy.BACKUP, how)


def rebuildable(what: str, where: str, how: str = _REBUILD) -> Finding:
    """Return the finding of a damaged file that can be rebuilt, and is not rebuilt by itself."""
    return Finding(what, where, Remedy.REBUILD, how)


def harmless(what: str, where: str, why: str = _BY_ITSELF) -> Finding:
    """Return the finding of something harmless; `why` says why no action is needed."""
    return Finding(what, where, Remedy.NONE, why)


_POSITION: Final = ("epoch", "partition", "lsn")
_COLUMNS: Final[Mapping[PartKind, Sequence[str]]] = {
    PartKind.EVENTS: (*_POSITION, "stream", "atom", "count", "events"),
    PartKind.SENT: (*_POSITION, "reply"),
    PartKind.APPENDS: _POSITION,
}


class CascadeRows:
    """The rows of cascades in consecutive epochs.

    Args:
        former: The commit before them; None if it is not known.
    """

    def __init__(
        self, journal: Journal, commits: Sequence[Commit], former: Commit | None, where: str
    ) -> None:
        self._journal = journal
        self._commits = commits
        self._former = former
        self._where = where
        self._is_start_known = former is not None or commits[0].epoch == 0

    def look(self) -> Iterator[Finding]:
        """Check all rows.

        Raises:
            Corrupt: A part is damaged.
        """
        for part_kind, names in _COLUMNS.items():
            rows = rows_of(self._journal, part_kind, self._commits, names)
            yield from misplaced(rows, part_kind, self._commits, self._where)
            yield from self._positions(rows, part_kind)
            if part_kind is PartKind.EVENTS:
                yield from self._atoms(rows)
            if part_kind is PartKind.SENT and (missing := rows["reply"].null_count):
                yield self._finding(f"{missing} sent requests have no reply")

    def _atoms(self, rows: pa.Table) -> Iterator[Finding]:
        """Compare the numbers of atoms with the commits, and their counts with their events."""
        streams = set(pc.unique(rows["stream"]).to_pylist()) | set(self._commits[-1].atoms)
        for stream in sorted(streams | set(self._former.atoms if self._former else ())):
            yield from self._numbers(stream, rows.filter(pc.equal(rows["stream"], stream)))
        stated = rows["count"].to_pylist()
        for count, data in zip(stated, rows["events"].to_pylist(), strict=True):
            if _events_in(data) != count:
                yield self._finding("an atom has another number of events than its row says")
                return

    def _numbers(self, stream: str, rows: pa.Table) -> Iterator[Finding]:
        """Compare the numbers of a stream's atoms with the ranges that the commits have counted."""
        rows = rows.sort_by("atom")
        numbers = rows["atom"].to_numpy()
        ends = np.array([commit.atoms.get(stream, 0) for commit in self._commits])
        start = self._former.atoms.get(stream, 0) if self._former else 0
        if not self._is_start_known:
            start = numbers[0] if len(numbers) else ends[-1]
        if not np.array_equal(numbers, np.arange(start, ends[-1])) or np.any(np.diff(ends) < 0):
            yield self._finding(
                f"the commits count the atoms {start} to {ends[-1] - 1} of stream {stream}, and the rows have others"
            )
        elif not np.array_equal(self._epochs_of(numbers, ends), rows["epoch"].to_numpy()):
            yield self._finding(
                f"atoms of stream {stream} lie in other epochs than those that count them"
            )

    def _positions(self, rows: pa.Table, part_kind: PartKind) -> Iterator[Finding]:
        """Check that each row names a position of the log that its own epoch has read."""
        for number in pc.unique(rows["partition"]).to_pylist():
            partition = LogPartition(number)
            own = rows.filter(pc.equal(rows["partition"], number))
            lsns = own["lsn"].to_numpy()
            ends = np.array([commit.positions.get(partition, 0) for commit in self._commits])
            start = self._former.positions.get(partition, Lsn(0)) if self._former else Lsn(0)
            epochs = self._epochs_of(lsns, ends)
            if np.any(lsns < start) or not np.array_equal(epochs, own["epoch"].to_numpy()):
                yield self._finding(f"rows of {part_kind} name records of other epochs")

    def _epochs_of(
        self, values: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the epoch of each value: int64, shape (values,); `ends` are the ends of the epochs' ranges."""
        epochs: npt.NDArray[np.int64] = np.searchsorted(ends, values, side="right")
        return epochs + self._commits[0].epoch

    def _finding(self, what: str) -> Finding:
        span = epochs_text(self._commits[0].epoch, self._commits[-1].epoch)
        return unrecoverable(f"{what} ({span})", self._where)


def _events_in(data: bytes) -> int:
    """Return the number of events in the column `events`; -1 if it is damaged."""
    try:
        return len(decode_atom(data))
    except msgspec.MsgspecError:
        return -1


def rows_of(
    journal: Journal, part_kind: PartKind, commits: Sequence[Commit], names: Sequence[str]
) -> pa.Table:
    """Return the rows of consecutive epochs, of which the journal holds all.

    Raises:
        Corrupt: A part is damaged.
    """
    if not any(commit.parts_of(part_kind) for commit in commits):
        return SCHEMAS[part_kind].empty_table().select(list(names))
    if len(commits) == 1:  # the commit has been read already, and names the parts
        return epoch_rows(journal, commits[0], part_kind, names)
    after, upto = Epoch(commits[0].epoch - 1), commits[-1].epoch
    return pa.concat_tables(table for _, table in journal.rows(part_kind, after, upto, names))


def misplaced(
    rows: pa.Table, part_kind: PartKind, commits: Sequence[Commit], where: str
) -> Iterator[Finding]:
    """Compare the epochs of rows with the epochs whose parts contain them.

    Args:
        rows: The rows of `commits`, in their order, with a column `epoch`.
    """
    counts = [sum(part.rows for part in commit.parts_of(part_kind)) for commit in commits]
    expected = np.repeat([commit.epoch for commit in commits], counts)
    if not np.array_equal(rows["epoch"].to_numpy(), expected):
        yield unrecoverable(
            f"rows of {part_kind} have other epochs than the parts that contain them", where
        )


_REQUESTS: Final = ("epoch", "partition", "lsn", "request_id", "time_us", "request", "reply")
_CHANGED: Final = ("epoch", "entity", "key")
_STATED: Final = (*_CHANGED, "state")
_SHAPES: Final = f"{JOURNAL}/{SHAPES}"
_DAY_US: Final = 86_400_000_000


class JournalRows:
    """The rows of a journal's undamaged units.

    Args:
        log: Its log; None leaves the log out.
        progress: Receives the number of checked units, and of all units.
    """

    def __init__(
        self,
        app: App,
        journal: DeltaJournal,
        log: Log | None,
        progress: Callable[[int, int], None],
    ) -> None:
        self._app = app
        self._stored = journal.schemas()
        self._journal = journal
        self._log = log
        self._progress = progress
        self._former: Commit | None = None

    def look(self, units: Sequence[EpochUnit]) -> Iterator[Finding]:
        """Check the rows of units, which are in the order of epochs."""
        for done, unit in enumerate(units, start=1):
            where = f"{JOURNAL}/{unit.path}"
            before = Epoch(unit.first - 1)
            commits = list(self._journal.commits(before, unit.last))
            if self._former is not None and self._former.epoch != before:
                self._former = None  # the units between are damaged
            try:
                yield from self._commits(commits, where)
                yield from self._requests(commits, where)
                yield from self._changes(commits, where)
                yield from CascadeRows(self._journal, commits, self._former, where).look()
            except Corrupt as error:
                yield unrecoverable(str(error), where)
            self._former = commits[-1]
            self._progress(done, len(units))

    def _commits(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        former = self._former
        for commit in commits:
            if former is not None:
                for partition, lsn in former.positions.items():
                    if commit.positions.get(partition, Lsn(0)) < lsn:
                        what = f"epoch {commit.epoch} begins before {lsn}, where the log was read"
                        yield unrecoverable(what, where)
                if commit.time_us < former.time_us:
                    what = f"epoch {commit.epoch} is older than the one before it"
                    why = (
                        "the clock was set back; AS OF a time between the two gives the later epoch"
                    )
                    yield harmless(what, where, why)
            former = commit
        if commits[-1].time_us > wall_clock_us() + _DAY_US:
            why = "the clock was wrong when it was committed; AS OF a time is wrong near this epoch"
            yield harmless(f"epoch {commits[-1].epoch} has a time in the future", where, why)

    def _requests(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        rows = rows_of(self._journal, PartKind.TRANSACTIONS, commits, _REQUESTS)
        yield from misplaced(rows, PartKind.TRANSACTIONS, commits, where)
        if rows["reply"].null_count:
            yield unrecoverable(f"{rows['reply'].null_count} requests have no reply", where)
        for partition in sorted(commits[-1].positions):
            in_partition = rows.filter(pc.equal(rows["partition"], partition)).sort_by("lsn")
            yield from self._positions(in_partition, partition, commits, where)
            if self._log is not None and not partition:
                yield from self._logged(self._log, in_partition)

    def _positions(
        self, rows: pa.Table, partition: LogPartition, commits: Sequence[Commit], where: str
    ) -> Iterator[Finding]:
        """Compare the positions of rows (sorted) with the ranges that the commits have read."""
        lsns = rows["lsn"].to_numpy()
        ends = np.array([commit.positions.get(partition, 0) for commit in commits])
        start = 0 if self._former is None else self._former.positions.get(partition, 0)
        if self._former is None and commits[0].epoch > 0:  # the start of its range is unknown
            start = lsns[0] if len(lsns) else ends[-1]
        starts = np.concatenate(([start], ends[:-1]))
        # An empty epoch after which a log has moved reads no record.
        read = [
            np.arange(begin, end)
            for begin, end, commit in zip(starts, ends, commits, strict=True)
            if commit.parts or end % APART
        ]
        if not np.array_equal(lsns, np.concatenate([*read, np.empty(0, np.int64)])):
            yield unrecoverable(
                f"the commits of {epochs_text(commits[0].epoch, commits[-1].epoch)} have passed the positions "
                f"{start} to {ends[-1] - 1} of the log, and have rows of other positions",
                where,
            )
            return
        epochs = commits[0].epoch + np.searchsorted(ends, lsns, side="right")
        if not np.array_equal(epochs, rows["epoch"].to_numpy()):
            yield unrecoverable(
                "requests lie in other epochs than those that have passed them", where
            )

    def _logged(self, log: Log, rows: pa.Table) -> Iterator[Finding]:
        """Compare rows with the records that the log still holds."""
        held = rows.filter(pc.greater_equal(rows["lsn"], log.start()))
        if not held.num_rows:
            return
        first, last = held["lsn"][0].as_py(), held["lsn"][-1].as_py()
        try:
            records = log.read(Lsn(first), Lsn(last + 1))
        except Truncated:  # the log was truncated during the check
            return
        except Corrupt:  # `check_log` reports it
            return
        wanted: list[dict[str, Any]] = held.select(
            ["lsn", "request_id", "request", "time_us"]
        ).to_pylist()
        for row, held in zip(wanted, records, strict=True):
            if tuple(row.values()) != msgspec.structs.astuple(held):
                what = f"request {row['request_id']} differs from the log's at {held.lsn}"
                yield unrecoverable(what, LOG)
                return

    def _changes(self, commits: Sequence[Commit], where: str) -> Iterator[Finding]:
        rows = rows_of(self._journal, PartKind.CHANGES, commits, _STATED)
        yield from misplaced(rows, PartKind.CHANGES, commits, where)
        # The unit may be one epoch of a few rows, for which threads would only be waited for.
        if rows.group_by(list(_CHANGED), use_threads=False).aggregate([]).num_rows != rows.num_rows:
            yield unrecoverable("an epoch changes an entity twice", where)
        present = rows.filter(pc.is_valid(rows["state"]))
        for name in filterfalse(is_system, pc.unique(present["entity"]).to_pylist()):
            yield from self._shaped(name, present, where)

    def _shaped(self, name: str, rows: pa.Table, where: str) -> Iterator[Finding]:
        """Compare the shape tags of a class's rows with the schema versions that the journal has stored."""
        if name not in self._stored:
            yield unrecoverable(f"there are rows of {name}, and its shape is not stored", _SHAPES)
            return
        of_class = rows.filter(pc.equal(rows["entity"], name))
        wrong = np.ones(of_class.num_rows, dtype=bool)
        for version in self._stored[name]:
            width = 1 if is_personal(version.shape) else len(version.attributes)
            head = row_head(version.shape.tag, width)
            heads = pc.binary_slice(of_class["state"], 0, len(head))
            has_begun = pc.greater_equal(of_class["epoch"], version.since)
            fits = pc.and_(has_begun, pc.equal(heads, pa.scalar(head, pa.binary())))
            wrong &= ~fits.to_numpy()
        if wrong.any():
            yield unrecoverable(f"{wrong.sum()} rows of {name} do not have its shape", where)


_HINT: Final = f"{COMMITS}/_last_checkpoint"
DELTA: Final = f"{JOURNAL}/{_HINT}"
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
    oldest = oldest_state(journal, Snapshots(snapshots_root(data), journal.identity))
    for name in savepoints.names(data):
        where = savepoints.file_of(name)
        try:
            savepoint = savepoints.find(data, name)
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
    root = journal_root(data)
    if (damage := _checkpoint_damage(root)) is not None:
        yield rebuildable(damage, DELTA)
        return
    expected = {path.removeprefix("kind=") for path in parts}
    what = ""
    for _ in range(_ATTEMPTS):
        seen, failure = _files_seen_by_delta(root)
        last = journal.last()
        if last is None or last.epoch != newest:
            raise NotChecked("the journal as a Delta table: epochs were committed during the check")
        if seen is None:
            yield rebuildable(f"Delta readers cannot open the journal: {failure}", DELTA)
            return
        if seen == expected:
            return
        surplus = seen - expected
        what = (
            f"Delta readers see {len(surplus)} files of no epoch, and miss {len(expected - seen)}"
        )
        if all(root.has(f"kind={path}") for path in surplus):
            why = (
                "the files were merged and still exist; the next maintenance updates the checkpoint"
            )
            yield harmless(what, DELTA, why)
            return
        # A merge removes files after it has updated the checkpoint, so another look sees what it has made.
    yield rebuildable(what, DELTA)


def _files_seen_by_delta(root: SharedRoot) -> tuple[set[str] | None, str]:
    """Return the files that a Delta reader sees, or None and the error of opening the table.

    A file may be merged while the table is opened, so this tries several times.
    """
    failure = ""
    uri, options = root.address()
    for _ in range(_ATTEMPTS):
        try:
            uris = DeltaTable(uri, storage_options=options).file_uris()
            return {uri.rpartition("/kind=")[2] for uri in uris}, ""
        except (DeltaError, OSError) as error:
            failure = cause_text(error)
    return None, failure


def _checkpoint_damage(root: SharedRoot) -> str | None:
    """Return the damage of the journal's Delta checkpoint, or None."""
    try:
        hint = msgspec.json.decode(root.get(_HINT), type=_Hint)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "it cannot be read"
    try:
        with root.reading(f"{COMMITS}/{hint.version:020}.checkpoint.parquet") as path:
            _, checksum = size_and_checksum_of(path)
    except FileNotFoundError:
        return f"the checkpoint of version {hint.version} is missing"
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
            # A stop between two epochs ends a batch of Spark before all of its records have run.
            what = f"Spark has read up to {offset}, and the journal up to {reached}"
            yield harmless(what, CHECKPOINT, "a driver goes on at the positions of the journal")


def check_snapshots(data: Path, journal: Journal, *, content: bool) -> Iterator[Finding]:
    """Check the files of each snapshot, and its content against the journal and older snapshots.

    Raises:
        NotChecked: `content` is false, because the journal is damaged.
    """
    snapshots = Snapshots(snapshots_root(data), journal.identity)
    sound: list[Manifest] = []
    for epoch in snapshots.epochs():
        path = snapshots.path_of(epoch)
        manifest = snapshots.sound(epoch)
        damage = "its manifest is damaged" if manifest is None else _damage(snapshots, manifest)
        if manifest is not None and damage is None:
            if manifest.journal == journal.identity:
                sound.append(manifest)
            continue
        if manifest is None and not snapshots.root.has(path):
            continue  # maintenance has removed the snapshot
        base = max((older.epoch for older in sound), default=BEFORE_FIRST)
        finding = rebuildable if journal.first() <= base + 1 else unrecoverable
        what = f"the snapshot of epoch {epoch} is damaged: {damage}"
        yield finding(what, f"{SNAPSHOTS}/{path}")
    if sound and not content:
        raise NotChecked("the content of the snapshots: the journal is damaged")
    for manifest in sound:
        yield from _compare(journal, snapshots, manifest)


def check_tables(data: Path, app: App, journal: Journal) -> Iterator[Finding]:
    """Check that Delta readers see the newest snapshot.

    Raises:
        NotChecked: A snapshot was written or removed during the check, or is damaged.
    """
    snapshots = Snapshots(snapshots_root(data), journal.identity)
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
        if difference is not None and (table.files or table.exists):
            yield rebuildable(difference, f"{SNAPSHOTS}/{table.name}/{LOG_FOLDER}", _REPUBLISH)


def _compare(journal: Journal, snapshots: Snapshots, manifest: Manifest) -> Iterator[Finding]:
    """Compare a snapshot with the state that follows from the journal and older snapshots."""
    where = f"{SNAPSHOTS}/{snapshots.path_of(manifest.epoch)}"
    older = _OlderSnapshots(snapshots.root, journal.identity, manifest.epoch)
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

    def __init__(self, root: SharedRoot, journal: str, before: Epoch) -> None:
        super().__init__(root, journal)
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
            entry.check_in(snapshots.root, file.path)
        except FileMismatch as error:
            if snapshots.root.has(snapshots.path_of(manifest.epoch)):
                return f"{file.path} {error}"
    return None


_TORN: Final = ".torn."


class JournalFiles:
    """The files of a journal up to an epoch.

    Attributes:
        sound: After `look`, the undamaged units, in order.
        parts: After `look`, the paths of all parts and segment files, relative to the journal.

    Args:
        progress: Receives the number of checked epochs, and of all epochs.
    """

    def __init__(self, data: Path, upto: Epoch, progress: Callable[[int, int], None]) -> None:
        self._root = journal_root(data)
        self._upto = upto
        self._progress = progress
        self._findings: dict[EpochUnit, list[Finding]] = {}
        self._files: dict[EpochUnit, list[FileEntry]] = {}
        self.sound: list[EpochUnit] = []
        self.parts: set[str] = set()

    def look(self) -> Iterator[Finding]:
        """Check all files."""
        try:
            units = self._check_units()
        except Corrupt as error:
            yield unrecoverable(str(error), f"{JOURNAL}/_segments")
            return
        yield from self._check_head()
        for unit in units:
            yield from self._findings[unit]
            self.parts.update(file.path for file in self._files[unit] if file.path != unit.path)
        self.sound = [unit for unit in units if not self._findings[unit]]

    def leftovers(self) -> Iterator[Finding]:
        """Find files that no epoch lists; call this after `look`."""
        stray = [
            name
            for folder, name in stored_names(self._root)
            if f"{folder}/{name}" not in self.parts and self._is_old(f"{folder}/{name}")
        ]
        stray += [
            name
            for name in self._root.names(COMMITS)
            if name.endswith(durable.TEMPORARY) or _TORN in name
        ]
        if stray:
            yield harmless(
                f"{len(stray)} files belong to no epoch, for example {stray[0]}",
                JOURNAL,
                "failed attempts left them, or their rows were merged; maintenance removes them",
            )

    def _is_old(self, path: str) -> bool:
        epoch = epoch_of(path)
        return epoch is not None and epoch <= self._upto

    def _check_units(self) -> list[EpochUnit]:
        """Check units until each unit of the newest inventory is checked; return that inventory."""
        while True:
            units = Inventory(self._root).units(self._upto)
            unchecked = [unit for unit in units if unit not in self._findings]
            if not unchecked:
                return units
            for unit in unchecked:
                self._findings[unit] = list(self._check_unit(unit))
                self._progress(unit.last + 1, self._upto + 1)

    def _check_unit(self, unit: EpochUnit) -> Iterator[Finding]:
        self._files[unit] = []
        where = f"{JOURNAL}/{unit.path}"
        epochs = epochs_text(unit.first, unit.last)
        try:
            self._files[unit] = Inventory(self._root).files(unit)
        except FileNotFoundError:
            yield unrecoverable(f"the commit of {epochs} is missing", where)
        except Corrupt as error:
            yield unrecoverable(str(error), where)
        for stored in self._files[unit]:
            try:
                stored.check_in(self._root, stored.path)
            except FileMismatch as error:
                yield unrecoverable(f"a file of {epochs} {error}", f"{JOURNAL}/{stored.path}")

    def _check_head(self) -> Iterator[Finding]:
        path = commit_name(BEFORE_FIRST)
        try:
            first = parse(self._root.get(path))
        except FileNotFoundError:
            yield unrecoverable("the journal's first file is missing", f"{JOURNAL}/{path}")
        else:
            if isinstance(first, CommitFlaw):
                yield unrecoverable(f"the journal's first file {first}", f"{JOURNAL}/{path}")
        try:
            versions_in(self._root.get(SHAPES))
        except FileNotFoundError:
            yield unrecoverable("the file of stored classes is missing", f"{JOURNAL}/{SHAPES}")
        except ValueError as error:
            yield unrecoverable(f"the file of stored classes {error}", f"{JOURNAL}/{SHAPES}")


def check_archives(data: Path, first: Epoch) -> Iterator[Finding]:
    """Check the file of deployments, and the archives of the code that ran epochs from `first` on."""
    try:
        every = Deployments(journal_root(data)).every()
    except Corrupt as error:
        yield unrecoverable(str(error), f"{JOURNAL}/{DEPLOYMENTS}")
        return
    archives = Archives(data)
    for name in sorted(needed_archives(every, first)):
        try:
            archives.read(name)
        except Corrupt as error:
            yield unrecoverable(str(error), archive_file(name))


_ORDER_COLUMNS = ("request_id", "error", "reply")


def check_keys(data: Path) -> Iterator[Finding]:
    """Check that the file of keys can be read, if there is one."""
    key_file = KeyFile(data / SUBJECT_KEYS)
    if not key_file.exists:
        return  # `DataDirectory` refuses a journal with personal data then
    try:
        key_file.tree()
    except Corrupt:
        what = "the keys of personal data are damaged"
        yield Finding(what, SUBJECT_KEYS, Remedy.BACKUP, KEYS_REMEDY)


def check_certificates(data: Path, journal: Journal) -> Iterator[Finding]:
    """Check that the file of certificates has those of the journal, and one for each destroyed key.

    Raises:
        Corrupt: The journal is damaged.
    """
    erasures, key_file = Erasures(data), KeyFile(data / SUBJECT_KEYS)
    try:
        destroyed = key_file.keys().erasures() if key_file.exists else 0
    except Corrupt:
        destroyed = 0  # `check_keys` reports it
    wanted = certificates_in(journal)
    try:
        stored = erasures.every(journal.identity, newest_epoch(journal))
    except Corrupt:
        what = "the certificates of erasures are damaged"
        finding = unrecoverable(what, ERASURES)
        how = f"{finding.how}; then penstock verify APP --repair adds the certificates that only the journal has"
        yield msgspec.structs.replace(finding, how=how)
        return
    yield from _content_of(stored)
    recorded = [each.recorded for each in stored]
    if missing := [each.subject for each in wanted if each not in recorded]:
        what = f"{len(missing)} erasures of the journal have no certificate, for example that of {missing[0]}"
        how = f"penstock verify APP --repair writes them again, from the journal; without them an older copy of {SUBJECT_KEYS} "
        yield rebuildable(what, ERASURES, f"{how}brings the persons back")
    elif len(stored) < destroyed:
        what = f"{destroyed - len(stored)} destroyed keys have no certificate"
        why = (
            f"{SUBJECT_KEYS} is newer than this directory, or {ERASURES} was removed: then put the file of the newest backup "
            f"back. Use no older copy of {SUBJECT_KEYS} here: it brings the persons back"
        )
        yield harmless(what, ERASURES, why)


def _content_of(certificates: Sequence[Certificate]) -> Iterator[Finding]:
    """Compare certificates with their hashes, and name the views that had not passed an erasure."""
    for each in certificates:
        if each != each.sealed():
            what = f"the certificate of the erasure of {each.subject} has another hash than its content"
            yield unrecoverable(what, ERASURES)
        for view in each.views:
            if not view.passed:
                what = f"view {view.view} had not passed the erasure of {each.subject}: {view.reason or view.state}"
                yield harmless(what, ERASURES, view.remedy or "its applier passes it by itself")


def certificates_in(journal: Journal) -> list[Certificate]:
    """Return the certificates of all erasures that the journal holds, in order."""
    last = journal.last()
    if last is None:
        return []
    certificates: list[Certificate] = []
    for _, table in journal.rows(PartKind.TRANSACTIONS, BEFORE_FIRST, last.epoch, _ORDER_COLUMNS):
        is_order = pc.starts_with(table["request_id"], control_id(ORDER, ""))
        done = table.filter(pc.and_(is_order, pc.is_null(table["error"])))
        certificates += [
            msgspec.msgpack.decode(reply, type=Certificate) for reply in done["reply"].to_pylist()
        ]
    return certificates


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
    places = chain(*((data / name).glob("partition-*") for name in (STATE, HELD_STATE)))
    paths = sorted(path for path in places if (path / "data.mdb").exists())
    stale = {path for path in paths if _is_stale(path)}
    damaged = damaged_of([path for path in paths if path not in stale], boot_id())
    for path in paths:
        where = f"{path.parent.name}/{path.name}"
        if path in stale:
            yield harmless("it was not closed before the machine was restarted", where)
        elif path in damaged:
            yield harmless("it cannot be read", where)
        elif (content := _read(path)) is not None:
            yield from _compare_store(content, journal, state_at, expected, where)


def _compare_store(
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


Progress = Callable[[str, int, int], None]
"""Receives the name of a check, the amount of work that is done, and the total."""

Check = Callable[[], Iterator[Finding]]
ExtraCheck = Callable[[Path, str, Epoch], Iterator[Finding]]
"""A check of a higher layer: receives data directory, identity of the journal, newest epoch."""

_CHECKPOINT_SUFFIX: Final = ".checkpoint.parquet"


class VerificationReport(msgspec.Struct, frozen=True):
    """The result of a verification.

    Attributes:
        data: The data directory, or the place of its shared root in an object store.
        first, epoch: The first and the last checked epoch.
        findings: All findings, harmless ones included.
        skipped: Checks that were not possible, and why.
    """

    data: str
    first: Epoch
    epoch: Epoch
    findings: list[Finding]
    skipped: list[str]

    @property
    def problems(self) -> list[Finding]:
        """The findings that are not harmless."""
        return [finding for finding in self.findings if finding.is_problem]


def verify(
    data: Path, app: App, progress: Progress, extra: Sequence[ExtraCheck] = ()
) -> VerificationReport:
    """Check a data directory.

    Args:
        progress: Receives the name of the running check.
    """
    if next(journal_root(data).names(COMMITS), None) is None:
        raise no_history(data)
    with suppress(Corrupt, Diverged):  # the checks below report these
        DataDirectory(data).check_app(app)
    with lease(data, "verify", Epoch(0)):
        try:
            journal = DataDirectory(data).open_journal(app)
            newest = journal.last()
        except (Corrupt, Diverged) as error:
            return _report_without_journal(data, app, error, progress)
        if newest is None:
            raise no_history(data)
        with closing(journal):
            return _Verification(data, app, journal, newest, progress).run(extra)


def repair(data: Path, app: App, report: VerificationReport) -> list[str]:
    """Remove damaged files that can be rebuilt, and return their paths.

    Args:
        app: Its application, which must not run.
    """
    for role in presence.ROLES:
        for process in presence.find(data, role):
            raise ConfigError(f"process {process.pid} runs {process.app} in {data}; stop it first")
    removed = [item.where for item in report.findings if item.remedy is Remedy.REBUILD]
    try:
        for where in removed:
            _remove(data, app, where)
        if DELTA in removed:
            _rewrite_checkpoint(data, app)
        if any(where.startswith(f"{SNAPSHOTS}/") for where in removed):
            _publish_tables(data, app)
    except OSError as error:
        raise OperationalError(f"cannot repair {data}: {error.strerror}") from error
    return removed


class _Verification:
    """One run of all checks."""

    def __init__(
        self, data: Path, app: App, journal: DeltaJournal, newest: Commit, progress: Progress
    ) -> None:
        self._data = data
        self._app = app
        self._journal = journal
        self._newest = newest
        self._progress = progress
        self._findings: list[Finding] = []
        self._skipped: list[str] = []
        self._files = _files_of(data, newest.epoch, progress)

    def run(self, extra: Sequence[ExtraCheck]) -> VerificationReport:
        """Run all checks."""
        data, journal, epoch = self._data, self._journal, self._newest.epoch
        first = journal.first()
        self._run("journal", self._files.look)
        is_sound = not self._findings
        self._run("journal", self._files.leftovers)
        self._run("log", lambda: check_log(data, journal, self._newest))
        self._run("requests", self._check_rows)
        self._run("savepoints", lambda: check_savepoints(data, journal, epoch))
        self._run("deployments", lambda: check_archives(data, first))
        parts = self._files.parts
        self._run("Delta readers", lambda: check_delta(data, journal, epoch, parts))
        if any(map(is_personal, journal.shapes().values())):
            self._run("keys", lambda: check_keys(data))
            self._run("erasures", lambda: check_certificates(data, journal))
        self._run("checkpoint", lambda: check_spark(data, journal))
        self._run("snapshots", lambda: check_snapshots(data, journal, content=is_sound))
        self._run("snapshots", lambda: check_tables(data, self._app, journal))
        if is_sound:
            self._run("state", self._check_states)
        else:
            self._skipped.append("local state: the journal is damaged")
        for check in extra:
            self._run("view", lambda check=check: check(data, journal.identity, epoch))  # type: ignore[misc]
        return VerificationReport(
            str(shared_root(data)), first, epoch, self._findings, self._skipped
        )

    def _run(self, what: str, check: Check) -> None:
        self._progress(what, 0, 1)
        try:
            self._findings.extend(check())
        except NotChecked as error:
            self._skipped.append(str(error))
        except (Corrupt, Diverged) as error:
            if any(finding.remedy is Remedy.BACKUP for finding in self._findings):
                self._skipped.append(f"{what}: {error}")
            else:
                self._findings.append(unrecoverable(str(error), JOURNAL))

    def _check_rows(self) -> Iterator[Finding]:
        log = None
        is_damaged = any(finding.where == LOG for finding in self._findings)
        if not is_damaged and (self._data / LOG).exists():
            log = DataDirectory(self._data).open_log()
        try:
            rows = JournalRows(
                self._app,
                self._journal,
                log,
                lambda done, total: self._progress("requests", done, total),
            )
            yield from rows.look(self._files.sound)
        finally:
            if log is not None:
                log.close()

    def _check_states(self) -> Iterator[Finding]:
        if is_read_only(self._data):
            raise NotChecked(
                "local state: its disk is mounted for reading only, and stores are opened with locks"
            )
        with HistoryReader(self._data, self._app) as history:
            yield from check_states(
                self._data, self._journal, lambda epoch: history.state_before(Epoch(epoch + 1))
            )


def _files_of(data: Path, upto: Epoch, progress: Progress) -> JournalFiles:
    return JournalFiles(data, upto, lambda done, total: progress("journal", done, total))


def _report_without_journal(
    data: Path, app: App, error: Exception, progress: Progress
) -> VerificationReport:
    """Check the files of a journal that cannot be opened, because it is damaged, or the records that destroy erased keys are."""
    epoch = newest_listed(journal_root(data))
    files = _files_of(data, epoch, progress)
    findings = [*files.look(), *check_keys(data)]
    with (
        suppress(Corrupt, Diverged),
        closing(DataDirectory(data).open_journal_of(app.name)) as journal,
    ):
        findings += check_certificates(data, journal)
    findings = findings or [unrecoverable(str(error), JOURNAL)]
    skipped = ["all other files: the journal cannot be opened"]
    return VerificationReport(str(shared_root(data)), Epoch(0), epoch, findings, skipped)


def _remove(data: Path, app: App, where: str) -> None:
    path = data / where
    if where == ERASURES:  # the certificates that it has stay
        _add_certificates(data, app)
    elif where.partition("/")[0] in SHARED:
        _remove_shared(shared_root(data), where)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_shared(root: SharedRoot, where: str) -> None:
    """Remove a name, or all names of a folder that has no further folders."""
    below = list(root.names(where))
    for name in below:
        root.remove(f"{where}/{name}")
    if not below:
        root.remove(where)


def _add_certificates(data: Path, app: App) -> None:
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        Erasures(data).add(certificates_in(journal))


def _publish_tables(data: Path, app: App) -> None:
    """Let Delta readers see the newest snapshot that is left; without one, they see no table."""
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        snapshots = Snapshots(snapshots_root(data), journal.identity)
    with snapshot_lock(snapshots, wait=True):
        if snapshots.newest() is None:
            for folder in list(snapshots.root.names()):
                remove_table(snapshots.root.folder(folder))
        publish_tables(snapshots, app.name, app)


def _rewrite_checkpoint(data: Path, app: App) -> None:
    root = journal_root(data)
    for name in list(root.names(COMMITS)):
        if name.endswith(_CHECKPOINT_SUFFIX):
            root.remove(f"{COMMITS}/{name}")
    with closing(DataDirectory(data).open_journal(app)) as journal:
        journal.checkpoint()
