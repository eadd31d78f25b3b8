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

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

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
    NextInLine,
    PublishedAtom,
    Step,
    cascade_of,
    failed_answers,
    size_of,
)
from penstock.engine.streams.derived_ids import (
    MARK,
    cascade_id,
    continuation_id,
    ended_root,
    is_question_id,
    part_id,
    settled_effect,
    step_id,
)
from penstock.engine.streams.generator_positions import GeneratorPositions
from penstock.engine.streams.late_flows import LateFlows
from penstock.engine.streams.paused_flows import PausedFlows
from penstock.engine.streams.personal_work import (
    ERASED,
    PersonalWork,
    recorded_failure,
    takes_persons,
)
from penstock.engine.streams.published_rows import Made, PublishedRows
from penstock.engine.streams.step_runner import StepRunner, Writes
from penstock.engine.streams.stored_cascade import (
    REQUESTS_CODEC,
    Codec,
    SentBody,
    StoredQueue,
    steps_codec,
)
from penstock.engine.streams.system_rows import (
    REQUESTS,
    STEPS,
    former_rest_key,
)
from penstock.engine.streams.waiting import Answer, Asker, Place, PortalQuestion, Waits
from penstock.engine.streams.workflow_step import StepServices, WorkflowStep, direct_task
from penstock.errors import Deadlock, Internal, LimitExceeded, Unhandled, UserError
from penstock.model.application import App
from penstock.model.call import call_of, sent
from penstock.model.context import Read, current
from penstock.model.request import (
    NOT_CUT,
    Cut,
    Failure,
    decode_failure,
    encode_continuation,
    encode_failure,
)
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.flow import Workflow, first_match
from penstock.model.streams.packed_atom import plain_atom
from penstock.model.streams.published_table import PublishedTable, changes_of, decode_changed
from penstock.model.streams.routing import RequestSink, Sequencer, Splitter
from penstock.model.streams.stream import Atom, Stream
from penstock.model.streams.task_type import flow_of
from penstock.model.streams.topology import Subscriber
from penstock.model.streams.workflow_plan import WorkflowPlan
from penstock.model.waiting_effect import answer_in, effect_key

# Each pass of an epoch has its own share, so a cascade takes at most twice the share of an epoch. A record whose cascade
# is cut halves the share of the records behind it: however many endless cascades an epoch has, they take little time.
# The place of each cut is in the record that continues the cascade. So no other run reads a clock. A later record can
# overtake the rest of a cut cascade. So a cascade of few steps is not cut because the machine was busy for a moment.


SHARE_S: Final = 0.05
"""The share of the requests of a cascade, and of its workflow steps."""

SHARE_MIN_S: Final = 0.001
"""The least share, behind many cascades that were cut."""

SHORT: Final = 16
"""A cascade of so many requests, or workflow steps, has a wider bound."""

WIDER: Final = 20
"""The wider bound, in shares."""


