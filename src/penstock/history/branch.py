"""Branches: a copy of an application that continues as an application of its own.

A branch has the original's history up to an epoch. Its journal has another identity, so that state
derived from one journal is never used for the other. Its log continues where the epoch ended, and
its request ids are taken up to the epoch and free after it. Records that cascades of these epochs have
appended, and that no such epoch has processed, wait in its log. A new directory appears complete or not
at all.

If the shared root of the new directory is in an object store, its shared names are sent there. The first file of the journal is
the last one: without it no process finds an application, and none can begin one, because other names of the journal are there.
"""

import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, ONLY_PARTITION, Epoch, Lsn, RequestId
from penstock.base.instants import instant_of
from penstock.deployment.archives import Archives
from penstock.engine.request_text import call_text
from penstock.errors import ConfigError
from penstock.files import durable, private
from penstock.files.file_entry import FileEntry
from penstock.files.heartbeat import Heartbeat, beating, is_alive
from penstock.files.layout import JOURNAL, LOG, PROBE, SHARED, UNFINISHED
from penstock.files.local_root import LocalRoot
from penstock.files.lock import locked_directory
from penstock.files.roots import journal_root, name_store, snapshots_root, store_of
from penstock.files.sealed import seal, size_and_checksum_of
from penstock.files.shared_root import SharedRoot
from penstock.history import copying
from penstock.history.copying import translating_disk_errors
from penstock.journal import copy_prefix as journals
from penstock.journal.api import Commit, Journal, PartKind, StepObserver
from penstock.journal.commits import LOG as COMMITS
from penstock.journal.deployments import Deployments
from penstock.journal.inventory import commit_name
from penstock.log import copy_prefix as logs
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.process import log_host
from penstock.process.data_directory import DataDirectory
from penstock.process.effect_files import begin_lineage
from penstock.process.erasures import Erasures
from penstock.process.view_files import Held, hold
from penstock.retention import savepoints
from penstock.snapshots.snapshot import MANIFEST, Snapshots
from penstock.snapshots.snapshot_writer import publish_tables


class OpenRecord(msgspec.Struct, frozen=True):
    """A record that an epoch has appended, and that no epoch up to the end of the branch has processed."""

    request_id: RequestId
    body: bytes
    time_us: int
    delay_us: int


def open_records(journal: Journal, last: Commit) -> list[OpenRecord]:
    """Return the open records of the epochs up to a commit, in the order of their epochs."""
    names = ("request_id", "request", "time_us", "delay_us")
    before = Epoch(journal.first() - 1)
    appended = [
        rows
        for _, rows in journal.rows(PartKind.APPENDS, before, last.epoch, names)
        if rows.num_rows
    ]
    if not appended:
        return []
    table = pa.concat_tables(appended)
    for _, rows in journal.rows(PartKind.TRANSACTIONS, before, last.epoch, ("request_id",)):
        processed = pc.is_in(table["request_id"], rows["request_id"].combine_chunks())
        table = table.filter(pc.invert(processed))
    columns = (table[name].to_pylist() for name in names)
    return [OpenRecord(*row) for row in zip(*columns, strict=True)]


def append_open(log: Log, records: Sequence[OpenRecord]) -> None:
    """Append records to a log that does not know them yet, or schedule them."""
    for record in records:
        entry = Entry(record.request_id, record.body, b"", record.time_us)
        # The driver of the original may have appended it before the copy was made.
        if log.find(record.request_id) is None and log.scheduled(record.request_id) is None:
            if record.delay_us:
                log.schedule(entry, record.time_us + record.delay_us, limited=False)
            else:
                log.append([entry], limited=False)


DROPPED: Final = "dropped-requests.jsonl"
_COMMITS: Final = f"{JOURNAL}/{COMMITS}/"
_BEGINNING: Final = f"{JOURNAL}/{commit_name(BEFORE_FIRST)}"
"""The first file of a journal: without it, no process finds an application."""
_COLUMNS: Final = ("partition", "lsn", "request_id", "time_us", "request")


