"""The shared root as a folder: one file for each name, made by `files.durable`."""

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock.files import durable
from penstock.files.bell import Bell
from penstock.files.lock import locked_directory
from penstock.files.shared_root import Found, SharedRoot, UnclearOutcome

_LOOK_S: Final = (0.001, 0.005)
"""The pauses between two looks in a folder that cannot be watched."""


class LocalRoot:
    """Names as the files of a folder, which need not exist before `make_folders`.

    Attributes:
        path: The folder.
    """

    answers_prove = False
    may_tear = True
    keeps_s = 0
    is_far = False

    def __init__(self, path: Path) -> None:
        self.path = path
        # A look for the next epoch comes with each change of the folder, and joining paths costs more than the look.
        self._prefix = f"{path}{os.sep}"

    def __str__(self) -> str:
        return str(self.path)

    def bell(self) -> Bell:
        """Return a bell that rings when a name appears directly in the folder."""
        bell = Bell(_LOOK_S)
        bell.watch_names(self.path)
        return bell

    def tell(self, name: str) -> None:
        """Do nothing: Linux rings the bells."""

    def folder(self, name: str) -> "LocalRoot":
        """Return the root of a folder."""
        return LocalRoot(self.path / name)

    def make_folders(self, *names: str) -> None:
        """Create the folder and others in it, durably."""
        for name in ("", *names):
            self._path(name).mkdir(parents=True, exist_ok=True)
        durable.sync_directory(self.path)
        durable.sync_directory(self.path.absolute().parent)

    def create(self, name: str, data: bytes, after: Collection[str] = ()) -> bool:
        """Create a name, or compare its bytes, as the port says."""
        path = self._path(name)
        try:
            durable.publish(path, data, [self._path(other) for other in after])
        except FileExistsError:
            # Perhaps it is ours. A file system of another machine may report the link that it has just made.
            if not self._holds(path, data):
                return False
        try:
            durable.sync_directory(path.parent)
        except OSError as error:
            raise UnclearOutcome(error.errno, error.strerror) from error
        return True

    def add(self, name: str, data: bytes | memoryview) -> None:
        """Write a name that nobody else writes."""
        path = self._path(name)
        self._in_folders([path], lambda: durable.create(path, data))
        durable.sync_directory(path.parent)

    def add_all(self, files: Mapping[str, bytes | memoryview], *, at_once: bool) -> None:
        """Write names that nobody else writes, as the port says."""
        paths = {self._path(name): data for name, data in files.items()}
        self._in_folders(paths, lambda: durable.create_all(paths))
        if at_once:
            durable.sync_all(paths)

    @staticmethod
    def _in_folders(paths: Collection[Path], create: Callable[[], None]) -> None:
        """Create files, after their folders if these are missing."""
        try:
            create()
        except FileNotFoundError:  # an earlier version made the root, without this folder
            for folder in dict.fromkeys(path.parent for path in paths):
                folder.mkdir(parents=True, exist_ok=True)
                durable.sync_directory(folder.parent)
            create()

    def replace(self, name: str, data: bytes) -> None:
        """Give a name other bytes."""
        durable.replace(self._path(name), data)

    def change(
        self,
        name: str,
        edit: Callable[[bytes | None], bytes | None],
        known: Found | None = None,
    ) -> None:
        """Replace what `edit` changes, as the port says."""
        path = self._path(name)
        with locked_directory(path.parent):
            try:
                before = path.read_bytes()
            except FileNotFoundError:
                before = None
            after = edit(before)
            if after is not None:
                durable.replace(path, after)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Give a file to write, as the port says."""
        with self.scratch(name) as path:
            yield path
            self.take(path, name)
            durable.sync_directory(path.parent)

    @contextmanager
    def scratch(self, near: str) -> Iterator[Path]:
        """Give a file for `take`, with a name that `durable.is_temporary` knows."""
        path = durable.temporary_of(self._path(near))
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def take(self, path: Path, name: str) -> None:
        """Give a file of `scratch` its name."""
        durable.sync(path)
        path.replace(self._path(name))

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """Give a file to read, as the port says."""
        yield self._path(name)

    def get(self, name: str) -> bytes:
        """Return the bytes of a name."""
        with open(self._prefix + name, "rb", buffering=0) as file:  # noqa: PTH123 -- see `_prefix`
            return file.readall()

    def has(self, name: str) -> bool:
        """Say whether a name exists."""
        return os.path.exists(self._prefix + name)  # noqa: PTH110 -- see `_prefix`

    def size(self, name: str) -> int | None:
        """Return the number of bytes of a name."""
        try:
            return os.stat(self._prefix + name).st_size  # noqa: PTH116 -- see `_prefix`
        except FileNotFoundError:
            return None

    def stamp(self, name: str) -> object:
        """Return a value that another writing changes."""
        try:
            facts = os.stat(self._prefix + name)  # noqa: PTH116 -- see `_prefix`
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns, facts.st_size

    def age_s(self, name: str) -> float:
        """Return the seconds since a name was written."""
        try:
            return (time.time_ns() - self._path(name).stat().st_mtime_ns) / 1e9
        except FileNotFoundError:
            return 0.0

    def now_s(self) -> tuple[float, float]:
        """Return the time of this host, twice."""
        now_s = time.time_ns() / 1e9
        return now_s, now_s

    def names(self, folder: str = "") -> Iterator[str]:
        """Yield the names directly in a folder."""
        try:
            entries = os.scandir(self._path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                yield entry.name

    def version(self, folder: str) -> object:
        """Return a value that a name which comes or goes changes."""
        try:
            return os.stat(self._prefix + folder).st_mtime_ns  # noqa: PTH116 -- see `_prefix`
        except FileNotFoundError:
            return 0

    def settle(self, folder: str, *, with_bytes: bool = False) -> None:
        """Make the names in a folder durable, perhaps with their bytes."""
        path = self._path(folder)
        for file in path.iterdir() if with_bytes else ():
            if file.is_file():
                durable.sync(file)
        durable.sync_directory(path)

    def set_aside(self, name: str, is_torn: Callable[[bytes], bool]) -> str | None:
        """Rename torn bytes, as the port says."""
        path = self._path(name)
        with locked_directory(path.parent):
            if not path.exists() or not is_torn(path.read_bytes()):
                return None
            aside = path.with_name(f"{path.stem}.torn.{secrets.token_hex(4)}")
            path.rename(aside)
            durable.sync_directory(path.parent)
        return aside.name

    def remove(self, name: str) -> None:
        """Remove a name."""
        self._path(name).unlink(missing_ok=True)

    def lease_mark(self) -> None:
        """Return None: a look at a folder costs nothing."""

    def note_lease(self, lease: bytes | None) -> None:
        """Do nothing: a folder has no lease."""

    def count_change(self) -> None:
        """Do nothing: processes look at the folder."""

    def address(self) -> tuple[str, dict[str, str]]:
        """Return the path; a client needs no options."""
        return str(self.path), {}

    @contextmanager
    def alone(self, folder: str = "", timeout_s: float | None = None) -> Iterator[bool]:
        """Keep other processes of this host out of a folder."""
        with locked_directory(self._path(folder), timeout_s) as held:
            yield held is not None

    @staticmethod
    def _holds(path: Path, data: bytes) -> bool:
        try:
            return path.read_bytes() == data
        except FileNotFoundError:  # others have removed what they created
            return False

    def _path(self, name: str) -> Path:
        return self.path / name if name else self.path


def rooted(place: "SharedRoot | Path | str") -> SharedRoot:
    """Return a root, of which the folder may be given instead."""
    return LocalRoot(Path(place)) if isinstance(place, (str, Path)) else place
