"""Restoring a backup into a new directory, and forking an application without a backup.

Every byte of a backup is checked. The new directory appears complete or not at all. The original
application and its backups are unchanged. Backups, the original and the copy may each have their shared data in an
object store. A copy is made in a folder of this host first, so its disk must have room for it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch, epochs_text
from penstock.errors import ConfigError, Corrupt
from penstock.files.file_entry import FileEntry, FileMismatch
from penstock.files.layout import JOURNAL, LOG, SAVEPOINTS
from penstock.files.local_root import LocalRoot
from penstock.files.roots import shared_root
from penstock.files.shared_root import SharedRoot
from penstock.history import copying
from penstock.history.backup import Backup, Backups, Progress, ignore_progress
from penstock.history.backup_set import BackupSet, collect
from penstock.history.branch import Branch, NewPlace, create_branch, new_directory
from penstock.journal.api import StepObserver, ignore_step
from penstock.journal.as_of import PointInTime, epoch_as_of, parse_point_in_time
from penstock.journal.shapes import NAME as SHAPES
from penstock.journal.shapes import versions_in
from penstock.log import copy_prefix as logs
from penstock.log.copy_prefix import PositionRange
from penstock.model.shape import is_personal
from penstock.process import log_host
from penstock.process.data_directory import DataDirectory
from penstock.retention import savepoints
from penstock.retention.leases import lease

_MICROSECOND: Final = 1_000_000
Announce = Callable[[list[str]], None]
"""Receives the personal classes whose keys the new directory will lack, before anything is copied."""

RestorePoint = PointInTime | str | None
"""An epoch, a timestamp, the name of a savepoint, or None for the newest state."""


def announce_nothing(_personal: list[str]) -> None:
    """Say nothing of missing keys."""


def parse_restore_point(text: str) -> RestorePoint:
    """Return the restore point that a text names; a savepoint's name begins with a letter."""
    return text if savepoints.is_name(text) else parse_point_in_time(text)


def restore(
    place: SharedRoot | Path,
    target: NewPlace | Path,
    point: RestorePoint,
    reached: StepObserver = ignore_step,
    progress: Progress = ignore_progress,
    announce: Announce = announce_nothing,
) -> Branch:
    """Create a data directory from a backup.

    If several backups contain the restore point, the newest is used: its list of dropped requests
    is the most complete.

    Args:
        place: The root of the backups, or their folder.
        point: The end of the new directory's history.
        reached: Receives each step, for tests of crashes.
        progress: Receives copied and total bytes.
        announce: Is called if the application has personal classes: no backup contains their keys.
    """
    backups = Backups(place)
    backup = _choose(backups, point)
    with new_directory(target, reached, "restore-before-rename") as unfinished:
        if personal := _personal_in(backups, backup):
            announce(personal)
        _copy_files(backups, backup, unfinished, reached, progress)
        epoch = _epoch_of(unfinished, backup.contents.app, point)
        origin = f"restored from {_full_name(backups.root)}"
        branch = create_branch(unfinished, backup.contents.app, epoch, origin, is_fork=False)
    reached("restore-after-rename")
    return _finished(branch, target)


def fork(
    data: Path,
    app: str,
    target: NewPlace | Path,
    point: RestorePoint,
    reached: StepObserver = ignore_step,
    progress: Progress = ignore_progress,
) -> Branch:
    """Create a copy of an application that ends at a restore point; the application may run.

    Immutable files are shared with the original by hard links, if the file system has them.

    Args:
        reached: Receives each step, for tests of crashes.
        progress: Receives the number of linked files, and of all files.
    """
    source = shared_root(data)
    with (
        lease(data, "fork", Epoch(0)),
        new_directory(target, reached, "fork-before-rename") as unfinished,
    ):
        copy = LocalRoot(unfinished)

        def take_files(backup_set: BackupSet) -> None:
            total = len(backup_set.files)
            for done, _ in enumerate(_taken(source, copy, backup_set.files), start=1):
                reached("fork-file-linked")
                progress(done, total)
            progress(total, total)

        def copy_log() -> PositionRange:
            for path in unfinished.glob(f"{LOG}*"):
                path.unlink()
            return logs.copy_log(data / LOG, unfinished / LOG)

        collect(data, app, take_files, copy_log)
        reached("fork-log-copied")
        origin = f"forked from {_full_name(source)}"
        epoch = _epoch_of(unfinished, app, point)
        branch = create_branch(unfinished, app, epoch, origin, is_fork=True)
    reached("fork-after-rename")
    return _finished(branch, target)


def _finished(branch: Branch, place: NewPlace | Path) -> Branch:
    if not isinstance(place, Path) and place.store and not branch.waiting:
        log_host.settle(place.folder, is_settled=True)  # so it may start on any host
    return msgspec.structs.replace(branch, data=str(place))


