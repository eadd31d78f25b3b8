"""The file with the keys of the subjects of personal data, in a data directory.

No backup, fork or snapshot contains the file. Without the file, no personal data can be read. A destroyed key is
removed from the file, and the bytes of the former file are overwritten. Processes notice a new file at the next use of a key.

A key service may keep the file encrypted (`files.key_service`). The file names its service, so processes need no setting to
read it, and a destruction writes it for the same service.
"""

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from penstock.base.subject_keys import KeyTree, SubjectKeys, new_tree
from penstock.errors import ConfigError, Corrupt, JournalUnavailable
from penstock.files import durable
from penstock.files.key_service import Wrapped, wrapped
from penstock.files.layout import ERASURES, SUBJECT_KEYS
from penstock.files.lock import locked_directory
from penstock.files.roots import check_forgets, shared_root
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
FAR_LOOK_S: Final = 1.0
"""The longest time for which a process uses a key after its destruction, if the file is in an object store."""

_RETRY_S: Final = 5.0
"""How long a failure of the key service is repeated before it is asked again: the caller may be an event loop."""


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
        """Name the file: its name lies in the shared root of the data directory."""
        self.path = path
        self._root = shared_root(path.parent)
        self._read: tuple[object, _Content] | None = None
        self._failed: tuple[object, float, str] | None = None
        self._looked_s = -FAR_LOOK_S

    @property
    def exists(self) -> bool:
        """Whether there are keys.

        Raises:
            JournalUnavailable: The disk or the store fails.
        """
        if self._root.is_far and self._read is not None:
            return True  # nobody removes it
        with durable.storage("look for the subjects' keys"):
            return self._root.has(self.path.name)

    def create(self, service: str = "") -> None:
        """Create the file with new keys, unless it exists.

        Args:
            service: The key service that encrypts it; empty for none.

        Raises:
            ConfigError: The file would be in an object store without a key service, or in one that keeps former versions.
            JournalUnavailable: The disk is full or fails, or the key service does.
        """
        self._check_place(service)
        with durable.storage("create the file of the subjects' keys"):
            content = _Content(new_tree(secrets.token_bytes(_SECRET_BYTES)), service)
            self._root.create(self.path.name, content.encoded())

    def _check_place(self, service: str) -> None:
        if not self._root.is_far:
            return
        if not service:
            raise ConfigError(
                f"{self._place}: keys of personal data are not put into an object store as they are, because nobody can overwrite "
                "bytes there; set key_service = module:name"
            )
        check_forgets(self.path.parent)

    @property
    def _place(self) -> str:
        return f"{self._root}/{self.path.name}"

    def use_service(self, service: str) -> bool:
        """Encrypt the file by another key service, and overwrite the bytes of the former file.

        Args:
            service: The key service; empty for none.

        Raises:
            JournalUnavailable: The disk is full or fails, or a key service does.
        """

        def edit(content: _Content) -> _Content | None:
            return None if content.service == service else content._replace(service=service)

        self._check_place(service)
        return self._change("encrypt the subjects' keys", edit)

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
                if self._read is None or self._is_time_to_look():
                    version = self._root.stamp(self.path.name)
                    if self._read is None or self._read[0] != version:
                        self._read = (version, self._decoded(version))
            except FileNotFoundError:
                how = "is missing"
            except ValueError as error:
                how = str(error)
            else:
                return self._read[1]
        raise Corrupt(f"{self._place} {how}: it holds the keys of personal data; {KEYS_REMEDY}")

    def _is_time_to_look(self) -> bool:
        """Say whether the file may have changed; each use of a key asks, and a store would answer in milliseconds."""
        now_s = monotonic()
        if self._root.is_far and now_s - self._looked_s < FAR_LOOK_S:
            return False
        self._looked_s = now_s
        return True

    def _decoded(self, version: object) -> _Content:
        """Return the content of a version; raises as `_Content.decoded`."""
        if (
            self._failed is not None
            and self._failed[0] == version
            and monotonic() < self._failed[1]
        ):
            raise JournalUnavailable(self._failed[2])
        try:
            return _Content.decoded(self._root.get(self.path.name))
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

        def edit(content: _Content) -> _Content | None:
            after = content.tree.without(subject, generation)
            return None if after is content.tree else content._replace(tree=after)

        self._change("destroy the key of a subject", edit)

    def _change(self, doing: str, edit: Callable[[_Content], _Content | None]) -> bool:
        """Replace the content if `edit` returns another one, so that the former bytes are gone; return whether it did."""
        with durable.storage(doing):
            if self._root.is_far:
                return self._change_far(edit)
            with locked_directory(self.path.parent):
                self._finish()
                changed = edit(self._content())
                if changed is not None:
                    self._replace(changed)
            return changed is not None

    def _change_far(self, edit: Callable[[_Content], _Content | None]) -> bool:
        """Do it in an object store: an object that has no versions has no former bytes, and the key service has encrypted them."""
        results: list[_Content | None] = []

        def edited(data: bytes | None) -> bytes | None:
            if data is None:
                raise Corrupt(f"{self._place} is missing; {KEYS_REMEDY}")
            results.append(edit(_Content.decoded(data)))
            return None if results[-1] is None else results[-1].encoded()

        check_forgets(self.path.parent)
        self._root.change(self.path.name, edited)
        self._read = None
        return results[-1] is not None

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
