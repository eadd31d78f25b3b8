"""The backup set of an application: the names of its shared root that cannot be rebuilt, and its log.

The set consists of the journal without its checkpoints, the log, the rows of imports that wait in it, source archives,
snapshots, savepoints, the API keys and the certificates of erasures. Snapshots belong to it because the journal may no longer hold the epochs that they were made
from; their Delta tables can be rebuilt. All files but the log are small or immutable, and are known
by their checksums.

`collect` gives a set that is consistent at one epoch while the application runs. If a file moves or
changes after it was listed, the set is listed again; a file that is missing twice is damage.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.deployment.archives import Archives
from penstock.deployment.archives import file_of as archive_file
from penstock.errors import ConfigError, Corrupt, Diverged, OperationalError
from penstock.files.file_entry import FileEntry, FileMismatch
from penstock.files.layout import ERASURES, JOURNAL, KEYS, LINEAGE, LOG, SNAPSHOTS
from penstock.files.roots import shared_root
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import Commit
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import Inventory
from penstock.journal.staged import StagedRows
from penstock.journal.staged import file_of as staged_file
from penstock.log.copy_prefix import PositionRange
from penstock.model.control import Import
from penstock.orders.order import controls_between
from penstock.process.data_directory import DataDirectory
from penstock.retention import savepoints
from penstock.snapshots.snapshot import Snapshots

_ATTEMPTS: Final = 5


class BackupSet(msgspec.Struct, frozen=True):
    """An application's files at one epoch.

    Attributes:
        first, epoch: The oldest and the newest epoch.
        first_us, epoch_us: Their commit times, microseconds since the Unix epoch.
    """

    app: str
    identity: str
    first: Epoch
    epoch: Epoch
    first_us: int
    epoch_us: int
    files: list[FileEntry]


def collect(
    data: Path,
    app: str,
    take_files: Callable[[BackupSet], None],
    copy_log: Callable[[], PositionRange],
) -> BackupSet:
    """Pass an application's files to `take_files`, then copy its log; return the backup set.

    The caller holds a retention lease on the journal.

    Args:
        take_files: Receives the set, again after each `FileMismatch` that it raises.
    """
    DataDirectory(data).check_log_here()
    mismatched: set[FileEntry] = set()
    former: Lsn | None = None
    while True:
        backup_set, reached = _list_again_if_moved(data, app)
        try:
            take_files(backup_set)
        except FileMismatch as error:
            if error.file in mismatched:
                raise Corrupt(
                    f"{shared_root(data)}/{error.file.path} {error}; put the file back from a backup "
                    "(penstock verify lists all damage)"
                ) from error
            mismatched.add(error.file)
            continue
        copied = copy_log()
        if copied.start <= reached <= copied.end:
            if _has_rows(data, backup_set, reached, copied.end):
                return backup_set
            continue  # an import was ordered since its files were listed
        if copied.end < reached or reached == former:
            raise Diverged(
                f"{data / LOG} holds {copied.start} to {copied.end}, but the journal has read it "
                f"up to {reached}; restore a backup"
            )
        # The log was truncated beyond this epoch, so newer epochs are committed: list them.
        former = reached


def _has_rows(data: Path, backup_set: BackupSet, reached: Lsn, end: Lsn) -> bool:
    """Say whether a set has the rows of each import that waits in the copied log."""
    listed = {file.path for file in backup_set.files}
    with closing(DataDirectory(data).open_log()) as log:
        if log.start() > reached:  # since the copy: the epochs that have the rows are newer
            return False
        waiting = controls_between(log, reached, end)
    # Without the files of a build, its deployment builds all rows itself.
    pieces = (name for each in waiting if isinstance(each, Import) for name in each.pieces)
    return all(staged_file(name) in listed for name in pieces)


def identity_of(data: Path, app: str) -> str:
    """Return the identity of an application's journal.

    Raises:
        Corrupt: The journal is damaged.
    """
    with closing(_open(data, app)) as journal:
        return journal.identity


def newest_in(data: Path, app: str) -> Epoch:
    """Return the newest epoch of an application's journal; this needs no code of the application.

    Raises:
        ConfigError: It has no epoch.
        Corrupt: The journal is damaged.
    """
    with closing(_open(data, app)) as journal:
        last = journal.last()
    if last is None:
        raise no_history(data)
    return last.epoch


def no_history(data: Path) -> ConfigError:
    """Return the error for a directory without a committed epoch."""
    return ConfigError(
        f"there is no history in {data}: it has no committed epoch; name the application's "
        "directory with --data"
    )


def _open(data: Path, app: str) -> DeltaJournal:
    directory = DataDirectory(data)
    if directory.app_name is None:
        raise no_history(data)
    return directory.open_journal_of(app)


def _list_again_if_moved(data: Path, app: str) -> tuple[BackupSet, Lsn]:
    """Return the backup set, and the log position that its newest epoch has reached."""
    missing = ""
    for _ in range(_ATTEMPTS):
        try:
            return _list(data, app)
        except FileNotFoundError as error:
            missing = str(error.filename or error)  # merged or replaced since its folder was listed
        except OSError as error:
            raise OperationalError(f"cannot read {shared_root(data)}: {error.strerror}") from error
    raise Corrupt(f"{missing} is missing; put the file back from a backup")


def _list(data: Path, app: str) -> tuple[BackupSet, Lsn]:
    root = shared_root(data)
    with closing(_open(data, app)) as journal:
        # The snapshots are listed first, so that the journal below holds each of their epochs.
        files = [*_snapshot_files(root, journal.identity), *_small_files(data, root)]
        first, newest = _ends(journal, data)
    inventory = Inventory(root.folder(JOURNAL))
    stored = inventory.head()
    for unit in inventory.units(newest.epoch):
        stored += inventory.files(unit)
    files += [file.within(JOURNAL) for file in stored]
    files += _archives(data, root)  # each archive is older than the deployment that names it
    files += _staged_rows(data, root)
    ends = (first.epoch, newest.epoch, first.time_us, newest.time_us)
    backup_set = BackupSet(app, journal.identity, *ends, files)
    return backup_set, newest.positions.get(ONLY_PARTITION, Lsn(0))


def _ends(journal: DeltaJournal, data: Path) -> tuple[Commit, Commit]:
    newest = journal.last()
    if newest is None:
        raise no_history(data)
    oldest = journal.first()
    return next(iter(journal.commits(Epoch(oldest - 1), oldest))), newest


def _snapshot_files(root: SharedRoot, journal: str) -> Iterator[FileEntry]:
    """Yield the files of the journal's undamaged snapshots, each once."""
    snapshots = Snapshots(root.folder(SNAPSHOTS), journal)
    listed: set[str] = set()
    for manifest in snapshots.every():
        yield _entry_of(root, f"{SNAPSHOTS}/{snapshots.path_of(manifest.epoch)}")
        for file in manifest.files:
            if file.path not in listed:
                listed.add(file.path)
                yield FileEntry(f"{SNAPSHOTS}/{file.path}", file.size, file.checksum)


def _small_files(data: Path, root: SharedRoot) -> Iterator[FileEntry]:
    for name in savepoints.names(data):
        yield _entry_of(root, savepoints.file_of(name))
    for name in (KEYS, ERASURES, LINEAGE):
        if root.has(name):
            yield _entry_of(root, name)


def _archives(data: Path, root: SharedRoot) -> Iterator[FileEntry]:
    """Yield the source archives of all deployments, also of those that wait in the log."""
    for name in Archives(data).names():
        yield _entry_of(root, archive_file(name))


def _staged_rows(data: Path, root: SharedRoot) -> Iterator[FileEntry]:
    """Yield the files of imports and of builds of indexes that wait in the log."""
    for name in StagedRows(data).names():
        # The driver has removed one whose rows are in the journal by now: no record that waits names it.
        with suppress(FileNotFoundError):
            yield _entry_of(root, staged_file(name))


def _entry_of(root: SharedRoot, name: str) -> FileEntry:
    return FileEntry.of(name, root.get(name))
