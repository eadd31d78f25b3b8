"""The size limit of values in the view, for views whose memory is too small for all values.

DuckDB keeps a group of rows in memory to write it, so a class of large values may never fit. Then the
limit is lowered by a step, and the view is rebuilt. The limit is stored in a file of its own, which
outlives the view's file.
"""

from pathlib import Path
from typing import Final

_STEPS: Final = (1 << 20, 64 << 10, 4 << 10)
_FILE: Final = "cell_bytes_max"


class CellLimit:
    """The size limit of one value.

    Attributes:
        bytes_max: The limit in bytes; None is no limit.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        try:
            self.bytes_max: int | None = int(self._path.read_text())
        except (OSError, ValueError):
            self.bytes_max = None

    def lower(self) -> bool:
        """Lower the limit by a step; return False at the lowest step."""
        for step in _STEPS:
            if self.bytes_max is None or step < self.bytes_max:
                self.bytes_max = step
                self._path.write_text(str(step))
                return True
        return False
