"""`View`: SQL over the whole state at one epoch, kept up to date from the journal.

A thread follows the journal and applies what it finds; each query runs in a child, a fork that has
the tables as they are between two folds. It promises that each answer is of exactly one epoch, at or after the one that is asked for; and that
a view which lags, is lost or damaged goes on from the journal by itself, and says so. What leads to
that is `store`'s (damage at opening) and noticed here (damage while it runs).
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Diverged, PenstockError, ViewUnavailable
from penstock.journal.api import Journal
from penstock.model.application import App
from penstock.process.config import ViewConfig
from penstock.snapshots.snapshot import FOLDER as SNAPSHOTS
from penstock.snapshots.snapshot import Snapshots
from penstock.sql.as_of_query import AsOfQueries
from penstock.sql.change_batch import ChangeBatch, journal_batches, snapshot_batches
from penstock.sql.damage import ViewDamaged, is_damage, wants_memory
from penstock.sql.order import order_of, serve
from penstock.sql.query import Query, QueryResult, limits_of, run
from penstock.sql.query_pool import Asked, EncodedResult, QueryJob, QueryPool
from penstock.sql.view_store import ViewStore
from penstock.sql.warm_child import WarmChild

_log = logging.getLogger(__name__)

_LOOK_MS: Final = 200
_PAUSE_S: Final = 1.0
"""After a failure; twice as long after each further one, so that what never works costs little."""
_PAUSE_MAX_S: Final = 30.0
_REST_S: Final = 0.5
"""Between two folds while nobody asks: a fold costs nearly the same for one epoch and for many."""
_CURIOUS_S: Final = 5.0
"""For so long after a question the next one finds the view at the newest epoch already."""
_TELL_S: Final = 5.0


class _Behind(Exception):
    """The view was at the epoch that is wanted, and is made anew since."""


class ViewStatus(msgspec.Struct, frozen=True):
    """How a view stands.

    Attributes:
        epoch: What it answers of; -1 before the first.
        journal_epoch: The newest committed one.
        lag: Epochs that it has to apply.
        rebuilding: Whether it is made anew from the journal.
        rows: Entities that it holds.
        size_bytes: Of its file.
    """

    epoch: int
    journal_epoch: int
    lag: int
    rebuilding: bool
    rows: int
    size_bytes: int


class View:
    """One application's view in one data directory.

    Raises:
        ConfigError: Another process has the view open.
        StateUnavailable: The directory cannot be written.
    """

    def __init__(self, data: Path, app: App, journal: Journal, settings: ViewConfig) -> None:
        self._journal = journal
        self._settings = settings
        self._store = ViewStore(data, app, journal.identity, settings)
        self._pool = QueryPool([self._store.lock])
        serving = partial(serve, self._store, settings)
        self._spare = WarmChild(self._pool, serving, partial(self._still, BEFORE_FIRST))
        self._snapshots = Snapshots(data / SNAPSHOTS, journal.identity)
        self._history = AsOfQueries(app, journal, settings, self._snapshots, self._pool)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._asked_at = float("-inf")
        self._asked = threading.Event()  # somebody waits for an epoch, or for the end
        self._problem: str | None = None
        self._damage: str | None = None
        self._starves = False  # of memory, however few epochs are applied at once
        self._repaired_at: Epoch | None = None
        self._failures = 0  # in a row
        newest = self.journal_epoch()
        self._rebuilding_to = newest if self._store.epoch == BEFORE_FIRST else BEFORE_FIRST
        self._thread = threading.Thread(target=self._follow, name="penstock-view", daemon=True)

    def start(self, *, spare: bool = False) -> None:
        """Begin to follow the journal; with `spare`, a child is forked before its question comes."""
        self._thread.start()
        if spare:
            self._spare.start()

    def close(self) -> None:
        """Stop following, and let others open the view."""
        self._stopping.set()
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join()
        self._spare.close()
        self._store.close()

    @property
    def epoch(self) -> Epoch:
        """What has been applied."""
        return self._store.epoch

    @property
    def problem(self) -> str | None:
        """What keeps the view from going on, beyond what it repairs by itself."""
        return None if self._damage is not None else self._problem

    @property
    def rebuilding(self) -> bool:
        """Whether the view is made anew and has not come to where the journal then was."""
        return self._store.epoch < self._rebuilding_to

    def journal_epoch(self) -> Epoch:
        """Return the newest committed epoch."""
        last = self._journal.last()
        return BEFORE_FIRST if last is None else last.epoch

    def status(self) -> ViewStatus:
        """Say how it stands."""
        newest, epoch = self.journal_epoch(), self.epoch
        with self._pool.still:
            rows, size = self._store.rows(), self._store.size()
        return ViewStatus(epoch, newest, max(0, newest - epoch), self.rebuilding, rows, size)

    def ask(self, question: Query) -> QueryResult:
        """Answer a question, as `answer` does; the rows come into this process."""
        return self.answer(question, Asked()).answer()

    def answer(self, question: Query, asked: Asked) -> EncodedResult:
        """Answer a question; one of the past without this view's file.

        Raises:
            QueryError: The query may not be run, is wrong, asks for an epoch that is not held, or
                exceeds a limit.
            ViewUnavailable: The view did not come to the epoch in time, or is damaged.
            IntegrityError: The question is of the past, and the journal is damaged.
        """
        limit_ms = self._settings.time_ms
        time_ms = min(question.timeout_ms or limit_ms, limit_ms)
        self._asked_at = time.monotonic()
        deadline = self._asked_at + time_ms / 1_000
        with self._pool.still:  # DuckDB reads its words
            past = question.past()
        if past is not None:
            return self._history.answer(past, question, deadline, asked)
        wanted = self.journal_epoch() if question.min_epoch is None else question.min_epoch
        limits = limits_of(question, self._settings, deadline)
        ask = partial(run, self._store, question, limits)
        order = order_of(question, limits, asked)
        job = QueryJob(ask, asked, limits, partial(self._still, Epoch(wanted)))
        if order is not None:
            job = replace(job, ready=partial(self._spare.take, Epoch(wanted), order))
        try:
            while True:
                self._await(Epoch(wanted), deadline)
                with suppress(_Behind):
                    return self._run(job)
        except ViewDamaged as error:
            self._damage = str(error)
            _log.exception("view.damaged", extra={"epoch": self.epoch})
            raise ViewUnavailable("the SQL view was damaged and is made anew") from error

    def _run(self, job: QueryJob) -> EncodedResult:
        try:
            return self._pool.run(job)
        finally:
            self._spare.want()

    @contextmanager
    def _still(self, wanted: Epoch) -> Iterator[Epoch]:
        """Keep everything as it is, at an epoch that is wanted or a later one; give it.

        Raises:
            _Behind: It is at an earlier one.
        """
        with self._pool.still, self._journal.still():
            if self._store.epoch < wanted:
                raise _Behind
            yield self._store.epoch

    def await_epoch(self, epoch: Epoch, timeout_s: float) -> bool:
        """Wait until an epoch is applied, or the time is up; say which."""
        if self._store.epoch < epoch:
            self._asked.set()
        with self._changed:
            return self._changed.wait_for(lambda: self._store.epoch >= epoch, max(0.0, timeout_s))

    @property
    def _is_asked(self) -> bool:
        """Whether questions have come of late."""
        return time.monotonic() - self._asked_at < _CURIOUS_S

    def _await(self, epoch: Epoch, deadline: float) -> None:
        if self.await_epoch(epoch, deadline - time.monotonic()):
            return
        state = "is made anew and has come" if self.rebuilding else "has come"
        because = f" ({self._problem})" if self._problem else ""
        raise ViewUnavailable(
            f"the SQL view {state} to epoch {self.epoch}, and {epoch} is asked for{because}"
        )

    def _follow(self) -> None:
        try:
            self._keep_following()
        except BaseException as error:  # where threads end their process, it begins again
            self._problem = f"the view's thread died of {type(error).__name__}: {error}"
            raise

    def _keep_following(self) -> None:
        while not self._stopping.is_set():
            try:
                self._repair()
                if self._journal.first() > self._store.epoch + 1:
                    self._begin_anew()
                if self._journal.wait(self._store.epoch, _LOOK_MS) is not None:
                    self._catch_up()
                    if not self._is_asked:
                        self._asked.wait(_REST_S)
                    self._asked.clear()
                self._problem = None
                self._failures = 0
            except (PenstockError, duckdb.Error, OSError, MemoryError) as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        _log.exception("view.cannot_apply", extra={"epoch": self.epoch})
        problem = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, duckdb.OutOfMemoryException):
            problem = f"an epoch wants more than view.memory_mb, which is to be raised: {problem}"
        if is_damage(error):
            self._damage = problem
        self._starves = wants_memory(error) and (self._failures > 0 or self._damage is not None)
        self._problem = problem
        self._stopping.wait(min(_PAUSE_S * 2**self._failures, _PAUSE_MAX_S))
        self._failures = min(self._failures + 1, 10)

    def _repair(self) -> None:
        """Make a damaged file anew, once nobody reads it; smaller, where memory is short."""
        if self._starves:
            self._spare.drop()
            with self._pool.still:
                epoch = self._store.epoch
                if self._store.withhold():
                    self._problem = self._damage = None
                    self._rebuilding_to = max(epoch, self.journal_epoch())
                self._starves = False
        if self._damage is None:
            return
        epoch = self._store.epoch
        self._spare.drop()
        with self._pool.still:
            self._store.repair(self._damage, again=epoch != self._repaired_at)
            self._problem = self._damage = None
            self._repaired_at = epoch
            if self._store.epoch < epoch:
                self._rebuilding_to = self.journal_epoch()

    def _catch_up(self) -> None:
        newest = self.journal_epoch()
        told = time.monotonic()
        upto = Epoch(self._store.epoch + 1) if self._failures else newest  # which takes less memory
        following = journal_batches(self._journal, self._store.epoch, upto)
        while (fold := self._applied(following)) is not None:
            with self._changed:
                self._changed.notify_all()
            if time.monotonic() - told > _TELL_S:
                told = time.monotonic()
                _log.info("view.catching_up", extra={"epoch": fold.epoch, "journal": newest})
            if self._stopping.is_set() or self._damage is not None:
                return
            self._pool.let_start()

    def _applied(self, following: Iterator[ChangeBatch]) -> ChangeBatch | None:
        """Apply the next fold, and return it; None where there is no more."""
        with self._pool.still:
            fold = next(following, None)
            if fold is not None:
                self._spare.drop()
                self._store.apply(fold)
                self._store.fold_log(is_read=self._pool.living > 0)
        if fold is not None and self._is_asked:
            self._spare.want()
        return fold

    def _begin_anew(self) -> None:
        """Make the file anew from a snapshot, where the journal no longer has the epochs before it.

        The oldest snapshot will do: from there on requests and replies are held, too.

        Raises:
            Diverged: There is no snapshot that the journal continues.
            Corrupt: A file of the snapshot is missing or damaged.
        """
        first = self._journal.first()
        usable = [one for one in self._snapshots.every() if one.epoch + 1 >= first]
        if not usable:
            raise Diverged(f"the journal begins with epoch {first}, and no snapshot leads there")
        self._spare.drop()
        with self._pool.still:
            self._store.rebuild(f"the journal begins with epoch {first}")
            self._rebuilding_to = self.journal_epoch()
            for fold in snapshot_batches(self._snapshots, usable[-1]):
                self._store.apply(fold)
