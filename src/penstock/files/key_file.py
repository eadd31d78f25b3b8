"""The file with the keys of the subjects of personal data, in a data directory.

No backup, fork or snapshot contains the file. Without the file, no personal data can be read. A destroyed key is
removed from the file, and the bytes of the former file are overwritten. Processes notice a new file at the next use of a key.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.base.subject_keys import KeyTree, SubjectKeys, new_tree
from penstock.errors import Corrupt
from penstock.files import durable
from penstock.files.lock import locked_directory
from penstock.files.sealed import seal, unseal

_FIELD: Final = "keys"
_SECRET_BYTES: Final = 32

_Version = tuple[int, int, int]


class KeyFile:
    """The keys in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[_Version, KeyTree] | None = None

    def create(self) -> None:
        """Create the file with new keys, unless it exists.

        Raises:
            JournalUnavailable: The disk is full or fails.
        """
        with durable.storage("create the file of the subjects' keys"), suppress(FileExistsError):
            durable.publish(self.path, seal(_FIELD, new_tree(secrets.token_bytes(_SECRET_BYTES))))
            durable.sync_directory(self.path.parent)

    def keys(self) -> SubjectKeys:
        """Return the keys, which follow the file."""
        return SubjectKeys(self.tree)

    def tree(self) -> KeyTree:
        """Return the present keys.

        Raises:
            Corrupt: The file is missing or damaged.
            JournalUnavailable: The disk fails.
        """
        with durable.storage("read the subjects' keys"):
            try:
                found_at = self.path.stat()
                version = (found_at.st_ino, found_at.st_mtime_ns, found_at.st_size)
                if self._read is None or self._read[0] != version:
                    self._read = (version, unseal(_FIELD, self.path.read_bytes(), KeyTree))
            except FileNotFoundError:
                how = "is missing"
            except ValueError as error:
                how = str(error)
            else:
                return self._read[1]
        raise Corrupt(
            f"{self.path} {how}: it holds the keys of personal data; put a copy of the file back, which must be newer "
            "than the last erasure"
        )

    def destroy(self, subject: str, generation: int) -> None:
        """Destroy the key of a subject, durably; a destroyed key stays destroyed.

        A call after a crash completes a former call.

        Args:
            subject: The name of the subject, such as `User/ada`.
            generation: How often the subject had been erased when the key began.

        Raises:
            Corrupt: The file is missing or damaged.
            JournalUnavailable: The disk is full or fails; the key may or may not be destroyed.
        """
        with locked_directory(self.path.parent), durable.storage("destroy the key of a subject"):
            self._finish()
            before = self.tree()
            after = before.without(subject, generation)
            if after is before:
                return
            new, old = self._beside()
            durable.create(new, seal(_FIELD, after))
            os.link(self.path, old)
            new.replace(self.path)
            durable.sync_directory(self.path.parent)
            self._finish()

    def complete(self) -> None:
        """Overwrite and remove the files of a destruction that a crash has stopped.

        Raises:
            JournalUnavailable: The disk fails.
        """
        if self.has_remains:
            with (
                locked_directory(self.path.parent),
                durable.storage("destroy the key of a subject"),
            ):
                self._finish()

    @property
    def has_remains(self) -> bool:
        """Whether a destruction runs, or was stopped by a crash: the bytes of destroyed keys may still be there."""
        return any(path.exists() for path in self._beside())

    def _finish(self) -> None:
        """Overwrite and remove the files that a replacement leaves behind, also one that a crash has stopped."""
        for path in self._beside():
            if not path.exists():
                continue
            if not path.samefile(self.path):  # a crash came before the new file had its name
                _overwrite(path)
            path.unlink()
            durable.sync_directory(self.path.parent)

    def _beside(self) -> tuple[Path, Path]:
        """Return the paths of the new and of the former file, while the file is replaced."""
        name = self.path.name
        return self.path.with_name(f"{name}.new"), self.path.with_name(f"{name}.old")


def _overwrite(path: Path) -> None:
    """Replace the bytes of a file by zeros, durably."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        assert stat.S_ISREG(os.fstat(descriptor).st_mode), "keys are in regular files"
        written = 0
        while written < size:
            written += os.pwrite(descriptor, bytes(min(size - written, 1 << 20)), written)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
