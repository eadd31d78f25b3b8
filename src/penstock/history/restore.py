"""Restoring: from a backup to an application in a new directory, and forking without a backup.

Both end in `create_branch`. Promises that every byte of a backup is checked before it is used, and that
the new directory is there whole or not at all. The original and its backups stay as they are.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, Corrupt
from penstock.history import copying
from penstock.history.backup import Backup, Backups, Progress, ignore_progress
from penstock.history.backup_set import BackupSet, FileMismatch, collect
from penstock.history.branch import Branch, create_branch, new_directory
from penstock.journal.api import Reached, ignored
from penstock.journal.as_of import PointInTime, epoch_as_of, parse_point_in_time
from penstock.log import cut as logs
from penstock.log.cut import Extent
from penstock.process.data_directory import LOG, DataDirectory
from penstock.retention import savepoints
from penstock.retention.leases import holding

_MICROSECOND: Final = 1_000_000
RestorePoint = PointInTime | str | None
"""An epoch, an instant, the name of a savepoint, or None for the newest of all."""


def parse_restore_point(text: str) -> RestorePoint:
    """Return what a word aims at: a savepoint's name begins with a letter.

    Raises:
        QueryError: It is none of the three.
    """
    return text if savepoints.is_name(text) else parse_point_in_time(text)


def restore(
    directory: Path,
    target: Path,
    aim: RestorePoint,
    reached: Reached = ignored,
    told: Progress = ignore_progress,
) -> Branch:
    """Make a new data directory from the backups in a directory.

    Where several backups hold what is aimed at, the newest is taken: it knows best what came after.

    Raises:
        ConfigError: There is no such backup, or `target` is not empty.
        QueryError: No epoch was committed by the instant.
        Corrupt: The backup is damaged; names the file. There is no new directory.
        OperationalError: A disk is full or fails. There is no new directory.
    """
    backups = Backups(directory)
    every = backups.every()
    if not every:
        damaged = f"; these are damaged: {backups.damaged()}" if backups.damaged() else ""
        raise ConfigError(f"there is no backup in {directory}{damaged}")
    backup = _chosen(every, aim, directory)
    with new_directory(target, reached, "restore-before-rename") as beside:
        _place(backups, backup, beside, reached, told)
        epoch = _epoch(beside, backup.truth.app, aim)
        branch = create_branch(beside, backup.truth.app, epoch)
    reached("restore-after-rename")
    return msgspec.structs.replace(branch, data=str(target))


def fork(
    data: Path,
    app: str,
    target: Path,
    aim: RestorePoint,
    reached: Reached = ignored,
    told: Progress = ignore_progress,
) -> Branch:
    """Make a copy of an application, which may run meanwhile, at an epoch.

    Files that never change are shared with the original where the file system has hard links.

    Raises:
        ConfigError: Nothing was ever committed there, the epoch is not held, there is no such
            savepoint, or `target` is not empty.
        QueryError: No epoch was committed by the instant.
        Corrupt: A file of the original is missing or damaged. There is no new directory.
        OperationalError: A disk is full or fails. There is no new directory.
    """
    with (
        holding(data, "fork", Epoch(0)),
        new_directory(target, reached, "fork-before-rename") as beside,
    ):

        def take(truth: BackupSet) -> None:
            for done, one in enumerate(truth.files, start=1):
                path = beside / one.path
                if not _is_same(path, data / one.path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.unlink(missing_ok=True)
                    copying.link(data / one.path, path, one)
                    reached("fork-file-linked")
                told(done, len(truth.files))

        def take_log() -> Extent:
            for path in beside.glob(f"{LOG}*"):
                path.unlink()
            return logs.copy(data / LOG, beside / LOG)

        collect(data, app, take, take_log)
        reached("fork-log-copied")
        branch = create_branch(beside, app, _epoch(beside, app, aim))
    reached("fork-after-rename")
    return msgspec.structs.replace(branch, data=str(target))


def _is_same(path: Path, other: Path) -> bool:
    """Say whether two names are of one file."""
    try:
        return path.samefile(other)
    except FileNotFoundError:
        return False


def _place(
    backups: Backups, backup: Backup, beside: Path, reached: Reached, told: Progress
) -> None:
    """Put the files of a backup where they belong."""
    done = 0
    for one in backup.files:
        path = beside / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            copying.copy(backups.path_of(one), path, one)
        except FileMismatch as error:
            raise Corrupt(
                f"{backups.path_of(one)}, which is {one.path} in the backup of epoch "
                f"{backup.truth.epoch}, {error}; restore another backup (penstock backup --list)"
            ) from error
        reached("restore-file-copied")
        done += one.size
        told(done, backup.size)


def _chosen(every: Sequence[Backup], aim: RestorePoint, directory: Path) -> Backup:
    for one in every:
        if _reaches(one, aim):
            return one
    epochs = ", ".join(f"{one.truth.first} to {one.truth.epoch}" for one in every)
    newest = datetime.fromtimestamp(every[0].made_us / _MICROSECOND, UTC)
    raise ConfigError(
        f"no backup in {directory} holds {_said(aim)}; they hold the epochs {epochs}, and the newest "
        f"was made at {newest.isoformat(timespec='seconds')}"
    )


def _reaches(one: Backup, aim: RestorePoint) -> bool:
    truth = one.truth
    match aim:
        case None:
            return True
        case str():
            path = f"{savepoints.FOLDER}/{aim}.json"
            return any(file.path == path for file in truth.files)
        case datetime():
            return truth.first_us <= _microseconds(aim) <= one.made_us
        case _:
            return truth.first <= aim <= truth.epoch


def _epoch(data: Path, app: str, aim: RestorePoint) -> Epoch | None:
    """Return the epoch that is aimed at in a copy; None is the newest with all that waits."""
    if aim is None:
        return None
    if isinstance(aim, str):
        return savepoints.find(data, aim).epoch
    journal = DataDirectory(data).open_journal_of(app)
    try:
        return epoch_as_of(journal, aim)
    finally:
        journal.close()


def _microseconds(moment: datetime) -> int:
    return round(_in_utc(moment).timestamp() * _MICROSECOND)


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _said(aim: RestorePoint) -> str:
    match aim:
        case str():
            return f"a savepoint {aim}"
        case datetime():
            return f"what was at {_in_utc(aim).isoformat()}"
        case _:
            return f"epoch {aim}"
