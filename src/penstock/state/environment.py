"""Environments: LMDB files that are opened once per process, and not trusted after a power loss.

LMDB must not open a file twice in one process, nor use it after a fork. So the stores of one path
share one `Environment` in a process. A forked child starts without environments; it may open the path
again, unless a reader of the parent was open during the fork.

Data is not flushed to disk while a store is in use. A killed process does no harm, because the kernel
keeps its writes. But a power loss may leave a tree that looks sound and is not. So the file `life`
holds the kernel's boot id while the store is in use, and the word `clean` after the last process has
flushed and closed it. A store of another boot that was not closed cleanly is deleted when it is
opened, and the caller rebuilds it from the journal.

`rewrite` puts the rows of a store into a new file, in the order of the keys, in a folder of its own (`<path>.rewritten`), and lets
it take the store's place. A process that is killed meanwhile leaves the former store or the new one.

The kernel releases the locks (`flock`) of a process that ends in any way. `<path>.gate` is held while
a store is opened, closed or discarded. `<path>/users` is held shared by each process that has the
store open, so that a process can tell whether it is the last.
"""

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias, final

import lmdb

from penstock.errors import Corrupt, StateUnavailable
from penstock.files import durable
from penstock.files.lock import locked_file

Transaction: TypeAlias = "lmdb.Transaction[bytes]"  # generic for type checkers only
FileIdentity = tuple[int, int]
"""Device and inode of a data file; they change when the store is discarded and made again."""

MAP_SIZE: Final = 256 << 30  # bytes of address space, not of disk or memory
MAX_READERS: Final = 1022
_CLEAN: Final = "clean"
DATA_FILE: Final = "data.mdb"
"""The file of a store with its rows."""

_LAID_OUT_MIN: Final = 64
_LAID_OUT_MAX: Final = 16_384
"""Pages that are written one by one before a commit writes them; fewer are in small pieces anyway, and more would waste the disk."""

_COPIED_AT_ONCE: Final = 250_000
"""Records of a copy between two times that pages are laid out; LMDB keeps their pages in memory."""

DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.BadTxnError,
    lmdb.ProblemError,
)
"""The errors of LMDB for a file that contradicts itself."""


