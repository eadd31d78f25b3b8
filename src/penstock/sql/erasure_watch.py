"""`ErasureWatch`: notices erasures, so that the view shows nothing of an erased person.

The tables of a view are in memory and readable. After an erasure they are built again, and queries wait for that.
"""

import threading
import time

from penstock.base.subject_keys import SubjectKeys
from penstock.errors import ViewUnavailable
from penstock.model.application import App


class ErasureWatch:
    """Compares the erasures that the keys know with those that the tables know."""

    def __init__(self, app: App) -> None:
        self._keys: SubjectKeys | None = None
        self._changed = threading.Condition()
        self._done = 0
        self.watch(app)

    def watch(self, app: App) -> None:
        """Go on with another version, whose tables are not filled yet: it may have the first personal class."""
        if self._keys is None and app.is_personal:
            self._keys = app.keys
            self.finish(self.count())

    @property
    def is_behind(self) -> bool:
        """Whether there was an erasure that the tables do not know."""
        return self._done < self.count()

    def count(self) -> int:
        """Return the number of erasures until now; the caller of `finish` asks before it builds the tables."""
        return 0 if self._keys is None else self._keys.erasures()

    def finish(self, count: int) -> None:
        """Let the waiting queries continue: the tables know this number of erasures."""
        with self._changed:
            self._done = count
            self._changed.notify_all()

    def wait(self, deadline: float) -> None:
        """Wait until the tables know all erasures before this call; `deadline` is a time of the monotonic clock.

        Raises:
            ViewUnavailable: They do not in time.
        """
        count = self.count()
        with self._changed:
            left_s = max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: self._done >= count, left_s):
                raise ViewUnavailable("a person was erased, and the SQL view is built again")
