"""A task: some transactions of an epoch, executed in order over one committed state.

Pure: the caller supplies `base`, which reads committed state, and takes away what was written and
what was touched. On several hosts an entity is *local* or *shipped* or the transaction that touches
it escapes; on one host everything is local.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
import xxhash

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.conflicts import Touches
from penstock.engine.execute import Escape, Executor, Limits, Outcome
from penstock.engine.step import Finding
from penstock.errors import PenstockError
from penstock.model.application import App
from penstock.model.context import Read

_NOTHING: Final[Mapping[EntityKey, bytes | None]] = {}


class Task:
    """Executes transactions one by one, each seeing what those before it have written.

    Attributes:
        executor: What a guard needs to hold handlers to their limits.
        written: Newest state of every entity that was written (None: deleted).
        wanted: The entities that escaped transactions are known to touch.
    """

    def __init__(
        self,
        app: App,
        base: Read,
        limits: Limits,
        *,
        tracked: bool = True,
        is_local: Callable[[EntityKey], bool] | None = None,
        shipped: Mapping[EntityKey, bytes | None] = _NOTHING,
    ) -> None:
        """Begin over a committed state.

        Args:
            app: The application.
            base: Reads committed state of local entities.
            limits: What a transaction may use.
            tracked: Note what is touched; not needed where one task runs the whole epoch.
            is_local: Whether `base` can read an entity; None where it can read all.
            shipped: Committed state of entities that are not local.
        """
        self._base = base
        self._tracked = tracked
        self._is_local = is_local
        self._shipped = shipped
        self._broken: PenstockError | None = None
        self._position = array("I")
        self._entity = array("Q")
        self._wrote = bytearray()
        self._escaped = array("I")
        self.written: dict[EntityKey, bytes | None] = {}
        self.wanted: set[EntityKey] = set()
        self.executor = Executor(app, self._read, limits)

    def run(
        self, position: int, request_id: RequestId, body: bytes, time_us: int
    ) -> Outcome | None:
        """Execute the transaction at `position`; None when it escaped, and nothing of it remains.

        Raises:
            PenstockError: Committed state could not be read; no fault of the transaction.
        """
        try:
            outcome = self.executor.run(request_id, body, time_us)
        except Escape as escape:
            if self._broken is not None:
                raise self._broken from None
            self._escaped.append(position)
            known = {*self.executor.known, *self.executor.touched, escape.key}
            self.wanted |= known
            self._note(position, sorted(known), _NOTHING)
            return None
        if outcome.writes:
            self.written.update(outcome.writes)
        if self._tracked:
            self._note(position, outcome.reads, outcome.writes)
        return outcome

    def finding(self) -> Finding:
        """Return what was touched and what escaped, for the epoch's state machine."""
        touches = Touches(
            np.frombuffer(self._position.tobytes(), np.uint32),
            np.frombuffer(self._entity.tobytes(), np.uint64),
            np.frombuffer(bytes(self._wrote), np.bool_),
        )
        return Finding(touches, np.frombuffer(self._escaped.tobytes(), np.uint32))

    def _read(self, key: EntityKey) -> bytes | None:
        if key in self.written:
            return self.written[key]
        if self._is_local is not None and not self._is_local(key):
            if key in self._shipped:
                return self._shipped[key]
            self.executor.escaped = key
            raise Escape(key)
        try:
            return self._base(key)
        except PenstockError as error:  # not the handler's to catch
            self._broken = error
            self.executor.escaped = key
            raise Escape(key) from error

    def _note(
        self, position: int, keys: Iterable[EntityKey], writes: Mapping[EntityKey, bytes | None]
    ) -> None:
        digest = xxhash.xxh3_64_intdigest  # `fingerprint_of`, without a call for each key
        for key in keys:
            self._position.append(position)
            self._entity.append(digest(key.encode()))
            self._wrote.append(key in writes)
