"""The applier of a view: a process that feeds one target from the journal, and survives whatever the target does.

It holds no truth. The position is in the target, written with the rows, so an applier that was killed goes on from there,
and of two appliers one wins each change. Nothing waits for an applier: a target that is down costs a retry with a pause.
"""

import gc
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.base.ids import Epoch
from penstock.deployment.code_in_force import CodeInForce
from penstock.deployment.isolated_upcasts import isolated_upcasts
from penstock.errors import PenstockError
from penstock.files.looks import Looks
from penstock.files.roots import shared_root, snapshots_root
from penstock.journal.api import Journal, newest_epoch
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.views.view import QueryTable, ViewPlan
from penstock.process import presence
from penstock.process.config import Config, ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import (
    PASSED,
    Certificate,
    Erasures,
    ViewPassage,
    behind,
    newest_hash,
)
from penstock.process.isolated_calls import IsolatedCalls
from penstock.process.stop import Stop
from penstock.process.view_files import (
    ROLE,
    Gap,
    ViewOrders,
    ViewReport,
    ViewState,
    folder_of,
    held,
    read_gaps,
    read_orders,
    read_report,
    write_gaps,
    write_report,
)
from penstock.retention.leases import lease
from penstock.snapshots.snapshot import Snapshots
from penstock.views.alignment import Stops
from penstock.views.feed import Feed, changes_in, commit_time_us
from penstock.views.pace import ANSWERS, Pace
from penstock.views.tables import FAILED_SHAPE, ViewTables, gap_row, merged
from penstock.views.target import (
    FAILED,
    Overtaken,
    Position,
    QueryFailed,
    Refused,
    Standing,
    TableChange,
    Target,
    TargetProblem,
)
from penstock.views.targets import open_target

if TYPE_CHECKING:
    from penstock.views.query_tables import Answers, QueryTables

_log = logging.getLogger(__name__)

_LOOK_MS: Final = 200
_JOURNAL_MS: Final = 5_000
_IDLE_S: Final = 0.5
"""How often an applier looks whether an operator has given an order."""

_REPORT_S: Final = 0.5
_PAUSE_S: Final = 0.5
"""The pause after a failure; each further failure doubles it."""
_PAUSE_MAX_S: Final = 15.0
_STOPPED_S: Final = 0.004
"""How long an applier that a reader has stopped waits before it looks again."""

_PURGE_S: Final = 5.0
"""The pause before rows of erased persons that could not be destroyed are tried again."""

_NICE: Final = 5
"""The nice value of an applier: requests come first."""

_GARBAGE: Final = 50_000
"""Objects between two collections: the rows of a batch are many objects, and none of them is garbage."""

Opener = Callable[[ViewPlan], Target]


class _Undeclared(Exception):
    """The application has no such view any more."""


