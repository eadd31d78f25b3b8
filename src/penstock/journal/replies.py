"""Replies, as the journal has them: nothing is known of a request before its epoch is committed.

`Replies` follows the journal in a thread of its own and wakes who waits; when the journal cannot be
read, who waits hears of it, and following goes on. `find_reply` looks up one that was committed long
ago.
"""

import logging
import threading
from collections.abc import Collection
from concurrent.futures import Future

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, Epoch, LogPartition, Lsn, RequestId
from penstock.errors import RequestError, TimedOut
from penstock.journal.api import Commit, Journal, PartKind
from penstock.model.reply import Reply

_log = logging.getLogger(__name__)

_LOOK_MS = 200
_PAUSE_S = 0.5
"""Between two tries of a journal that cannot be read."""

_COLUMNS = ("partition", "lsn", "request_id", "error", "reply")
Place = tuple[LogPartition, Lsn]


class Replies:
    """Answers waiting callers from the journal's newest epochs."""

    def __init__(self, journal: Journal) -> None:
        """Follow the journal from its newest epoch on."""
        self._journal = journal
        self._lock = threading.Condition()
        self._waiting: dict[Place, Future[Reply]] = {}
        last = journal.last()
        self._seen = BEFORE_FIRST if last is None else last.epoch
        self._reached: dict[LogPartition, Lsn] = {} if last is None else dict(last.positions)
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._trouble: Exception | None = None  # which may pass
        self._thread = threading.Thread(target=self._follow, name="penstock-replies", daemon=True)
        self._thread.start()

    def wait(self, place: Place, timeout_ms: int) -> Reply:
        """Return the reply to the request at a log position.

        Raises:
            TimedOut: It did not come in time; the request may still take effect.
        """
        with self._lock:
            partition, lsn = place
            future = None
            if lsn >= self._reached.get(partition, Lsn(0)):
                failure = self._failure or self._trouble
                if failure is not None:
                    raise failure
                future = self._waiting.setdefault(place, Future())
        if future is None:
            return find_reply(self._journal, place)
        try:
            return future.result(timeout_ms / 1_000)
        except TimeoutError:
            raise TimedOut(
                f"no reply within {timeout_ms} ms; the request is in the log at {lsn} and "
                "will be processed; ask again with the same request id"
            ) from None

    def wait_until(self, place: Place, timeout_ms: int) -> bool:
        """Block until everything below a log position is committed; False when time is up."""
        partition, lsn = place
        with self._lock:
            return self._lock.wait_for(
                lambda: self._reached.get(partition, Lsn(0)) >= lsn, timeout_ms / 1_000
            )

    def close(self) -> None:
        """Stop following."""
        self._closing.set()
        self._thread.join(timeout=5)

    def _follow(self) -> None:
        while not self._closing.is_set():
            try:
                commit = self._journal.wait(self._seen, _LOOK_MS)
                if commit is not None:
                    self._take(commit)
                self._trouble = None
            except Exception as error:  # noqa: BLE001 -- who waits must hear of whatever it is
                if self._closing.is_set():
                    return
                _log.error("the journal cannot be followed", exc_info=error)
                with self._lock:
                    self._trouble = error
                self._end_waiting(error)
                self._closing.wait(_PAUSE_S)

    def _take(self, commit: Commit) -> None:
        with self._lock:
            waited = set(self._waiting)
        found = replies_of(self._journal, commit, waited)
        with self._lock:
            self._seen = commit.epoch
            self._reached = dict(commit.positions)
            done = [(self._waiting.pop(place), reply) for place, reply in found]
            # Who began to wait after the parts were read, for an epoch that has come meanwhile:
            late = [one for one in self._waiting if one[1] < self._reached.get(one[0], Lsn(0))]
            missed = [(place, self._waiting.pop(place)) for place in late]
            self._lock.notify_all()
        for future, reply in done:
            future.set_result(reply)
        for place, future in missed:
            future.set_result(find_reply(self._journal, place))

    def fail(self, error: Exception) -> None:
        """Raise an error for who waits, now and later: no further epoch will come."""
        with self._lock:
            self._failure = error
        self._end_waiting(error)

    def _end_waiting(self, error: Exception) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(error)


def find_reply(journal: Journal, place: Place) -> Reply:
    """Return the reply to a request that is committed, by its log position.

    Reads O(log epochs) commits, and one epoch's transactions.

    Raises:
        TimedOut: No committed epoch holds the position.
        RequestError: The epoch that did is forgotten.
    """
    partition, lsn = place
    last = journal.last()
    if last is None or last.positions.get(partition, Lsn(0)) <= lsn:
        raise TimedOut(f"the request at log position {lsn} is not processed yet")
    low, high = int(journal.first()), int(last.epoch)
    while low < high:
        middle = (low + high) // 2
        commit = next(journal.commits(Epoch(middle - 1), Epoch(middle)))
        if commit.positions.get(partition, Lsn(0)) > lsn:
            high = middle
        else:
            low = middle + 1
    commit = next(journal.commits(Epoch(low - 1), Epoch(low)))
    for _, reply in replies_of(journal, commit, [place]):
        return reply
    raise RequestError(
        f"the reply to the request at log position {lsn} is forgotten: the journal begins with "
        f"epoch {journal.first()}"
    )


def replies_of(
    journal: Journal, commit: Commit, wanted: Collection[Place]
) -> list[tuple[Place, Reply]]:
    """Return the replies of an epoch to the requests at some log positions."""
    found: list[tuple[Place, Reply]] = []
    if not wanted:
        return found
    lsns = pa.array({lsn for _, lsn in wanted}, pa.int64())
    for part in commit.parts_of(PartKind.TRANSACTIONS):
        table = journal.read(part, _COLUMNS)
        rows = table.filter(pc.is_in(table["lsn"], lsns))
        for partition, lsn, request_id, error, data in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            place = (LogPartition(partition), Lsn(lsn))
            if place in wanted:
                reply = Reply(RequestId(request_id), Lsn(lsn), commit.epoch, error, data)
                found.append((place, reply))
    return found
