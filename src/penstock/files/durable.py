"""Durable files: creating, publishing and replacing files so that a power loss cannot tear them.

A name appears only after the bytes of its file are on the disk. When a function returns, its effect is
durable, except for that of `create_all`. The functions raise `OSError`; callers translate it with `storage`.
"""

import _thread
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from penstock.errors import JournalUnavailable

TEMPORARY: Final = ".tmp"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY
_OPEN_MAX: Final = 64
"""Files that are open at the same time for their syncs: an epoch of many partitions has more than a process may open."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@contextmanager
def storage(doing: str) -> Iterator[None]:
    """Translate a failure of the disk; `doing` completes "cannot …" in the message.

    Raises:
        JournalUnavailable: The block raised `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise JournalUnavailable(f"cannot {doing}: {error.strerror or error}") from error


def create(path: Path, data: bytes | memoryview) -> None:
    """Create a file and make its bytes durable; a failure leaves no file.

    Raises:
        FileExistsError: The name is taken.
    """
    descriptor = os.open(path, _NEW | os.O_CLOEXEC, 0o600)
    try:
        _write_all(descriptor, memoryview(data))
        os.fsync(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def create_all(files: Mapping[Path, bytes | memoryview]) -> None:
    """Create files; a failure leaves none of them.

    Bytes and names become durable by `sync_all`, or with the file that `publish` creates `after` them, perhaps in another
    process of this host.

    Raises:
        FileExistsError: A name is taken.
    """
    made: list[Path] = []
    try:
        for path, data in files.items():
            descriptor = os.open(path, _NEW | os.O_CLOEXEC, 0o600)
            made.append(path)
            try:
                _write_all(descriptor, memoryview(data))
            finally:
                os.close(descriptor)
    except OSError:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _opened(path: Path, flags: int, open_files: ExitStack) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    open_files.callback(os.close, descriptor)
    return descriptor


def _opened_all(files: Collection[Path], open_files: ExitStack) -> list[int]:
    """Open files, and their folders."""
    folders = dict.fromkeys(path.parent for path in files)
    return [
        *(_opened(path, os.O_RDONLY, open_files) for path in files),
        *(_opened(folder, _FOLDER, open_files) for folder in folders),
    ]


def sync_all(files: Collection[Path]) -> None:
    """Make bytes and names of files durable."""
    with ExitStack() as open_files:
        _sync_together(_opened_all(files, open_files))


def _sync_together(descriptors: Sequence[int]) -> None:
    """Sync open files at the same time.

    A file system writes its own journal once for all of them. In turn, each sync waits for the write before it: two files
    with their folders take 6 ms so, and 1 ms together.
    """
    done_together([partial(os.fsync, descriptor) for descriptor in descriptors])


class _Running:
    """A work that a helper does."""

    __slots__ = ("_ended", "_error", "_work")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._ended = _thread.allocate_lock()
        self._ended.acquire()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 -- `end` gives it to the caller
            self._error = error

    def tell(self) -> None:
        self._ended.release()

    def end(self) -> BaseException | None:
        """Wait until the work has ended, and return its error."""
        self._ended.acquire()
        return self._error


class _Helper:
    """A thread that stays, and does one work after the other.

    Raises:
        RuntimeError: The system allows no further thread.
    """

    __slots__ = ("_given", "_running")

    def __init__(self) -> None:
        self._running: _Running | None = None
        self._given = _thread.allocate_lock()
        self._given.acquire()
        # Python waits at its end for each `Thread`, and these wait for work.
        _thread.start_new_thread(self._run, ())

    def begin(self, work: Callable[[], object]) -> _Running:
        """Begin a work."""
        running = self._running = _Running(work)
        self._given.release()
        return running

    def _run(self) -> None:
        stays = True
        while stays:
            self._given.acquire()
            running, self._running = self._running, None
            assert running is not None, "`begin` gives the work first"
            running.run()
            stays = len(_free) < _FREE_MAX
            if stays:  # before the caller hears of the end: its next work needs a helper at once
                _free.append(self)
            running.tell()
            del running  # with the bytes of its work


_FREE_MAX: Final = 16
_free: Final[list[_Helper]] = []
"""Helpers without work. The start and the end of a thread would take longer than a sync."""

os.register_at_fork(after_in_child=_free.clear)  # a fork lacks these threads


def _helper() -> _Helper | None:
    """Return a helper without work; None if there is none and the system allows no further thread."""
    try:
        return _free.pop()
    except IndexError:
        with suppress(RuntimeError):
            return _Helper()
        return None


def done_together(works: Sequence[Callable[[], object]]) -> None:
    """Do a few works at the same time, each of which waits for a disk or a network; return when all of them have ended.

    Raises:
        BaseException: A work has failed; the first one counts.
    """
    own, *others = works
    running: list[_Running] = []
    errors: list[BaseException | None] = []
    try:
        for work in others:
            if (helper := _helper()) is None:
                work()
            else:
                running.append(helper.begin(work))
        own()
    finally:  # a descriptor stays open until its sync has ended
        errors += [work.end() for work in running]
    for error in errors:
        if error is not None:
            raise error


def publish(path: Path, data: bytes, after: Collection[Path] = ()) -> None:
    """Create a file that is whole from the moment it is visible, unless the name is taken.

    The name itself is durable after `sync_directory`. The caller calls it, because the caller must
    know which of the two failed.

    Args:
        after: Files of `create_all` whose bytes and names are durable before the name is visible.

    Raises:
        FileExistsError: The name is taken; the existing file is untouched.
        FileNotFoundError: One of the other files is missing.
    """
    others = [*after]
    while len(others) > _OPEN_MAX:
        sync_all(others[:_OPEN_MAX])
        del others[:_OPEN_MAX]
    temporary = temporary_of(path)
    try:
        with ExitStack() as open_files:
            descriptors = [_opened(temporary, _NEW, open_files)]
            _write_all(descriptors[0], memoryview(data))
            _sync_together(descriptors + _opened_all(others, open_files))
        os.link(temporary, path)  # unlike a rename, it fails if the name is taken
    finally:
        with suppress(OSError):  # the link is made; a temporary name that stays does no harm
            temporary.unlink()


def replace(path: Path, data: bytes) -> None:
    """Replace a file durably; readers see the old content or the new content."""
    temporary = temporary_of(path)
    create(temporary, data)
    temporary.replace(path)
    sync_directory(path.parent)


def temporary_of(path: Path) -> Path:
    """Return an unused name in the same directory; Delta readers ignore such names."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")


def is_temporary(name: str) -> bool:
    """Say whether a file has a name of `temporary_of`, or belongs to such a file: a writer is at work, or has died."""
    return name.startswith(".") and TEMPORARY in name


def sync(path: Path) -> None:
    """Make a file's bytes durable."""
    _sync(path, os.O_RDONLY)


def is_read_only(folder: Path) -> bool:
    """Say whether the disk of a folder was mounted for reading only."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    _sync(path, _FOLDER)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    # A disk that is nearly full may write a part of the bytes, and refuse the next call.
    while data:
        data = data[os.write(descriptor, data) :]
