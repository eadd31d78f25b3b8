"""A task: some transactions of an epoch, executed in log order over one committed state.

The task does no I/O: the caller supplies `base`, which reads committed state, and uses the writes and
the access set that the task collects. On several hosts an entity is *local* or *shipped*, or else the
transaction that touches it escapes. On one host every entity is local.
"""

from array import array
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xxhash

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.access import AccessSet, TaskAccess
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import Escape
from penstock.errors import PenstockError
from penstock.model.application import App
from penstock.model.context import Read

_NOTHING: Final[Mapping[EntityKey, bytes | None]] = {}


class Task:
    """Executes transactions one by one; each transaction sees the writes of those before it.

    Attributes:
        executor: Runs the handlers; a guard uses it to enforce limits.
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
            limits: The limits of one transaction.
            tracked: Collect the access set; not needed where one task runs the whole epoch.
            is_local: Whether `base` can read an entity; None where it can read every entity.
            shipped: Committed state of entities that are not local.
        """
        self._tracked = tracked
        self._broken: PenstockError | None = None
        self._position = array("I")
        self._count = array("I")  # accesses of each transaction in `_position`
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
        """Execute the transaction at `position`.

        Args:
            position: Its position in the epoch.
            request_id: The request's id.
            body: The encoded request.
            time_us: When the request was appended, microseconds since the Unix epoch.

        Returns:
            How it ended; None when it escaped, which leaves no writes.

        Raises:
            PenstockError: Committed state could not be read; the transaction has no outcome.
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

    def access(self) -> TaskAccess:
        """Return the access set and the escapes, for the epoch's state machine."""
        accesses = AccessSet(
            np.repeat(_column(self._position, np.uint32), _column(self._count, np.uint32)),
            _column(self._entity, np.uint64),
            np.frombuffer(bytes(self._wrote), np.bool_),
        )
        return TaskAccess(accesses, _column(self._escaped, np.uint32))

    def _reader(self, here: Read) -> Read:
        """Return the function by which transactions read: a closure, because it is called often."""
        written = self.written

        def read(key: EntityKey) -> bytes | None:
            if key in written:
                return written[key]
            try:
                return here(key)
            except Escape:
                self.executor.escaped = key
                raise
            except PenstockError as error:  # the handler must not catch it
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


def _column(values: "array[int]", dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.frombuffer(values.tobytes(), dtype)


def _shipping(
    base: Read, is_local: Callable[[EntityKey], bool], shipped: Mapping[EntityKey, bytes | None]
) -> Read:
    """Return a function that reads local and shipped entities, and escapes on all others."""

    def read(key: EntityKey) -> bytes | None:
        if is_local(key):
            return base(key)
        if key in shipped:
            return shipped[key]
        raise Escape(key)

    return read
