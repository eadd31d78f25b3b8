"""Rewinds: classes at epochs, as they were asked for of late.

Promises one layout of the rows for one epoch, however they came about: what is computed from them by
a single thread, in their order, is the same for ever. Bounded by bytes; the oldest question goes
first. Many threads may ask; one at a time rewinds, because that takes memory.
"""

import threading
import time
from collections import OrderedDict

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.state.rewind import Rewound, oldest_state, rewound
from penstock.state.snapshot import Snapshots
from penstock.views.question import Limits


class Rewinds:
    """The last few classes at epochs of one journal."""

    def __init__(
        self, app: App, journal: Journal, snapshots: Snapshots | None, bytes_max: int
    ) -> None:
        self._app = app
        self._journal = journal
        self._snapshots = snapshots
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[str, Epoch], Rewound] = OrderedDict()
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def at(self, entity: str, epoch: Epoch, limits: Limits) -> Rewound:
        """Return the entities of a class after an epoch, in the order of keys.

        Raises:
            QueryError: No snapshot and no journal lead there any more, or the time is over.
            Diverged: The journal holds what does not fit the class.
            Corrupt: The journal is damaged.
        """
        found = self._known(entity, epoch)
        if found is not None:
            return found
        if not self._turn.acquire(timeout=max(0.0, limits.deadline - time.monotonic())):
            raise limits.too_late()
        try:
            found = self._known(entity, epoch)
            if found is None:
                found = self._rewound(entity, epoch)
                self._keep(entity, epoch, found)
        finally:
            self._turn.release()
        limits.check()
        return found

    def _rewound(self, entity: str, epoch: Epoch) -> Rewound:
        oldest = oldest_state(self._journal, self._snapshots)
        if oldest is None or epoch < oldest:
            held = "none" if oldest is None else f"that after epoch {oldest}"
            raise QueryError(
                f"the state after epoch {epoch} is not held any more; the oldest is {held}"
            )
        table, rows = rewound(self._app, self._journal, entity, epoch, self._snapshots)
        return Rewound(table, rows.combine_chunks())

    def _known(self, entity: str, epoch: Epoch) -> Rewound | None:
        with self._lock:
            found = self._kept.get((entity, epoch))
            if found is not None:
                self._kept.move_to_end((entity, epoch))
            return found

    def _keep(self, entity: str, epoch: Epoch, found: Rewound) -> None:
        with self._lock:
            self._kept[entity, epoch] = found
            size = sum(one.rows.nbytes for one in self._kept.values())
            while size > self._bytes_max:
                _, gone = self._kept.popitem(last=False)
                size -= gone.rows.nbytes
