"""Small files that several processes read, and that one writer at a time replaces as a whole.

Promises that a reader gets a complete content, that every error names the file, and that a damaged
file is never treated as an absent one. The caller encodes, decodes and replaces the content.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from penstock.errors import Corrupt, OperationalError
from penstock.files import private
from penstock.files.lock import locked_file

T = TypeVar("T")


def read(path: Path, decode: Callable[[bytes | None], T]) -> T:
    """Return the decoded content of a file.

    Args:
        decode: Decodes the bytes of the file; None if the file does not exist.

    Raises:
        Corrupt: `decode` raised it; the message names the file.
        OperationalError: The file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = None
    except OSError as error:
        raise OperationalError(f"cannot read {path}: {error.strerror}") from error
    try:
        return decode(data)
    except Corrupt as error:
        raise Corrupt(f"{path}: {error}") from error


@contextmanager
def changing(path: Path, lock_path: Path) -> Iterator[None]:
    """Be the only writer of a file for the duration of a block.

    The directory of the file is created if it does not exist.
    """
    try:
        private.create(path.parent)
        with locked_file(lock_path):
            yield
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}") from error
