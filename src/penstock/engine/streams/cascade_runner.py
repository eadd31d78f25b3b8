"""Runs cascades: the requests and the workflow steps that a log record causes.

A cascade takes its requests first, one after the other, and then its workflow steps. Both queues are first in,
first out, and run until they are empty before the next record is taken. One consumer that takes one atom is one
step: a workflow runs the atom through its tasks, a splitter divides it, a sequencer forwards it. The questions that
a step sends to a portal are one atom for the replying task; its answers are one atom for each asking task. A step is
a transaction: it commits whole, and then its atoms are queued for their consumers, in the order of their deployment;
or it leaves nothing. A cascade that takes more requests or more steps than its limit is cut: the rest is stored, and
a later record continues it.

No workflow step reads or writes an entity, and no request reads or writes a task. So it makes no difference whether
the workflow steps of a record run after its requests, or after all requests of its epoch: `run_requests` and
`run_steps` are two passes.
"""

from collections.abc import Callable, Mapping

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Outcome
from penstock.engine.limits import Limits
from penstock.engine.streams.cascade import (
    Cascade,
    CompletedRequest,
    Delivered,
    LaterRecord,
    cascade_of,
)
from penstock.engine.streams.cascade_steps import CascadeSteps
from penstock.engine.streams.derived_ids import (
    MARK,
    continuation_id,
    is_question_id,
)
from penstock.engine.streams.generator_positions import GeneratorPositions
from penstock.engine.streams.step_runner import Writes
from penstock.engine.streams.stored_cascade import (
    decode_requests,
    decode_steps,
    encode_requests,
    encode_steps,
    requests_key,
    steps_key,
)
from penstock.errors import Internal
from penstock.model.application import App
from penstock.model.context import Read
from penstock.model.request import (
    Failure,
    encode_continuation,
    encode_failure,
)


def _let_run(_number: int) -> None:
    """Refuse no part of a cascade."""


