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
from typing import Any

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Outcome
from penstock.engine.failure import DECIDED
from penstock.engine.limits import Limits
from penstock.engine.streams.cascade import (
    Cascade,
    CompletedRequest,
    Delivered,
    Delivery,
    Inquiry,
    LaterRecord,
    PublishedAtom,
    Step,
    cascade_of,
)
from penstock.engine.streams.derived_ids import (
    continuation_id,
    is_question_id,
    part_id,
    step_id,
)
from penstock.engine.streams.generator_positions import GeneratorPositions
from penstock.engine.streams.key_shares import SharedTurns
from penstock.engine.streams.late_flows import LateFlows
from penstock.engine.streams.lost_work import failed_answers, failed_atom, give_up
from penstock.engine.streams.paused_flows import PausedFlows
from penstock.engine.streams.routed_events import request_bodies, split_events
from penstock.engine.streams.step_runner import StepRunner, Writes
from penstock.engine.streams.step_services import StepServices
from penstock.engine.streams.stored_cascade import (
    decode_requests,
    decode_steps,
    encode_requests,
    encode_steps,
    requests_key,
    steps_key,
)
from penstock.engine.streams.waits import Waits
from penstock.engine.streams.workflow_step import WorkflowStep
from penstock.errors import Internal
from penstock.model.application import App
from penstock.model.context import Read
from penstock.model.request import (
    Failure,
    decode_failure,
    encode_continuation,
    encode_failure,
)
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.flow import Workflow
from penstock.model.streams.routing import RequestSink, Sequencer, Splitter
from penstock.model.streams.stream import Atom, Stream
from penstock.model.streams.topology import Subscriber
from penstock.model.streams.workflow_plan import WorkflowPlan


def _let_run(_number: int) -> None:
    """Refuse no part of a cascade."""


