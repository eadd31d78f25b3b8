"""The SQL view: queries of the whole state at one epoch, kept up to date from the journal.

A thread follows the journal and applies its changes. Each query runs in a child, which is a fork with
the tables between two batches of changes. Each result is of exactly one epoch, at or after the
requested epoch. A view that lags, is lost or is damaged is repaired from the journal, and reports
this. `view_store` detects damage when the file is opened, and this module while the view runs.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import duckdb
import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import Diverged, OperationalError, PenstockError, ViewUnavailable
from penstock.files.roots import shared_root, snapshots_root
from penstock.journal.api import Journal, newest_epoch, told_commit
from penstock.model.application import App
from penstock.process.child_process import ChildProcess, keep_to
from penstock.process.config import ViewConfig
from penstock.process.disk_space import tells_of_full_disk
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import state_as_of
from penstock.sql_view.as_of_query import AsOfQueries
from penstock.sql_view.change_batch import ChangeBatch, journal_batches
from penstock.sql_view.connection import ViewDamaged, is_damage, is_short_of_memory
from penstock.sql_view.query import Query, QueryLimits, QueryResult, limits_of, run, time_ms_of
from penstock.sql_view.query_pool import (
    EncodedResult,
    QueryJob,
    QueryPool,
    ResultOptions,
    bounds_of,
)
from penstock.sql_view.result_format import ResultFormat, encode_result
from penstock.sql_view.table_answers import TablesBody, run_queries
from penstock.sql_view.view_store import ViewStore

if TYPE_CHECKING:
    from penstock.deployment.code_in_force import CodeInForce

_YIELD_S: Final = 0.005
_LENGTH_BYTES: Final = 8
"""A command follows its length, because other children may keep the pipe open."""

_WARM_UP_S: Final = 60.0
_WARM_UP: Final = Query("SELECT 1")


class _Command(msgspec.Struct, frozen=True):
    """A query for a warm child, with its limits and the format of its result."""

    query: Query
    deadline: float
    time_ms: int
    rows_max: int
    result_format: ResultFormat


_decode = msgspec.msgpack.Decoder(_Command).decode


def encode_command(query: Query, limits: QueryLimits, options: ResultOptions) -> bytes | None:
    """Return the command for a query; None if a parameter cannot be encoded without change."""
    command = _Command(
        query, limits.deadline, limits.time_ms, limits.rows_max, options.result_format
    )
    try:
        data = msgspec.msgpack.encode(command)
    except (TypeError, OverflowError):  # MessagePack has integers of 64 bits
        return None
    # A parameter that MessagePack changes, such as a tuple, would ask another question.
    return data if _decode(data) == command else None


@dataclass(slots=True)
class _Waiting:
    """A waiting child, its epoch, and the pipe for its command."""

    child: ChildProcess
    epoch: Epoch
    commands: int
    counted: ExitStack = field(default_factory=ExitStack)

    def end(self) -> None:
        self.child.end()
        self.counted.close()


class WarmChild:
    """The child that is forked before its query arrives, and the thread that forks it; any thread may take it.

    Args:
        pool: Starts and counts children.
        still: A context in which no other thread changes the tables; its value is their epoch.
    """

    def __init__(
        self,
        pool: QueryPool,
        store: ViewStore,
        settings: ViewConfig,
        still: Callable[[], AbstractContextManager[Epoch]],
    ) -> None:
        self._pool = pool
        self._store = store
        self._settings = settings
        self._still = still
        self._epoch = BEFORE_FIRST
        self._changing = threading.Lock()
        self._waiting: _Waiting | None = None
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="penstock-spare", daemon=True)

    def start(self) -> None:
        """Start the thread that forks a child when one is wanted."""
        self._thread.start()

    def want(self) -> None:
        """Request a child, if none waits."""
        self._wanted.set()

    def take(self, epoch: Epoch, command: bytes) -> ChildProcess | None:
        """Give a command to the waiting child, if its epoch is `epoch` or later; return the child."""
        waiting = self._take_waiting()
        if waiting is None:
            return None
        is_usable = (
            # A child has the tables of the epoch at which it was forked.
            waiting.epoch >= epoch
            and waiting.child.is_alive()
            and _write_command(waiting.commands, command)
        )
        os.close(waiting.commands)
        if not is_usable:
            waiting.end()
            return None
        waiting.counted.close()  # the caller has counted the child
        return waiting.child

    def drop(self) -> None:
        """End the waiting child, because the view changes its tables."""
        waiting = self._take_waiting()
        if waiting is not None:
            os.close(waiting.commands)
            waiting.end()

    def close(self) -> None:
        """Stop the thread, and end the waiting child."""
        self._stopping.set()
        self.want()
        if self._thread.is_alive():
            self._thread.join()
        self.drop()

    def _take_waiting(self) -> _Waiting | None:
        with self._changing:
            waiting, self._waiting = self._waiting, None
        return waiting

    def _keep(self) -> None:
        while not self._stopping.is_set():
            if self._waiting is None:
                with suppress(OSError, ViewUnavailable):  # the next query reports the failure
                    self._fork()
            self._wanted.wait()
            self._stopping.wait(_YIELD_S)  # lets the current result be sent first
            self._wanted.clear()

    @contextmanager
    def _noting_epoch(self) -> Iterator[None]:
        with self._still() as self._epoch:
            yield

    def _fork(self) -> None:
        source, target = os.pipe()
        with ExitStack() as counted:
            counted.enter_context(self._pool.counted())

            def work(pipe: IO[bytes]) -> None:
                os.close(target)
                with os.fdopen(source, "rb") as commands:
                    self._serve(commands, pipe)

            try:
                child = self._pool.started(work, None, self._noting_epoch())
            except BaseException:
                os.close(target)
                raise
            finally:
                os.close(source)
            # From here on, the child is counted until it is taken or dropped.
            waiting = _Waiting(child, self._epoch, target, counted.pop_all())
        with self._changing:
            self._waiting = waiting

    def _serve(self, commands: IO[bytes], pipe: IO[bytes]) -> None:
        """Warm up, read one command and execute it; this runs in the child."""
        deadline = time.monotonic() + _WARM_UP_S
        # A new fork copies each page that it writes to, and the first statement of DuckDB touches
        # many: this is done before the query arrives.
        result = run(self._store, _WARM_UP, limits_of(_WARM_UP, self._settings, deadline))
        for result_format in ResultFormat:
            encode_result(result, result_format)
        self._store.sealed().execute("ROLLBACK")
        length = commands.read(_LENGTH_BYTES)
        if not length:
            return  # the parent has dropped this child
        command = _decode(commands.read(int.from_bytes(length)))
        limits = QueryLimits(command.deadline, command.time_ms, command.rows_max, self._settings)
        keep_to(bounds_of(limits))
        options = ResultOptions(command.result_format)
        QueryJob(partial(run, self._store, command.query, limits), options, limits).work(pipe)


def _write_command(target: int, command: bytes) -> bool:
    try:
        with open(target, "wb", closefd=False) as commands:
            commands.write(len(command).to_bytes(_LENGTH_BYTES))
            commands.write(command)
    except OSError:
        return False
    return True


class ErasureWatch:
    """Compares the erasures that the keys know with those that the tables know; queries wait for the latter."""

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
        """Wait until the tables know all erasures before this call; `deadline` is a time of the monotonic clock."""
        count = self.count()
        with self._changed:
            left_s = max(0.0, deadline - time.monotonic())
            if not self._changed.wait_for(lambda: self._done >= count, left_s):
                raise ViewUnavailable("a person was erased, and the SQL view is built again")


_log = logging.getLogger(__name__)

_LOOK_MS: Final = 200
_PAUSE_S: Final = 1.0
"""The pause after a failure; each further failure doubles it."""
_PAUSE_MAX_S: Final = 30.0
_REST_S: Final = 1.0
_REST_SHARE: Final = 4.0
_REST_MOST_S: Final = 10.0
"""The pauses without queries, because a batch costs nearly the same for one epoch and many.

