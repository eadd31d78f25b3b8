"""The steps of cascades: one consumer takes one atom, the questions to a portal, or answers.

A workflow runs an atom through its tasks, a splitter divides it, a sequencer forwards it, a request sink makes requests
of it. A step commits whole, and then its atoms, questions and answers are queued; or it leaves nothing, and the failed
atom is set aside. `cascade_runner` runs the whole cascade.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.base.ids import EntityKey
from penstock.engine.execute import Executor, Outcome
from penstock.engine.failure import DECIDED
from penstock.engine.streams.cascade import (
    Cascade,
    CompletedRequest,
    Delivered,
    Delivery,
    Inquiry,
    LaterRecord,
    NextInLine,
    PublishedAtom,
    Step,
)
from penstock.engine.streams.derived_ids import (
    part_id,
    step_id,
)
from penstock.engine.streams.direct_task import DirectTask, direct_task
from penstock.engine.streams.key_shares import SharedTurns
from penstock.engine.streams.late_flows import LateFlows
from penstock.engine.streams.lost_work import deadlock, failed_answers, failed_atom, give_up
from penstock.engine.streams.paused_flows import PausedFlows
from penstock.engine.streams.personal_work import (
    ERASED,
    PersonalWork,
    recorded_failure,
    takes_persons,
)
from penstock.engine.streams.routed_events import request_bodies, split_events
from penstock.engine.streams.step_runner import StepRunner, Writes
from penstock.engine.streams.step_services import StepServices
from penstock.engine.streams.waiting import Answer, Place, PortalQuestion
from penstock.engine.streams.waits import Waits
from penstock.engine.streams.workflow_step import WorkflowStep
from penstock.model.application import App
from penstock.model.context import Read
from penstock.model.request import (
    Failure,
    decode_failure,
    encode_continuation,
)
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.flow import Workflow
from penstock.model.streams.packed_atom import plain_atom
from penstock.model.streams.routing import RequestSink, Sequencer, Splitter
from penstock.model.streams.stream import Atom, Stream
from penstock.model.streams.task_type import flow_of
from penstock.model.streams.topology import Subscriber
from penstock.model.streams.workflow_plan import WorkflowPlan


class CascadeSteps:
    """Takes the steps of cascades, one after the other, over one state.

    Attributes:
        on_failure: Takes the failure of each step that fails.
        shared: The turns of large atoms that other tasks have run.
    """

    def __init__(
        self,
        app: App,
        executor: Executor,
        read: Read,
        keys: Callable[[str], list[EntityKey]],
        apply: Callable[[Writes], None],
        output_bytes: int,
    ) -> None:
        """Begin without waiting handlers.

        Args:
            keys: Returns the stored keys that begin with a prefix, in order.
            apply: Takes the writes of a step, which later steps read.
            output_bytes: The most bytes of what one step publishes and sends.
        """
        self._app = app
        self._topology = app.topology
        self._direct: dict[str, DirectTask | None] = {}
        self._waits = Waits(read, app.topology.tasks, keys, executor)
        self._can_close_cycles = any(task.exclusive for _, task in app.topology.responders.values())
        self.personal = PersonalWork(app, self._waits)
        services = StepServices(app, self._waits, keys, output_bytes, executor, self.personal)
        self.step_runner = StepRunner(services, read, apply)
        self.on_failure: Callable[[Failure], None] = lambda _: None
        self.shared: SharedTurns | None = None
        self.paused = PausedFlows(app.topology, read, apply)
        self._late = LateFlows(app.topology, read, apply)

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
            case NextInLine():
                self._take_next(cascade, step)

    def _deliver(self, cascade: Cascade, step: Delivery, subscriber: Subscriber) -> None:
        if self._app.is_personal:
            step = self.personal.delivery(step)
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
        if stream in self._topology.subscribers:
            self._queue(cascade, stream, plain_atom(events))

    def _queue(self, cascade: Cascade, stream: str, events: Atom) -> None:
        for subscriber in self._topology.subscribers.get(stream, ()):
            cascade.push(Delivery(subscriber, stream, events))

    def _run_step(
        self, cascade: Cascade, plan: WorkflowPlan, take: Callable[[WorkflowStep], None]
    ) -> Failure | None:
        """Run a step of a workflow, publish its atom, and queue its questions and answers; return its failure."""
        output, outcome = self.step_runner.run(cascade, plan, take)
        if outcome.error is not None:
            return self._failed(cascade, outcome, lambda: takes_persons(self._topology, plan))
        events = output.events
        atom = tuple(events) if isinstance(events, list) else events
        if not plan.workflow.is_service:
            self._publish(cascade, plan.workflow.name, atom)
        cascade.later += output.requests
        if output.questions:
            for portal in self._topology.portals:
                if portal in output.questions:
                    cascade.push(Inquiry(portal, tuple(output.questions[portal])))
        for (workflow, task), answers in output.answers.items():
            cascade.push(Delivered(workflow, task, tuple(answers)))
        self._break_cycles(cascade, plan)
        self._queue_ready(cascade)
        return None

    def _break_cycles(self, cascade: Cascade, plan: WorkflowPlan) -> None:
        """Let each question fail that lets handlers wait for each other, since the step that has taken effect."""
        lines, awaited = self._waits.lines, self._waits.awaited
        if self._can_close_cycles:
            now = step_id(cascade.root, cascade.taken)
            for question in lines.held:
                if places := self._waits.cycle(question.id, question.handler):
                    lines.withdraw(question.id)
                    cascade.push_all(failed_answers([question], self._deadlock(places, plan)))
            for handler_id, request in awaited:
                if request.rpartition(".")[0] == now:  # it is on its way
                    continue
                if places := self._waits.cycle(request, handler_id):
                    lines.withdraw(request)
                    answer = Answer(request, handler_id, None, self._deadlock(places, plan))
                    step = Delivered(plan.workflow.flow_name, places[0][0], (answer,))
                    cascade.push(step)
            self._waits.commit()
        lines.held.clear()
        awaited.clear()

    def broken_waits(self, most: int) -> Iterator[tuple[Place, str]]:
        """Try the handlers that wait, and yield those that cannot go on with this application: the place, and why.

        Nothing changes.

        Args:
            most: The most handlers to try.
        """
        for place, handler in self._waits.every(most):
            if handler is None:
                yield place, "its task is gone, so it is dropped"
            else:
                failure = self.step_runner.try_to_resume(handler)
                if failure is not None:
                    yield place, f"{failure.kind}: {failure.message}"

    def _deadlock(self, places: Sequence[Place], plan: WorkflowPlan) -> Failure:
        return recorded_failure(deadlock(places), is_personal=takes_persons(self._topology, plan))

    def _queue_ready(self, cascade: Cascade) -> None:
        """Queue a step for each line whose first item may be taken since the last step."""
        lines = self._waits.lines
        for (name, key), task in lines.ready.items():
            if lines.first(task, (name, key)) is not None:
                cascade.push(NextInLine(name, key))
        lines.ready.clear()
        self._waits.commit()

    def _take_next(self, cascade: Cascade, step: NextInLine) -> None:
        """Let a task take the first item of a line; nothing happens if an earlier step has taken it."""
        task, place = self._topology.tasks.get(step.task), (step.task, step.key)
        item = None if task is None else self._waits.lines.first(task, place)
        if task is None or item is None:
            return
        plan = self._topology.workflows[flow_of(step.task)]
        if self.personal.is_erased_item(item):
            failure = ERASED
        else:
            failed = self._run_step(cascade, plan, lambda run: run.take_next(task, place))
            if failed is None:
                self._waits.lines.note_ready(task, place)
                self._queue_ready(cascade)
                return
            failure = failed
        is_event = not isinstance(item, PortalQuestion)
        if is_event and failure is not ERASED and plan.workflow.pauses:
            self.paused.begin(plan.workflow.flow_name, step, failure, cascade.time_us)
            return
        self._drop_next(cascade, step, failure)

    def _drop_next(self, cascade: Cascade, step: NextInLine, failure: Failure) -> None:
        """Remove the first item of a line, which cannot be taken; the step for the next one follows."""
        task, place = self._topology.tasks[step.task], (step.task, step.key)
        item = self._waits.lines.take(task, place)
        if isinstance(item, PortalQuestion):
            cascade.push_all(failed_answers([item], failure))
        elif item is not None and failure is not ERASED:
            stream = self._topology.workflows[flow_of(step.task)].workflow.failed
            self._set_aside(cascade, stream, step.task, failure, (item,))
        self._waits.lines.note_ready(task, place)
        self._queue_ready(cascade)

    def _set_step_aside(
        self, cascade: Cascade, stream: Stream[FailedAtom], step: Step, failure: Failure
    ) -> None:
        """Set aside the work of a paused workflow that has failed."""
        match step:
            case Delivery():
                self._set_aside(cascade, stream, step.stream, failure, step.atom)
            case NextInLine():
                self._drop_next(cascade, step, failure)
            case _:
                raise AssertionError("a pause begins with an event")

    def _failed(
        self, cascade: Cascade, outcome: Outcome, is_personal: Callable[[], bool]
    ) -> Failure:
        """Report the failure of a step, and return it as it is recorded.

        One that depends on the machine is recorded as a request, so that no replay runs the step.
        """
        if outcome.error in DECIDED:
            step = step_id(cascade.root, cascade.taken)
            cascade.completed.append(CompletedRequest(step, encode_continuation(), outcome))
        failure = decode_failure(outcome.reply)
        self.on_failure(failure)
        return recorded_failure(failure, is_personal=is_personal())

    def _take_atom(self, cascade: Cascade, step: Delivery, plan: WorkflowPlan) -> None:
        shared = self.shared
        if shared is not None and shared.holds(step_id(cascade.root, cascade.taken)):
            failure = self._run_step(
                cascade,
                plan,
                lambda run: (
                    run.take_atom(step.atom) if run.is_eager else run.take_shared(step.atom, shared)
                ),
            )
            shared.is_void = shared.is_void or failure is not None
        else:
            direct = self._direct_of(plan)
            failure = self._run_step(cascade, plan, lambda run: run.take_atom(step.atom, direct))
        if failure is None:
            return
        if plan.workflow.pauses:
            self.paused.begin(plan.workflow.flow_name, step, failure, cascade.time_us)
        else:
            self._set_aside(cascade, plan.workflow.failed, step.stream, failure, step.atom)

    def _direct_of(self, plan: WorkflowPlan) -> DirectTask | None:
        """Return the direct task of a workflow, if it has one."""
        name = plan.workflow.flow_name
        if name not in self._direct:
            direct = direct_task(plan)
            has_items = direct is not None and self._waits.lines.has_items(direct.task)
            self._direct[name] = None if has_items else direct
        return self._direct[name]

    def _take_questions(self, cascade: Cascade, step: Inquiry) -> None:
        plan, task = self._topology.responders[step.portal]
        step, lost = self.personal.inquiry(step)
        cascade.push_all(failed_answers(lost, ERASED))
        if lost and not step.questions:
            return
        failure = self._run_step(
            cascade, plan, lambda run: run.take_questions(task, step.questions)
        )
        if failure is not None:
            cascade.push_all(failed_answers(step.questions, failure))

    def _take_answers(self, cascade: Cascade, step: Delivered) -> None:
        task = self._topology.tasks.get(step.task)
        if task is None:  # a deployment has removed it
            for answer in step.answers:
                self._waits.forget(answer)
            return
        plan = self._topology.workflows[step.workflow]
        step, lost = self.personal.delivered(step)
        if lost:
            self._lose(cascade, plan, lost, ERASED)
            if not step.answers:
                return
        failure = self._run_step(cascade, plan, lambda run: run.take_answers(task, step.answers))
        if failure is not None:
            self._lose(cascade, plan, step.answers, failure)

    def _lose(
        self, cascade: Cascade, plan: WorkflowPlan, answers: Sequence[Answer], failure: Failure
    ) -> None:
        """Give up the handlers that cannot take answers, and set aside the work that waits behind them."""
        questions = give_up(self._waits, answers)
        cascade.push_all(failed_answers(questions, failure))
        self._queue_ready(cascade)
        events = tuple(answer.data or b"" for answer in answers)
        if failure is ERASED and not (events := self.personal.readable(events)):
            return
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
        failure = self._failed(cascade, outcome, lambda: consumer.source.events.is_personal)
        self._set_aside(cascade, consumer.failed, consumer.source.name, failure, atom)
        return False