def _full_name(root: SharedRoot) -> str:
    return str(root.path.absolute()) if isinstance(root, LocalRoot) else str(root)


def _personal_in(backups: Backups, backup: Backup) -> list[str]:
    """Return the personal classes of a backup."""
    shapes = f"{JOURNAL}/{SHAPES}"
    return next(
        (
            _personal_at(backups.root, backups.path_of(file))
            for file in backup.files
            if file.path == shapes
        ),
        [],
    )


def _personal_at(root: SharedRoot, shapes: str) -> list[str]:
    """Return the personal classes in a file of stored classes; none if it is damaged, which the copy reports."""
    try:
        stored = versions_in(root.get(shapes))
    except (OSError, ValueError):
        return []
    return sorted(name for name, versions in stored.items() if is_personal(versions[-1].shape))


def personal_classes(data: Path) -> list[str]:
    """Return the personal classes of a data directory: a fork does not get their keys."""
    return _personal_at(shared_root(data), f"{JOURNAL}/{SHAPES}")


def _taken(source: SharedRoot, copy: LocalRoot, files: Sequence[FileEntry]) -> Iterator[FileEntry]:
    """Link or copy the files that a copy lacks, and yield each."""
    _make_parents(copy, files)
    if not isinstance(source, LocalRoot):
        missing = [file for file in files if not _is_there(file, copy)]
        yield from copying.copy_all(
            source, copy, [(file.path, file.path, file) for file in missing]
        )
        return
    for file in files:
        path = copy.path / file.path
        if not _is_same(path, source.path / file.path):
            path.unlink(missing_ok=True)
            copying.link(source, copy, file)
            yield file


def _is_there(file: FileEntry, copy: LocalRoot) -> bool:
    try:
        file.check_in(copy, file.path)
    except FileMismatch:
        return False
    return True


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except FileNotFoundError:
        return False


def _copy_files(
    backups: Backups, backup: Backup, target: Path, reached: StepObserver, progress: Progress
) -> None:
    done, copy = 0, LocalRoot(target)
    _make_parents(copy, backup.files)
    copies = [(backups.path_of(file), file.path, file) for file in backup.files]
    try:
        for file in copying.copy_all(backups.root, copy, copies):
            reached("restore-file-copied")
            done += file.size
            progress(done, backup.size)
    except FileMismatch as error:
        name = f"{backups.root}/{backups.path_of(error.file)}"
        raise Corrupt(
            f"{name}, which is {error.file.path} in the backup of epoch "
            f"{backup.contents.epoch}, {error}; restore another backup (penstock backup --list)"
        ) from error


def _make_parents(root: LocalRoot, files: Iterable[FileEntry]) -> None:
    """Create the folders of files."""
    for folder in sorted({(root.path / file.path).parent for file in files}):
        folder.mkdir(parents=True, exist_ok=True)


def _choose(backups: Backups, point: RestorePoint) -> Backup:
    every = backups.every()
    if not every:
        damaged = backups.damaged()
        damage = f"; these manifests are damaged: {', '.join(damaged)}" if damaged else ""
        raise ConfigError(f"there is no backup in {backups.root}{damage}")
    for backup in every:
        if _contains(backup, point):
            return backup
    contents = [backup.contents for backup in every]
    epochs = ", ".join(epochs_text(content.first, content.epoch) for content in contents)
    newest = datetime.fromtimestamp(every[0].made_us / _MICROSECOND, UTC)
    raise ConfigError(
        f"no backup in {backups.root} holds {_text_of(point)}; they hold {epochs}, "
        f"and the newest was made at {newest.isoformat(timespec='seconds')}"
    )


def _contains(backup: Backup, point: RestorePoint) -> bool:
    contents = backup.contents
    match point:
        case None:
            return True
        case str():
            path = f"{SAVEPOINTS}/{point}.json"
            return any(file.path == path for file in contents.files)
        case datetime():
            time_us = round(_in_utc(point).timestamp() * _MICROSECOND)
            # Up to the time of the backup, not of its newest epoch: nothing was committed between
            # them.
            return contents.first_us <= time_us <= backup.made_us
        case _:
            return contents.first <= point <= contents.epoch


def _epoch_of(data: Path, app: str, point: RestorePoint) -> Epoch | None:
    """Return the last epoch of a copy; None keeps the newest epoch and the waiting requests."""
    if point is None:
        return None
    if isinstance(point, str):
        return savepoints.find(data, point).epoch
    with closing(DataDirectory(data).open_journal_of(app)) as journal:
        return epoch_as_of(journal, point)


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _text_of(point: RestorePoint) -> str:
    match point:
        case str():
            return f"a savepoint {point}"
        case datetime():
            return f"the state of {_in_utc(point).isoformat()}"
        case _:
            return f"epoch {point}"
