"""File entries: the size and the checksum that a file must have, as journal, snapshots and backups list them."""

from pathlib import Path
from typing import Self

import msgspec

from penstock.files.sealed import checksum_of, size_and_checksum_of
from penstock.files.shared_root import SharedRoot


class FileEntry(msgspec.Struct, frozen=True):
    """The expected content of a file.

    Attributes:
        path: Relative to the data directory, or to a folder of it.
        size: Bytes.
        checksum: XXH3-128 of the bytes, hexadecimal.
    """

    path: str
    size: int
    checksum: str

    def __post_init__(self) -> None:
        """Reject paths that leave the directory, because a backup may come from anywhere."""
        if Path(self.path).is_absolute() or ".." in Path(self.path).parts:
            raise ValueError(f"the path {self.path} leaves the directory")
        if not self.checksum.isalnum():
            raise ValueError(f"{self.checksum} is not a checksum")

    @classmethod
    def of(cls, path: str, data: bytes) -> Self:
        """Return the entry of a file with some content."""
        return cls(path, len(data), checksum_of(data))

    def within(self, folder: str) -> "FileEntry":
        """Return the entry of a file of a folder, relative to where the folder is."""
        return FileEntry(f"{folder}/{self.path}", self.size, self.checksum)

    def check(self, size: int, checksum: str) -> None:
        """Compare size and checksum of a file with the expected ones."""
        if size != self.size:
            raise FileMismatch(self, f"has {size} bytes instead of {self.size}")
        if checksum != self.checksum:
            raise FileMismatch(self, f"does not have the checksum {self.checksum}")

    def check_in(self, root: SharedRoot, name: str) -> None:
        """Read a name and compare its bytes with the expected content.

        Raises:
            FileMismatch: The name is missing, or its bytes differ.
        """
        try:
            with root.reading(name) as path:
                self.check(*size_and_checksum_of(path))
        except FileNotFoundError as error:
            raise FileMismatch(self, "is missing") from error


class FileMismatch(Exception):
    """A file is missing or differs from its entry; the message continues "the file …"."""

    def __init__(self, file: FileEntry, how: str) -> None:
        super().__init__(how)
        self.file = file
