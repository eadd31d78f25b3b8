"""The shapes of a journal: how each class is stored of which it has rows, in one small file.

The journal is created with the file. A class joins it before the first part with rows of it is written,
and keeps its shape from then on. Promises that rows of two shapes of a class never get into one journal,
also if two processes write, and that code which declares a stored class differently is refused with the
difference. Leaves shapes themselves to `model.shape`.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.errors import ClassChanged, Corrupt
from penstock.files import durable
from penstock.files.lock import locked_directory
from penstock.files.sealed import seal, unseal
from penstock.model.shape import Shape, differences

NAME: Final = "_shapes.json"
_FIELD: Final = "shapes"


class Shapes:
    """The stored shapes of one journal, and those that a process declares."""

    def __init__(self, root: Path, declared: Mapping[str, Shape]) -> None:
        """Name the journal's directory; nothing is read yet."""
        self._root = root
        self._path = root / NAME
        self._declared = declared
        self._recorded: frozenset[str] = frozenset()  # by this process, or known to it

    def create(self) -> None:
        """Let there be the file, with no class in it; one that is there stays."""
        with suppress(FileExistsError):
            durable.publish(self._path, seal(_FIELD, {}))
        durable.sync_directory(self._root)

    def check(self) -> None:
        """Refuse code that declares a stored class differently; nothing is written.

        Raises:
            ClassChanged: A class is declared differently; says how, and which remedies there are.
            Corrupt: The file is missing or damaged.
        """
        stored = self.stored()
        found = differences(stored, self._declared)
        if found:
            lines = "".join(f"\n  {one}" for one in found)
            raise ClassChanged(
                f"the application's classes are not those whose entities {self._root.parent} holds "
                f"(- is stored, + is declared now):{lines}\n"
                "Nothing was written. Go back to the code that wrote them, or let this code begin "
                "in a directory of its own: --data DIR"
            )
        self._recorded = frozenset(stored)

    def record(self, names: Iterable[str]) -> None:
        """Make the shapes of classes durable that are about to be stored for the first time.

        Raises:
            ClassChanged: Another process has stored one of them in another shape meanwhile.
            Corrupt: The file is missing or damaged.
        """
        fresh = [one for one in names if one not in self._recorded]
        if not fresh:
            return
        with locked_directory(self._root):
            self.check()
            stored = self.stored()
            added = {one: self._declared[one] for one in fresh if one not in stored}
            if added:
                durable.replace(self._path, seal(_FIELD, {**stored, **added}))
        self._recorded = frozenset([*stored, *added])

    def stored(self) -> dict[str, Shape]:
        """Return the shapes of all classes that the journal has rows of.

        Raises:
            Corrupt: The file is missing or damaged.
        """
        try:
            return shapes_in(self._path.read_bytes())
        except FileNotFoundError:
            how = "is missing"
        except ValueError as error:
            how = str(error)
        raise Corrupt(f"{self._path} {how}; put the file back from a backup")


def shapes_in(data: bytes) -> dict[str, Shape]:
    """Return the shapes in the bytes of a file.

    Raises:
        ValueError: They are damaged; the message says how.
    """
    return unseal(_FIELD, data, dict[str, Shape])