@final
class Environment:
    """One open LMDB file of this process, shared by all stores on its path."""

    def __init__(self, path: Path, map_size: int) -> None:
        self.path = path
        self._data = path / DATA_FILE
        self.users = 0
        self.process = os.getpid()
        self._readers = 0
        self._lock = threading.Lock()
        self._presence = os.open(path / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._presence, fcntl.LOCK_SH)
        try:
            self._lmdb = _open(path, map_size)
        except BaseException:
            os.close(self._presence)
            raise
        self.entities = self._lmdb.open_db()
        identity = file_identity(path)
        assert identity is not None, "LMDB creates its file when it opens it"
        self.identity: FileIdentity = identity

    def begin_read(self) -> Transaction:
        """Open a read transaction; `end_read` must follow.

        Raises:
            Corrupt: The file contradicts itself.
        """
        with self._lock:
            txn = self._begin(write=False)
            self._readers += 1
            return txn

    def end_read(self, txn: Transaction) -> None:
        """Close a read transaction."""
        with self._lock:
            self._readers -= 1
            if self.process == os.getpid():
                txn.abort()

    def begin_write(self) -> Transaction:
        """Open the write transaction, waiting for other writers; raises like `begin_read`.

        Readers of killed processes are removed first: each keeps the pages of its epoch in use, so
        the file would grow without end.
        """
        if self.process == os.getpid():
            self._lmdb.reader_check()
        return self._begin(write=True)

    def grow(self) -> None:
        """Double the map after it was full; no transaction of this process may be open."""
        with self._lock:
            self._check_no_readers()
            self._lmdb.set_mapsize(2 * self.map_size)

    def pad(self) -> None:
        """Extend the file to the length of its pages, so that a shorter file is known to be damaged.

        LMDB itself does not write pages that the same transaction took and freed.
        """
        needed = _needed_size(self._lmdb)
        with contextlib.suppress(OSError):  # then the next opening rebuilds the store
            if self._data.stat().st_size < needed and file_identity(self.path) == self.identity:
                with self._data.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), needed - 1, 1)  # never shortens

    def lay_out(self, txn: Transaction, pages: int | None = None) -> None:
        """Write empty pages behind the file, one by one, for those that the commit of a write transaction may append.

        LMDB writes up to 64 pages at once. ext4 keeps what was written at once in one piece of its cache, and each later write of a
        page looks at all pages of the piece. If this fails, the commit says why.

        Args:
            pages: How many pages the transaction changes at most; None for the whole tree.
        """
        tree = txn.stat()
        used = tree["branch_pages"] + tree["leaf_pages"] + tree["overflow_pages"]
        pages = used if pages is None else min(pages, used, _LAID_OUT_MAX)
        if pages < _LAID_OUT_MIN:
            return
        size = tree["psize"]
        end = _needed_size(self._lmdb) + pages * size
        with contextlib.suppress(OSError):
            if self._data.stat().st_size >= end:
                return
            with self._data.open("r+b", buffering=0) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) == self.identity:
                    empty = bytes(size)
                    for place in range(status.st_size, end, size):
                        os.pwrite(file.fileno(), empty, place)

    def copy_to(self, new: "Environment", txn: Transaction) -> None:
        """Copy all records that the write transaction sees into an empty store, in the order of the keys, with full pages.

        Raises:
            Corrupt: Records are out of order or missing.
        """
        expected = self._lmdb.stat()["entries"]
        copied = 0
        with new.begin_write() as copy, txn.cursor() as source, copy.cursor() as target:
            source.first()
            records = source.iternext()
            # Without an object for each record in Python: 0.4 µs for each.
            while count := target.putmulti(islice(records, _COPIED_AT_ONCE), append=True)[0]:
                copied += count
                new.lay_out(copy)
        if new.records != expected:
            message = f"{self.path}: {expected} records are counted, {copied} were copied; the store can be rebuilt"
            raise Corrupt(message)
        new.pad()

    @property
    def map_size(self) -> int:
        """The bytes of address space."""
        return int(self._lmdb.info()["map_size"])

    @property
    def records(self) -> int:
        """The number of records, with that of the metadata."""
        return int(self._lmdb.stat()["entries"])

    def close(self, *, flush: bool) -> bool:
        """Close; return whether no other process has the file open and all data is on the disk.

        Args:
            flush: Whether to put the data on the disk.
        """
        try:
            fcntl.flock(self._presence, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if flush:
                self._lmdb.sync(force=True)
            clean = flush
        except (BlockingIOError, lmdb.Error):
            clean = False
        self._lmdb.close()
        os.close(self._presence)
        return clean

    def abandon(self) -> None:
        """Drop the handles that a forked child has inherited; the parent keeps its locks.

        Closing would free the parent's reader slots. Dropping does not, since py-lmdb compares the
        process id, and the child can then open the file again.
        """
        del self._lmdb, self.entities
        os.close(self._presence)

    def _begin(self, *, write: bool) -> Transaction:
        if self.process != os.getpid():
            message = f"{self.path} was opened before a fork; open it again"
            raise StateUnavailable(message)
        try:
            return self._lmdb.begin(write=write)
        except lmdb.MapResizedError:
            self._check_no_readers()
            self._lmdb.set_mapsize(0)  # adopt the size that another process chose
            return self._lmdb.begin(write=write)
        except lmdb.ReadersFullError:
            self._lmdb.reader_check()  # frees the slots of processes that were killed
            return self._lmdb.begin(write=write)

    def _check_no_readers(self) -> None:
        if self._readers:
            message = f"the map of {self.path} must grow, and this process is reading it"
            raise StateUnavailable(message)


def _open(path: Path, map_size: int) -> lmdb.Environment:
    opened = lmdb.open(
        str(path),
        map_size=map_size,
        sync=False,
        metasync=False,
        writemap=False,  # a stray write of this process could reach the file otherwise
        meminit=False,
        readahead=False,  # access is random, and the store may exceed memory
        mode=0o600,
        max_readers=MAX_READERS,
        max_spare_txns=0,  # a forked child that drops a spare one would free the parent's slot
    )
    opened.reader_check()
    size = (path / DATA_FILE).stat().st_size
    if size < _needed_size(opened):
        opened.close()
        message = f"{path} is shorter than its pages; it can be rebuilt"
        raise Corrupt(message)
    return opened


def _needed_size(opened: lmdb.Environment) -> int:
    return (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]


_environments: dict[Path, Environment] = {}
_registry_lock = threading.RLock()


def _forget_after_fork() -> None:
    global _registry_lock
    _registry_lock = threading.RLock()  # another thread of the parent may hold the old one
    for environment in _environments.values():
        environment.abandon()
    _environments.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def attach(path: Path, boot_id: str, map_size: int = MAP_SIZE) -> Environment:
    """Return this process's environment of a path, opening it when it is the first use.

    A store from another boot that was not closed cleanly is deleted first.

    Raises:
        Corrupt: The file is damaged so that it cannot be opened; `discard` it.
    """
    path = path.absolute()
    with _registry_lock, _translated(path), _gate(path):
        environment = _environments.get(path)
        if environment is None or environment.identity != file_identity(path):
            _claim(path, boot_id)
            environment = _environments[path] = Environment(path, map_size)
        environment.users += 1
        return environment


def detach(environment: Environment) -> None:
    """Return an environment of `attach`; the last user in this process closes the file."""
    with _registry_lock:
        environment.users -= 1
        if environment.users or environment.process != os.getpid():
            return
        with _gate(environment.path):
            if _environments.get(environment.path) is environment:
                del _environments[environment.path]
            current = environment.identity == file_identity(environment.path)
            if environment.close(flush=current):
                _write_life(environment.path, _CLEAN)


def rewrite(environment: Environment, boot_id: str) -> None:
    """Put the rows of a store into a new file, in the order of the keys and with full pages, which takes the place of the store.

    Other writers wait. Processes that have the former file open keep reading it, and notice the change by `file_identity`.
    If another process has replaced the store meanwhile, that one stays.

    Raises:
        Corrupt: Records are out of order or missing; the store is as before.
        StateUnavailable: The disk is full or fails; the store is as before.
    """
    path = environment.path
    new = _rewritten(path)
    copy = None
    is_whole = False
    with _translated(path), environment.begin_write() as txn:
        try:
            with _gate(path):
                if file_identity(path) != environment.identity:
                    return
                shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
                new.mkdir()
                copy = _environments[new] = Environment(
                    new, environment.map_size
                )  # a fork abandons it
            environment.copy_to(copy, txn)
            is_whole = True
        finally:
            with _registry_lock, _gate(path):
                # Otherwise another process has discarded the store, and the folder may be that of the next one.
                if file_identity(path) == environment.identity:
                    if is_whole:
                        _write_life(new, boot_id)
                        _take_place(new, path)
                    else:
                        shutil.rmtree(new, ignore_errors=True)
                if copy is not None:
                    del _environments[new]
                    copy.close(flush=False)


def _rewritten(path: Path) -> Path:
    return path.with_name(path.name + ".rewritten")


def discard(path: Path, seen: FileIdentity | None) -> None:
    """Delete a store's directory, unless another process has replaced the file `seen`.

    Processes that have it open keep reading the old file, and notice the change by `file_identity`.
    """
    path = path.absolute()
    with _translated(path), _gate(path):
        if seen is None or file_identity(path) in (seen, None):
            _delete(path)


def discard_unused(path: Path) -> bool:
    """Delete a store's directory, unless a process has the store open; return whether it is deleted.

    Raises:
        StateUnavailable: The directory cannot be deleted.
    """
    path = path.absolute()
    with _translated(path), _gate(path):
        return _delete_unused(path)


def _delete_unused(path: Path) -> bool:
    descriptor = os.open(path / "users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _delete(path)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def file_identity(path: Path) -> FileIdentity | None:
    """Return the identity of the file at a store's path; None without file."""
    try:
        status = os.stat(f"{path}/{DATA_FILE}")  # noqa: PTH116 - on the path of every epoch
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _gate(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked_file(path.with_name(path.name + ".gate")):
        yield


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        message = f"{path} cannot be opened: {error}; it can be rebuilt"
        raise Corrupt(message) from error
    except (lmdb.Error, OSError) as error:
        message = f"{path} cannot be used: {error}"
        raise StateUnavailable(message) from error


def _claim(path: Path, boot_id: str) -> None:
    """Delete a store that another boot left unclean, and mark the store as used by this boot."""
    new = _rewritten(path)
    if (new / "life").exists() and not path.exists():
        new.rename(path)  # the process that rewrote the store was killed between two renamings
    elif new.exists():
        _delete_unused(new)
    life = path / "life"
    alive = life.read_text() if life.exists() else None
    if path.exists() and alive not in (boot_id, _CLEAN):
        _delete(path)
    path.mkdir(exist_ok=True)
    if alive != boot_id:
        _write_life(path, boot_id)


def _write_life(path: Path, text: str) -> None:
    """Replace the marker durably; it must be on the disk before the pages that it describes."""
    durable.replace(path / "life", text.encode())


def _delete(path: Path) -> None:
    """Rename and delete a directory, so that a half-deleted directory is never used as a store."""
    shutil.rmtree(_rewritten(path), ignore_errors=True)  # another file of the same rows
    if (moved := _move_away(path)) is not None:
        shutil.rmtree(moved)


def _take_place(new: Path, path: Path) -> None:
    """Let a rewritten store take the place of a store; between the two renamings, `_claim` finds the new one."""
    moved = _move_away(path)
    new.rename(path)
    if moved is not None:
        shutil.rmtree(moved, ignore_errors=True)


def _move_away(path: Path) -> Path | None:
    moved = path.with_name(path.name + ".discarded")
    shutil.rmtree(moved, ignore_errors=True)
    if not path.exists():
        return None
    path.rename(moved)
    return moved
