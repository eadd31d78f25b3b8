"""Runs cascades: the requests and the workflow steps that a log record causes.

A cascade takes its requests first, one after the other, and then its workflow steps. Both queues are first in,
first out, and run until they are empty before the next record is taken. One consumer that takes one atom is one
step: a workflow runs the atom through its tasks, a splitter divides it, a sequencer forwards it. The questions that
a step sends to a portal are one atom for the replying task; its answers are one atom for each asking task. A step is
a transaction: it commits whole, and then its atoms are queued for their consumers, in the order of their deployment;
or it leaves nothing. A cascade that takes more steps than its limit is cut: its queue is the work of a later record.

No workflow step reads or writes an entity, and no request reads or writes a task. So it makes no difference whether
the workflow steps of a record run after its requests, or after all requests of its epoch.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Effect, Executor, Outcome
from penstock.engine.failure import close_all
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
)
from penstock.engine.streams.step_services import StepServices
from penstock.engine.streams.waiting import Answer, PortalQuestion
from penstock.engine.streams.waits import Waits
from penstock.engine.streams.workflow_step import WorkflowStep
from penstock.errors import UserError
from penstock.model.application import App
from penstock.model.call import call_of, encoded
from penstock.model.context import Read, Transaction
from penstock.model.request import Failure, decode_failure
from penstock.model.running_step import Dispatch, Emission
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.flow import Workflow, first_match
from penstock.model.streams.routing import RequestSink, Sequencer, Splitter
from penstock.model.streams.stream import Atom, Stream
from penstock.model.streams.topology import Subscriber
from penstock.model.streams.workflow_plan import WorkflowPlan

CASCADE_STEPS: Final = 10_000
"""The most steps of a cascade before it is cut."""

_NO_RESULT: Final = b""
Writes = dict[EntityKey, bytes | None]


class CascadeRunner:
    """Runs cascades, one step after the other, over one state.

    Attributes:
        on_failure: Takes the failure of each step that fails.
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
        steps_max: int = CASCADE_STEPS,
        durable_waits: bool = False,
    ) -> None:
        """Begin without waiting handlers.

        Args:
            app: The application.
            executor: Runs the steps as transactions.
            read: Reads the rows of tasks, and system rows.
            keys: Returns the stored keys that begin with a prefix, in order.
            apply: Takes the writes of a step, which later steps read.
            limits: The limits of one step.
            steps_max: The most steps of a cascade before it is cut.
            durable_waits: Store the waiting handlers after each step, and not only at the end of a record.
        """
        self._app = app
        self._topology = app.topology
        self._executor = executor
        self._read = read
        self._keys = keys
        self._apply = apply
        self._limits = limits
        self._steps_max = steps_max
        self._durable_waits = durable_waits
        self._waits = Waits(read, app.topology.tasks)
        self._services = StepServices(
            app,
            self._waits,
            keys,
            limits.output_bytes,
            executor,
            set(),
        )
        self.on_failure: Callable[[Failure], None] = lambda _: None

    def begin(self, root: RequestId, time_us: int, outcome: Outcome) -> Cascade | None:
        """Return the cascade of a record whose request has run; None if it causes nothing.

        Args:
            root: The id of the request.
            time_us: The time of the record.
            outcome: How the request ended.
        """
        asker = self._waits.take_asker(root)
        if asker is None and not outcome.outbox:
            return None
        cascade = Cascade(root, time_us)
        if asker is not None:
            failure = None if outcome.error is None else decode_failure(outcome.reply)
            reply = None if failure else outcome.reply
            answer = Answer(root, asker.handler, reply, failure)
            cascade.queue.append(Delivered(asker.workflow, asker.task, (answer,)))
        self._send(cascade, outcome)
        return cascade

    def _send(self, cascade: Cascade, outcome: Outcome) -> None:
        """Queue the events and requests of a request; its events on one stream are one atom."""
        atoms: dict[str, list[bytes]] = {}
        for item in outcome.outbox:
            match item:
                case Emission(stream, data):
                    atoms.setdefault(stream, []).append(data)
                case Dispatch(body, delay_us):
                    cascade.sent += 1
                    request_id = RequestId(f"{cascade.root}.{cascade.sent}")
                    if delay_us:
                        cascade.later.append(LaterRecord(request_id, body, delay_us))
                    else:
                        cascade.requests.append((request_id, body))
        for stream, events in atoms.items():
            self._publish(cascade, stream, tuple(events))

    def run(self, cascade: Cascade) -> bool:
        """Run the steps of a cascade; return False if it was cut, and has steps left.

        Its requests run first, then its workflow steps.
        """
        for _ in range(self._steps_max):
            if not cascade.requests:
                break
            request_id, body = cascade.requests.popleft()
            outcome = self._executor.run(request_id, body, cascade.time_us)
            self._apply(outcome.writes)
            cascade.completed.append(CompletedRequest(request_id, body, outcome))
            self._send(cascade, outcome)
        for _ in range(0 if cascade.requests else self._steps_max):
            if not cascade.queue:
                break
            cascade.taken += 1
            self._take(cascade, cascade.queue.popleft())
            if self._durable_waits:
                self._store_waits(cascade)
        self._store_waits(cascade)
        return not (cascade.requests or cascade.queue)

    def _store_waits(self, cascade: Cascade) -> None:
        """Write the waiting handlers into rows, and forget them; the `finally` blocks of coroutines have no effect."""
        self._apply(self._waits.store())
        abandoned = self._waits.abandoned
        if abandoned:

            def work() -> Effect:
                close_all(abandoned)
                return _NO_RESULT, {}

            self._executor.perform(self._transaction(cascade), work)
            abandoned.clear()

    def _take(self, cascade: Cascade, step: Step) -> None:
        match step:
            case Inquiry():
                self._take_questions(cascade, step)
            case Delivered():
                self._take_answers(cascade, step)
            case Delivery():
                self._deliver(cascade, step, step.subscriber)

    def _deliver(self, cascade: Cascade, step: Delivery, subscriber: Subscriber) -> None:
        match subscriber:
            case Workflow():
                plan = self._topology.workflows[subscriber.flow_name]
                self._take_atom(cascade, step, plan)
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
        for subscriber in self._topology.subscribers.get(stream, ()):
            cascade.queue.append(Delivery(subscriber, stream, events))

    def _transaction(self, cascade: Cascade) -> Transaction:
        """Return the transaction of the step that runs now; rows without state are read as blank rows."""
        blank, read = self._topology.blank_rows, self._read

        def read_row(key: EntityKey) -> bytes | None:
            row = read(key)
            if txn.step is not None:
                txn.step.note_row(key, row)
            return blank[key.partition("/")[0]] if row is None else row

        step_id = RequestId(f"{cascade.root}#{cascade.taken}")
        rows, secret = self._topology.rows, self._executor.secret
        txn = Transaction(step_id, cascade.time_us, read_row, rows, secret)
        return txn

    def _run_step(
        self, cascade: Cascade, plan: WorkflowPlan, run: Callable[[WorkflowStep], None]
    ) -> Outcome:
        """Run a step of a workflow as a transaction, and commit it or undo it."""
        txn = self._transaction(cascade)
        txn.step = step = WorkflowStep(plan, self._services, txn)

        def work() -> Effect:
            try:
                run(step)
                return _NO_RESULT, self._stored(txn.conclude())
            except BaseException:
                for handler in step.begun:
                    close_all(handler.forget())
                raise

        outcome = self._executor.perform(txn, work)
        if step.is_unrecorded:
            for handler in step.begun:
                self._waits.abandoned += handler.forget()
            self._waits.undo()
            return self._run_step(cascade, plan, run)
        if outcome.error is None:
            self._waits.commit()
            self._apply(outcome.writes)
            self._commit(cascade, plan, step)
        else:
            self._waits.undo()
            self.on_failure(decode_failure(outcome.reply))
        return outcome

    def _stored(self, writes: Writes) -> Writes:
        """Return the writes of a step; a row of a key without state is removed."""
        blank = self._topology.blank_rows
        return {
            key: None if row == blank[key.partition("/")[0]] else row for key, row in writes.items()
        }

    def _commit(self, cascade: Cascade, plan: WorkflowPlan, step: WorkflowStep) -> None:
        """Publish the atom of a step, and queue its questions and answers."""
        self._publish(cascade, plan.workflow.name, tuple(step.events))
        cascade.later += [LaterRecord(request_id, body, 0) for request_id, body in step.requests]
        for portal in self._topology.portals:
            if portal in step.questions:
                cascade.queue.append(Inquiry(portal, tuple(step.questions[portal])))
        for (workflow, task), answers in step.answers.items():
            cascade.queue.append(Delivered(workflow, task, tuple(answers)))

    def _take_atom(self, cascade: Cascade, step: Delivery, plan: WorkflowPlan) -> None:
        outcome = self._run_step(cascade, plan, lambda run: run.take_atom(step.atom))
        if outcome.error is not None:
            self._set_aside(cascade, plan.workflow.failed, step.stream, outcome, step.atom)

    def _take_questions(self, cascade: Cascade, step: Inquiry) -> None:
        plan, task = self._topology.responders[step.portal]
        outcome = self._run_step(
            cascade, plan, lambda run: run.take_questions(task, step.questions)
        )
        if outcome.error is not None:
            self._fail(cascade, step.questions, decode_failure(outcome.reply))

    def _take_answers(self, cascade: Cascade, step: Delivered) -> None:
        plan = self._topology.workflows[step.workflow]
        task = self._topology.tasks[step.task]
        outcome = self._run_step(cascade, plan, lambda run: run.take_answers(task, step.answers))
        if outcome.error is not None:
            self._lose(cascade, plan, step, outcome)

    def _lose(
        self, cascade: Cascade, plan: WorkflowPlan, step: Delivered, outcome: Outcome
    ) -> None:
        """Give up the handlers of a step that took answers and failed, and what waits behind them.

        A question that they would have replied to fails; so does each question behind them. The answers, and the
        events behind them, are set aside.
        """
        failure = decode_failure(outcome.reply)
        waits, events = self._waits, [answer.data or b"" for answer in step.answers]
        lost: list[PortalQuestion] = []
        for answer in step.answers:
            waits.lose(answer, lost, events)
        waits.commit()
        self._fail(cascade, lost, failure)
        self._set_aside(cascade, plan.workflow.failed, "replies", outcome, tuple(events))

    def _fail(
        self, cascade: Cascade, questions: Iterable[PortalQuestion], failure: Failure
    ) -> None:
        """Answer questions with a failure."""
        answers: dict[tuple[str, str], list[Answer]] = {}
        for question in questions:
            asker = (question.workflow, question.task)
            answers.setdefault(asker, []).append(
                Answer(question.id, question.handler, None, failure)
            )
        for (workflow, task), given in answers.items():
            cascade.queue.append(Delivered(workflow, task, tuple(given)))

    def _set_aside(
        self,
        cascade: Cascade,
        stream: Stream[FailedAtom],
        source: str,
        outcome: Outcome,
        events: Atom,
    ) -> None:
        """Publish a failed atom on the consumer's stream of failed atoms."""
        failure = decode_failure(outcome.reply)
        failed = FailedAtom(
            source,
            f"{cascade.root}#{cascade.taken}",
            failure.code,
            f"{failure.kind}: {failure.message}",
            events,
        )
        self._publish(cascade, stream.name, (stream.events.encode(failed),))

    def _split(self, cascade: Cascade, splitter: Splitter[Any], atom: Atom) -> None:
        """Divide an atom; an event whose predicate fails sets the whole atom aside."""
        split_events: list[list[bytes]] = [[] for _ in splitter.streams]
        txn = self._transaction(cascade)

        def work() -> Effect:
            decode = splitter.source.events.decode
            for data in atom:
                index = first_match(splitter.predicates, decode(data))
                if index is not None:
                    split_events[index].append(data)
            return _NO_RESULT, {}

        outcome = self._executor.perform(txn, work)
        if outcome.error is None:
            for stream, events in zip(splitter.streams, split_events, strict=True):
                if events:
                    self._publish(cascade, stream.name, tuple(events))
        else:
            self.on_failure(decode_failure(outcome.reply))
            self._set_aside(cascade, splitter.failed, splitter.source.name, outcome, atom)

    def _send_requests(self, cascade: Cascade, sink: RequestSink[Any], atom: Atom) -> None:
        """Send a request for each event of an atom; one that cannot be made sets the whole atom aside."""
        bodies: list[bytes] = []

        def work() -> Effect:
            decode = sink.source.events.decode
            for data in atom:
                arguments = sink.arguments(decode(data))
                if type(arguments) is not tuple:
                    raise UserError(
                        f"{sink.where}: the arguments of {sink.name} are a tuple, such as (Item(event.item), 1), not "
                        f"{type(arguments).__qualname__}"
                    )
                call = call_of(sink.method, arguments, {})
                body, _ = encoded(self._app, call)
                bodies.append(body)
            return _NO_RESULT, {}

        outcome = self._executor.perform(self._transaction(cascade), work)
        if outcome.error is None:
            step_id = f"{cascade.root}#{cascade.taken}"
            cascade.later += [
                LaterRecord(RequestId(f"{step_id}/{index}"), body, 0)
                for index, body in enumerate(bodies)
            ]
        else:
            self.on_failure(decode_failure(outcome.reply))
            self._set_aside(cascade, sink.failed, sink.source.name, outcome, atom)
