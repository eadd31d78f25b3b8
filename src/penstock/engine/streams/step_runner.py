"""Runs the workflow steps of cascades as transactions: a step takes effect whole, or it leaves nothing."""

from collections.abc import Callable, Mapping
from typing import Final

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Effect, Outcome
from penstock.engine.failure import close_all
from penstock.engine.streams.cascade import Cascade, data_size
from penstock.engine.streams.derived_ids import step_id
from penstock.engine.streams.resumption import Resumption
from penstock.engine.streams.waiting import Waiting
from penstock.engine.streams.workflow_step import StepOutput, StepServices, WorkflowStep
from penstock.model.context import Read, Transaction
from penstock.model.request import Failure, decode_failure, encode_failure
from penstock.model.streams.workflow_plan import WorkflowPlan

_NO_RESULT: Final = b""
_NO_WRITES: Final[dict[EntityKey, bytes | None]] = {}
Writes = dict[EntityKey, bytes | None]


class StepRunner:
    """Runs steps, one after the other, over one state.

    Attributes:
        refusal: The failure of all steps, none of which runs; None where they run.
        decided: The outcomes of steps that do not run, by their ids.
    """

    def __init__(self, services: StepServices, read: Read, apply: Callable[[Writes], None]) -> None:
        topology = services.app.topology
        self._services = services
        self._waits = services.waits
        self._executor = services.executor
        self._read = read
        self._apply = apply  # so that later steps read the writes
        self._rows = topology.rows
        self._subscribers = topology.subscribers
        self._blank_rows = topology.blank_rows
        self._step: WorkflowStep | None = None
        self.refusal: Failure | None = None
        self.decided: Mapping[RequestId, Outcome] = {}

    def run(
        self,
        cascade: Cascade,
        plan: WorkflowPlan,
        take: Callable[[WorkflowStep], None],
        *,
        is_eager: bool = False,
        attempt: int = 1,
    ) -> tuple[StepOutput, Outcome]:
        """Run the step of a workflow, and keep or undo its changes of the state and of the waiting handlers.

        Args:
            take: Lets the step take an atom, questions or answers.
            is_eager: Whether each event is encoded when it is published.
            attempt: Counts from 1; the step is taken again where rows were not noted, or events do not fit.

        Returns:
            What the step publishes and sends if it has taken effect, and how it ended.
        """
        txn = self._transaction(cascade)
        self._step = txn.step = step = WorkflowStep(plan, self._services, txn)
        step.is_eager = is_eager

        def work() -> Effect:
            self._executor.declare(plan.time_ms)
            try:
                take(step)
                writes = txn.conclude()
                self._check_room(cascade, plan, step.output)
                if step.changed or step.cleared:
                    writes = step.with_defaults(writes)
                return _NO_RESULT, writes | step.shared_writes
            except BaseException:
                for handler in step.begun:
                    close_all(handler.forget())
                step.pack()  # an event of a handler that did not fail may be unfit
                raise

        outcome = self._perform(txn, work)
        self._step = txn.step = None  # no cycle: garbage waits until the end of a batch
        is_unfit = step.is_unfit and self._executor.interrupted is None
        if step.is_unrecorded or is_unfit:
            for handler in step.begun:
                self._waits.abandoned += handler.forget()
            self._waits.undo()
            # Events, the end of an atom and a portal are noted once for each task, and an eager step is never unfit.
            assert attempt < 2 * len(plan.tasks) + 3, "each attempt notes more rows, or is eager"
            is_eager = is_eager or is_unfit
            return self.run(cascade, plan, take, is_eager=is_eager, attempt=attempt + 1)
        if outcome.error is None:
            self._waits.commit()
            self._apply(outcome.writes)
        else:
            self._waits.undo()
        return step.output, outcome

    def perform(self, cascade: Cascade, work: Callable[[], object]) -> Outcome:
        """Run user code that uses no state as the transaction of a step."""

        def working() -> Effect:
            work()
            return _NO_RESULT, _NO_WRITES

        return self._perform(self._transaction(cascade), working)

    def try_to_resume(self, handler: Waiting) -> Failure | None:
        """Run a handler again to the point where it waits, without effect; return why it cannot."""
        services, abandoned = self._services, self._waits.abandoned
        resumption = Resumption(services.app, services.executor, handler, abandoned)
        cascade = Cascade(RequestId(handler.id), 0)
        outcome = self.perform(cascade, resumption.run)
        abandoned += handler.forget()
        self.close_abandoned(cascade)
        return None if outcome.error is None else decode_failure(outcome.reply)

    def close_abandoned(self, cascade: Cascade) -> None:
        """Close the coroutines that nothing continues; their `finally` blocks have no effect."""
        if abandoned := self._waits.abandoned:

            def work() -> Effect:
                close_all(abandoned)
                return _NO_RESULT, _NO_WRITES

            self._executor.perform(self._transaction(cascade), work)
            abandoned.clear()

    def _check_room(self, cascade: Cascade, plan: WorkflowPlan, output: StepOutput) -> None:
        """Check whether there is room in the queue for the steps that take the output of a step."""
        takers = len(self._subscribers.get(plan.workflow.name, ()))
        count = takers + len(output.questions) + len(output.answers)
        if not count:
            return
        room = self._executor.room
        room.steps = len(cascade.queue) + cascade.stored_steps
        room.step_bytes = cascade.queue_bytes + cascade.stored_bytes
        at_most = max(takers, 1) * output.size
        if room.has_room(count, at_most):  # nearly always, and the exact size takes longer
            return
        size = takers * sum(map(len, output.events))
        size += sum(map(data_size, output.questions.values()))
        size += sum(map(data_size, output.answers.values()))
        room.check_steps(count, size)

    def _transaction(self, cascade: Cascade) -> Transaction:
        """Return the transaction of the step that runs now."""
        step = step_id(cascade.root, cascade.taken)
        secret = self._executor.secret
        return Transaction(step, cascade.time_us, self._read_row, self._rows, secret)

    def _read_row(self, key: EntityKey) -> bytes | None:
        """Return a row of a task; a missing one is read as the row of the defaults."""
        row, step = self._read(key), self._step
        if step is None:
            return self._blank_rows[key.partition("/")[0]] if row is None else row
        if row is None:
            row = step.note_missing(key)
        step.note_row(key, row)
        return row

    def _perform(self, txn: Transaction, work: Callable[[], Effect]) -> Outcome:
        """Run user code as a transaction, unless all steps are refused or its outcome is decided."""
        refusal = self.refusal
        if refusal is None:
            decided = self.decided.get(txn.request_id) if self.decided else None
            return self._executor.perform(txn, work) if decided is None else decided
        return Outcome(refusal.code, encode_failure(refusal), (), {})
