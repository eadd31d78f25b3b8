"""The largest values that a view shows, where its memory is too small for all.

DuckDB keeps a group of rows in memory to write it. A class of large values may therefore never fit,
however often the view tries. Then the limit is lowered by a step, and the view is made anew. The limit
lies in a file of its own, which outlives the view's file.
"""

from pathlib import Path
from typing import Final

_STEPS: Final = (1 << 20, 64 << 10, 4 << 10)
_FILE: Final = "cell_bytes_max"


class CellLimit:
    """The bytes that one value may take, as it is stored.

    Attributes:
        bytes_max: The limit; None where there is none.
    """

    def __init__(self, folder: Path) -> None:
        """Read the limit from a view's folder."""
        self._path = folder / _FILE
        try:
            self.bytes_max: int | None = int(self._path.read_text())
        except (OSError, ValueError):
            self.bytes_max = None

    def lower(self) -> bool:
        """Go down by a step; say whether there was one."""
        for step in _STEPS:
            if self.bytes_max is None or step < self.bytes_max:
                self.bytes_max = step
                self._path.write_text(str(step))
                return True
        return False
