"""Backups of an application in a directory or in an object store, each of one epoch.

    DIR/files/<checksum>               each content once, shared by all backups
    DIR/backups/<epoch>-<time>.json    a backup's manifest: the list of its files

A backup exists when its manifest exists, and the manifest is written last. So a backup that is
interrupted leaves the earlier ones intact, and its copied files are reused. All backups in a
place are of one application.

Several hosts may write into one object store. A backup trusts only files that a manifest lists, and copies the others
again; files of a removed manifest stay for a day. So no host removes a file that another one counts on.

The log is copied completely each time: it is the only mutable file, and retention keeps it short.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, OperationalError
from penstock.files import durable, private
from penstock.files.file_entry import FileEntry
from penstock.files.layout import BACKUPS, LOG
from penstock.files.local_root import LocalRoot, rooted
from penstock.files.lock import locked_file
from penstock.files.retired import is_useless, retire, retired
from penstock.files.roots import shared_root
from penstock.files.sealed import seal, size_and_checksum_of, unseal
from penstock.files.shared_root import SharedRoot
from penstock.history import copying
from penstock.history.backup_set import BackupSet, collect, identity_of
from penstock.history.copying import translating_disk_errors
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
    """The backups in a root or in a folder, which need not exist.

    Attributes:
        root: Where they are.
    """

    def __init__(self, place: SharedRoot | Path) -> None:
        self.root = rooted(place)

    def every(self) -> list[Backup]:
        """Return all backups with an undamaged manifest, the newest first."""
        return [backup for backup in self._read().values() if backup is not None]

    def damaged(self) -> list[str]:
        """Return the manifests that cannot be read."""
        return [f"{self.root}/{name}" for name, backup in self._read().items() if backup is None]

    def path_of(self, file: FileEntry) -> str:
        """Return the name of a file's content in the root."""
        return f"{_FILES}/{file.checksum}"

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
        with translating_disk_errors(self.root), self._alone():
            self._check_identity(data, app)
            self.root.make_folders(BACKUPS, _FILES)
            self._remove_unfinished()
            began_s = time.monotonic()
            # Retention must not remove an epoch while its files are copied.
            with lease(data, "backup", Epoch(0)):
                created = self._copy(data, app, reached, progress)
            reached("backup-before-manifest")
            if self.root.keeps_s and time.monotonic() - began_s > self.root.keeps_s / 2:
                raise OperationalError(
                    f"the backup to {self.root} has taken too long: another host may have removed files that it counts on; "
                    "run the command again, which takes what is there"
                )
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
        with translating_disk_errors(self.root), self._alone():
            intact = [(name, backup) for name, backup in self._read().items() if backup is not None]
            for name, _ in intact[count:]:
                retire(self.root, name)
                reached("backup-dropped")
            # Without an intact manifest, no file is known to be useless.
            if intact:
                self.root.settle(BACKUPS)
                self._remove_unlisted()
        return [backup for _, backup in intact[count:]]

    def _copy(
        self, data: Path, app: str, reached: StepObserver, progress: Progress
    ) -> CreatedBackup:
        source = shared_root(data)
        copied: list[FileEntry] = []

        def take_files(backup_set: BackupSet) -> None:
            held = self._held()
            missing = {
                file.checksum: (file.path, self.path_of(file), file)
                for file in backup_set.files
                if not self._has(file, held)
            }
            total = sum(file.size for file in backup_set.files)
            done = total - sum(file.size for file in backup_set.files if file.checksum in missing)
            progress(done, total)
            for file in copying.copy_all(source, self.root, list(missing.values())):
                copied.append(file)
                reached("backup-file-copied")
                done += file.size
                progress(done, total)
            progress(total, total)  # contents that are the same are copied once

        with self.root.scratch(f"{_FILES}/{LOG}") as path:

            def copy_log() -> PositionRange:
                path.unlink(missing_ok=True)
                return logs.copy_log(data / LOG, path)

            contents = collect(data, app, take_files, copy_log)
            # After the copy of the log: each request that was acknowledged before is in it.
            made_us = wall_clock_us()
            reached("backup-log-copied")
            log = FileEntry(LOG, *size_and_checksum_of(path))
            self.root.take(path, self.path_of(log))
        return CreatedBackup(Backup(contents, log, made_us), [*copied, log])

    def _held(self) -> set[str]:
        """Return the checksums of the contents that are here, and that nobody removes meanwhile."""
        there = set(self.root.names(_FILES))
        return there & self._listed(self._read()) if self.root.keeps_s else there

    def _has(self, file: FileEntry, held: set[str]) -> bool:
        # The name is the checksum, so the size finds a file that a crash has cut; `verify` reads the
        # content.
        is_there = file.checksum in held
        return is_there and (
            not self.root.may_tear or self.root.size(self.path_of(file)) == file.size
        )

    def _publish(self, backup: Backup) -> None:
        # A manifest must never name a file that a power cut can take away.
        self.root.settle(_FILES)
        self.root.settle("")
        made = datetime.fromtimestamp(backup.made_us / 1_000_000, UTC)
        name = f"{backup.contents.epoch:012}-{made:%Y%m%dT%H%M%S.%fZ}.json"
        self.root.replace(f"{BACKUPS}/{name}", seal("backup", backup))

    def _check_identity(self, data: Path, app: str) -> None:
        identity = identity_of(data, app)
        # All backups of a place have one identity, so one of them tells it.
        for backup in self.every()[:1]:
            if backup.contents.identity != identity:
                raise ConfigError(
                    f"{self.root} has backups of another application "
                    f"({backup.contents.app}), or of another copy of {app}; use one directory for "
                    "each application"
                )

    def _read(self) -> dict[str, Backup | None]:
        """Return the backup of each manifest, the newest first; None for a damaged manifest."""
        try:
            names = [
                f"{BACKUPS}/{name}"
                for name in self.root.names(BACKUPS)
                if name[0].isdigit() and name.endswith(".json")
            ]
            manifests: dict[str, Backup | None] = {}
            for name in sorted(names, reverse=True):
                with suppress(FileNotFoundError):  # it was removed just now
                    manifests[name] = self._unsealed(name)
        except OSError as error:
            raise OperationalError(
                f"cannot read the backups in {self.root}: {error.strerror or error}"
            ) from error
        return manifests

    def _unsealed(self, name: str) -> Backup | None:
        try:
            return unseal("backup", self.root.get(name), Backup)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and self.root.answers_prove:
                raise  # a store that does not answer has lost nothing
            extra = {"path": f"{self.root}/{name}", "cause": str(error)}
            _log.warning("a backup's manifest cannot be read", extra=extra)
            return None

    def _listed(self, manifests: Mapping[str, Backup | None]) -> set[str]:
        """Return the checksums of the files that manifests list, the removed ones included whose files stay."""
        backups = [backup for backup in manifests.values() if backup is not None]
        backups += [unseal("backup", data, Backup) for data in retired(self.root, BACKUPS)]
        return {file.checksum for backup in backups for file in backup.files}

    def _remove_unlisted(self) -> None:
        """Remove the files that no backup lists."""
        manifests = self._read()
        if None in manifests.values():
            return  # the files of a damaged manifest are unknown
        listed = self._listed(manifests)
        for name in list(self.root.names(_FILES)):
            path = f"{_FILES}/{name}"
            if name not in listed and is_useless(self.root, path):
                self.root.remove(path)

    def _remove_unfinished(self) -> None:
        """Remove what a backup that died has left under temporary names."""
        for folder in (BACKUPS, _FILES) if self.root.may_tear else ():
            for name in list(self.root.names(folder)):
                if durable.is_temporary(name):
                    self.root.remove(f"{folder}/{name}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other backups of this host out."""
        with ExitStack() as stack:
            if isinstance(self.root, LocalRoot):
                private.create(self.root.path)
                # A file, because some network file systems cannot lock a folder.
                lock = stack.enter_context(locked_file(self.root.path / _LOCK, timeout_s=0))
                is_alone = lock is not None
            else:
                is_alone = stack.enter_context(self.root.alone(timeout_s=0))
            if not is_alone:
                raise ConfigError(
                    f"another backup is being written into {self.root}; wait until it has "
                    "ended, then run the command again"
                )
            yield