class CascadeTime:
    """Measures the running cascade."""

    def __init__(
        self, clock: Callable[[], float], share_s: float = SHARE_S, short: int = SHORT
    ) -> None:
        self._clock = clock
        self._share_s = share_s  # of the next cascade; `cut` halves it
        self._short = (
            short  # the requests, or workflow steps, of a cascade that has the wider bound
        )
        self._began_s = 0.0

    def begin(self) -> None:
        """Begin the requests, or the workflow steps, of a record."""
        self._began_s = self._clock()

    def is_over(self, ran: int) -> bool:
        """Say whether the share is used after so many requests or steps, and there is one more."""
        bound_s = self._share_s if ran >= self._short else self._share_s * WIDER
        return self._clock() - self._began_s >= bound_s

    def cut(self) -> None:
        """Note that a cascade was cut because its share was used."""
        self._share_s = max(SHARE_MIN_S, self._share_s / 2)
        self._short = max(1, self._short // 2)


# A workflow runs an atom through its tasks, a splitter divides it, a sequencer forwards it, a request sink makes requests
# of it. A step commits whole, and then its atoms, questions and answers are queued; or it leaves nothing, and the failed
# atom is set aside. `cascade_runner` runs the whole cascade.


def split_events(splitter: Splitter[Any], atom: Atom) -> list[Atom]:
    """Return the events of each stream of a splitter; an event that fits none is in none.

    The caller has begun a transaction.
    """
    current().routing = f"a function of splitter {splitter.name}"
    events: list[list[bytes]] = [[] for _ in splitter.streams]
    decode = splitter.source.events.decode
    for data in atom:
        index = first_match(splitter.predicates, decode(data))
        if index is not None:
            events[index].append(data)
    return [tuple(chosen) for chosen in events]


def request_bodies(app: App, sink: RequestSink[Any], atom: Atom) -> list[bytes]:
    """Return the bodies of the requests that a sink makes of an atom. The caller has begun a transaction."""
    current().routing = f"the function of call {sink.name}"
    bodies: list[bytes] = []
    types = sink.source.events
    whole = [types.decode_all(atom)] if sink.takes_atoms and atom else []
    for given in whole if sink.takes_atoms else map(types.decode, atom):
        arguments = sink.arguments(given)
        if type(arguments) is not tuple:
            raise UserError(
                f"{sink.where}: the arguments of {sink.name} are a tuple, such as (Item(event.item), 1), not "
                f"{type(arguments).__qualname__}"
            )
        body = sent(app, call_of(sink.method, arguments, {}))
        bodies.append(body)
    return bodies


_SHOWN_MAX: Final = 5


def deadlock(places: Sequence[Place]) -> Failure:
    """Return the failure of a question that would let handlers wait for each other for ever.

    Args:
        places: The tasks and keys of these handlers; the first one has asked.
    """
    names = [
        f"a handler of {task} with key {key}" if key else f"on_atom_complete of {task}"
        for task, key in places
    ]
    shown = (
        [*names[:_SHOWN_MAX], f"{len(names) - _SHOWN_MAX} more"]
        if len(names) > _SHOWN_MAX
        else names
    )
    waits = ", which waits for ".join([*shown, "the first one" if len(names) > 1 else "itself"])
    text = f"no handler could reply, because the request closes a cycle: {waits}; ask in one order, or without exclusive=True"
    return Failure(Deadlock.code, Deadlock.__name__, text)


_EXCEEDED_MAX: Final = 3
_TOO_SLOW: Final = Failure(
    Unhandled.code,
    Unhandled.__name__,
    f"the function of the table has exceeded a limit at {_EXCEEDED_MAX} other entities of the same transaction",
)

QUEUE: Final = -1
"""In place of the number of a step: its cascade's queue is read or stored."""

T = TypeVar("T")
_encode: Final = msgspec.msgpack.Encoder().encode


def _let_run(_number: int) -> None:
    """Refuse no part of a cascade."""


def _read_nothing(_key: EntityKey) -> bytes | None:
    """Read an empty state."""
    return None


Taking: TypeAlias = Callable[[Cascade, WorkflowPlan, Atom], Callable[[WorkflowStep], None]]


def _take_whole(
    _cascade: Cascade, _plan: WorkflowPlan, atom: Atom
) -> Callable[[WorkflowStep], None]:
    return lambda run: run.take_atom(atom)


class CascadeRunner:
    """Runs cascades, one step after the other, over one state.

    Attributes:
        before_request: Takes the number of each sent request in its cascade, from 1, before it runs. If it returns a
            failure, the request does not run, and fails so.
        before_step: Takes the number of each step in its cascade, likewise; 0 before abandoned handlers end, and
            `QUEUE` before the queue of steps is read or stored: after a failure, the queue is dropped.
        time: Says when a cascade is cut because of its time; None where no clock decides.
        cuts: The recorded cuts of the cascades that run again, by the id of the record that continues each.
        decided: The outcomes of sent requests and of steps that do not run, by their ids; for a replay.
        on_failure: Takes the failure of each step that fails.
        taking: Returns how the step of a workflow takes an atom (`key_shares`).

    Args:
        keys: Returns the stored keys that begin with a prefix, in order.
        apply: Takes the writes of a step, which later steps read.
        durable_waits: Store the waiting handlers after each step, and not only at the end of a record.
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
        self._app = app
        self.topology = app.topology
        self._waits = Waits(read, app.topology.tasks, keys, executor)
        self._can_close_cycles = any(task.exclusive for _, task in app.topology.responders.values())
        self.personal = PersonalWork(app, self._waits)
        plans = app.topology.workflows.items()
        direct = {name: task for name, plan in plans if (task := direct_task(plan))}
        services = StepServices(
            app, self._waits, keys, limits.output_bytes, executor, self.personal, direct
        )
        self.step_runner = StepRunner(services, read, apply)
        self.on_failure: Callable[[Failure], None] = lambda _: None
        self.taking: Taking = _take_whole
        self.paused = PausedFlows(app.topology, read, apply)
        self._late = LateFlows(app.topology, read, apply)
        self._executor = executor
        self._read = read
        self._apply = apply
        self._limits = limits
        self._durable_waits = durable_waits
        self.before_request: Callable[[int], Failure | None] = _let_run
        self.before_step: Callable[[int], Failure | None] = _let_run
        self.decided: Mapping[RequestId, Outcome] = {}
        self.time: CascadeTime | None = None
        self.cuts: Mapping[RequestId, Cut] = {}
        self._steps_codec = steps_codec(app.topology)
        self._generators = GeneratorPositions(app, read, apply)
        self._rows = PublishedRows(app.topology, read, apply)
        self._refusal: Failure | None = None
        executor.continued = self._result_of

    def _take(self, cascade: Cascade, step: Step) -> None:
        self._take_now(cascade, step)

    def _take_now(self, cascade: Cascade, step: Step) -> None:
        # A paused or late workflow keeps the step in a row of its own, and takes it when it goes on.
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
                self._take_atom(cascade, step, self.topology.workflows[subscriber.flow_name])
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
        if stream in self.topology.subscribers:
            self._queue(cascade, stream, plain_atom(events))

    def _queue(self, cascade: Cascade, stream: str, events: Atom) -> None:
        for subscriber in self.topology.subscribers.get(stream, ()):
            cascade.push(Delivery(subscriber, stream, events))

    def _run_step(
        self, cascade: Cascade, plan: WorkflowPlan, take: Callable[[WorkflowStep], None]
    ) -> Failure | None:
        """Run a step of a workflow, publish its atom, and queue its questions and answers; return its failure."""
        output, outcome = self.step_runner.run(cascade, plan, take)
        if outcome.error is not None:
            return self._failed(cascade, outcome, lambda: takes_persons(self.topology, plan))
        events = output.events
        atom = tuple(events) if isinstance(events, list) else events
        if not plan.workflow.is_service:  # a service answers questions, and has no stream
            self._publish(cascade, plan.workflow.name, atom)
        cascade.later += output.requests
        if output.questions:
            # In the order of the application, not of the handlers: the order of steps must not depend on a dictionary.
            for portal in self.topology.portals:
                if portal in output.questions:
                    cascade.push(Inquiry(portal, tuple(output.questions[portal])))
        for (workflow, task), answers in output.answers.items():
            cascade.push(Delivered(workflow, task, tuple(answers)))
        lines = self._waits.lines
        if self._waits.awaited or lines.held or lines.ready:  # nearly never
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
                if request.rpartition(".")[0] == now:  # it is on its way, and waits for none yet
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
        """
        for place, handler in self._waits.every(most):
            if handler is None:
                yield place, "its task is gone, so it is dropped"
            else:
                failure = self.step_runner.try_to_resume(handler)
                if failure is not None:
                    yield place, f"{failure.kind}: {failure.message}"

    def _deadlock(self, places: Sequence[Place], plan: WorkflowPlan) -> Failure:
        return recorded_failure(deadlock(places), is_personal=takes_persons(self.topology, plan))

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
        task, place = self.topology.tasks.get(step.task), (step.task, step.key)
        item = None if task is None else self._waits.lines.first(task, place)
        if task is None or item is None:
            return
        plan = self.topology.workflows[flow_of(step.task)]
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
        task, place = self.topology.tasks[step.task], (step.task, step.key)
        item = self._waits.lines.take(task, place)
        if isinstance(item, PortalQuestion):
            cascade.push_all(failed_answers([item], failure))
        elif item is not None and failure is not ERASED:
            stream = self.topology.workflows[flow_of(step.task)].workflow.failed
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
        """Report the failure of a step, and return it as it is recorded."""
        self._note_decided(cascade, outcome)
        failure = decode_failure(outcome.reply)
        self.on_failure(failure)
        return recorded_failure(failure, is_personal=is_personal())

    @staticmethod
    def _note_decided(cascade: Cascade, outcome: Outcome) -> None:
        """Record the outcome of a step if it depends on the machine, so that no replay runs the step."""
        if outcome.error in DECIDED:
            step = step_id(cascade.root, cascade.taken)
            cascade.completed.append(CompletedRequest(step, encode_continuation(), outcome))

    def _take_atom(self, cascade: Cascade, step: Delivery, plan: WorkflowPlan) -> None:
        failure = self._run_step(cascade, plan, self.taking(cascade, plan, step.atom))
        if failure is None:
            return
        if plan.workflow.pauses:
            self.paused.begin(plan.workflow.flow_name, step, failure, cascade.time_us)
        else:
            self._set_aside(cascade, plan.workflow.failed, step.stream, failure, step.atom)

    def _take_questions(self, cascade: Cascade, step: Inquiry) -> None:
        plan, task = self.topology.responders[step.portal]
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
        task = self.topology.tasks.get(step.task)
        if task is None:  # a deployment has removed it
            for answer in step.answers:
                self._waits.forget(answer)
            return
        plan = self.topology.workflows[step.workflow]
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
        lost = [self._waits.lose(answer) for answer in answers]
        self._waits.commit()
        questions = [question for question in lost if question is not None]
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
        text = f"{failure.kind}: {failure.message}"
        event = FailedAtom(source, step, failure.code, text, events)
        self._publish(cascade, stream.name, (stream.events.encode(event),))

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
        """Send the requests that a sink makes of an atom; one that cannot be made sets the whole atom aside."""
        bodies: list[bytes] = []
        if self._routed(
            cascade, sink, atom, lambda: bodies.extend(request_bodies(self._app, sink, atom))
        ):
            step = step_id(cascade.root, cascade.taken)
            cascade.later += [
                LaterRecord(part_id(step, index), body, 0) for index, body in enumerate(bodies)
            ]

    def _change_tables(self, cascade: Cascade, changed: Sequence[PublishedAtom]) -> None:
        """Let the published tables take changed entities, and the consumers of a table the changes of its rows.

        A later record can overtake the rest of a cascade that is cut. Rows that come in another order would be wrong for
        ever, so these steps run before a cascade can be cut.
        """
        for atom in changed:
            for table in self.topology.tables_of.get(atom.stream, ()):
                events = self._rows.change(table, self._rows_of(cascade, table, atom.events))
                if events:
                    cascade.published.append(PublishedAtom(table.name, cascade.taken, events))
                    for subscriber in self.topology.subscribers.get(table.name, ()):
                        self._take_at_once(cascade, Delivery(subscriber, table.name, events))

    def _take_at_once(self, cascade: Cascade, step: Step) -> None:
        """Run a step before those that are queued."""
        self._begin_step(cascade)
        self._take_now(cascade, step)

    def _begin_step(self, cascade: Cascade) -> None:
        cascade.taken += 1
        self.step_runner.refusal = self._refusal or self.before_step(cascade.taken)

    def _rows_of(
        self, cascade: Cascade, table: PublishedTable[Any], changed: Atom
    ) -> Iterable[Made]:
        """Make the rows of changed entities: all in one step, or each in a step of its own if one of them fails."""
        self._begin_step(cascade)
        made, outcome = self._made_rows(cascade, table, changed)
        if outcome.error is None:
            return made
        if len(changed) == 1:
            return [self._without_rows(cascade, table, changed[0], outcome)]
        self._note_decided(cascade, outcome)
        made, exceeded = [], 0
        for event in changed:
            self._begin_step(cascade)
            if exceeded == _EXCEEDED_MAX:  # each may take as long as a handler may
                self.step_runner.refusal = _TOO_SLOW
            own, outcome = self._made_rows(cascade, table, (event,))
            exceeded += outcome.error == LimitExceeded.code
            made += own or [self._without_rows(cascade, table, event, outcome)]
        return made

    def _made_rows(
        self, cascade: Cascade, table: PublishedTable[Any], atom: Atom
    ) -> tuple[list[Made], Outcome]:
        """Make the rows of entities in one step; none of them after a failure."""
        made: list[Made] = []

        def work() -> None:
            current().routing = f"the function of table {table.name}"
            size = 0
            for event in atom:
                text, state = decode_changed(event)
                rows = [] if state is None else table.rows_of(text, state)
                size += sum(map(len, rows))
                if size > self._limits.output_bytes:
                    raise LimitExceeded(
                        f"the rows take {size} bytes, more than output_bytes = {self._limits.output_bytes}"
                    )
                made.append((text, rows))

        outcome = self.step_runner.perform(cascade, work)
        return (made if outcome.error is None else []), outcome

    def _without_rows(
        self, cascade: Cascade, table: PublishedTable[Any], event: bytes, outcome: Outcome
    ) -> Made:
        """Set an entity aside whose rows cannot be made; it has no rows then."""
        failure = self._failed(cascade, outcome, lambda: table.events.is_personal)
        text, _ = decode_changed(event)
        assert table.source is not None, "an application was built with the table"
        self._set_aside(cascade, table.failed, table.source.name, failure, (_encode(text),))
        return text, []

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

    def run_requests(
        self, root: RequestId, body: bytes, time_us: int, outcome: Outcome
    ) -> Cascade | None:
        """Run the requests that a record has sent, and those that they send.

        Args:
            outcome: How the request ended. A continuation ends with an error only if it was cancelled or set aside;
                then the rest of its cascade is dropped.

        Returns:
            The cascade, for `run_steps`; None if the record causes nothing.
        """
        cascade = cascade_of(root, body, time_us)
        if not (outcome.outbox or cascade.has_steps):
            return None
        cascade.send(outcome)
        rest = self._rest(cascade, REQUESTS_CODEC) if cascade.continues else None
        if rest is not None:
            cascade.requests.extendleft(
                reversed(self._former_rest(root, REQUESTS_CODEC, outcome.error))
            )
        if rest is not None and self._is_over(root, outcome.error):
            self._apply(rest.dropped())
        elif cascade.requests or rest is not None:
            self._run_sent(cascade, outcome, rest)
        return cascade

    def _run_sent(
        self, cascade: Cascade, outcome: Outcome, rest: StoredQueue[SentBody] | None
    ) -> None:
        """Run the requests of a cascade: those in its pages, if it has a rest, and those that the record has sent."""
        room, queue = self._executor.room, cascade.requests
        room.clear()
        load = None
        if rest is not None:
            stored = self._rest(cascade, self._steps_codec)
            room.steps, room.step_bytes = stored.count, stored.size
            room.requests, room.request_bytes = rest.count, rest.size
            load = partial(self._load_requests, queue, rest)
        room.take(outcome.outbox)
        ran = 0
        for ran in self._turns(queue, load, self._most(cascade).requests):
            request_id, sent = queue.popleft()
            room.remove(sent)
            result = self.decided.get(request_id) or self._run_request(
                request_id, sent, cascade.time_us, ran
            )
            self._apply(result.writes)
            cascade.completed.append(CompletedRequest(request_id, sent, result))
            cascade.send(result)
            if result.outbox:
                room.take(result.outbox)
        room.clear()
        self.before_request(0)  # the rest is work for the record itself
        if queue:
            cascade.cut_at(Cut(ran, cascade.cut.steps))
        if queue or rest is not None:
            self._apply((rest or self._rest(cascade, REQUESTS_CODEC)).rest(queue))

    def _load_requests(self, queue: deque[SentBody], rest: StoredQueue[SentBody]) -> None:
        """Queue the requests of the next page, if it is their turn."""
        rest.taken()
        if not rest.is_empty:
            self.before_request(0)
            rest.load(queue)

    def _run_request(
        self, request_id: RequestId, body: bytes, time_us: int, number: int
    ) -> Outcome:
        """Run a sent request with its number in the cascade, unless it must not run."""
        failure = self.before_request(number)
        if failure is not None:
            return Outcome(failure.code, encode_failure(failure), (), {})
        return self._executor.run(request_id, body, time_us)

    def _turns(
        self, queue: Collection[object], load: Callable[[], object] | None, most: int | None
    ) -> Iterator[int]:
        """Count the requests or steps of a cascade from 1, until none is left or the cascade is cut.

        Args:
            queue: The next requests or steps; the caller removes the first one in each turn.
            load: Adds those of the next page, if it is their turn; None for a cascade that has no pages.
            most: The recorded number of turns; None: as many as limits and time allow.
        """
        time = self.time
        for ran in range(most or self._limits.cascade_steps):
            if load is not None:
                load()
            if not queue or (ran and time is not None and self._is_cut_by(time, ran)):
                return
            yield ran + 1
        if load is not None:
            load()

    def run_steps(self, cascade: Cascade, failure: Failure | None, reply: bytes) -> None:
        """Run the workflow steps of a cascade, after its requests.

        Args:
            cascade: The cascade; `published` has the atoms of its requests.
            failure: The failure of the record's request, or None; all steps of a record that was set aside fail.
        """
        is_set_aside = cascade.continues or bool(cascade.catch_up or cascade.scan)
        is_set_aside = is_set_aside or (failure is not None and failure.code == Internal.code)
        refusal = failure if is_set_aside else None
        self._refusal = self.step_runner.refusal = refusal
        self.step_runner.decided = self.decided
        self._generators.note(cascade)
        rest = self._begin(cascade, failure, reply, refusal)

        load = None if rest is None else partial(self._load, cascade, rest)
        before = cascade.taken
        for _ in self._turns(cascade.queue, load, self._most(cascade).steps):
            cascade.taken += 1
            self.step_runner.refusal = refusal or self.before_step(cascade.taken)
            self._take(cascade, cascade.pop())
            if self._durable_waits:
                self._store_waits(cascade)
        if not self._waits.is_forgotten:
            self.before_step(0)
            self._store_waits(cascade)
        if cascade.queue:
            ran = cascade.taken - before
            self._cut_steps(cascade, ran, rest or self._rest(cascade, self._steps_codec))
        elif rest is not None:
            self._apply(rest.rest(()))

    def _cut_steps(self, cascade: Cascade, ran: int, rest: StoredQueue[Step]) -> None:
        """Store the rest of the workflow steps for a later record."""
        if self._drops_steps(cascade):
            self._apply(rest.dropped())
            cascade.queue.clear()
            return
        cascade.cut_at(Cut(cascade.cut.requests, ran))
        self._apply(rest.rest(cascade.queue))

    def _load(self, cascade: Cascade, rest: StoredQueue[Step]) -> int:
        """Queue the steps of the next page, if it is their turn; return their number."""
        rest.taken()
        if rest.is_empty:
            return 0
        self.before_step(QUEUE)
        loaded = rest.load(cascade.queue)
        cascade.queue_bytes += sum(map(size_of, islice(cascade.queue, loaded)))
        cascade.stored_steps, cascade.stored_bytes = rest.count, rest.size
        return loaded

    def _rest(self, cascade: Cascade, codec: Codec[T]) -> StoredQueue[T]:
        """Return the stored queue of a cascade, or of the cascade that the record ends."""
        ended = ended_root(cascade.root) if cascade.continues else None
        read = self._read if cascade.continues else _read_nothing  # a new cascade has no rest
        return StoredQueue(codec, cascade_id(ended or cascade.root), read)

    @staticmethod
    def _is_over(root: RequestId, failure: object) -> bool:
        """Say whether the rest of the cascade of a continuation is dropped."""
        return failure is not None or ended_root(root) is not None

    def _most(self, cascade: Cascade) -> Cut:
        """Return the recorded cut of a cascade, if it runs again."""
        return self.cuts.get(continuation_id(cascade.root), NOT_CUT) if self.cuts else NOT_CUT

    def _ends_piece(self, following: RequestId, ran: int) -> bool:
        """Say whether a catch-up record ends after so many atoms; `following` is the id of the next one."""
        most = self.cuts.get(following, NOT_CUT).steps
        if most is not None:
            return ran == most
        return ran > 0 and self.time is not None and self._is_cut_by(self.time, ran)

    @staticmethod
    def _is_cut_by(time: CascadeTime, ran: int) -> bool:
        """Say whether a cascade is cut after so many requests or steps; the first of them always runs."""
        if ran == 1:
            time.begin()
            return False
        if not time.is_over(ran):
            return False
        time.cut()
        return True

    def _drops_steps(self, cascade: Cascade) -> bool:
        """Say whether the worker died twice over the queue of steps of a cascade; then the queue is dropped."""
        name = step_id(cascade.root, 0)
        outcome = self.decided.get(name)
        if outcome is None:
            failure = self.before_step(QUEUE)
            if failure is None:
                return False
            outcome = Outcome(failure.code, encode_failure(failure), (), {})
        if all(done.request_id != name for done in cascade.completed):
            cascade.completed.append(CompletedRequest(name, encode_continuation(), outcome))
        return True

    def _begin(
        self, cascade: Cascade, failure: Failure | None, reply: bytes, refusal: Failure | None
    ) -> StoredQueue[Step] | None:
        """Queue the first steps of a cascade: an answer to a handler, the rest of a cut cascade, and the atoms.

        Args:
            failure: The failure of the record's request, or None.
            refusal: The failure of all steps, none of which runs; None where they run.

        Returns:
            The rest of the cascade that the record continues; None for a record that continues nothing.
        """
        root = cascade.root
        if MARK not in root:  # nothing of an earlier record depends on it
            self._queue_published(cascade)
            return None
        arrived = self._arrived(root, reply, failure) if is_question_id(root) else None
        if arrived is not None:
            asker, answer = arrived
            answer = self.personal.protected(answer, cascade.subject)
            cascade.push(Delivered(asker.workflow, asker.task, (answer,)))
        rest = self._resumed(cascade, refusal) if cascade.continues else None
        self._queue_published(cascade)
        self._take_piece(cascade)
        if cascade.continues:
            for stream, step, failed in self.paused.resume(cascade):
                self._set_step_aside(cascade, stream, step, failed)
        return rest

    def _arrived(
        self, root: RequestId, reply: bytes, failure: Failure | None
    ) -> tuple[Asker, Answer] | None:
        """Return the reply that a record is for a handler: of a request, of an effect, or the end of the time of either."""
        effect = settled_effect(root)
        if effect is not None:
            answer = answer_in(reply) if failure is None else None
            asker = None if answer is None else self._waits.take_asker(effect)
            if answer is None or asker is None:
                return None
            return asker, Answer(effect, asker.handler, *answer)
        if failure is None and self._app.effects and self._waits_for_effect(root):
            return None  # its outcome is another record
        return self._waits.take_arrived(root, reply, failure)

    def _waits_for_effect(self, root: RequestId) -> bool:
        return self._read(effect_key(root)) is not None

    def _take_piece(self, cascade: Cascade) -> None:
        """Let a workflow take the piece of atoms, or of rows, that the record is."""
        if cascade.catch_up is not None:
            for late in self._late.take(cascade, cascade.catch_up, self._ends_piece):
                self._begin_step(cascade)
                self._deliver(cascade, late, late.subscriber)
        if (piece := cascade.scan) is not None:
            given = self._rows.scan(cascade, piece)
            if given is not None:
                self._take_at_once(cascade, given)
            if self._refusal is not None:  # the entities of the piece were not read
                for table in self.topology.tables_of.get(changes_of(piece.entity), ()):
                    keys = tuple(map(_encode, piece.keys))
                    self._set_aside(cascade, table.failed, piece.entity, self._refusal, keys)

    def _result_of(self, root: RequestId) -> bytes:
        """Return the result of a record that continues earlier work; one that ends a cascade has the numbers."""
        ended = ended_root(root)
        if ended is not None:
            heads = (
                StoredQueue(codec, cascade_id(ended), self._read)
                for codec in (REQUESTS_CODEC, self._steps_codec)
            )
            requests, steps = (head.count for head in heads)
            return _encode({"requests": requests, "steps": steps})
        self._check_former_rest(root)
        return _encode(None)

    def _check_former_rest(self, root: RequestId) -> None:
        """Refuse to continue a cascade whose rest an earlier Penstock has stored whole, if it is too large."""
        size_max = self._limits.cascade_queue_bytes
        for name in (REQUESTS, STEPS) if cascade_id(root) != root else ():
            row = self._read(former_rest_key(name, root))
            if row is not None and len(row) > size_max:
                raise LimitExceeded(
                    f"the rest of the cascade takes {len(row)} bytes, more than cascade_queue_bytes "
                    f"= {size_max}; it is dropped"
                )

    def _resumed(self, cascade: Cascade, refusal: Failure | None) -> StoredQueue[Step]:
        """Return the stored steps of the cascade that a record continues; they are dropped if it was set aside."""
        rest = self._rest(cascade, self._steps_codec)
        cascade.push_all(self._former_rest(cascade.root, self._steps_codec, refusal))
        if self._is_over(cascade.root, refusal) or self._drops_steps(cascade):
            self._apply(rest.dropped())
        cascade.stored_steps, cascade.stored_bytes = rest.count, rest.size
        return rest

    def _former_rest(self, root: RequestId, codec: Codec[T], failure: object) -> list[T]:
        """Remove and return the queue that an earlier Penstock has stored whole; nothing of it after a failure."""
        if cascade_id(root) == root:
            return []
        key = former_rest_key(codec.name, root)
        if failure is not None:
            self._apply({key: None})  # unread: it may be the reason of the failure
            return []
        row = self._read(key)
        if row is None:
            return []
        self._apply({key: None})
        return codec.decode(row)

    def _queue_published(self, cascade: Cascade) -> None:
        """Queue the steps of the atoms of requests; changed entities are no atoms of the journal."""
        tables_of, published = self.topology.tables_of, cascade.published
        if tables_of:
            cascade.published = [atom for atom in published if atom.stream not in tables_of]
        for atom in cascade.published:
            self._queue(cascade, atom.stream, atom.events)
        if tables_of:
            self._change_tables(cascade, [atom for atom in published if atom.stream in tables_of])

    def _store_waits(self, cascade: Cascade) -> None:
        """Write the waiting handlers into rows, and forget them."""
        if not self._waits.is_forgotten:
            self._apply(self._waits.store())
            self.step_runner.close_abandoned(cascade)
