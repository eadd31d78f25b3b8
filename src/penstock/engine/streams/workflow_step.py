"""One step of a workflow: it takes an atom, questions or answers, and publishes one atom.

The step is a transaction. The tasks run one after the other, each with all events of the atom that reach it, in
order; then its `on_atom_complete` runs, and then the next task begins. Functions between the tasks run when a
task asks for its events. The caller undoes a step that fails.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, repeat
from types import CoroutineType
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor
from penstock.engine.streams.cascade import LaterRecord
from penstock.engine.streams.derived_ids import part_id, timeout_id
from penstock.engine.streams.flow_events import FlowEvents, Piece
from penstock.engine.streams.handler_start import (
    COMPLETE,
    REMEMBERED,
    Handler,
    Start,
    are_remembered,
    completing_start,
    event_handler,
    handler_for,
    question_of,
    refuse_generator,
    start_of,
    state_keys,
)
from penstock.engine.streams.personal_work import (
    PersonalWork,
    readable_body,
    readable_question,
    reply_decoder,
)
from penstock.engine.streams.resumption import Resumption
from penstock.engine.streams.waiting import (
    Answer,
    Asker,
    HandlerCoroutine,
    Held,
    Place,
    PortalQuestion,
    Turn,
    Waiting,
    Waits,
    handler_of,
    refuse_asyncio,
)
from penstock.errors import LimitExceeded, Unencodable, UserError
from penstock.model.application import App
from penstock.model.call import Call, returns_of, sent
from penstock.model.context import Transaction
from penstock.model.entity_type import EntityType
from penstock.model.request import encode_continuation
from penstock.model.streams.ask import Ask
from penstock.model.streams.event_type import EventType
from penstock.model.streams.flow import FlowOperator
from penstock.model.streams.packed_atom import packed_atom
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import Atom
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.workflow_plan import WorkflowPlan


class DirectTask(NamedTuple):
    """The only task of a workflow, which takes the events of the source as they are.

    Attributes:
        key: Returns the key of an event; None for a task without keys.
    """

    handler: Handler
    decode: Callable[[bytes], Any]
    key: Callable[[Any], Any] | None


def direct_task(plan: WorkflowPlan) -> DirectTask | None:
    """Return the direct task of a workflow; None if it has none."""
    workflow = plan.workflow
    task = plan.task_of.get(workflow.last)
    if len(plan.tasks) != 1 or task is None or task.event is None or task.output is None:
        return None
    if task.completion is not None:
        return None
    (taken,) = workflow.last.inputs
    key = taken.function if taken.operator is FlowOperator.KEY else None
    source = taken if key is None else taken.inputs[0]
    is_direct = source.operator is FlowOperator.SOURCE and (key is None) is not task.is_keyed
    has_types = (
        task.event.constrained == workflow.source.events.constrained
        and task.output.constrained == workflow.events.constrained
    )
    if not (is_direct and has_types):
        return None  # functions or conversions are between
    if key is not None and not task.event.is_shared:
        return None  # the function and the handler get an object each
    decode = workflow.source.events.decode if task.event.is_shared else task.event.decode
    return DirectTask(event_handler(task), decode, key)


class StepOutput:
    """The events, questions, answers and requests of one step, whose bytes are limited together.

    Attributes:
        requests: The requests and the ends of times that its handlers have sent.
        questions: The requests to portals, by the name of the portal.
        answers: The replies that its handlers have given, by the workflow and the task of the asker.
        size_left: The bytes that it may still use; below zero the step fails.
    """

    __slots__ = (
        "_packed",
        "_pieces",
        "_size_max",
        "_txn",
        "answers",
        "events",
        "questions",
        "requests",
        "size_left",
    )

    def __init__(self, txn: Transaction, size_max: int) -> None:
        self._txn = txn
        self._size_max = size_max
        self.size_left = size_max
        self.events: list[bytes] | Atom = []
        self._pieces: list[bytes] = []
        self._packed = 0
        self.requests: list[LaterRecord] = []
        self.questions: dict[str, list[PortalQuestion]] = {}
        self.answers: dict[tuple[str, str], list[Answer]] = {}

    @property
    def size(self) -> int:
        """The bytes that it has used: at least those of its events, questions and answers."""
        return self._size_max - self.size_left

    def publish(self, events: Iterable[tuple[Any, bytes]]) -> None:
        """Publish the atom of the step: its keys and encoded events; raises as `count`."""
        if isinstance(events, list):
            self.events = [data for _, data in events]
            self.use(self.events)
            return
        self.events = published = []
        for _, data in events:  # functions of the user compute them now, perhaps without end
            self.count(data)
            published.append(data)

    def pack(self, events: bytes, count: int) -> bool:
        """Take several encoded events of the atom; return whether they are in the limit of bytes.

        Args:
            events: The events, without anything between them.
            count: Their number.
        """
        size_left = self.size_left - len(events) - count
        if size_left < 0:
            return False
        self._pieces.append(events)
        self.size_left = size_left
        self._packed += count
        return True

    def publish_packed(self) -> None:
        """Publish the packed events as the atom of the step; raises as `count`."""
        self.size_left -= sum(map(len, self._pieces)) + self._packed
        if self.size_left < 0:
            self.refuse()
        self.events = packed_atom(self._pieces, self._packed)

    def use(self, events: Sequence[bytes]) -> None:
        """Count the bytes of several events; raises as `count`."""
        self.size_left -= sum(map(len, events)) + len(events)
        if self.size_left < 0:
            self.refuse()

    def count(self, data: bytes) -> None:
        """Count the bytes of an event, a question, an answer or a request."""
        self.size_left -= len(data) + 1
        if self.size_left < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Let the step fail because it has reached its limit, even if the handler catches the error."""
        # A handler that catches the error would go on to publish, perhaps without end.
        error = LimitExceeded(
            f"the events of the step take more than output_bytes = {self._size_max} bytes"
        )
        self._txn.doom(error)
        raise error


