"""The file with the keys of the subjects of personal data, in a data directory.

No backup, fork or snapshot contains the file. Without the file, no personal data can be read. A destroyed key is
removed from the file, and the bytes of the former file are overwritten. Processes notice a new file at the next use of a key.

A key service may keep the file encrypted (`files.key_service`). The file names its service, so processes need no setting to
read it, and a destruction writes it for the same service.
"""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from penstock.base.subject_keys import KeyTree, SubjectKeys, new_tree
from penstock.errors import Corrupt, JournalUnavailable
from penstock.files import durable
from penstock.files.key_service import Wrapped, wrapped
from penstock.files.layout import ERASURES, SUBJECT_KEYS
from penstock.files.lock import locked_directory
from penstock.files.sealed import field_of, seal, unseal

KEYS_REMEDY: Final = (
    f"put your own copy of {SUBJECT_KEYS} back (no backup contains it), and keep {ERASURES}: it names the erased persons "
    f"whose keys a copy from before an erasure still has, and the next start destroys them again; without {ERASURES}, the "
    "copy must be newer than the last erasure"
)
"""How a missing or damaged file comes back, and erased persons do not."""

_PLAIN_FIELD: Final = "keys"
_WRAPPED_FIELD: Final = "wrapped"
_SECRET_BYTES: Final = 32
_RETRY_S: Final = 5.0
"""How long a failure of the key service is repeated before it is asked again: the caller may be an event loop."""

_Version = tuple[int, int, int]


class _Content(NamedTuple):
    """The content of the file: the keys, and the name of the key service that encrypts them, empty for none."""

    tree: KeyTree
    service: str

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        if not self.service:
            return seal(_PLAIN_FIELD, self.tree)
        return seal(_WRAPPED_FIELD, wrapped(self.service, msgspec.json.encode(self.tree)))

    @classmethod
    def decoded(cls, data: bytes) -> "_Content":
        """Return the content of bytes; raises `ValueError` as `unseal`, or as `Wrapped.opened`."""
        if field_of(data) != _WRAPPED_FIELD:
            return cls(unseal(_PLAIN_FIELD, data, KeyTree), "")
        sealed = unseal(_WRAPPED_FIELD, data, Wrapped)
        return cls(msgspec.json.decode(sealed.opened(), type=KeyTree), sealed.service)


class KeyFile:
    """The keys in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[_Version, _Content] | None = None
        self._failed: tuple[_Version, float, str] | None = None

    def create(self, service: str = "") -> None:
        """Create the file with new keys, unless it exists.

        Args:
            service: The key service that encrypts it; empty for none.

        Raises:
            JournalUnavailable: The disk is full or fails, or the key service does.
        """
        with durable.storage("create the file of the subjects' keys"), suppress(FileExistsError):
            content = _Content(new_tree(secrets.token_bytes(_SECRET_BYTES)), service)
            durable.publish(self.path, content.encoded())
            durable.sync_directory(self.path.parent)

    def use_service(self, service: str) -> bool:
        """Encrypt the file by another key service, and overwrite the bytes of the former file.

        Args:
            service: The key service; empty for none.

        Raises:
            JournalUnavailable: The disk is full or fails, or a key service does.
        """
        with durable.storage("encrypt the subjects' keys"), locked_directory(self.path.parent):
            self._finish()
            tree, former = self._content()
            if former != service:
                self._replace(_Content(tree, service))
            return former != service

    def keys(self) -> SubjectKeys:
        """Return the keys, which follow the file."""
        return SubjectKeys(self.tree)

    def tree(self) -> KeyTree:
        """Return the present keys.

        Raises:
            Corrupt: The file is missing or damaged.
            JournalUnavailable: The disk fails, or the key service does.
        """
        return self._content().tree

    def _content(self) -> _Content:
        with durable.storage("read the subjects' keys"):
            try:
                found_at = self.path.stat()
                version = (found_at.st_ino, found_at.st_mtime_ns, found_at.st_size)
                if self._read is None or self._read[0] != version:
                    self._read = (version, self._decoded(version))
            except FileNotFoundError:
                how = "is missing"
            except ValueError as error:
                how = str(error)
            else:
                return self._read[1]
        raise Corrupt(f"{self.path} {how}: it holds the keys of personal data; {KEYS_REMEDY}")

    def _decoded(self, version: _Version) -> _Content:
        """Return the content of a version; raises as `_Content.decoded`."""
        if (
            self._failed is not None
            and self._failed[0] == version
            and monotonic() < self._failed[1]
        ):
            raise JournalUnavailable(self._failed[2])
        try:
            return _Content.decoded(self.path.read_bytes())
        except JournalUnavailable as error:
            self._failed = (version, monotonic() + _RETRY_S, str(error))
            raise

    def destroy(self, subject: str, generation: int) -> None:
        """Destroy the key of a subject, durably; a destroyed key stays destroyed.

        A call after a crash completes a former call.

        Args:
            subject: The name of the subject, such as `User/ada`.
            generation: How often the subject had been erased when the key began.

        Raises:
            JournalUnavailable: The disk is full or fails, or the key service does; the key may or may not be destroyed.
        """
        with durable.storage("destroy the key of a subject"), locked_directory(self.path.parent):
            self._finish()
            before, service = self._content()
            after = before.without(subject, generation)
            if after is not before:
                self._replace(_Content(after, service))

    def complete(self) -> None:
        """Overwrite and remove the files of a destruction that a crash has stopped.

        Raises:
            JournalUnavailable: The disk fails.
        """
        if self.has_remains:
            with (
                durable.storage("destroy the key of a subject"),
                locked_directory(self.path.parent),
            ):
                self._finish()

    @property
    def has_remains(self) -> bool:
        """Whether a destruction runs, or was stopped by a crash: the bytes of destroyed keys may still be there."""
        return any(path.exists() for path in self._beside())

    def _replace(self, content: _Content) -> None:
        """Replace the file, and overwrite the bytes of the former one; `_finish` completes a replacement that a crash has stopped."""
        new, old = self._beside()
        durable.create(new, content.encoded())
        os.link(self.path, old)
        new.replace(self.path)
        self._read = None  # a destroyed key leaves this process, too
        durable.sync_directory(self.path.parent)
        self._finish()

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
