"""Backups: an application's truth in a directory of its own, as it was at one epoch each.

    DIR/files/<checksum>           each content once, whichever backups have it
    DIR/backups/<epoch>-<time>.json    a backup: which files it consists of

A backup exists when its manifest does, and that comes last. So one that is killed leaves the earlier
ones as they were, and what it has copied is not copied again. All backups in a directory are of one
application; files that a later backup needs as well are not copied for it.

The log is copied whole each time: it is the one file that changes, and retention keeps it short.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError
from penstock.files import durable, private
from penstock.files.checksum import size_and_checksum_of
from penstock.files.lock import locked_file
from penstock.files.sealed import seal, unseal
from penstock.history import copying
from penstock.history.backup_set import BackupSet, FileEntry, collect, identity_of
from penstock.history.copying import storing
from penstock.journal.api import Reached, ignored
from penstock.log import cut as logs
from penstock.log.cut import Extent
from penstock.process.data_directory import LOG
from penstock.retention.leases import holding

_log = logging.getLogger(__name__)

_MANIFESTS: Final = "backups"
_FILES: Final = "files"
_LOCK: Final = "backup.lock"

Progress = Callable[[int, int], None]
"""For progress: bytes done, of how many."""


def ignore_progress(_done: int, _all: int) -> None:
    """Take no notice of progress."""


class Backup(msgspec.Struct, frozen=True):
    """One backup.

    Attributes:
        truth: What it holds, but for the log.
        log: The log, as it was some time later.
        made_us: What was acknowledged before is in it; microseconds since the Unix epoch.
    """

    truth: BackupSet
    log: FileEntry
    made_us: int

    @property
    def files(self) -> list[FileEntry]:
        """All of its files."""
        return [*self.truth.files, self.log]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files)


class CreatedBackup(NamedTuple):
    """A backup that was made, and the files that had to be copied for it."""

    backup: Backup
    copied: list[FileEntry]


class Backups:
    """The backups in a directory, which need not exist."""

    def __init__(self, directory: Path) -> None:
        """Name the directory."""
        self.directory = directory
        self._manifests = directory / _MANIFESTS
        self._files = directory / _FILES

    def every(self) -> list[Backup]:
        """Return all backups, the newest first; one with a damaged manifest is not there."""
        return [backup for backup in self._read().values() if backup is not None]

    def damaged(self) -> list[Path]:
        """Return the manifests that cannot be read, so that nobody knows which files they need."""
        return [path for path, backup in self._read().items() if backup is None]

    def path_of(self, file: FileEntry) -> Path:
        """Return where the content of a file is."""
        return self._files / file.checksum

    def make(
        self, data: Path, app: str, reached: Reached = ignored, told: Progress = ignore_progress
    ) -> CreatedBackup:
        """Back up an application, which may run meanwhile, at its newest epoch.

        Raises:
            ConfigError: Nothing was ever committed there; the directory has the backups of another
                application, or another backup is being written into it.
            Corrupt: A file of the application is damaged; there is no new backup.
            OperationalError: A disk is full or fails; there is no new backup.
        """
        with storing(self.directory), self._alone():
            self._check_same(data, app)
            for folder in (self._manifests, self._files):
                folder.mkdir(exist_ok=True)
                copying.remove_unfinished(folder)
            with holding(data, "backup", Epoch(0)):
                made = self._copied(data, app, reached, told)
            reached("backup-before-manifest")
            self._publish(made.backup)
            reached("backup-after-manifest")
            self._remove_unlisted()
            return made

    def keep(self, count: int, reached: Reached = ignored) -> list[Backup]:
        """Remove all but the newest backups, and the files that only they had; return those removed.

        Raises:
            ConfigError: A backup is being written.
            OperationalError: The disk fails; the rest is removed another time.
        """
        assert count > 0, "one backup at least stays"
        with storing(self.directory), self._alone():
            sound = [(path, one) for path, one in self._read().items() if one is not None]
            for path, _ in sound[count:]:
                path.unlink()
                reached("backup-dropped")
            if sound:
                durable.sync_directory(self._manifests)
                self._remove_unlisted()
        return [one for _, one in sound[count:]]

    def _copied(self, data: Path, app: str, reached: Reached, told: Progress) -> CreatedBackup:
        copied: list[FileEntry] = []

        def take(truth: BackupSet) -> None:
            sizes = sum(one.size for one in truth.files)
            done = 0
            for one in truth.files:
                if not self._has(one):
                    copying.copy(data / one.path, self.path_of(one), one)
                    copied.append(one)
                    reached("backup-file-copied")
                done += one.size
                told(done, sizes)

        temporary = durable.temporary_of(self._files / LOG)

        def take_log() -> Extent:
            temporary.unlink(missing_ok=True)
            return logs.copy(data / LOG, temporary)

        try:
            truth = collect(data, app, take, take_log)
            made_us = time.time_ns() // 1_000
            reached("backup-log-copied")
            log = FileEntry(LOG, *size_and_checksum_of(temporary))
            temporary.replace(self.path_of(log))
        finally:
            temporary.unlink(missing_ok=True)
        copied.append(log)
        return CreatedBackup(Backup(truth, log, made_us), copied)

    def _has(self, file: FileEntry) -> bool:
        try:
            return self.path_of(file).stat().st_size == file.size
        except FileNotFoundError:
            return False

    def _publish(self, backup: Backup) -> None:
        durable.sync_directory(self._files)
        durable.sync_directory(self.directory)
        made = datetime.fromtimestamp(backup.made_us / 1_000_000, UTC)
        name = f"{backup.truth.epoch:012}-{made:%Y%m%dT%H%M%S.%fZ}.json"
        durable.replace(self._manifests / name, seal("backup", backup))

    def _check_same(self, data: Path, app: str) -> None:
        identity = identity_of(data, app)
        for one in self.every()[:1]:
            if one.truth.identity != identity:
                raise ConfigError(
                    f"{self.directory} has backups of another application ({one.truth.app}), or of "
                    f"another copy of {app}; give each a directory of its own"
                )

    def _read(self) -> dict[Path, Backup | None]:
        """Return what each manifest says, the newest first; None where that cannot be known."""
        found = (path for path in self._manifests.glob("*.json") if path.name[0].isdigit())
        return {path: _unsealed(path) for path in sorted(found, reverse=True)}

    def _remove_unlisted(self) -> None:
        """Remove files that no backup has: of removed ones, and of such as never came to be."""
        backups = self._read().values()
        if None in backups:
            return  # what a damaged manifest lists is not known
        listed = {file.checksum for one in backups if one is not None for file in one.files}
        for path in list(self._files.iterdir()):
            if path.name not in listed:
                path.unlink(missing_ok=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        private.create(self.directory)
        with locked_file(self.directory / _LOCK, timeout_s=0) as held:
            if held is None:
                raise ConfigError(
                    f"another backup is being written into {self.directory}; wait until it has "
                    "ended, then run the command again"
                )
            yield


def _unsealed(path: Path) -> Backup | None:
    try:
        return unseal("backup", path.read_bytes(), Backup)
    except (OSError, ValueError) as error:
        _log.warning(
            "a backup's manifest cannot be used", extra={"path": str(path), "cause": str(error)}
        )
        return None
