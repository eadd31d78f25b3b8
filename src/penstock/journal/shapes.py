"""The shapes of a journal: the stored form of each class that it has rows of, in one small file.

The file is created with the journal. A class is added before its first rows are written, and keeps its
shape. So a journal never has rows of two shapes of a class, also if two processes write. Code that
declares a stored class differently is refused, and the error shows the difference. `model.shape`
defines shapes.
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
        self._recorded: frozenset[str] = frozenset()  # classes that this process knows to be stored

    def create(self) -> None:
        """Create the file without classes, unless it exists."""
        with suppress(FileExistsError):
            durable.publish(self._path, seal(_FIELD, {}))
        durable.sync_directory(self._root)

    def check(self) -> None:
        """Refuse code that declares a stored class differently; nothing is written.

        Raises:
            ClassChanged: A class is declared differently; the message says how, and what to do.
            Corrupt: The file is missing or damaged.
        """
        stored = self.stored()
        changed = differences(stored, self._declared)
        if changed:
            lines = "".join(f"\n  {difference}" for difference in changed)
            raise ClassChanged(
                f"the application's classes are not those whose entities {self._root.parent} holds "
                f"(- is stored, + is declared now):{lines}\n"
                "Nothing was written. Go back to the code that wrote them, or let this code begin "
                "in a directory of its own: --data DIR"
            )
        self._recorded = frozenset(stored)

    def record(self, names: Iterable[str]) -> None:
        """Store the shapes of classes durably, before their first rows are written.

        Raises:
            ClassChanged: Another process has stored a class in another shape meanwhile.
            Corrupt: The file is missing or damaged.
        """
        fresh = [name for name in names if name not in self._recorded]
        if not fresh:
            return
        with locked_directory(self._root):
            self.check()
            stored = self.stored()
            added = {name: self._declared[name] for name in fresh if name not in stored}
            if added:
                durable.replace(self._path, seal(_FIELD, {**stored, **added}))
        self._recorded = frozenset([*stored, *added])

    def stored(self) -> dict[str, Shape]:
        """Return the shape of each class that the journal has rows of.

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
