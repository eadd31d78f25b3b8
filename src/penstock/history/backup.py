"""Backups of an application in a directory, each of one epoch.

    DIR/files/<checksum>               each content once, shared by all backups
    DIR/backups/<epoch>-<time>.json    a backup's manifest: the list of its files

A backup exists when its manifest exists, and the manifest is written last. So a backup that is
interrupted leaves the earlier ones intact, and its copied files are reused. All backups in a
directory are of one application.

The log is copied completely each time: it is the only mutable file, and retention keeps it short.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError
from penstock.files import durable, private
from penstock.files.layout import BACKUPS, LOG
from penstock.files.lock import locked_file
from penstock.files.sealed import seal, size_and_checksum_of, unseal
from penstock.history import copying
from penstock.history.backup_set import BackupSet, collect, identity_of
from penstock.history.copying import FileEntry, translating_disk_errors
from penstock.journal.api import StepObserver, ignore_step
from penstock.log import copy_prefix as logs
from penstock.log.clock import wall_clock_us
from penstock.log.copy_prefix import PositionRange
from penstock.retention.leases import lease

_log = logging.getLogger(__name__)

_FILES: Final = "files"
_LOCK: Final = "backup.lock"

Progress = Callable[[int, int], None]
"""Receives the amount of work that is done, and the total."""


def ignore_progress(_done: int, _total: int) -> None:
    """Show no progress."""


class Backup(msgspec.Struct, frozen=True):
    """One backup.

    Attributes:
        contents: All files but the log.
        log: The log, copied after the other files.
        made_us: The backup contains every request that was acknowledged before this time;
            microseconds since the Unix epoch.
    """

    contents: BackupSet = msgspec.field(name="truth")
    log: FileEntry
    made_us: int

    @property
    def files(self) -> list[FileEntry]:
        """All files of the backup."""
        return [*self.contents.files, self.log]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class CreatedBackup(NamedTuple):
    """A new backup, and the files that were copied for it."""

    backup: Backup
    copied: list[FileEntry]


class Backups:
    """The backups in a directory, which need not exist."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._manifests = directory / BACKUPS
        self._files = directory / _FILES

    def every(self) -> list[Backup]:
        """Return all backups with an undamaged manifest, the newest first."""
        return [backup for backup in self._read().values() if backup is not None]

    def damaged(self) -> list[Path]:
        """Return the manifests that cannot be read."""
        return [path for path, backup in self._read().items() if backup is None]

    def path_of(self, file: FileEntry) -> Path:
        """Return the path of a file's content."""
        return self._files / file.checksum

    def make(
        self,
        data: Path,
        app: str,
        reached: StepObserver = ignore_step,
        progress: Progress = ignore_progress,
    ) -> CreatedBackup:
        """Back up an application at its newest epoch; the application may run.

        Args:
            reached: Receives each step, for tests of crashes.
            progress: Receives copied and total bytes.
        """
        with translating_disk_errors(self.directory), self._lock():
            self._check_identity(data, app)
            for folder in (self._manifests, self._files):
                folder.mkdir(exist_ok=True)
                copying.remove_unfinished(folder)
            # Retention must not remove an epoch while its files are copied.
            with lease(data, "backup", Epoch(0)):
                created = self._copy(data, app, reached, progress)
            reached("backup-before-manifest")
            self._publish(created.backup)
            reached("backup-after-manifest")
            self._remove_unlisted()
            return created

    def keep(self, count: int, reached: StepObserver = ignore_step) -> list[Backup]:
        """Remove all but the newest backups, and the files that only they need.

        Args:
            count: How many backups to keep, at least 1.
            reached: Receives each step, for tests of crashes.
        """
        assert count > 0, "at least one backup is kept"
        with translating_disk_errors(self.directory), self._lock():
            intact = [(path, backup) for path, backup in self._read().items() if backup is not None]
            for path, _ in intact[count:]:
                path.unlink()
                reached("backup-dropped")
            # Without an intact manifest, no file is known to be useless.
            if intact:
                durable.sync_directory(self._manifests)
                self._remove_unlisted()
        return [backup for _, backup in intact[count:]]

    def _copy(
        self, data: Path, app: str, reached: StepObserver, progress: Progress
    ) -> CreatedBackup:
        copied: list[FileEntry] = []

        def take_files(backup_set: BackupSet) -> None:
            total = sum(file.size for file in backup_set.files)
            done = 0
            for file in backup_set.files:
                if not self._has(file):
                    copying.copy(data / file.path, self.path_of(file), file)
                    copied.append(file)
                    reached("backup-file-copied")
                done += file.size
                progress(done, total)

        temporary = durable.temporary_of(self._files / LOG)

        def copy_log() -> PositionRange:
            temporary.unlink(missing_ok=True)
            return logs.copy_log(data / LOG, temporary)

        try:
            contents = collect(data, app, take_files, copy_log)
            # After the copy of the log: each request that was acknowledged before is in it.
            made_us = wall_clock_us()
            reached("backup-log-copied")
            log = FileEntry(LOG, *size_and_checksum_of(temporary))
            temporary.replace(self.path_of(log))
        finally:
            temporary.unlink(missing_ok=True)
        return CreatedBackup(Backup(contents, log, made_us), [*copied, log])

    def _has(self, file: FileEntry) -> bool:
        try:
            # The name is the checksum, so the size finds a file that a crash has cut; `verify` reads the
            # content.
            return self.path_of(file).stat().st_size == file.size
        except FileNotFoundError:
            return False

    def _publish(self, backup: Backup) -> None:
        # A manifest must never name a file that a power cut can take away.
        durable.sync_directory(self._files)
        durable.sync_directory(self.directory)
        made = datetime.fromtimestamp(backup.made_us / 1_000_000, UTC)
        name = f"{backup.contents.epoch:012}-{made:%Y%m%dT%H%M%S.%fZ}.json"
        durable.replace(self._manifests / name, seal("backup", backup))

    def _check_identity(self, data: Path, app: str) -> None:
        identity = identity_of(data, app)
        # All backups of a directory have one identity, so one of them tells it.
        for backup in self.every()[:1]:
            if backup.contents.identity != identity:
                raise ConfigError(
                    f"{self.directory} has backups of another application "
                    f"({backup.contents.app}), or of another copy of {app}; use one directory for "
                    "each application"
                )

    def _read(self) -> dict[Path, Backup | None]:
        """Return the backup of each manifest, the newest first; None for a damaged manifest."""
        paths = (path for path in self._manifests.glob("*.json") if path.name[0].isdigit())
        return {path: _unsealed(path) for path in sorted(paths, reverse=True)}

    def _remove_unlisted(self) -> None:
        """Remove the files that no backup lists."""
        backups = self._read().values()
        if None in backups:
            return  # the files of a damaged manifest are unknown
        listed = {
            file.checksum for backup in backups if backup is not None for file in backup.files
        }
        for path in list(self._files.iterdir()):
            if path.name not in listed:
                path.unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        private.create(self.directory)
        with locked_file(self.directory / _LOCK, timeout_s=0) as lock:
            if lock is None:
                raise ConfigError(
                    f"another backup is being written into {self.directory}; wait until it has "
                    "ended, then run the command again"
                )
            yield


def _unsealed(path: Path) -> Backup | None:
    try:
        return unseal("backup", path.read_bytes(), Backup)
    except (OSError, ValueError) as error:
        extra = {"path": str(path), "cause": str(error)}
        _log.warning("a backup's manifest cannot be read", extra=extra)
        return None