class StepServices(NamedTuple):
    """The dependencies that all steps of a runner share.

    Attributes:
        waits: The waiting handlers; a step changes them.
        keys: Returns the stored keys that begin with a prefix, in order.
        direct: The direct tasks, by the names of their workflows.
        size_max: The most bytes of all events, questions and answers of a step; and of the history of a handler.
    """

    app: App
    waits: Waits
    keys: Callable[[str], list[EntityKey]]
    size_max: int
    executor: Executor
    personal: PersonalWork
    direct: Mapping[str, DirectTask]


Items: TypeAlias = tuple[Sequence[Any], Sequence[Any] | None, Sequence[Held | None]]
"""Several items for a handler: their keys, the values, and the items; without values, each is decoded for its call."""


class Unrecorded(Exception):
    """A handler waits, and has read rows before the step began to note its reads."""


class Unfit(Exception):
    """A pending event cannot be encoded, so the step runs again without pending events."""


def listing_error(task: TaskType) -> UserError:
    """Return the error of a handler that waits and lists the keys of its task."""
    return UserError(
        f"{task.name}: a handler that waits for a reply cannot use states(self), because its wait would keep the "
        "state of all keys; keep the values that it needs in a PerTask attribute, or use states(self) in a method "
        "that neither awaits nor uses .then"
    )


_NO_START: Final = repeat(None)


PACKED_MIN: Final = 64
"""The least events of an atom whose published events are encoded together: below, it costs more than it saves."""