class CascadeRunner:
    """Runs cascades, one step after the other, over one state.

    Attributes:
        on_failure: Takes the failure of each step that fails.
        before_request: Takes the number of each sent request in its cascade, from 1, before it runs. If it returns a
            failure, the request does not run, and fails so.
        before_step: Takes the number of each step in its cascade, likewise; 0 before abandoned handlers end.
        decided: The outcomes of sent requests and of steps that do not run, by their ids; for a replay.
        paused: The workflows that are paused.
        step_runner: Runs the steps of workflows.
        shared: The turns of large atoms that other tasks have run.
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
        self._app = app
        self._topology = app.topology
        self._executor = executor
        self._read = read
        self._keys = keys
        self._apply = apply
        self._limits = limits
        self._durable_waits = durable_waits
        self._waits = Waits(read, app.topology.tasks)
        services = StepServices(app, self._waits, keys, limits.output_bytes, executor)
        self.step_runner = StepRunner(services, read, apply)
        self.on_failure: Callable[[Failure], None] = lambda _: None
        self.before_request: Callable[[int], Failure | None] = _let_run
        self.before_step: Callable[[int], Failure | None] = _let_run
        self.decided: Mapping[RequestId, Outcome] = {}
        self.shared: SharedTurns | None = None
        self.paused = PausedFlows(app.topology, read, apply)
        self._late = LateFlows(app.topology, read, apply)
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
        if not (cascade.has_steps or outcome.outbox):
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
        self._begin(cascade, failure, reply, refusal)
        for _ in range(self._limits.cascade_steps):
            if not cascade.queue:
                break
            cascade.taken += 1
            self.step_runner.refusal = refusal or self.before_step(cascade.taken)
            self._take(cascade, cascade.queue.popleft())
            if self._durable_waits:
                self._store_waits(cascade)
        self.before_step(0)
        self._store_waits(cascade)
        if cascade.queue:
            self._cut(cascade, steps_key, encode_steps(cascade.queue))

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
            cascade.queue.append(Delivered(asker.workflow, asker.task, (answer,)))
        if cascade.continues and (row := self._read(steps_key(root))) is not None:
            cascade.queue.extend(decode_steps(row, self._topology))
            self._apply({steps_key(root): None})
        self._generators.note(cascade)
        for atom in cascade.published:
            self._queue(cascade, atom.stream, atom.events)
        if cascade.catch_up is not None:
            for late in self._late.take(cascade, cascade.catch_up):
                cascade.taken += 1
                self.step_runner.refusal = refusal or self.before_step(cascade.taken)
                self._deliver(cascade, late, late.subscriber)
        if cascade.continues:
            for stream, step, failed in self.paused.resume(cascade):
                self._set_aside(cascade, stream, step.stream, failed, step.atom)

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

    def _take(self, cascade: Cascade, step: Step) -> None:
        if self.paused.can_pause and self.paused.holds(step):
            return
        if self._late.workflows and self._late.holds(step):
            return
        match step:
            case Delivery():
                self._deliver(cascade, step, step.subscriber)
            case Inquiry():
                self._take_questions(cascade, step)
            case Delivered():
                self._take_answers(cascade, step)

    def _deliver(self, cascade: Cascade, step: Delivery, subscriber: Subscriber) -> None:
        match subscriber:
            case Workflow():
                self._take_atom(cascade, step, self._topology.workflows[subscriber.flow_name])
            case Splitter():
                self._split(cascade, subscriber, step.atom)
            case RequestSink():
                self._send_requests(cascade, subscriber, step.atom)
            case Sequencer():
                if step.atom:
                    self._publish(cascade, subscriber.name, step.atom)

    def _publish(self, cascade: Cascade, stream: str, events: Atom) -> None:
        """Record an atom, and queue a step for each consumer."""
        cascade.published.append(PublishedAtom(stream, cascade.taken, events))
        self._queue(cascade, stream, events)

    def _queue(self, cascade: Cascade, stream: str, events: Atom) -> None:
        for subscriber in self._topology.subscribers.get(stream, ()):
            cascade.queue.append(Delivery(subscriber, stream, events))

    def _run_step(
        self, cascade: Cascade, plan: WorkflowPlan, take: Callable[[WorkflowStep], None]
    ) -> Failure | None:
        """Run a step of a workflow, publish its atom, and queue its questions and answers; return its failure."""
        output, outcome = self.step_runner.run(cascade, plan, take)
        if outcome.error is not None:
            return self._failed(cascade, outcome)
        self._publish(cascade, plan.workflow.name, tuple(output.events))
        cascade.later += output.requests
        if output.questions:
            for portal in self._topology.portals:
                if portal in output.questions:
                    cascade.queue.append(Inquiry(portal, tuple(output.questions[portal])))
        for (workflow, task), answers in output.answers.items():
            if task in self._topology.tasks:  # a deployment may have removed the task that asked
                cascade.queue.append(Delivered(workflow, task, tuple(answers)))
        return None

    def _failed(self, cascade: Cascade, outcome: Outcome) -> Failure:
        """Report the failure of a step; one that depends on the machine is recorded, so that no replay runs the step."""
        if outcome.error in DECIDED:
            step = step_id(cascade.root, cascade.taken)
            cascade.completed.append(CompletedRequest(step, encode_continuation(), outcome))
        failure = decode_failure(outcome.reply)
        self.on_failure(failure)
        return failure

    def _take_atom(self, cascade: Cascade, step: Delivery, plan: WorkflowPlan) -> None:
        shared = self.shared
        if shared is not None and shared.holds(step_id(cascade.root, cascade.taken)):
            failure = self._run_step(cascade, plan, lambda run: run.take_shared(step.atom, shared))
            shared.is_void = shared.is_void or failure is not None
        else:
            failure = self._run_step(cascade, plan, lambda run: run.take_atom(step.atom))
        if failure is None:
            return
        if plan.workflow.pauses:
            self.paused.begin(plan.workflow.flow_name, step, failure, cascade.time_us)
        else:
            self._set_aside(cascade, plan.workflow.failed, step.stream, failure, step.atom)

    def _take_questions(self, cascade: Cascade, step: Inquiry) -> None:
        plan, task = self._topology.responders[step.portal]
        failure = self._run_step(
            cascade, plan, lambda run: run.take_questions(task, step.questions)
        )
        if failure is not None:
            cascade.queue += failed_answers(step.questions, failure)

    def _take_answers(self, cascade: Cascade, step: Delivered) -> None:
        plan = self._topology.workflows[step.workflow]
        task = self._topology.tasks[step.task]
        failure = self._run_step(cascade, plan, lambda run: run.take_answers(task, step.answers))
        if failure is not None:
            questions, events = give_up(self._waits, step.answers)
            cascade.queue += failed_answers(questions, failure)
            self._set_aside(cascade, plan.workflow.failed, "replies", failure, events)

    def _set_aside(
        self,
        cascade: Cascade,
        stream: Stream[FailedAtom],
        source: str,
        failure: Failure,
        events: Atom,
    ) -> None:
        """Publish a failed atom on the consumer's stream of failed atoms."""
        step = step_id(cascade.root, cascade.taken)
        event = failed_atom(stream, step, source, failure, events)
        self._publish(cascade, stream.name, (event,))

    def _split(self, cascade: Cascade, splitter: Splitter[Any], atom: Atom) -> None:
        """Divide an atom; an event whose predicate fails sets the whole atom aside."""
        divided: list[Atom] = []
        if self._routed(
            cascade, splitter, atom, lambda: divided.extend(split_events(splitter, atom))
        ):
            for stream, events in zip(splitter.streams, divided, strict=True):
                if events:
                    self._publish(cascade, stream.name, events)

    def _send_requests(self, cascade: Cascade, sink: RequestSink[Any], atom: Atom) -> None:
        """Send a request for each event of an atom; one that cannot be made sets the whole atom aside."""
        bodies: list[bytes] = []
        if self._routed(
            cascade, sink, atom, lambda: bodies.extend(request_bodies(self._app, sink, atom))
        ):
            step = step_id(cascade.root, cascade.taken)
            cascade.later += [
                LaterRecord(part_id(step, index), body, 0) for index, body in enumerate(bodies)
            ]

    def _routed(
        self,
        cascade: Cascade,
        consumer: Splitter[Any] | RequestSink[Any],
        atom: Atom,
        work: Callable[[], None],
    ) -> bool:
        """Run the functions of a consumer over an atom; set the atom aside if one fails, and return whether none did."""
        outcome = self.step_runner.perform(cascade, work)
        if outcome.error is None:
            return True
        failure = self._failed(cascade, outcome)
        self._set_aside(cascade, consumer.failed, consumer.source.name, failure, atom)
        return False