class Applier:
    """Feeds one view; for one thread.

    Args:
        name: The name of the view.
        opener: Opens the target; it may raise `TargetProblem`.
        code: Loads later deployments; None: the view keeps the application that it was given.
        settings: Those of the SQL view, which answers the queries of tables; None: the defaults.
    """

    _warned = ""  # the reason that the log has last been told

    def __init__(  # noqa: PLR0913 -- the parts that the process has opened
        self,
        app: App,
        data: Path,
        name: str,
        journal: Journal,
        opener: Opener,
        code: CodeInForce | None = None,
        settings: ViewConfig | None = None,
    ) -> None:
        self._settings = settings or ViewConfig()
        self._pace = Pace(self._settings.tables_percent)
        self._queries: QueryTables | None = None  # None: no table is written in SQL
        self._waiting: Position | None = None  # a query reads the changes behind it, and is not due
        self._trouble: TargetProblem | None = None  # why the last question had no answer
        self._data = data
        self._name = name
        self._journal = journal
        self._opener = opener
        self._code = code
        self._feed = Feed(journal, Snapshots(snapshots_root(data), journal.identity))
        self._stop = threading.Event()
        self._app = app
        self._target: Target | None = None
        self._standing: Standing | None = None  # None: not read since the target was opened
        # It was compared with the journal, or written from it.
        self._verified: Position | None = None
        self._failures = 0  # consecutive
        former = read_report(data, name)
        self._rebuilt = 0 if former is None else former.rebuilt
        # The newest erasure that the target has passed; None: no applier has told of it.
        self._passed = None if former is None else former.passed
        self._gaps = read_gaps(data, name)
        # Whether its first fill has ended just now; and why the last erasure has not been passed yet, with the remedy.
        self._is_new, self._owed = False, ("", "")
        self._stops = Stops(data, name)
        # The facts about the target stay known while it does not answer.
        known = former or ViewReport(name, "", ViewState.FILLING)
        self._report = replace(known, state=ViewState.FILLING, reason="", remedy="", filled=None)
        self._reported_at = self._passes_at = float("-inf")
        self._looks = Looks(shared_root(self._data), _IDLE_S)
        self._orders = ViewOrders()
        self._plan = app.views[name]
        self._use(app)

    def run(self, stop: threading.Event) -> None:
        """Feed the view until the process is asked to stop, or the application has the view no more."""
        self._stop = stop
        try:
            while not stop.is_set():
                try:
                    self._step()
                    self._failures = 0
                except (TargetProblem, PenstockError, OSError, MemoryError) as error:
                    self._wait_after(error)
        except _Undeclared:
            _log.info("applier.undeclared", extra={"view": self._name})
        finally:
            # The last epochs were shown and not told: the report is written from time to time only.
            self._reported_at = float("-inf")
            self._tell(self._report.state, self._report.reason, self._report.remedy)
            self._close()

    def _step(self) -> None:
        """Do the next piece of work, or wait for some."""
        if (reason := self._hindrance()) is not None:
            state, why = reason
            self._close()
            self._tell(state, why)
            self._stop.wait(_IDLE_S)
            return
        standing = self._standing_now()
        position = standing.position
        if self._erasures_now() != self._erasures:
            self._use(self._app)
        # Behind the erasures: a fill without the erased persons shows their epochs, too.
        newest = newest_epoch(self._journal)
        if self._orders.rebuild > self._rebuilt or position is None:
            self._fill(newest, standing)
        elif refusal := self._refusal(position, newest):
            self._tell(
                ViewState.REFUSED, refusal, f"run penstock view rebuild {self._name}", position
            )
            self._stop.wait(_IDLE_S)
        else:
            self._follow(position, newest, standing)

    def _refusal(self, position: Position, newest: Epoch) -> str:
        """Return why the position cannot be continued; the journal is asked once for each position of others."""
        refusal = "" if position == self._verified else self._feed.refusal(position, newest)
        if not refusal:
            self._verified = position
        return refusal

    def _follow(self, position: Position, newest: Epoch, standing: Standing) -> None:
        self._take_code(position.epoch)
        queries = self._queries
        answers = None if queries is None else queries.shown(position)
        if not self._continues(position, answers):
            self._fill(newest, standing)
            return
        self._pass_erasures(position)
        is_waiting = queries is not None and position == self._waiting
        if self._rests(self._pace.due_in() if is_waiting else 0.0, ViewState.FOLLOWING):
            return
        if not is_waiting or self._trouble is None:
            self._tell(ViewState.FOLLOWING, *self._owed, position=position)
        if (upto := self._next_epoch(position)) is not None:
            self._take_epochs(position, upto, answers, standing)

    def _continues(self, position: Position, answers: "Answers | None") -> bool:
        """Say whether the target can be changed from its position on; `answers` are those that it shows."""
        return (
            (self._queries is None or answers is not None)
            and position.definition == self._definition(answers)
            and self._feed.continues(position.epoch)
        )

    def _next_epoch(self, position: Position) -> Epoch | None:
        """Return the last epoch that may be applied now; None after a wait without one."""
        if self._journal.wait(position.epoch, _LOOK_MS) is None:
            return None
        upto = newest_epoch(self._journal)
        if (begin := self._next_deployment(position)) is not None:
            upto = min(upto, Epoch(begin - 1))  # its rows need the tables of that deployment
        upto = self._stops.bound(position.epoch, upto)
        if upto == position.epoch:
            self._stop.wait(_STOPPED_S)
            return None
        return upto

    def _next_deployment(self, position: Position) -> Epoch | None:
        return None if self._code is None else self._code.next_since(Epoch(position.epoch + 1))

    def _take_epochs(
        self, position: Position, upto: Epoch, answers: "Answers | None", standing: Standing
    ) -> None:
        for batch in self._feed.batches(position.epoch, upto):
            if answers is not None and self._queries is not None and self._queries.reads(batch):
                self._refresh(position, upto, answers, standing)
                return
            after = self._feed.position(batch.epoch, position.definition)
            if self._queries is not None and answers is not None:
                answers = self._queries.name(answers, after)
            self._change(position, after, changes_in(batch, self._tables), answers)
            self._stops.shown(after.epoch)
            position = after
            self._tell(ViewState.FOLLOWING, *self._owed, position=position)
            if self._stop.is_set() or self._hindrance() is not None:
                return

    def _refresh(
        self, position: Position, upto: Epoch, former: "Answers", standing: Standing
    ) -> None:
        """Ask the queries again if they are due, and bring all tables to the epoch of the answers at once."""
        queries = self._queries
        assert queries is not None
        if self._next_deployment(position) is not None:
            # Perhaps it corrects a query that fails, and that would keep the view from ever coming to the deployment.
            self._fill(newest_epoch(self._journal), standing)
            return
        self._waiting = position
        if self._rests(self._pace.due_in(), ViewState.FOLLOWING):
            return
        began = time.monotonic()
        answers = self._asked(upto)
        definition, after = self._definition(answers), None
        changes = None
        if definition == position.definition and self._next_deployment(position) is None:
            after = self._feed.position(answers.epoch, definition)
            answers = queries.name(answers, after)
            changes = queries.changes(former, answers)
        self._pace.spent(began, time.monotonic())
        batch = next(self._feed.batches(position.epoch, answers.epoch))
        if after is None or changes is None or batch.epoch < answers.epoch:
            # One transaction must bring the view to the epoch of the answers; that of a fill has no bound.
            self._fill(answers.epoch, standing, answers)
            return
        self._change(position, after, merged([*changes_in(batch, self._tables), *changes]), answers)
        self._stops.shown(after.epoch)
        self._tell(ViewState.FOLLOWING, *self._owed, position=after)

    def _rests(self, wait_s: float, state: ViewState) -> bool:
        """Wait a little, and tell the state, if the queries may not be asked yet."""
        if wait_s == 0:
            return False
        if self._trouble is None:
            self._tell(state, *self._owed)
        else:
            self._tell_trouble(self._trouble)
        self._stop.wait(min(wait_s, _LOOK_MS / 1_000))
        return True

    def _asked(self, epoch: Epoch) -> "Answers":
        """Return the answers of the queries at an epoch or a later one, which the journal of this process has, too."""
        assert self._queries is not None
        began = time.monotonic()
        try:
            answers = self._queries.ask(epoch)
        except TargetProblem as problem:
            self._trouble = problem
            if isinstance(problem, QueryFailed):  # others have cost time, and no work
                self._pace.spent(began, time.monotonic())
            raise
        self._pace.spent(began, time.monotonic())
        self._trouble = None
        if answers.epoch > newest_epoch(self._journal) and (
            self._journal.wait(Epoch(answers.epoch - 1), _JOURNAL_MS) is None
        ):
            raise TargetProblem(f"the journal does not show epoch {answers.epoch} yet")
        return answers

    def _definition(self, answers: "Answers | None") -> str:
        """Return the fingerprint of all tables of the view."""
        if self._queries is None or answers is None:
            return self._tables.definition
        return self._queries.definition(self._tables.definition, answers)

    def _change(
        self,
        before: Position,
        after: Position,
        changes: list[TableChange],
        answers: "Answers | None" = None,
    ) -> None:
        """Change the target; `answers` are those of its queries after the change."""
        assert self._target is not None
        assert self._standing is not None
        try:
            self._target.apply(before, after, changes)
        except Overtaken:
            # The rows of the other process may be right: the target is looked at again.
            self._standing = None
            raise
        self._verified = after
        if self._queries is not None and answers is not None:
            self._queries.settle(answers, after)
        failed = self._standing.failed
        if failed or any(each.rows for each in changes if each.shape.name == FAILED):
            failed = self._target.position().failed
        self._standing = Standing(after, failed)

    def _fill(self, newest: Epoch, standing: Standing, answers: "Answers | None" = None) -> None:
        """Replace all tables by those of an epoch; readers keep the former rows until then.

        Args:
            newest: The epoch; with SQL tables, it may be a later one.
            answers: The answers of the queries at the epoch; None: they are asked.
        """
        is_asked = self._queries is None or answers is not None
        if self._rests(0.0 if is_asked else self._pace.rest_in(), ViewState.FILLING):
            return
        with lease(self._data, f"view {self._name}", Epoch(max(0, self._journal.first()))):
            answers = self._code_and_answers(newest, answers)
            order = self._orders.rebuild
            after = self._load(newest if answers is None else answers.epoch, standing, answers)
        self._rebuilt = max(self._rebuilt, order)
        self._is_new = standing.position is None and self._passed is None
        assert self._target is not None
        self._standing = Standing(after, self._target.position().failed)
        self._stops.shown(after.epoch)
        _log.info("applier.filled", extra={"view": self._name, "epoch": after.epoch})
        self._reported_at = float("-inf")
        self._tell(ViewState.FOLLOWING, position=after)

    def _load(self, epoch: Epoch, standing: Standing, answers: "Answers | None") -> Position:
        """Replace all tables, and return the new position."""
        assert self._target is not None
        self._tell(ViewState.FILLING, filled=0.0)
        queries = self._queries
        gaps = self._gaps_before(self._tables, standing.position)
        filling = self._feed.filling(self._tables, epoch)
        after = self._feed.position(epoch, self._definition(answers))
        shapes = list(self._tables.shapes)
        asked: Iterator[TableChange] = iter(())
        if queries is not None and answers is not None:
            answers = queries.name(answers, after)
            shapes[-1:-1], asked = answers.shapes, queries.rows(answers)

        def parts() -> Iterator[TableChange]:
            for change in chain(filling, asked):
                self._tell(ViewState.FILLING, filled=filling.done)
                if self._stop.is_set():
                    raise TargetProblem("the applier was stopped")
                yield change
            yield TableChange(FAILED_SHAPE, (), [gap_row(gap.table, gap.text) for gap in gaps])

        self._target.load(standing.position, after, shapes, parts())
        if queries is not None and answers is not None:
            queries.settle(answers, after)
        return after

    def _code_and_answers(self, newest: Epoch, answers: "Answers | None") -> "Answers | None":
        """Use the code behind an epoch, and return the answers of its queries at this epoch, or at a later one."""
        while True:
            served = None if self._code is None else self._code.served
            self._take_code(newest)
            if self._queries is None:
                return None
            if answers is None or (self._code is not None and self._code.served != served):
                self._tell(ViewState.FILLING, filled=0.0)
                answers = self._asked(newest)
            newest = answers.epoch
            # A deployment may have begun between the two epochs.
            if self._code is None or self._code.wanted(Epoch(newest + 1)) is None:
                return answers

    def _gaps_before(self, tables: ViewTables, position: Position | None) -> list[Gap]:
        """Note the events that a fill cannot bring back, because the journal has forgotten them.

        Args:
            position: The position before the fill; None: a new view begins with the oldest atoms that there are.
        """
        known = (
            {}
            if position is None
            else {each.table: each for each in read_gaps(self._data, self._name)}
        )
        gaps = {name: gap for name, gap in known.items() if name in tables.streams}
        first = self._journal.first()
        if position is not None and first > 0:
            for name, atom in self._feed.first_atoms(tables.streams).items():
                if atom > (gaps[name].atom if name in gaps else 0):
                    gaps[name] = Gap(name, atom, position.epoch, first)
        noted = [gaps[name] for name in sorted(gaps)]
        if noted != self._gaps:
            write_gaps(self._data, self._name, noted)
            for gap in noted:
                _log.warning("applier.gap", extra={"view": self._name, "reason": gap.text})
            self._gaps = noted
        return noted

    def _pass_erasures(self, position: Position) -> None:
        """Destroy the rows that an erasure has removed, and note in its certificate that the view has passed it."""
        ahead, now = behind(self._erased, self._passed or ""), time.monotonic()
        if not ahead or now < self._passes_at:
            return
        assert self._target is not None
        try:
            if not self._is_new:  # else there was no row of an erased person
                self._target.purge()
        except TargetProblem as error:
            # The tables are right, and their readers must not wait for the program that keeps the former rows.
            self._owed = (
                f"rows of erased persons are still in its files: {error.reason}",
                error.remedy,
            )
            self._passes_at = now + _PURGE_S
            return
        target, epoch = self._plan.target, position.epoch
        passage = ViewPassage(self._name, target.kind, PASSED, epoch, wall_clock_us())
        # A new view has a part in those erasures alone whose orders have named it.
        noted = [each for each in self._erased_now() if each.names(self._name)]
        hashes = {each.hash for each in (noted if self._is_new else ahead)}
        Erasures(self._data).note(hashes, [passage])
        self._is_new = False
        self._passed, self._owed = newest_hash(ahead), ("", "")
        _log.info("applier.passed", extra={"view": self._name, "epoch": epoch})

    def _standing_now(self) -> Standing:
        if self._target is None:
            self._target = self._opener(self._plan)
        if self._standing is None:
            try:
                self._standing = self._target.position()
            except TargetProblem:
                if self._orders.rebuild <= self._rebuilt:
                    raise
                # A store that is damaged has no position, and an operator has ordered to fill it again.
                return Standing(None)
            if self._standing.position is not None:
                self._stops.shown(self._standing.position.epoch)
        return self._standing

    def _hindrance(self) -> tuple[ViewState, str] | None:
        """Return the state and the reason why the view must not be written; None if it may be."""
        if self._looks.is_due():
            self._orders = read_orders(self._data, self._name)
            self._held = held(self._data)
        if self._held is not None:
            return ViewState.HELD, self._held.reason
        if self._orders.paused:
            return ViewState.PAUSED, self._orders.reason or f"by {self._orders.by}"
        return None

    def _take_code(self, epoch: Epoch) -> None:
        """Use the code of the deployment that executes the epoch behind an epoch."""
        code = self._code
        deployment = None if code is None else code.wanted(Epoch(epoch + 1))
        if code is None or deployment is None:
            return
        loaded = code.load(deployment)
        code.served = deployment
        self._use(self._app if loaded is None else loaded.app)
        _log.info("applier.deployment", extra={"deployment": deployment.number, "epoch": epoch})

    def _use(self, app: App) -> None:
        """Show the tables that an application declares."""
        plan = app.views.get(self._name)
        if plan is None:
            raise _Undeclared
        if self._target is not None and plan.target != self._plan.target:
            self._close()  # another kind of target, or other options of it
        served = None if self._code is None else self._code.served
        self._app = app
        self._plan = plan
        # The certificates first: the number that the tables know then includes each of their keys.
        self._erased = self._erased_now()
        self._erasures = self._erasures_now()
        code = "" if served is None else served.code.archive
        self._tables = ViewTables(plan, code, IsolatedCalls(), self._erasures)
        self._queries = self._query_tables(app, plan)
        self._pace.keep(plan.tables)

    def _query_tables(self, app: App, plan: ViewPlan) -> "QueryTables | None":
        folder = folder_of(self._data, self._name)
        if not any(isinstance(table, QueryTable) for table in plan.tables):
            shutil.rmtree(folder / ANSWERS, ignore_errors=True)  # of a former deployment
            return None
        # DuckDB is loaded for these tables only.
        from penstock.views.query_tables import QueryTables  # noqa: PLC0415

        return QueryTables(app, plan, self._data, folder, self._settings)

    def _erasures_now(self) -> int:
        """Return the number of destroyed keys that this view has to obey."""
        keys = self._app.keys if self._plan.target.personal else None
        return 0 if keys is None else keys.erasures()

    def _erased_now(self) -> list[Certificate]:
        """Return the certificates of the erasures that this view has to obey."""
        erasures = Erasures(self._data)
        if self._app.keys is None or not self._plan.target.personal or not erasures.exist:
            return []
        return erasures.completed(self._journal.identity, newest_epoch(self._journal))

    def _tell_trouble(self, problem: TargetProblem) -> None:
        state = ViewState.REFUSED if isinstance(problem, Refused) else ViewState.WAITING
        self._tell(state, problem.reason, problem.remedy)

    def _wait_after(self, error: Exception) -> None:
        remedy = error.remedy if isinstance(error, TargetProblem) else ""
        reason = (
            error.reason if isinstance(error, TargetProblem) else str(error) or type(error).__name__
        )
        # A target may be down for days: each reason is told once, until the view has gone on.
        if not isinstance(error, Overtaken) and (not self._failures or reason != self._warned):
            told = {"view": self._name, "reason": reason, "remedy": remedy}
            _log.warning("applier.waits", extra={key: text for key, text in told.items() if text})
            self._warned = reason
        if not isinstance(error, TargetProblem):
            _log.debug("applier.error", exc_info=error)
        self._close()
        self._tell_trouble(error if isinstance(error, Refused) else TargetProblem(reason, remedy))
        self._stop.wait(min(_PAUSE_S * 2**self._failures, _PAUSE_MAX_S))
        self._failures = min(self._failures + 1, 10)

    def _close(self) -> None:
        target, self._target, self._standing = self._target, None, None
        if target is not None:
            try:
                target.close()
            except (TargetProblem, OSError):
                _log.debug("applier.close", exc_info=True)

    def _failed_in(self, standing: Standing) -> int:
        """Return the number of rows of functions that are absent; the table lists gaps of streams, too."""
        return max(0, standing.failed - len(self._gaps))

    def _tell(
        self,
        state: ViewState,
        reason: str = "",
        remedy: str = "",
        position: Position | None = None,
        filled: float | None = None,
    ) -> None:
        """Write the report if something has changed; the epoch and the progress alone from time to time."""
        now = time.monotonic()
        standing = self._standing
        shown = position or (None if standing is None else standing.position)
        report = ViewReport(
            name=self._name,
            target=self._plan.target.kind,
            state=state,
            epoch=self._report.epoch if shown is None else shown.epoch,
            failed=self._report.failed if standing is None else self._failed_in(standing),
            reason=reason,
            remedy=remedy,
            time_us=wall_clock_us(),
            pid=os.getpid(),
            filled=filled,
            rebuilt=self._rebuilt,
            schema=self._plan.target.schema,
            personal=self._plan.target.personal,
            passed=self._passed or "",
            streams=bool(self._tables.streams),
            asked_ms=None if self._pace.took_s is None else round(1_000 * self._pace.took_s, 1),
            rests=self._pace.rests,
        )
        # Also of a report that is not written, a later one takes the epoch, which a closed target cannot tell.
        former, self._report = self._report, report
        if _facts(report) == _facts(former) and now - self._reported_at < _REPORT_S:
            return
        self._reported_at = now
        write_report(self._data, report)