A pause is four times as long as the work before it, within limits: of large tables, each batch reads all keys.
"""
_REST_LOOK_S: Final = 0.5
"""The time between two looks during a pause for an erasure or for damage."""
_CURIOUS_S: Final = 5.0
"""How long after a query the view stays at the newest epoch, so that the next query need not wait."""
_LOG_S: Final = 5.0


class _Behind(Exception):
    """The view has reached the requested epoch, and is being rebuilt since then."""


class ViewStatus(msgspec.Struct, frozen=True):
    """The status of a view.

    Attributes:
        epoch: The applied epoch; -1 before the first.
        journal_epoch: The newest committed epoch.
        lag: The number of epochs between them.
        rebuilding: Whether the view is being rebuilt from the journal.
        rows: The number of entities.
    """

    epoch: int
    journal_epoch: int
    lag: int
    rebuilding: bool
    rows: int
    size_bytes: int


class View:
    """The view of one application in one data directory.

    Args:
        code: Loads later deployments; None: the view keeps the application that it was given.
    """

    def __init__(
        self,
        data: Path,
        app: App,
        journal: Journal,
        settings: ViewConfig,
        code: "CodeInForce | None" = None,
    ) -> None:
        self._journal = journal
        self._code = code
        self._erasures = ErasureWatch(app)
        self._settings = settings
        self._store = ViewStore(data, app, journal.identity, settings)
        self._pool = QueryPool([self._store.lock])
        still = partial(self._still, BEFORE_FIRST)
        self._warm_child = WarmChild(self._pool, self._store, settings, still)
        self._root = shared_root(data)
        self._snapshots = Snapshots(snapshots_root(data), journal.identity)
        self._as_of_queries = AsOfQueries(app, journal, settings, self._snapshots, self._pool)
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._asked_at = float("-inf")
        self._asked = threading.Event()  # set when a query waits for an epoch, or at the end
        self._problem: str | None = None
        self._damage: str | None = None
        self._is_short_of_memory = False  # a single epoch needs too much memory
        self._repaired_at: Epoch | None = None
        self._failures = 0  # consecutive
        self._waits_for = ""
        newest = self.journal_epoch()
        # An empty file at the start is a rebuild, too: queries say so while it is filled.
        self._rebuilding_to = newest if self._store.epoch == BEFORE_FIRST else BEFORE_FIRST
        self._thread = threading.Thread(target=self._follow, name="penstock-view", daemon=True)

    def start(self, *, spare: bool = False) -> None:
        """Begin to follow the journal; with `spare`, keep a warm child for the next query."""
        self._thread.start()
        if spare:
            self._warm_child.start()

    def stop(self) -> None:
        """Begin to stop: from now on, the journal may be closed, which ends the wait for an epoch at once."""
        self._stopping.set()
        self._asked.set()

    def close(self) -> None:
        """Stop following, and close the file."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._warm_child.close()
        self._store.close()

    @property
    def epoch(self) -> Epoch:
        """The applied epoch."""
        return self._store.epoch

    @property
    def problem(self) -> str | None:
        """The last failure to apply an epoch, unless the view repairs it."""
        return None if self._damage is not None else self._problem

    @property
    def rebuilding(self) -> bool:
        """Whether the view has not reached the epoch that the journal had when the rebuild began."""
        return self._store.epoch < self._rebuilding_to

    def journal_epoch(self) -> Epoch:
        """Return the newest committed epoch."""
        return newest_epoch(self._journal)

    def status(self) -> ViewStatus:
        """Return the status."""
        told, epoch = told_commit(self._journal, self._root), self.epoch
        newest = BEFORE_FIRST if told is None else told.epoch
        with self._pool.still:
            rows, size = self._store.rows(), self._store.size()
        return ViewStatus(epoch, newest, max(0, newest - epoch), self.rebuilding, rows, size)

    def ask(self, query: Query) -> QueryResult:
        """Execute a query as `execute` does, and return its rows."""
        return self.execute(query, ResultOptions()).result()

    def execute(self, query: Query, options: ResultOptions) -> EncodedResult:
        """Execute a query; a query of past epochs does not use the view's file."""
        time_ms = time_ms_of(query, self._settings)
        self._asked_at = time.monotonic()
        deadline = self._asked_at + time_ms / 1_000
        # No query may show a person after the erasure was answered.
        self._erasures.wait(deadline)
        with self._pool.still:  # DuckDB parses the query
            statement = query.as_of_statement()
        if statement is not None:
            return self._as_of_queries.execute(statement, query, deadline, options)
        wanted = self.journal_epoch() if query.min_epoch is None else query.min_epoch
        limits = limits_of(query, self._settings, deadline)
        execute = partial(run, self._store, query, limits)
        job = QueryJob(execute, options, limits, partial(self._still, Epoch(wanted)))
        command = encode_command(query, limits, options)
        if command is not None:
            job = replace(job, ready=partial(self._warm_child.take, Epoch(wanted), command))
        return self._at_newest(job, Epoch(wanted), self._run)

    def answers(self, asked: TablesBody, caller: str) -> EncodedResult:
        """Execute the queries of tables, all at one epoch, which is the requested one or a later one."""
        # No warm child is taken or forked, and the view does not stay at the newest epoch for this: these queries come at
        # regular times, and must not cost more than they need.
        deadline = time.monotonic() + self._settings.time_ms / 1_000
        self._erasures.wait(deadline)
        wanted = Epoch(asked.min_epoch)
        settings = self._settings
        limits = QueryLimits(deadline, settings.time_ms, settings.rows_max, settings)
        execute = partial(run_queries, self._store, asked.queries, limits)
        options = ResultOptions(caller=caller)
        job = QueryJob(execute, options, limits, partial(self._still, wanted))
        return self._at_newest(job, wanted, self._pool.run)

    def _at_newest(
        self, job: QueryJob, wanted: Epoch, run_job: Callable[[QueryJob], EncodedResult]
    ) -> EncodedResult:
        """Execute a job when the tables have come to an epoch."""
        try:
            while True:
                self._await(wanted, job.limits.deadline)
                # The view may begin a rebuild between the wait and the fork; then the query waits
                # again.
                with suppress(_Behind):
                    return run_job(job)
        except ViewDamaged as error:
            self._damage = str(error)
            _log.exception("view.damaged", extra={"epoch": self.epoch})
            raise ViewUnavailable(
                "the SQL view was damaged and is rebuilt; try again later"
            ) from error

    def _run(self, job: QueryJob) -> EncodedResult:
        try:
            return self._pool.run(job)
        finally:
            # After the query, so that the fork does not slow it down.
            self._warm_child.want()

    @contextmanager
    def _still(self, wanted: Epoch) -> Iterator[Epoch]:
        """Keep tables and journal unchanged during the block; return the applied epoch.

        Raises:
            _Behind: The applied epoch is before `wanted`.
        """
        with self._pool.still, self._journal.quiesced():
            if self._store.epoch < wanted:
                raise _Behind
            yield self._store.epoch

    def await_epoch(self, epoch: Epoch, timeout_s: float) -> bool:
        """Wait until an epoch is applied; return False if it was not applied in time."""
        if self._store.epoch < epoch:
            self._asked.set()
        with self._changed:
            return self._changed.wait_for(lambda: self._store.epoch >= epoch, max(0.0, timeout_s))

    @property
    def _is_asked(self) -> bool:
        """Whether a query arrived in the last `_CURIOUS_S` seconds."""
        return time.monotonic() - self._asked_at < _CURIOUS_S

    def _await(self, epoch: Epoch, deadline: float) -> None:
        if self.await_epoch(epoch, deadline - time.monotonic()):
            return
        state = "is being rebuilt and has come" if self.rebuilding else "has come"
        because = f" ({self._problem})" if self._problem else ""
        raise ViewUnavailable(
            f"the SQL view {state} to epoch {self.epoch}, and {epoch} is asked for{because}"
        )

    def _follow(self) -> None:
        try:
            self._keep_following()
        except BaseException as error:  # the process ends or continues without this thread
            self._problem = f"the view's thread failed with {type(error).__name__}: {error}"
            raise

    def _keep_following(self) -> None:
        while not self._stopping.is_set():
            try:
                self._repair()
                self._forget_erased()
                if self._journal.first() > self._store.epoch + 1:
                    self._rebuild_from_snapshot()
                self._take_deployment()
                if self._journal.wait(self._store.epoch, _LOOK_MS) is not None:
                    began_s = time.monotonic()
                    self._catch_up()
                    spent_s = time.monotonic() - began_s
                    if not self._is_asked:
                        self._rest(min(max(_REST_S, _REST_SHARE * spent_s), _REST_MOST_S))
                    self._asked.clear()
                if self._waits_for:
                    _log.info("view.goes_on", extra={"epoch": self.epoch})
                    self._waits_for = ""
                self._problem = None
                self._failures = 0
            except (PenstockError, duckdb.Error, OSError, MemoryError) as error:
                if not self._stopping.is_set():
                    self._fail(error)

    def _rest(self, rest_s: float) -> None:
        """Wait until something asks for an epoch, or the tables must be built again; for `rest_s` seconds at most."""
        end_s = time.monotonic() + rest_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._asked.wait(min(left_s, _REST_LOOK_S)):
                return
            if self._erasures.is_behind or self._damage is not None:
                return

    def _fail(self, error: Exception) -> None:
        problem = str(error).partition("\n")[0] or type(error).__name__
        if not (isinstance(error, OperationalError | OSError) or tells_of_full_disk(error)):
            _log.exception("view.cannot_apply", extra={"epoch": self.epoch})
        elif not self._waits_for:  # each further try fails in the same way
            self._waits_for = problem
            _log.warning("view.waits", extra={"epoch": self.epoch, "cause": problem})
        if isinstance(error, duckdb.OutOfMemoryException):
            problem = f"an epoch needs more than view.memory_mb; raise this setting: {problem}"
        if is_damage(error):
            self._damage = problem
        if is_short_of_memory(error):
            self._store.keep_batches_small()
        self._is_short_of_memory = is_short_of_memory(error) and (
            self._failures > 0 or self._damage is not None
        )
        self._problem = problem
        self._stopping.wait(min(_PAUSE_S * 2**self._failures, _PAUSE_MAX_S))
        self._failures = min(self._failures + 1, 10)

    def _repair(self) -> None:
        """Rebuild a damaged file, and a file whose values need too much memory."""
        if self._is_short_of_memory:
            self._warm_child.drop()
            with self._pool.still:
                epoch = self._store.epoch
                if self._store.withhold():
                    self._problem = self._damage = None
                    self._rebuilding_to = max(epoch, self.journal_epoch())
                self._is_short_of_memory = False
        if self._damage is None:
            return
        epoch = self._store.epoch
        self._warm_child.drop()
        with self._pool.still:
            self._store.repair(self._damage, again=epoch != self._repaired_at)
            self._problem = self._damage = None
            self._repaired_at = epoch
            if self._store.epoch < epoch:
                self._rebuilding_to = self.journal_epoch()

    def _take_deployment(self) -> None:
        """Give the tables the classes of the deployment that executes the next epoch."""
        code, epoch = self._code, self._store.epoch
        deployment = None if code is None else code.wanted(Epoch(epoch + 1))
        if code is None or deployment is None:
            return
        self._warm_child.drop()
        with self._pool.still:  # no child is forked during the import
            loaded = code.load(deployment)
            if loaded is not None:
                app, journal, snapshots = loaded.app, self._journal, self._snapshots
                self._erasures.watch(app)
                seen_at = Epoch(epoch + 1)
                self._store.declare(
                    app, lambda name: state_as_of(app, journal, name, epoch, snapshots, seen_at)
                )
                self._as_of_queries = AsOfQueries(
                    app, journal, self._settings, snapshots, self._pool
                )
                if self._store.epoch < epoch:
                    self._rebuilding_to = self.journal_epoch()
        code.served = deployment
        _log.info("view.deployment", extra={"deployment": deployment.number, "epoch": epoch})

    def _forget_erased(self) -> None:
        """Build the tables again after an erasure, because replies and former states are readable in memory."""
        if self._erasures.is_behind:
            self._warm_child.drop()
            with self._pool.still:
                count = self._erasures.count()
                self._as_of_queries.forget()
                self._store.rebuild("a person was erased")
                self._rebuilding_to = self.journal_epoch()
            self._erasures.finish(count)

    def _catch_up(self) -> None:
        newest = self.journal_epoch()
        logged_at = time.monotonic()
        upto = (
            Epoch(self._store.epoch + 1) if self._failures else newest
        )  # a single epoch needs less memory
        following = Epoch(self._store.epoch + 1)
        begin = None if self._code is None else self._code.next_since(following)
        if begin is not None:  # its rows need the tables of that deployment
            upto = min(upto, Epoch(begin - 1))
        rows_max = self._store.batch_rows
        batches = journal_batches(
            self._journal, self._store.epoch, upto, rows_max=rows_max, in_steps=True
        )
        while (batch := self._apply_next(batches)) is not None:
            with self._changed:
                self._changed.notify_all()
            if time.monotonic() - logged_at > _LOG_S:
                logged_at = time.monotonic()
                _log.info("view.catching_up", extra={"epoch": batch.epoch, "journal": newest})
            if self._stopping.is_set() or self._damage is not None:
                return
            self._pool.let_start()

    def _apply_next(self, batches: Iterator[ChangeBatch]) -> ChangeBatch | None:
        """Apply the next batch, and return it; return None after the last batch."""
        with self._pool.still:
            batch = next(batches, None)
            if batch is not None:
                self._warm_child.drop()
                self._store.apply(batch)
                self._store.fold_log(is_read=self._pool.living > 0)
        if batch is not None and self._is_asked:
            self._warm_child.want()
        return batch

    def _rebuild_from_snapshot(self) -> None:
        """Rebuild the file from a snapshot, because the journal does not hold the first epochs."""
        first = self._journal.first()
        manifests = self._snapshots.every()
        usable = [manifest for manifest in manifests if manifest.epoch + 1 >= first]
        if not usable:
            raise Diverged(
                f"the journal begins with epoch {first}, and no snapshot holds the state before it; restore a backup"
            )
        self._warm_child.drop()
        with self._pool.still:
            self._store.rebuild(f"the journal begins with epoch {first}")
            self._rebuilding_to = self.journal_epoch()
            # The oldest one, because the journal holds all requests and replies after it.
            self._store.fill(self._snapshots, usable[-1])