class WorkflowStep:
    """Runs a step of a workflow.

    A handler runs in turns: from its start, or from a reply, until it ends or waits.

    Attributes:
        is_eager: Whether each event is encoded when it is published, so that no event is ever pending.
        running: The task whose handler runs; None between two handlers.
        pending: The events that `pack` has not encoded; None if each event is encoded when it is published.
        is_unfit: Whether a pending event cannot be encoded, or is beyond the limit of bytes. The caller takes the step
            again, without pending events, so that the handler which has published the event gets the error.
        begun: The handlers that the step has begun or continued, and whose coroutines end if the step fails.
        is_unrecorded: Whether a handler waits that has read rows which the step has not noted. The caller takes
            the step again, which notes them then.
        has_listed_keys: Whether a handler has asked for all keys of its task.
        turns: The numbers of the next turns.
        number: The number of the running turn, or of the last one.
        outputs: The keys and the encoded events that the running task has published.
        shared_writes: The rows that other tasks have changed for the step (`key_shares`).
        missing: The rows that the step has looked for, and that are not stored.
        changed: Those of them that a handler has changed before another one began.
    """

    _flow: FlowEvents
    _packs = False
    is_eager = False

    # Defaults of the class cost no step anything.
    _packer: EventType[Any] | None = None  # of the pending events
    running: TaskType | None = None
    _key: Any = None  # of the running handler, as the next attributes
    _item: Held | None = None
    _handler: Waiting | None = None
    _turn: Turn | None = None
    _start: Start = (("", ""), None, 0)  # of the running handler
    _missed = -1  # the last turn that has read a row unnoted
    _listed = -1  # the last turn that has asked for all keys of its task
    number = 0
    _asked = 0
    pending: deque[Any] | None = None
    is_unrecorded = False
    is_unfit = False
    has_listed_keys = False

    def __init__(self, plan: WorkflowPlan, services: StepServices, txn: Transaction) -> None:
        self._plan = plan
        self._services = services
        self._topology = services.app.topology
        self._waits = services.waits
        self._txn = txn
        self.output = StepOutput(txn, services.size_max)
        self.turns: Iterator[int] = count(1)
        self.outputs: list[tuple[Any, bytes]] = []
        self.begun: list[Waiting] = []
        self.shared_writes: dict[EntityKey, bytes | None] = {}
        self.missing: set[EntityKey] = set()
        self.changed: set[EntityKey] = set()
        self.cleared: set[EntityKey] = set()

    def _end(self) -> None:
        """End the turn of the running handler, which may wait now."""
        handler = self._handler
        if handler is not None and handler.awaiting:
            if len(handler.turns) > 1 and handler.count_size() > self._services.size_max:
                raise LimitExceeded(
                    f"a handler of {handler.task.name} waits, and all that it has received takes more than "
                    f"output_bytes = {self._services.size_max} bytes"
                )
            assert self._turn is not None, "the handler has a turn"
            if self._turn.rows:
                handler.state.keep(self._txn, self._turn.rows)
            self._waits.keep(handler)
        self.running = self._handler = self._turn = None
        self._txn.turn = 0

    def _waiting(self) -> Waiting:
        """Return the running handler as a handler that may wait."""
        if self._handler is None:
            assert self.running is not None, "the caller has looked"
            item = self._item
            handler_id = (
                handler_of(item.id)
                if type(item) is PortalQuestion
                else f"{self._txn.request_id}!{self.number}"
            )
            handler = Waiting(handler_id, self.running, self._key, self._start[0], self._item)
            handler.coroutines.append(None)
            self._handler = handler
            self.begun.append(handler)
            self._turn = Turn(None, self._txn.request_id, self._txn.time_us, self.number)
            handler.turns.append(self._turn)
        return self._handler

    def _require_record(self, handler: Waiting) -> None:
        """Refuse that the running handler waits if one of its reads has not been noted."""
        task = handler.task
        has_missed = self.number == self._missed or self.number != self._start[2]
        if has_missed and task.has_state:
            self.is_unrecorded = True
            task.noted.add(handler_for(task, handler.item).kind)
            raise Unrecorded
        if self.number == self._listed:
            raise listing_error(handler.task)

    def _note_live(self, keys: Iterable[EntityKey]) -> None:
        """Note the rows that are live already, because their use by the running handler is not seen."""
        instances = self._txn.instances
        for key in keys:
            instance = instances.get(key)
            if instance is not None:
                entity_type: EntityType = type(instance).__reference__
                if self._txn.is_live(entity_type, instance):
                    self.note_joined(entity_type, key, instance.__dict__)

    def ask(self, portal: Portal[Any, Any], request: Any) -> Ask[Any]:
        """Send a request to a portal on behalf of the running handler; see `Portal.ask`."""
        if self.running is None:
            raise UserError(f"portal {portal.name}: only the handler of a task can ask")
        key, data = question_of(self._topology, self.running, self._key, portal, request)
        self.output.count(data)
        assert portal.reply_type is not None, "an application was built with the portal"
        readable = readable_question(portal, data)
        ask = self._new_ask(f"portal {portal.name}", readable, portal.reply_type.decode)
        assert self._handler is not None, "it has sent a request"
        workflow, task = self._plan.workflow.flow_name, self.running.name
        question = PortalQuestion(ask.id, self._handler.id, workflow, task, portal.name, key, data)
        self.output.questions.setdefault(portal.name, []).append(question)
        return ask

    def _new_ask(self, target: str, data: bytes, decode: Callable[[bytes], Any]) -> Ask[Any]:
        ask: Ask[Any] = Ask(part_id(self._txn.request_id, self._asked), target, decode)
        self._asked += 1
        self._waiting().send(ask, data)
        return ask

    def call(self, call: Call[Any]) -> Ask[Any]:
        """Send a request to an entity on behalf of the running handler; see `model.sending.ask`."""
        if self.running is None:
            raise UserError(f"{call.method}: only the handler of a task can ask")
        app = self._services.app
        body = sent(app, call)
        self.output.count(body)
        returns = returns_of(app, call)
        target = ".".join(filter(None, (call.entity, call.method)))
        ask = self._new_ask(target, readable_body(app, body), reply_decoder(app, returns))
        self._append(RequestId(ask.id), body, 0)
        return ask

    def limit(self, ask: Ask[Any], time_us: int) -> None:
        """Let a request of the running handler fail after a time; see `Ask.within`."""
        if self.running is None or ask.id not in self._waiting().asks:
            raise UserError(f"{ask.target}: only the handler that has asked can limit the time")
        self._append(timeout_id(ask.id), encode_continuation(), time_us)
        self._waiting().timers += 1

    def _append(self, request_id: RequestId, body: bytes, delay_us: int) -> None:
        """Append a record to the log; the running handler gets its outcome."""
        handler = self._waiting()
        asker = Asker(self._plan.workflow.flow_name, handler.task.name, handler.id)
        self._waits.send_request(request_id, asker)
        self.output.requests.append(LaterRecord(request_id, body, delay_us))

    def publish(self, task: TaskType, event: Any) -> None:
        """Add an event to the output of the running task."""
        if self.running is not task:
            raise UserError(f"the output of {task.name} is used outside of its handlers")
        assert task.output is not None, "its `out` has a declared type"
        data = task.output.encode(event)
        output = self.output
        output.size_left -= len(data) + 1  # `count`, without a call for each event
        if output.size_left < 0:
            output.refuse()
        self.outputs.append((self._key, data))

    def pack(self) -> None:
        """Encode the pending events, if there are any."""
        if self.pending:
            values, emptied = [*self.pending], deque[Any]()
            is_fit = self._take_values(values)
            # After a `RecursionError` they are still pending, so no call may come between the two lines.
            self.pending = emptied
            if not is_fit:
                self.is_unfit = True
                raise Unfit

    def _take_values(self, values: list[Any]) -> bool:
        """Encode values and take all of them; return False, and take none, if one is unfit."""
        assert self._packer is not None, "a task has published them"
        packed = self._packer.packed(values)
        return packed is not None and self.output.pack(packed, len(values))

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the stored keys that begin with a prefix, in order."""
        handler = self._handler
        if handler is not None and handler.coroutines != [None]:
            raise listing_error(handler.task)
        self._listed, self.has_listed_keys = self.number, True
        return self._services.keys(prefix)

    def note_row(self, key: EntityKey, row: bytes) -> None:
        """Note that the running handler is the first handler of the step that reads a row."""
        if self._turn is None:
            self._missed = self.number
        else:
            self._turn.rows[key] = row

    def note_joined(
        self, entity_type: EntityType, key: EntityKey, values: Mapping[str, Any]
    ) -> None:
        """Note that the running handler begins to use an instance that another handler of the step has used."""
        if self._turn is None:
            self._missed = self.number
        elif key not in self._turn.rows:
            self._turn.rows[key] = entity_type.encode(values)

    def note_missing(self, key: EntityKey) -> bytes:
        """Note that a row is missing, and return the row of a key without state."""
        self.missing.add(key)
        return self._topology.blank_rows[key.partition("/")[0]]

    def look_back(self, task: TaskType, key_text: str) -> None:
        """Note whether the handlers before the next one have changed attributes that were missing or cleared."""
        # The next handler may change them back. Then the key has state nevertheless, so its row is stored.
        for key in state_keys(task, key_text):
            if key not in self.missing and key not in self.cleared:
                continue
            instance = self._txn.instances.get(key)
            if instance is None:
                continue
            entity_type: EntityType = type(instance).__reference__
            is_live = self._txn.is_live(entity_type, instance)
            if is_live and not self._is_blank(entity_type, instance.__dict__):
                self.cleared.discard(key)
                if key in self.missing:
                    self.missing.discard(key)
                    self.changed.add(key)

    def _is_blank(self, entity_type: EntityType, values: Mapping[str, Any]) -> bool:
        """Say whether attributes equal the defaults; values that cannot be stored differ from them."""
        blank = self._topology.blank_rows[entity_type.name]
        try:
            return entity_type.encode_change(values, blank) is None
        except Unencodable:
            return False

    def is_state(self, entity_type: EntityType, key: EntityKey, values: Mapping[str, Any]) -> bool:
        """Say whether the values of a stored or live key are state; see `RunningStep`."""
        has_none = key in self.cleared or key in self.missing
        return not (has_none and self._is_blank(entity_type, values))

    def note_cleared(self, key: EntityKey) -> None:
        """Note that a handler has cleared a key."""
        self.cleared.add(key)

    def with_defaults(self, writes: dict[EntityKey, bytes | None]) -> dict[EntityKey, bytes | None]:
        """Return the writes of the step with the rows that equal the defaults: a cleared one is removed, a changed one is stored.

        Args:
            writes: The rows that differ from those before the step, or from the defaults if there was none.
        """
        blank, before = self._topology.blank_rows, self._txn.before
        stored = dict(writes)
        for key in sorted(self.cleared):
            row = blank[key.partition("/")[0]]
            if stored.get(key, before.get(key)) != row:
                continue  # it has changed again
            if key in self.changed or key in self.missing:
                stored.pop(key, None)  # it had no row
            else:
                stored[key] = None
        for key in sorted(self.changed - self.cleared):
            stored.setdefault(key, blank[key.partition("/")[0]])
        return stored

    def take_atom(self, atom: Atom) -> None:
        """Run an atom of the source through all tasks."""
        if len(atom) == 1 and (direct := self._services.direct.get(self._plan.workflow.flow_name)):
            self._take_only_event(direct, atom)
            return
        self.begin_atom(atom)
        self.run(self._plan.tasks)

    def _take_only_event(self, direct: DirectTask, atom: Atom) -> None:
        """Give the only event of an atom to the only task: `run` without the order of tasks and events."""
        # Nearly all atoms of requests come here. With `run`, the engine takes 35 us for such a record in place of 27.
        value = direct.decode(atom[0])
        key = None if direct.key is None else direct.key(value)
        self.take_pieces(direct.handler, (((key,), (value,), atom),))
        self.output.publish(self.outputs)

    def begin_atom(self, atom: Atom) -> None:
        """Let the tasks take an atom of the source."""
        self._flow = FlowEvents(self._plan, atom)
        self._packs = len(atom) >= PACKED_MIN

    def take_questions(self, task: TaskType, questions: Sequence[PortalQuestion]) -> None:
        """Let a task reply to questions, all of which are to the same portal."""
        keys = [task.key_at(question.key) for question in questions]
        handler = handler_for(task, questions[0])
        self._flow = FlowEvents(self._plan)
        first = partial(self.take_pieces, handler, [(keys, None, questions)])
        self.run((task, *self._plan.behind[task.name]), first)

    def take_next(self, task: TaskType, place: Place) -> None:
        """Let a task take the first item in the line of a key."""
        item = self._waits.lines.take(task, place)
        assert item is not None, "the caller has looked"
        piece = [task.key_at(place[1])], None, [item]
        self._flow = FlowEvents(self._plan)
        first = partial(self.take_pieces, handler_for(task, item), [piece], is_first_in_line=True)
        self.run((task, *self._plan.behind[task.name]), first)

    def take_answers(self, task: TaskType, answers: Sequence[Answer]) -> None:
        """Let the handlers of a task go on."""

        def resume_all() -> None:
            for answer in answers:
                self._resume(answer)

        self._flow = FlowEvents(self._plan)
        self.run((task, *self._plan.behind[task.name]), resume_all)

    def run(self, tasks: Sequence[TaskType], first: Callable[[], None] | None = None) -> None:
        """Run tasks in order, and publish the atom; `first` gives the first task its input in place of the events."""
        for task in tasks:
            self.begin_task(task)
            if first is None:
                self.take_pieces(event_handler(task), self.pieces(task))
            else:
                first()
                first = None
            if task.completion is not None:
                self.take_pieces(handler_for(task, None), [((None,), (None,), (None,))])
        if self.pending is not None:
            self.pack()
            self.output.publish_packed()
        elif self._flow.has_events:
            workflow = self._plan.workflow
            self.output.publish(self._flow.encoded(workflow.last, workflow.events))

    def begin_task(self, task: TaskType) -> None:
        """Let a task run."""
        self.outputs = self._flow.outputs[task.name] = []
        if self._packs and task is self._plan.sink_task and not self.is_eager:
            self.pending, self._packer = deque(), task.output

    def pieces(self, task: TaskType) -> Iterator[Piece]:
        """Return the events of a task, in order."""
        assert task.event is not None, "an application was built with the task"
        return self._flow.taken(self._plan.nodes[task.name].inputs[0], task.event)

    def take_pieces(  # noqa: C901, PLR0915 -- calls between the parts of a turn would cost as much as a turn
        self, handler: Handler, pieces: Iterable[Items], *, is_first_in_line: bool = False
    ) -> None:
        """Call a handler for each item of some pieces, in order; no other code lets a handler begin.

        Args:
            is_first_in_line: Whether the items may overtake those in the line of their key.
        """
        task, noted_as, function, decode, out = handler
        txn, missing, cleared = self._txn, self.missing, self.cleared
        starts: dict[Any, Start] = {}
        takes_out = out is not None
        begin = completing_start if noted_as == COMPLETE else start_of
        is_noted = noted_as in task.noted
        may_wait = self.may_wait(task) and noted_as != COMPLETE and not is_first_in_line
        for keys, values, items in pieces:
            columns: Iterable[tuple[Any, Any, Held | None, Start | None, int]]
            if may_wait:
                columns = self._unheld(handler, keys, values, items)
            else:
                decoded = map(decode, items) if values is None else values
                may_know = len(keys) > 1 and are_remembered(keys)
                known_starts = map(starts.get, keys) if may_know else _NO_START
                columns = zip(keys, decoded, items, known_starts, self.turns, strict=False)
            for key, value, item, known, turn in columns:
                start = known or begin(task, key, turn)
                if known is None and type(key) in REMEMBERED:
                    starts[key] = start
                if start[2] != turn and (
                    missing or cleared
                ):  # handlers before it have used the rows
                    self.look_back(task, start[0][1])
                self.number = txn.turn = turn
                self.running = task
                self._key = key
                self._item = item
                self._start = start
                if is_noted:
                    self._note_from_start(start)
                result = function(start[1], value, out) if takes_out else function(start[1], value)
                if result is not None:
                    self._finish(task, item, result)
                if self._handler is not None:
                    self._end()
                self.running = None
                txn.turn = 0
            if self.pending:
                self.pack()

    def may_wait(self, task: TaskType) -> bool:
        """Say whether an item of a task may have to wait behind others of its key."""
        return task.exclusive or self._waits.lines.has_items(task)

    def _unheld(
        self,
        handler: Handler,
        keys: Sequence[Any],
        values: Sequence[Any] | None,
        items: Sequence[Held | None],
    ) -> Iterator[tuple[Any, Any, Held, None, int]]:
        """Yield the items that may be taken, each when it is its turn; hold back the others behind waiting handlers."""
        lines, task = self._waits.lines, handler.task
        for key, value, item in zip(keys, values or repeat(None), items, strict=False):
            assert item is not None, "the end of an atom waits for nothing"
            place = (task.name, task.key_text(key))
            if lines.is_blocked(task, place):
                lines.hold(task, place, item)
            else:
                given = handler.decode(item) if values is None else value
                yield key, given, item, None, next(self.turns)

    def _note_from_start(self, start: Start) -> None:
        """Note the reads of the running handler from its start, because it may wait."""
        place, instance, _ = start
        self._start = place, instance, self.number  # so none of its reads is missed
        self._note_live(state_keys(self._waiting().task, place[1]))

    def _finish(self, task: TaskType, item: Held | None, result: Any) -> None:
        """Take the result of a handler that has run; a coroutine has not begun yet."""
        if type(result) is CoroutineType and item is not None:
            handler = self._waiting()
            handler.coroutines[0] = result
            self._require_record(handler)
            self._advance(handler, 0)
            return
        if result is not None:
            refuse_generator(task, result)
        if type(item) is PortalQuestion:
            self._reply(item, result)

    def _advance(self, handler: Waiting, index: int) -> None:
        """Run a coroutine of a handler until it waits or ends."""
        coroutine = handler.coroutines[index]
        assert coroutine is not None, "it waits"
        try:
            awaited = coroutine.send(None)
        except StopIteration as stop:
            if index == 0 and type(handler.item) is PortalQuestion:
                self._reply(handler.item, stop.value)
            return
        except RuntimeError as error:
            refuse_asyncio(error, handler.task)
            raise
        if not handler.accept(awaited, index):
            raise UserError(
                f"a handler of {handler.task.name} awaits {type(awaited).__name__}; it can await its own requests "
                "to portals, each once"
            )
        self._waits.awaited.append((handler.id, awaited.id))

    def _resume(self, answer: Answer) -> None:
        """Hand over a reply, and let the handler go on that waits for it."""
        waits, services = self._waits, self._services
        handler = waits.handler(answer.handler)
        if handler is None:
            return
        waits.touch(handler)
        if handler.timers:
            waits.end_time(handler, answer.id)
        self.begun.append(handler)
        index = handler.awaiting.get(answer.id)
        if index is None:  # a coroutine that awaits it later has it at once
            handler.turns.append(Turn(answer))
            handler.settle(answer)
            return
        if not handler.coroutines:  # it was stored, and not kept
            Resumption(services.app, services.executor, handler, waits.abandoned).run()
        del handler.awaiting[answer.id]
        self._continue(handler, answer)
        self._advance(handler, index)
        self._end()
        if not handler.awaiting:
            waits.drop(handler)

    def _continue(self, handler: Waiting, answer: Answer) -> None:
        """Begin the next turn of a handler."""
        last, step_id = handler.last_turn(), self._txn.request_id
        if self.missing or self.cleared:
            self.look_back(handler.task, handler.place[1])
        self.number = self._txn.turn = next(self.turns)
        self._start = (handler.place, None, self.number)
        self.running, self._key, self._item = handler.task, handler.key, handler.item
        turn = Turn(answer, step_id, self._txn.time_us, self.number)
        self._handler, self._turn = handler, turn
        if handler.state:
            self._note_live(handler.state.load(self._txn, self._topology.rows))
        if handler.task.has_state:
            self._note_live(state_keys(handler.task, handler.place[1]))
        if last.step == step_id:
            self._note_live(last.rows)
        if handler.state:
            handler.state.take_up(self._txn)
        handler.turns.append(turn)
        handler.settle(answer)

    def _reply(self, question: PortalQuestion, value: Any) -> None:
        reply_type = self._topology.portals[question.portal].reply_type
        assert reply_type is not None, "an application was built with the portal"
        data = reply_type.encode(value)
        self.output.count(data)
        self._answer(question, Answer(question.id, question.handler, data))

    def _answer(self, question: PortalQuestion, answer: Answer) -> None:
        asker = (question.workflow, question.task)
        self.output.answers.setdefault(asker, []).append(answer)

    def follow(self, coroutine: HandlerCoroutine) -> None:
        """Run a coroutine on behalf of the running handler; see `Ask.then`."""
        if self.running is None or (self._item is None and self.running.is_keyed):
            coroutine.close()  # else CPython warns that it was never awaited
            what = (
                ""
                if self.running is None
                else ", and on_atom_complete of a task with keys has no current key: ask in on_event"
            )
            raise UserError(f"only the handler of a task can name a method for a reply{what}")
        handler = self._waiting()
        handler.coroutines.append(coroutine)
        self._require_record(handler)
        self._advance(handler, len(handler.coroutines) - 1)
