"""The truth of an application: which files of its data directory cannot be made from the others.

These are the journal (without its checkpoints), the log, snapshots (the journal may have forgotten
what they were made from; their Delta tables are made from their manifests), savepoints, and the API
keys. All but the log are small or immutable, and known by their checksums.

Promises that what `collect` hands over is consistent at one epoch, while the application writes,
compacts and takes snapshots: a file that has vanished or changed since it was listed makes it look
again, and only what is not there twice is missing. Leaves to `taken` what becomes of each file.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.errors import ConfigError, Corrupt, Diverged, OperationalError
from penstock.files.checksum import checksum_of
from penstock.journal.api import Commit
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import Inventory
from penstock.log.cut import Extent
from penstock.process.data_directory import JOURNAL, KEYS, LOG, DataDirectory
from penstock.retention import savepoints
from penstock.snapshots import snapshot
from penstock.snapshots.snapshot import Snapshots

_ATTEMPTS: Final = 5


class FileEntry(msgspec.Struct, frozen=True):
    """A file as it must be.

    Attributes:
        path: Relative to the data directory.
        size: Bytes.
        checksum: XXH3-128 of the bytes, hexadecimal.
    """

    path: str
    size: int
    checksum: str

    def __post_init__(self) -> None:
        """Refuse what would lead out of a directory: a backup may come from anywhere."""
        if Path(self.path).is_absolute() or ".." in Path(self.path).parts:
            raise ValueError(f"{self.path} leads elsewhere")
        if not self.checksum.isalnum():
            raise ValueError(f"{self.checksum} is no checksum")


class BackupSet(msgspec.Struct, frozen=True):
    """What an application is, at one epoch.

    Attributes:
        app: Its name.
        identity: Of its journal.
        first, epoch: The oldest and the newest epoch.
        first_us, epoch_us: When these were committed, microseconds since the Unix epoch.
        files: All but the log.
    """

    app: str
    identity: str
    first: Epoch
    epoch: Epoch
    first_us: int
    epoch_us: int
    files: list[FileEntry]


class FileMismatch(Exception):
    """A file is not there, or not as it was listed; the message says how it is."""

    def __init__(self, file: FileEntry, how: str) -> None:
        super().__init__(how)
        self.file = file


def collect(
    data: Path, app: str, taken: Callable[[BackupSet], None], log: Callable[[], Extent]
) -> BackupSet:
    """Hand over an application's truth, then its log; return what it was.

    Whoever calls this holds the journal (`holds.holding`), so that nothing is forgotten meanwhile.

    Args:
        data: The data directory.
        app: The application's name.
        taken: Takes the files, all over again where one has moved; raises `FileMismatch` for that.
        log: Copies the log and says what the copy holds.

    Raises:
        ConfigError: Nothing was ever committed there, or by another application.
        Corrupt: A file is missing or damaged; names it.
        Diverged: The log ends before what the journal has read of it, or begins after that.
        OperationalError: A disk is full or fails.
    """
    met: set[FileEntry] = set()
    former: Lsn | None = None
    while True:
        truth, reached = survey(data, app)
        try:
            taken(truth)
        except FileMismatch as error:
            if error.file in met:
                raise Corrupt(
                    f"{data / error.file.path} {error}; put the file back from a backup (penstock "
                    "verify says what else is wrong)"
                ) from error
            met.add(error.file)
            continue
        held = log()
        if held.start <= reached <= held.end:
            return truth
        if held.end < reached or reached == former:
            raise Diverged(
                f"{data / LOG} holds {held.start} to {held.end}, but the journal has read it up to "
                f"{reached}"
            )
        # The log was truncated beyond the epoch, so others have gone on: look at where they are.
        former = reached


def survey(data: Path, app: str) -> tuple[BackupSet, Lsn]:
    """Return what an application is now, and how far its newest epoch has read the log.

    Raises:
        ConfigError, Corrupt, OperationalError: As for `collect`.
    """
    missing = ""
    for _ in range(_ATTEMPTS):
        try:
            return _surveyed(data, app)
        except FileNotFoundError as error:
            missing = str(error.filename)  # merged, or replaced, since its folder was listed
        except OSError as error:
            raise OperationalError(f"cannot read {data}: {error.strerror}") from error
    raise Corrupt(f"{missing} is missing; put the file back from a backup")


def _surveyed(data: Path, app: str) -> tuple[BackupSet, Lsn]:
    if DataDirectory(data).app_name is None:
        raise no_history(data)
    journal = DataDirectory(data).open_journal_of(app)
    try:
        # Snapshots first: each is of an epoch that the journal has when it is looked at afterwards.
        files = [*_snapshots(data, journal.identity), *_small(data)]
        first, newest = _ends(journal, data)
    finally:
        journal.close()
    files += _journal(data, newest.epoch)
    ends = (first.epoch, newest.epoch, first.time_us, newest.time_us)
    truth = BackupSet(app, journal.identity, *ends, files)
    return truth, newest.positions.get(ONLY_PARTITION, Lsn(0))


def identity_of(data: Path, app: str) -> str:
    """Return the identity of an application's journal.

    Raises:
        ConfigError: There is none, or it is of another application.
        Corrupt: It is damaged.
    """
    if DataDirectory(data).app_name is None:
        raise no_history(data)
    journal = DataDirectory(data).open_journal_of(app)
    journal.close()
    return journal.identity


def no_history(data: Path) -> ConfigError:
    """Return the error of a directory in which nothing was ever committed."""
    return ConfigError(
        f"there is no history in {data}: no epoch was ever committed there; name the directory of "
        "the application with --data"
    )


def _ends(journal: DeltaJournal, data: Path) -> tuple[Commit, Commit]:
    newest = journal.last()
    if newest is None:
        raise no_history(data)
    oldest = journal.first()
    return next(iter(journal.commits(Epoch(oldest - 1), oldest))), newest


def _journal(data: Path, upto: Epoch) -> Iterator[FileEntry]:
    inventory = Inventory(data / JOURNAL)
    found = inventory.head()
    for unit in inventory.units(upto):
        found += inventory.files(unit)
    for one in found:
        yield FileEntry(f"{JOURNAL}/{one.path}", one.size, one.checksum)


def _snapshots(data: Path, journal: str) -> Iterator[FileEntry]:
    """Yield the files of the journal's snapshots; those that are damaged are of no use."""
    snapshots = Snapshots(data / snapshot.FOLDER, journal)
    listed: set[str] = set()
    for manifest in snapshots.every():
        yield _as_it_is(data, str(snapshots.path_of(manifest.epoch).relative_to(data)))
        for one in manifest.files:
            if one.path not in listed:
                listed.add(one.path)
                yield FileEntry(f"{snapshot.FOLDER}/{one.path}", one.size, one.checksum)


def _small(data: Path) -> Iterator[FileEntry]:
    for path in savepoints.paths(data):
        yield _as_it_is(data, str(path.relative_to(data)))
    if (data / KEYS).exists():
        yield _as_it_is(data, KEYS)


def _as_it_is(data: Path, path: str) -> FileEntry:
    content = (data / path).read_bytes()
    return FileEntry(path, len(content), checksum_of(content))
