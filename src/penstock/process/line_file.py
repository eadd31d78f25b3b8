"""`LineFile`: records of a process for people, as JSON lines in a file.

Nothing depends on such a file. A record that cannot be written costs a warning, and a torn line is passed over.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Generic, TypeVar

import msgspec

_log = logging.getLogger(__name__)

_BLOCK: Final = 64 << 10

T = TypeVar("T", bound=msgspec.Struct)


class LineFile(Generic[T]):
    """The lines of one file; a process appends, others read."""

    def __init__(self, path: Path, record: type[T], noun: str) -> None:
        """Use a file, which need not exist yet.

        Args:
            noun: The records, for the warning: `incidents`.
        """
        self.path = path
        self._decoder = msgspec.json.Decoder(record)
        self._noun = noun
        self._failed = False

    def append(self, record: T) -> int:
        """Append a record, and return the size of the file; 0 if the disk does not take it."""
        try:
            with self._opened() as file:
                # The newline in front parts the line from one that a crash or a full disk has torn.
                file.write(b"\n" + msgspec.json.encode(record) + b"\n")
                size = file.tell()
        except OSError as error:
            # A full disk fails each record: one warning says it.
            if not self._failed:
                _log.warning("%s are not written", self._noun, extra={"cause": str(error)})
            self._failed = True
            return 0
        self._failed = False
        return size

    def _opened(self) -> BinaryIO:
        try:
            return self.path.open("ab")
        except FileNotFoundError:  # its folder is missing, too
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open("ab")

    def newest(self) -> Iterator[T]:
        """Yield the records, the newest first; it reads no more of the file than is taken."""
        for line in self._backwards():
            try:
                yield self._decoder.decode(line)
            except msgspec.MsgspecError:
                continue

    def _backwards(self) -> Iterator[bytes]:
        try:
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            at = file.seek(0, os.SEEK_END)
            rest = b""  # begins in a block that is still to be read
            while at > 0:
                size = min(_BLOCK, at)
                at -= size
                file.seek(at)
                first, *lines = (file.read(size) + rest).split(b"\n")
                yield from (line for line in reversed(lines) if line)
                rest = first
            if rest:
                yield rest
