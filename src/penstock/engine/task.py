"""A task: some transactions of an epoch, executed in log order over one committed state.

The task does no I/O: the caller supplies `base`, which reads committed state, and uses the writes and
the access set that the task collects. On several hosts an entity is *local* or *shipped*, or else the
transaction that touches it escapes. On one host every entity is local.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from itertools import chain
from typing import Any, Final

import numpy as np
import xxhash

from penstock.base.ids import EntityKey, RequestId, split_entity_key
from penstock.engine.access import AccessSet, TaskAccess
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.engine.failure import Escape
from penstock.engine.streams.cascade import Cascade
from penstock.engine.streams.cascade_runner import CascadeRunner
from penstock.engine.streams.derived_ids import MARK
from penstock.errors import PenstockError
from penstock.model.application import App
from penstock.model.context import Read
from penstock.model.request import Failure, decode_failure
from penstock.native.choice import core

_NOTHING: Final[Mapping[EntityKey, bytes | None]] = {}
_UNWRITTEN: Final[Any] = object()

Noted = tuple[int, Collection[EntityKey], Container[EntityKey]]
"""The position of a transaction, the entities that it touched, and those among them that it wrote."""


class Task:
    """Executes transactions one by one; each transaction sees the writes of those before it.

    Attributes:
        executor: Runs the handlers; a guard uses it to enforce limits.
        cascades: Runs the cascades of records; None if handlers send nothing.
        cascade: The cascade of the last record, after its requests; None if it has caused nothing.
        wrote: The keys that the last record has written, with their new states.
        root: The method that the request of the last record called, as the sampler names it.
        written: Newest state of every entity that was written (None: deleted).

    Args:
        tracked: Collect the access set; not needed where one task runs the whole epoch.
        is_local: Whether `base` can read an entity; None if it can read every entity.
        shipped: Committed state of entities that are not local.
        keys: Returns the committed keys that begin with a prefix, in order; None if handlers send nothing.
    """

    def __init__(  # noqa: PLR0913 -- the ways to the state are separate on purpose
        self,
        app: App,
        base: Read,
        limits: Limits,
        *,
        tracked: bool = True,
        is_local: Callable[[EntityKey], bool] | None = None,
        shipped: Mapping[EntityKey, bytes | None] = _NOTHING,
        keys: Callable[[str], list[EntityKey]] | None = None,
    ) -> None:
        self._tracked = tracked
        self._former: dict[EntityKey, Any] = {}
        self._can_escape = is_local is not None
        self._broken: PenstockError | None = None
        self._noted: list[Noted] = []
        self._escaped: list[int] = []
        self.written: dict[EntityKey, bytes | None] = {}
        self.wanted: set[EntityKey] = set()
        here = base if is_local is None else _shipping(base, is_local, shipped)
        read = self._read = self._reader(here)
        self.executor = Executor(app, read, limits)
        self.cascades: CascadeRunner | None = None
        self.cascade: Cascade | None = None
        self.wrote: dict[EntityKey, bytes | None] = {}
        self.root: str | None = None
        if keys is not None:
            self.executor.delivers = True
            self._keys = StoredKeys(keys, self.written)
            self.cascades = CascadeRunner(
                app, self.executor, read, self._keys.keys, self._apply, limits
            )

    def run(
        self, position: int, request_id: RequestId, body: bytes, time_us: int
    ) -> Outcome | None:
        """Execute the transaction at `position`, and the requests that it sends.

        Args:
            time_us: When the request was appended, microseconds since the Unix epoch.

        Returns:
            How it ended; None when it escaped, which leaves no writes.
        """
        self.cascade = None
        self._former = {}
        try:
            outcome = self.executor.run(request_id, body, time_us)
            self.root = self.executor.root
            if self.cascades is not None and (outcome.outbox or MARK in request_id):
                self.wrote = {}
                self._apply(outcome.writes)
                self.cascade = self.cascades.run_requests(request_id, body, time_us, outcome)
            else:  # nearly all records cause nothing, so their writes are not copied
                self.written.update(outcome.writes)
                self.wrote = outcome.writes
        except Escape as escape:
            if (
                self._broken is not None
            ):  # storage has failed: an escape would only run the record again
                raise self._broken from None
            self._undo()
            self._escaped.append(position)
            known = {*self.executor.known, *self.executor.touched, escape.key}
            self.wanted |= known
            self._note(position, sorted(known), _NOTHING)
            return None
        if self._tracked:
            reads: Collection[EntityKey] = outcome.reads
            if self.cascade is not None and self.cascade.completed:
                sent = [request.outcome.reads for request in self.cascade.completed]
                reads = dict.fromkeys(chain(outcome.reads, *sent))
            self._note(position, reads, self.wrote)
        return outcome

    def look(self, work: Callable[[Executor, Read], Outcome]) -> Outcome:
        """Let a function run a transaction that changes nothing, over the state of the task.

        Raises:
            PenstockError: The state could not be read.
        """
        try:
            return work(self.executor, self._read)
        except Escape:
            assert self._broken is not None, "every row is local"
            raise self._broken from None

    def set_aside(
        self, position: int, request_id: RequestId, body: bytes, time_us: int, reply: bytes
    ) -> Outcome:
        """Let a request fail without running it; `cascade` has the work that depends on the record.

        Args:
            time_us: When the request was appended, microseconds since the Unix epoch.
        """
        outcome = Outcome(decode_failure(reply).code, reply, (), {})
        self.cascade = self.root = None
        self.wrote = {}
        if self.cascades is not None and MARK in request_id:
            self.cascade = self.cascades.run_requests(request_id, body, time_us, outcome)
        if self._tracked:
            self._note(position, (), self.wrote)
        return outcome

    def run_steps(self, cascade: Cascade, failure: Failure | None, reply: bytes) -> None:
        """Run the workflow steps of a record, after its requests; then `wrote` has the keys that they have written.

        Args:
            failure: The failure of its request; None if it took effect.
        """
        assert self.cascades is not None, "the caller has keys"
        self.wrote = {}
        try:
            self.cascades.run_steps(cascade, failure, reply)
        except Escape:
            assert self._broken is not None, "every row is local"
            raise self._broken from None

    def _apply(self, writes: Mapping[EntityKey, bytes | None]) -> None:
        """Take the writes of a transaction of the running record."""
        if self._can_escape:  # a request that the record sends may escape after others have written
            for key in writes:
                self._former.setdefault(key, self.written.get(key, _UNWRITTEN))
        self.wrote.update(writes)
        self.written.update(writes)
        self._keys.note(writes)

    def _undo(self) -> None:
        """Remove the writes of a record that has escaped."""
        for key, data in self._former.items():
            if data is _UNWRITTEN:
                del self.written[key]
            else:
                self.written[key] = data

    def access(self) -> TaskAccess:
        """Return the access set and the escapes; call it once, at the end."""
        # The task is in a cycle of references. So a collection of garbage frees it, and visits every tuple that it holds.
        noted, self._noted = self._noted, []
        return TaskAccess(_access_set(noted), np.array(self._escaped, np.uint32))

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

        if core is None:
            return read
        compiled: Read = core.overlaid_read(written, here, read)
        return compiled

    def _note(
        self, position: int, keys: Collection[EntityKey], writes: Container[EntityKey]
    ) -> None:
        self._noted.append((position, keys, writes))


class StoredKeys:
    """The keys with a prefix, in the committed state and the writes of a task."""

    def __init__(
        self, committed: Callable[[str], list[EntityKey]], written: Mapping[EntityKey, bytes | None]
    ) -> None:
        self._committed = committed
        self._written = (
            written  # it grows; `note` names its keys, so that no call searches all of it
        )
        self._noted: dict[str, set[EntityKey]] = {}
        self._fresh: list[EntityKey] = []  # noted, and not sorted by class yet

    def note(self, keys: Iterable[EntityKey]) -> None:
        """Note that keys were written."""
        self._fresh.extend(keys)

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the keys that begin with a prefix, the name of a class and a slash, in order."""
        for key in self._fresh:
            name, _ = split_entity_key(key)
            self._noted.setdefault(name, set()).add(key)
        self._fresh.clear()
        noted, written = self._noted.get(prefix[:-1], set()), self._written
        stored = (key for key in self._committed(prefix) if key not in written)
        return sorted([*stored, *(key for key in noted if written.get(key) is not None)])


def _access_set(noted: list[Noted]) -> AccessSet:
    """Return the accesses of transactions."""
    if core is not None:
        columns = core.access_columns(noted, xxhash.xxh3_64_intdigest)
        kinds = (np.uint32, np.uint64, np.bool_)
        return AccessSet(*map(np.frombuffer, columns, kinds))
    sizes = [len(keys) for _, keys, _ in noted]
    count = sum(sizes)
    every_key = chain.from_iterable(keys for _, keys, _ in noted)
    hashes = map(xxhash.xxh3_64_intdigest, map(str.encode, every_key))  # `fingerprint_of`
    wrote = chain.from_iterable(map(writes.__contains__, keys) for _, keys, writes in noted)
    return AccessSet(
        np.repeat(np.array([position for position, _, _ in noted], np.uint32), sizes),
        np.fromiter(hashes, np.uint64, count),
        np.fromiter(wrote, np.bool_, count),
    )


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
