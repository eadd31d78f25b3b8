"""Files that their content names: each is immutable, and its name is the SHA-256 of its bytes, so a changed one is found."""

import hashlib
from collections.abc import Collection

from penstock.errors import Corrupt, OperationalError
from penstock.files.shared_root import SharedRoot


def hash_of(data: bytes) -> str:
    """Return the name of a content: 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class HashedFiles:
    """The files in one folder of a shared root.

    Args:
        suffix: The end of the name of each file, `.zip`; the name of a content has none.
    """

    def __init__(self, root: SharedRoot, folder: str, suffix: str) -> None:
        self._root = root
        self._folder = folder
        self._suffix = suffix

    def _file_of(self, name: str) -> str:
        return f"{self._folder}/{name}{self._suffix}"

    def names(self) -> list[str]:
        """Return the names of all contents."""
        files = self._root.names(self._folder)
        return sorted(
            file.removesuffix(self._suffix) for file in files if file.endswith(self._suffix)
        )

    def has(self, name: str) -> bool:
        """Say whether a content is there, perhaps damaged."""
        return self._root.has(self._file_of(name))

    def put(self, data: bytes) -> str:
        """Store a content durably, unless it is there undamaged; return its name.

        Raises:
            OSError: The disk is full or fails.
        """
        name = hash_of(data)
        # Also if it is there: its time of grace begins again.
        self._root.make_folders(self._folder)
        self._root.replace(self._file_of(name), data)
        return name

    def read(self, name: str) -> bytes:
        """Return a content, whose bytes are those that its name tells.

        Raises:
            Corrupt: The file is missing, or was changed.
            OperationalError: It cannot be read.
        """
        path = f"{self._root}/{self._file_of(name)}"
        try:
            data = self._root.get(self._file_of(name))
        except FileNotFoundError as error:
            raise Corrupt(f"{path} is missing; put the file back from a backup") from error
        except OSError as error:
            raise OperationalError(f"cannot read {path}: {error.strerror}") from error
        if hash_of(data) != name:
            raise Corrupt(f"{path} was changed; put the file back from a backup")
        return data

    def remove(self, names: Collection[str]) -> None:
        """Remove contents that no reader needs any more; one that is gone is passed over.

        Raises:
            OSError: The disk fails.
        """
        self._remove([f"{name}{self._suffix}" for name in names])

    def _remove(self, files: Collection[str]) -> None:
        for file in files:
            self._root.remove(f"{self._folder}/{file}")
        if files:
            self._root.settle(self._folder)

    def remove_others(self, needed: Collection[str], grace_s: float = 0.0) -> int:
        """Remove the contents that are not in `needed`, and return their number.

        Args:
            grace_s: What was stored within these seconds stays, too: its record may be on its way.

        Raises:
            OSError: The disk fails.
        """
        others = [
            file
            for file in list(self._root.names(self._folder))
            # A file on its way to a name has a longer name; one that does not exist any more has no age.
            if self._suffix in file
            and file.removesuffix(self._suffix) not in needed
            and self._root.age_s(f"{self._folder}/{file}") >= grace_s
        ]
        self._remove(others)
        return len(others)