class CascadeRunner(CascadeSteps):
    """Runs cascades, one step after the other, over one state.

    Attributes:
        before_request: Takes the number of each sent request in its cascade, from 1, before it runs. If it returns a
            failure, the request does not run, and fails so.
        before_step: Takes the number of each step in its cascade, likewise; 0 before abandoned handlers end.
        decided: The outcomes of sent requests and of steps that do not run, by their ids; for a replay.
    """

    def __init__(  # noqa: PLR0913 -- the ways to the state are separate on purpose
        self,
        app: App,
        executor: Executor,
        read: Read,
        keys: Callable[[str], list[EntityKey]],
        apply: Callable[[Writes], None],
        limits: Limits,
        *,
        durable_waits: bool = False,
    ) -> None:
        """Begin without waiting handlers.

        Args:
            app: The application.
            executor: Runs the steps as transactions.
            read: Reads the rows of tasks, and system rows.
            keys: Returns the stored keys that begin with a prefix, in order.
            apply: Takes the writes of a step, which later steps read.
            limits: The limits of one step, and of one cascade.
            durable_waits: Store the waiting handlers after each step, and not only at the end of a record.
        """
        super().__init__(app, executor, read, keys, apply, limits.output_bytes)
        self._executor = executor
        self._read = read
        self._apply = apply
        self._limits = limits
        self._durable_waits = durable_waits
        self.before_request: Callable[[int], Failure | None] = _let_run
        self.before_step: Callable[[int], Failure | None] = _let_run
        self.decided: Mapping[RequestId, Outcome] = {}
        self._generators = GeneratorPositions(app, read, apply)

    def run_requests(
        self, root: RequestId, body: bytes, time_us: int, outcome: Outcome
    ) -> Cascade | None:
        """Run the requests that a record has sent, and those that they send.

        Args:
            root: The id of the record's request.
            body: Its body.
            time_us: The time of the record.
            outcome: How the request ended. A continuation ends with an error only if its driver has set it aside;
                then each request that is left fails with this error.

        Returns:
            The cascade, for `run_steps`; None if the record causes nothing.
        """
        cascade = cascade_of(root, body, time_us)
        continues = cascade.continues
        if not (outcome.outbox or cascade.has_steps):
            return None
        if continues and (row := self._read(requests_key(root))) is not None:
            cascade.requests.extend(decode_requests(row))
            self._apply({requests_key(root): None})
        cascade.send(outcome)
        for _ in range(self._limits.cascade_steps):
            if not cascade.requests:
                break
            request_id, sent = cascade.requests.popleft()
            is_refused = continues and outcome.error is not None
            result = outcome if is_refused else self.decided.get(request_id)
            if result is None:
                failure = self.before_request(len(cascade.completed) + 1)
                result = (
                    self._executor.run(request_id, sent, time_us)
                    if failure is None
                    else Outcome(failure.code, encode_failure(failure), (), {})
                )
            self._apply(result.writes)
            cascade.completed.append(CompletedRequest(request_id, sent, result))
            cascade.send(result)
        if cascade.requests:
            self._cut(cascade, requests_key, encode_requests(cascade.requests))
        return cascade

    def run_steps(self, cascade: Cascade, failure: Failure | None, reply: bytes) -> None:
        """Run the workflow steps of a cascade, after its requests.

        Args:
            cascade: The cascade; `published` has the atoms of its requests.
            failure: The failure of the record's request, or None; all steps of a record that was set aside fail.
            reply: The result of the record's request.
        """
        is_set_aside = cascade.continues or cascade.catch_up is not None
        is_set_aside = is_set_aside or (failure is not None and failure.code == Internal.code)
        refusal = failure if is_set_aside else None
        self.step_runner.refusal = refusal
        self.step_runner.decided = self.decided
        self._generators.note(cascade)
        if MARK in cascade.root:
            self._begin(cascade, failure, reply, refusal)
        else:  # nothing of an earlier record depends on it
            self._queue_published(cascade)
        queue = cascade.queue
        for _ in range(self._limits.cascade_steps):
            if not queue:
                break
            cascade.taken += 1
            self.step_runner.refusal = refusal or self.before_step(cascade.taken)
            self._take(cascade, queue.popleft())
            if self._durable_waits:
                self._store_waits(cascade)
        if not self._waits.is_forgotten:
            self.before_step(0)
            self._store_waits(cascade)
        if queue:
            self._cut(cascade, steps_key, encode_steps(queue))

    def _begin(
        self, cascade: Cascade, failure: Failure | None, reply: bytes, refusal: Failure | None
    ) -> None:
        """Queue the first steps of a cascade: an answer to a handler, the rest of a cut cascade, and the atoms.

        Args:
            cascade: The cascade.
            failure: The failure of the record's request, or None.
            reply: The result of the record's request.
            refusal: The failure of all steps, none of which runs; None where they run.
        """
        root = cascade.root
        arrived = self._waits.take_arrived(root, reply, failure) if is_question_id(root) else None
        if arrived is not None and arrived[0].task in self._topology.tasks:
            asker, answer = arrived
            answer = self.personal.protected(answer, cascade.subject)
            cascade.queue.append(Delivered(asker.workflow, asker.task, (answer,)))
        if cascade.continues and (row := self._read(steps_key(root))) is not None:
            cascade.queue.extend(decode_steps(row, self._topology))
            self._apply({steps_key(root): None})
        self._queue_published(cascade)
        if cascade.catch_up is not None:
            for late in self._late.take(cascade, cascade.catch_up):
                cascade.taken += 1
                self.step_runner.refusal = refusal or self.before_step(cascade.taken)
                self._deliver(cascade, late, late.subscriber)
        if cascade.continues:
            for stream, step, failed in self.paused.resume(cascade):
                self._set_aside(cascade, stream, step.stream, failed, step.atom)

    def _queue_published(self, cascade: Cascade) -> None:
        """Queue the steps of the atoms of requests."""
        for atom in cascade.published:
            self._queue(cascade, atom.stream, atom.events)

    def _cut(self, cascade: Cascade, key_of: Callable[[RequestId], EntityKey], rest: bytes) -> None:
        """Store the rest of a queue for a later record."""
        request_id = continuation_id(cascade.root)
        self._apply({key_of(request_id): rest})
        if all(record.request_id != request_id for record in cascade.later):
            cascade.later.append(LaterRecord(request_id, encode_continuation(), 0))

    def _store_waits(self, cascade: Cascade) -> None:
        """Write the waiting handlers into rows, and forget them."""
        if not self._waits.is_forgotten:
            self._apply(self._waits.store())
            self.step_runner.close_abandoned(cascade)
