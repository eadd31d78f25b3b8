"""`Looks`: when to look again at small files of a shared root, which others change; see `lease_mark`."""

import time
from collections.abc import Callable
from typing import Final

from penstock.files.lease_mark import UNTOLD_S
from penstock.files.shared_root import SharedRoot

FAR_PAUSE_S: Final = 5.0
"""Between two looks of a process at a small file in a store whose lease has no mark."""


class Looks:
    """Says when to look again at a small file of a shared root that hardly ever changes.

    In a folder a look costs nothing, so it is due after a pause. In a store each look is paid for: it is due when the mark of the
    lease counts a change, and without a mark after a longer pause.
    """

    def __init__(
        self,
        root: SharedRoot,
        near_s: float,
        far_s: float = FAR_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; the first look is due.

        Args:
            near_s: The pause between two looks in a folder.
            far_s: The same in a store whose lease has no mark.
        """
        self._root = root
        self._near_s = near_s
        self._far_s = far_s
        self._clock = clock
        self._looked_s = float("-inf")
        self._seen: tuple[str, int | None] | None = None

    def is_due(self) -> bool:
        """Say whether to look now; if so, the caller looks."""
        now_s = self._clock()
        silent_s = now_s - self._looked_s
        if silent_s < self._near_s:
            return False
        seen = None
        if self._root.is_far:
            mark = self._root.lease_mark()
            # Taken before the look, which thus sees all changes that it counts.
            seen = None if mark is None else (mark.run, mark.changes)
            pause_s = self._far_s if seen is None else UNTOLD_S if seen == self._seen else 0.0
            if silent_s < pause_s:
                return False
        self._looked_s, self._seen = now_s, seen
        return True
