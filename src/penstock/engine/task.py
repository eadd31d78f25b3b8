"""A task: some transactions of an epoch, executed in order over one committed state.

Pure: the caller supplies `base`, which reads committed state, and takes away what was written and
what was touched. On several hosts an entity is *local* or *shipped* or the transaction that touches
it escapes; on one host everything is local.
"""

from array import array
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import Escape
from penstock.engine.touches import Finding, Touches
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
        self._tracked = tracked
        self._broken: PenstockError | None = None
        self._position = array("I")
        self._count = array("I")  # touches of each noted transaction
        self._entity = array("Q")
        self._wrote = bytearray()
        self._escaped = array("I")
        self.written: dict[EntityKey, bytes | None] = {}
        self.wanted: set[EntityKey] = set()
        here = base if is_local is None else _shipping(base, is_local, shipped)
        self.executor = Executor(app, self._reader(here), limits)

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
            np.repeat(_column(self._position, np.uint32), _column(self._count, np.uint32)),
            _column(self._entity, np.uint64),
            np.frombuffer(bytes(self._wrote), np.bool_),
        )
        return Finding(touches, _column(self._escaped, np.uint32))

    def _reader(self, here: Read) -> Read:
        """Return what transactions read with: a closure, called for every entity they touch."""
        written = self.written

        def read(key: EntityKey) -> bytes | None:
            if key in written:
                return written[key]
            try:
                return here(key)
            except Escape:
                self.executor.escaped = key
                raise
            except PenstockError as error:  # not the handler's to catch
                self._broken = error
                self.executor.escaped = key
                raise Escape(key) from error

        return read

    def _note(
        self, position: int, keys: Collection[EntityKey], writes: Mapping[EntityKey, bytes | None]
    ) -> None:
        digest = xxhash.xxh3_64_intdigest  # `fingerprint_of`, without a call for each key
        self._position.append(position)
        self._count.append(len(keys))
        self._entity.extend([digest(key.encode()) for key in keys])
        self._wrote.extend([key in writes for key in keys])


def _column(values: "array[int]", of: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(values.tobytes(), of)


def _shipping(
    base: Read, is_local: Callable[[EntityKey], bool], shipped: Mapping[EntityKey, bytes | None]
) -> Read:
    """Return a reader of several hosts' states: local, shipped, or an escape."""

    def read(key: EntityKey) -> bytes | None:
        if is_local(key):
            return base(key)
        if key in shipped:
            return shipped[key]
        raise Escape(key)

    return read