class Branch(msgspec.Struct, frozen=True):
    """A branch.

    Attributes:
        app: The application's name.
        epoch: Its newest epoch.
        time_us: The commit time of that epoch, microseconds since the Unix epoch.
        waiting: Requests that were appended and not processed; they run when the branch starts. The records that
            cascades of its epochs have appended are among them.
        dropped: Requests after the epoch, which the branch does not have; they are listed in
            `dropped-requests.jsonl`.
        held: Its views, which write nothing until `penstock resume`.
        held_effects: Its effects, which are not called until then.
        held_captures: Its streams of changes, which take nothing until then.
    """

    app: str
    data: str
    epoch: Epoch
    time_us: int
    waiting: int
    dropped: int
    held: tuple[str, ...] = ()
    held_effects: tuple[str, ...] = ()
    held_captures: tuple[str, ...] = ()


class DroppedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that a branch does not have.

    Attributes:
        lsn: Its position in the log; None for a scheduled request.
        due_us, due: When a scheduled request was due.
    """

    request_id: str
    call: str
    time_us: int
    time: datetime
    lsn: int | None = None
    due_us: int | None = None
    due: datetime | None = None


class NewPlace(NamedTuple):
    """Where a copy of an application is to be.

    Attributes:
        folder: The data directory, on this host.
        store: The place in an object store that becomes its shared root; empty: the directory itself.
    """

    folder: Path
    store: str

    def __str__(self) -> str:
        return self.store or str(self.folder)


@contextmanager
def new_directory(place: NewPlace | Path, reached: StepObserver, step: str) -> Iterator[Path]:
    """Create a directory under a temporary name; rename it to `target` when the block succeeds.

    The temporary directory lies in the same folder. If a crash leaves it, the next call removes it.

    Args:
        reached: Receives `step` before the directory is renamed.
    """
    target, store = (place, "") if isinstance(place, Path) else place
    with ExitStack() as stack:
        stack.enter_context(translating_disk_errors(place))
        sent = stack.enter_context(_store_copy(store, target)) if store else None
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(f"{target} is not empty; name a directory that does not exist")
        final = target.absolute()
        unfinished = final.with_name(f".{final.name}.unfinished")
        stack.enter_context(_locked_and_empty(unfinished))
        try:
            yield unfinished
            if sent is not None:
                sent.send(unfinished)
                reached("store-copied")
            copying.sync_tree(unfinished)
            reached(step)
            unfinished.rename(final)
            # Before it, a crash may leave the former name.
            durable.sync_directory(unfinished.parent)
            if sent is not None:
                reached("store-renamed")
                # Before the application is there: a first start on another host would begin a log without the requests that wait in this log.
                log_host.settle(final, is_settled=False)
                sent.finish()
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise


@contextmanager
def _store_copy(store: str, target: Path) -> "Iterator[_StoreCopy]":
    """Hold the place of a copy in an object store; other processes see that it is in use."""
    from penstock.files.store_root import StoreRoot  # noqa: PLC0415 -- only for data in a store

    scratch = target.with_name(f".{target.name}.moving")
    root = StoreRoot(store, scratch)
    try:
        root.check_conditions()
        _check_free(root, target)
        # Another one may have begun at the same time.
        if not root.create(UNFINISHED, secrets.token_bytes(8)):
            raise _occupied(root)
        with beating(root, UNFINISHED, {"process": os.getpid()}) as heart:
            try:
                yield _StoreCopy(root, heart)
            except BaseException:
                with suppress(OSError):  # else the next copy to this place removes it
                    if not root.has(_BEGINNING):
                        heart.check()
                        _remove_below(root, "")
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_free(root: SharedRoot, target: Path) -> None:
    """Remove the files of a copy that has died from a store, and from the folder of this host.

    Raises:
        ConfigError: The place has an application or other names, or another process copies to it.
    """
    present = set(root.names()) - {PROBE}
    if root.has(_BEGINNING) or (present and UNFINISHED not in present):
        raise ConfigError(f"{root} is not empty; name a place that has no objects, or remove them")
    if UNFINISHED not in present:
        return
    if is_alive(root, UNFINISHED):
        raise _occupied(root)
    _remove_below(root, "")
    if target.is_dir() and store_of(target) == str(root):
        shutil.rmtree(target)


def _occupied(root: SharedRoot) -> ConfigError:
    return ConfigError(
        f"another process copies an application to {root}; wait until it has ended, or name another place"
    )


class _StoreCopy:
    """The shared names of a new directory on their way into an object store."""

    def __init__(self, root: SharedRoot, heart: Heartbeat) -> None:
        self._root = root
        self._heart = heart
        self._beginning = b""

    def send(self, folder: Path) -> None:
        """Move the shared names of a folder to the store, all but the beginning of the journal; let the folder name the store."""
        local = LocalRoot(folder)
        files = [
            FileEntry(str(path.relative_to(folder)), *size_and_checksum_of(path))
            for name in SHARED
            for path in _files_below(folder / name)
        ]
        # A journal without its beginning refuses to begin, so its commits and checkpoints are there first.
        files.sort(key=lambda file: not file.path.startswith(_COMMITS))
        self._beginning = local.get(_BEGINNING)
        copies = [(file.path, file.path, file) for file in files if file.path != _BEGINNING]
        # A process that was taken for dead must not write into the place of another process.
        for _ in copying.copy_all(local, self._root, copies, self._heart.check):
            pass
        for name in SHARED:
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        name_store(folder, str(self._root))

    def finish(self) -> None:
        """Create the beginning of the journal: from now on the application is there."""
        self._heart.check()
        if not self._root.create(_BEGINNING, self._beginning):
            raise ConfigError(f"another process has begun an application in {self._root}")


def _files_below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    yield from (below for below in path.rglob("*") if below.is_file())


def _remove_below(root: SharedRoot, folder: str) -> None:
    for name in list(root.names(folder)):
        path = f"{folder}/{name}" if folder else name
        if root.has(path):
            root.remove(path)
        else:
            _remove_below(root, path)


def create_branch(
    data: Path, app: str, epoch: Epoch | None, origin: str, *, is_fork: bool
) -> Branch:
    """Turn a copy of an application into a branch, in place; if the application has views, effects or streams of changes, they are held.

    Args:
        data: The copy. No other process uses it; after a crash it cannot be used.
        epoch: The last epoch of its history; None keeps the newest epoch and the waiting requests.
        origin: Where the copy comes from: `forked from …`.
        is_fork: Whether the original goes on beside it, so that its effects must have other ids.
    """
    with closing(DataDirectory(data).open_journal_of(app)) as journal:
        # Before the journal is cut, because the dropped requests are in its later epochs.
        commit, newest = _commits(journal, epoch)
        records = open_records(journal, commit)
        kept = {record.request_id for record in records}
        dropped = 0 if epoch is None else _write_dropped(data, journal, commit, newest, kept)
        Erasures(data).keep_committed(journal.identity, newest.epoch)
    # Another identity: state that was derived from one journal is never used for the other.
    identity = journals.keep_prefix(data / JOURNAL, app, commit.epoch)
    end = commit.positions.get(ONLY_PARTITION, Lsn(0))
    if epoch is not None:
        logs.keep_prefix(data / LOG, end, commit.time_us)
    _cut_snapshots(data, app, identity, commit.epoch)
    _cut_deployments(data, commit.epoch, keeps_log=epoch is None)
    for savepoint in savepoints.every(data):
        # Its epoch is not in the branch.
        if savepoint.epoch > commit.epoch:
            savepoints.remove(data, savepoint.name)
    with closing(DataDirectory(data).open_log()) as log:
        append_open(log, records)
        waiting = log.end() - end
    assert waiting >= 0, "the log holds all positions that the epoch has read"
    # The settings of the copy may name the targets of the original, so nothing is written before an operator says so.
    deployments = Deployments(journal_root(data))
    views, effects = deployments.views(), deployments.effects()
    captures = deployments.captures()
    if views or effects or captures:
        hold(data, Held(origin, wall_clock_us()))
    if is_fork:
        begin_lineage(data)
    held = tuple(views)
    return Branch(
        app, str(data), commit.epoch, commit.time_us, waiting, dropped, held, effects, captures
    )


def _commits(journal: Journal, epoch: Epoch | None) -> tuple[Commit, Commit]:
    """Return the commit of an epoch (None: the newest), and the newest commit."""
    newest = journal.last()
    assert newest is not None, "a copy has at least one epoch"
    if epoch is None:
        return newest, newest
    if not journal.first() <= epoch <= newest.epoch:
        raise ConfigError(
            f"epoch {epoch} is not held; the journal holds {journal.first()} to {newest.epoch}"
        )
    return next(iter(journal.commits(Epoch(epoch - 1), epoch))), newest


def _write_dropped(
    data: Path, journal: Journal, commit: Commit, newest: Commit, kept: Collection[str]
) -> int:
    """Write the requests after a commit to a file, without those in `kept`, and return their number."""
    path, count = data / DROPPED, 0
    with path.open("xb") as file:
        for request in _requests_after(data, journal, commit, newest):
            if request.request_id in kept:
                continue
            file.write(msgspec.json.encode(request) + b"\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    if not count:
        path.unlink()
    return count


def _requests_after(
    data: Path, journal: Journal, commit: Commit, newest: Commit
) -> Iterator[DroppedRequest]:
    """Yield processed requests from the journal, then waiting and scheduled ones from the log."""
    for _, table in journal.rows(PartKind.TRANSACTIONS, commit.epoch, newest.epoch, _COLUMNS):
        rows: list[dict[str, Any]] = table.sort_by([("lsn", "ascending")]).to_pylist()
        for row in rows:
            call, time_us = call_text(row["request"]), row["time_us"]
            yield DroppedRequest(row["request_id"], call, time_us, instant_of(time_us), row["lsn"])
    processed = newest.positions.get(ONLY_PARTITION, Lsn(0))
    for entry in logs.requests_after(data / LOG, processed, commit.time_us):
        call = call_text(entry.body)
        due = None if entry.due_us is None else instant_of(entry.due_us)
        times = entry.time_us, instant_of(entry.time_us)
        yield DroppedRequest(entry.request_id, call, *times, entry.lsn, entry.due_us, due)


def _cut_snapshots(data: Path, app: str, identity: str, epoch: Epoch) -> None:
    """Give snapshots up to an epoch the branch's identity, remove the others, and show the newest to Delta readers."""
    snapshots = Snapshots(snapshots_root(data), identity)
    kept: set[str] = set()
    for snapshot_epoch in snapshots.epochs():
        path = snapshots.path_of(snapshot_epoch)
        manifest = snapshots.sound(snapshot_epoch)
        if manifest is None or snapshot_epoch > epoch:
            snapshots.root.remove(path)
            continue
        own = msgspec.structs.replace(manifest, journal=identity)
        snapshots.root.replace(path, seal(MANIFEST, own))
        kept.update(file.path for file in manifest.files)
    for path in snapshots.stored():
        if path not in kept:
            snapshots.root.remove(path)
    publish_tables(snapshots, app)  # copies have no Delta tables


def _cut_deployments(data: Path, epoch: Epoch, *, keeps_log: bool) -> None:
    """Remove the deployments that are not in force after an epoch, with their archives.

    Args:
        keeps_log: Whether deployments may wait in its log; then all archives stay.
    """
    deployments = Deployments(journal_root(data))
    deployments.keep_committed(epoch)
    if not keeps_log:
        kept = {deployment.code.archive for deployment in deployments.every()}
        Archives(data).remove_others(kept)


@contextmanager
def _locked_and_empty(directory: Path) -> Iterator[None]:
    """Create a directory, or empty the directory that a crash has left; lock it during the block."""
    private.create(directory)
    with locked_directory(directory, timeout_s=0) as lock:
        # Another process may still write the directory, or may have renamed it.
        if lock is None or not _is_open_as(directory, lock):
            raise ConfigError(f"another process writes {directory}; wait until it has ended")
        for path in list(directory.iterdir()):
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