def _facts(report: ViewReport) -> object:
    """Return what is told at once when it changes."""
    return report.state, report.reason, report.failed, report.passed, report.rests


def serve_applier(app: App, name: str, config: Config, *, supervised: bool = False) -> None:
    """Feed a view until the process is asked to stop, or until a deployment declares the view no more.

    Args:
        name: The name of the view, which the application has.
        supervised: Whether the end of standard input stops the process, too.
    """
    directory = DataDirectory(config.data)
    directory.create(config.key_service)
    folder = folder_of(config.data, name)
    folder.mkdir(parents=True, exist_ok=True)

    os.nice(_NICE)
    gc.freeze()
    gc.set_threshold(_GARBAGE)
    with (
        Stop(supervised=supervised) as stop,
        isolated_upcasts(),
        closing(directory.open_journal(app)) as journal,
        presence.present(config.data, ROLE, config.app, view=name),
    ):
        code = CodeInForce(config.data, config.app, known=journal.known)

        def opener(plan: ViewPlan) -> Target:
            given = config.target_settings(name)
            time_of = partial(commit_time_us, journal)
            return open_target(plan, given.address(), folder, given.properties, time_of)

        applier = Applier(app, config.data, name, journal, opener, code, config.view)
        _log.info("applier.follows", extra={"view": name, "target": app.views[name].target.kind})
        applier.run(stop.wanted)
