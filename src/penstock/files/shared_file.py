"""Small files in the shared root that several processes read, and that one writer at a time replaces as a whole.

Promises that a reader gets a complete content, that every error names the file, and that a damaged
file is never treated as an absent one. The caller encodes and decodes the content.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from penstock.errors import Corrupt, OperationalError
from penstock.files import private
from penstock.files.roots import shared_root
from penstock.files.shared_root import SharedRoot

T = TypeVar("T")
R = TypeVar("R")


def read(root: SharedRoot, name: str, decode: Callable[[bytes | None], T]) -> T:
    """Return the decoded content of a file.

    Args:
        root: Where the file is.
        name: Its name there.
        decode: Decodes the bytes of the file; None if the file does not exist.

    Raises:
        Corrupt: `decode` raised it; the message names the file.
        OperationalError: The file cannot be read.
    """
    try:
        content = root.get(name)
    except FileNotFoundError:
        content = None
    except OSError as error:
        raise OperationalError(f"cannot read {root}/{name}: {error.strerror}") from error
    return _decoded(f"{root}/{name}", decode, content)


def change(
    data: Path,
    name: str,
    decode: Callable[[bytes | None], T],
    edit: Callable[[T], tuple[bytes | None, R]],
) -> R:
    """Replace the content of a file; no change of another process is lost.

    The directory of the file is created if it does not exist.

    Args:
        data: The data directory.
        name: The name of the file in the shared root.
        edit: Gets the decoded content. It returns the new bytes, None to leave the file as it is, and a result. It may be
            called several times, because others change the file meanwhile.

    Returns:
        The result of the last call of `edit`.

    Raises:
        Corrupt: `decode` raised it; nothing is changed.
        OperationalError: The file cannot be read or written.
    """
    root = shared_root(data)
    place = f"{root}/{name}"
    results: list[R] = []

    def edited(content: bytes | None) -> bytes | None:
        new, result = edit(_decoded(place, decode, content))
        results.append(result)
        return new

    try:
        private.create((data / name).parent)
        root.change(name, edited)
        root.count_change()
    except OSError as error:
        raise OperationalError(f"cannot write {place}: {error.strerror}") from error
    return results[-1]


def _decoded(place: str, decode: Callable[[bytes | None], T], content: bytes | None) -> T:
    try:
        return decode(content)
    except Corrupt as error:
        raise Corrupt(f"{place}: {error}") from error
