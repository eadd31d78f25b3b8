"""Branching off: from a copy of an application's truth to another application that goes on from it.

A branch has the history of the original up to an epoch, and its own from there. It promises a journal
of another identity, so that nothing that is derived of one is taken for the other's; a log that goes
on where the epoch ended; ids that are known where the epoch had processed their requests and free
where not; and that a new directory appears whole or not at all.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.base.ids import ONLY_PARTITION, Epoch, Lsn
from penstock.engine.replay import call_text
from penstock.errors import ConfigError
from penstock.files import durable, private
from penstock.files.lock import locked_directory
from penstock.files.sealed import seal
from penstock.history import copying
from penstock.history.copying import storing
from penstock.journal import cut as journals
from penstock.journal.api import Commit, Journal, PartKind, Reached
from penstock.log import cut as logs
from penstock.process.data_directory import JOURNAL, LOG, DataDirectory
from penstock.retention import savepoints
from penstock.snapshots import snapshot
from penstock.snapshots.snapshot import MANIFEST, Snapshots

DROPPED: Final = "dropped-requests.jsonl"
_ROWS: Final = ("partition", "lsn", "request_id", "time_us", "request")


class Branch(msgspec.Struct, frozen=True):
    """An application that branched off.

    Attributes:
        app: Its name.
        data: Its directory.
        epoch: The newest one that it has.
        time_us: When the original had committed that, microseconds since the Unix epoch.
        waiting: Requests that the original had taken and not processed; they run when it starts.
        dropped: Requests that came after the epoch and are not part of it; they are listed in
            `dropped-requests.jsonl`.
    """

    app: str
    data: str
    epoch: Epoch
    time_us: int
    waiting: int
    dropped: int


class DroppedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that a branch does not have; what only waited to be due has no position."""

    request_id: str
    call: str
    time_us: int
    lsn: int | None = None
    due_us: int | None = None


@contextmanager
def new_directory(target: Path, reached: Reached, step: str) -> Iterator[Path]:
    """Lend a directory beside `target` that takes its name when the block ends without an error.

    It has a name of its own, so that what a crash leaves is removed by the next attempt.

    Raises:
        ConfigError: `target` is there and is not empty, or somebody else builds it.
        OperationalError: The disk is full or fails; nothing is left.
    """
    with storing(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"{target} is not empty; name a directory that does not exist")
        whole = target.absolute()
        beside = whole.with_name(f".{whole.name}.unfinished")
        with _alone(beside):
            try:
                yield beside
                copying.sync_tree(beside)
                reached(step)
                beside.rename(whole)
                durable.sync_directory(beside.parent)
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise


def create_branch(data: Path, app: str, epoch: Epoch | None) -> Branch:
    """Make another application of a copy, in place.

    Args:
        data: The copy: nobody else uses it, and a crash leaves it of no use.
        app: The application's name.
        epoch: Where its history ends; None is the newest, with what waits for the next one.

    Raises:
        ConfigError: The journal does not hold the epoch.
        Diverged: The log ends before the epoch does.
        Corrupt: Something that must be read is damaged.
        OperationalError: The disk is full or fails.
    """
    journal = DataDirectory(data).open_journal_of(app)
    commit, newest = _held(journal, epoch)
    end = commit.positions.get(ONLY_PARTITION, Lsn(0))
    dropped = 0
    if epoch is not None:
        after = newest.positions.get(ONLY_PARTITION, Lsn(0))
        dropped = _write_dropped(data, journal, commit, after)
    journal.close()
    identity = journals.become_another(data / JOURNAL, app, commit.epoch)
    if epoch is not None:
        logs.cut(data / LOG, end, commit.time_us)
    _cut_snapshots(data, identity, commit.epoch)
    for one in savepoints.every(data):
        if one.epoch > commit.epoch:
            savepoints.remove(data, one.name)
    with closing(DataDirectory(data).open_log()) as log:
        waiting = log.end() - end
    assert waiting >= 0, "the log holds what the epoch has read"
    return Branch(app, str(data), commit.epoch, commit.time_us, waiting, dropped)


def _held(journal: Journal, epoch: Epoch | None) -> tuple[Commit, Commit]:
    """Return the commit of an epoch, and the newest one."""
    newest = journal.last()
    assert newest is not None, "who has nothing has no copy"
    if epoch is None:
        return newest, newest
    if not journal.first() <= epoch <= newest.epoch:
        raise ConfigError(
            f"epoch {epoch} is not held; the epochs {journal.first()} to {newest.epoch} are"
        )
    return next(iter(journal.commits(Epoch(epoch - 1), epoch))), newest


def _write_dropped(data: Path, journal: Journal, commit: Commit, processed: Lsn) -> int:
    """List what comes after a commit: from the journal what was processed, the rest from the log."""
    path, count = data / DROPPED, 0
    with path.open("xb") as file:
        for one in _after(data, journal, commit, processed):
            file.write(msgspec.json.encode(one) + b"\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    if not count:
        path.unlink()
    return count


def _after(
    data: Path, journal: Journal, commit: Commit, processed: Lsn
) -> Iterator[DroppedRequest]:
    newest = journal.last()
    assert newest is not None, "the commit is there"
    for _, rows in journal.rows(PartKind.TRANSACTIONS, commit.epoch, newest.epoch, _ROWS):
        order: list[dict[str, Any]] = rows.sort_by([("lsn", "ascending")]).to_pylist()
        for row in order:
            call = call_text(row["request"])
            yield DroppedRequest(row["request_id"], call, row["time_us"], row["lsn"])
    for one in logs.behind(data / LOG, processed, commit.time_us):
        yield DroppedRequest(one.request_id, call_text(one.body), one.time_us, one.lsn, one.due_us)


def _cut_snapshots(data: Path, identity: str, epoch: Epoch) -> None:
    """Let snapshots be of the new journal; those of later epochs are none of its."""
    snapshots = Snapshots(data / snapshot.FOLDER, identity)
    kept: set[str] = set()
    for one in snapshots.epochs():
        path = snapshots.path_of(one)
        manifest = snapshots.sound(one)
        if manifest is None or one > epoch:
            path.unlink()
            continue
        durable.replace(path, seal(MANIFEST, msgspec.structs.replace(manifest, journal=identity)))
        kept.update(file.path for file in manifest.files)
    for path in list(snapshots.directory.glob("*/*.parquet")):
        if str(path.relative_to(snapshots.directory)) not in kept:
            path.unlink()


@contextmanager
def _alone(beside: Path) -> Iterator[None]:
    """Create a directory, or empty the one that a crash has left, and keep others from it."""
    private.create(beside)
    with locked_directory(beside, timeout_s=0) as lock:
        # A process that was faster still builds it, or has renamed it since it was opened here.
        if lock is None or not _is_open_as(beside, lock):
            raise ConfigError(f"another process is making {beside}; wait until it has ended")
        for path in list(beside.iterdir()):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        yield


def _is_open_as(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
