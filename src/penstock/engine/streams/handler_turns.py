"""The turns of the handlers of one workflow step: what a handler reads, asks and publishes while it runs.

A handler runs in turns: from its start, or from a reply, until it ends or waits. `WorkflowStep` orders the turns; this
module gives each of them its surroundings.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.cascade import LaterRecord
from penstock.engine.streams.derived_ids import part_id, timeout_id
from penstock.engine.streams.handler_start import (
    Start,
    TaskOutput,
    instance_of,
    question_of,
    state_keys,
)
from penstock.engine.streams.key_shares import KeyShare
from penstock.engine.streams.personal_work import (
    readable_body,
    readable_question,
    reply_decoder,
)
from penstock.engine.streams.step_output import StepOutput
from penstock.engine.streams.step_services import (
    StepServices,
    Unfit,
    Unrecorded,
    kind_of,
    listing_error,
)
from penstock.engine.streams.waiting import (
    Held,
    Place,
    PortalQuestion,
    Turn,
    Waiting,
    handler_of,
)
from penstock.engine.streams.waits import Asker
from penstock.errors import LimitExceeded, Unencodable, UserError
from penstock.model.call import Call, returns_of, sent
from penstock.model.context import Transaction
from penstock.model.entity_type import EntityType
from penstock.model.request import encode_continuation
from penstock.model.streams.ask import Ask
from penstock.model.streams.event_type import EventType
from penstock.model.streams.portal import Portal
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.workflow_plan import WorkflowPlan


class HandlerTurns:
    """The turns of one step of one workflow, one after the other.

    Attributes:
        running: The task whose handler runs; None between two handlers.
        pending: The events that `pack` has not encoded; None if each event is encoded when it is published.
        is_unfit: Whether a pending event cannot be encoded, or is beyond the limit of bytes. The caller takes the step
            again, without pending events, so that the handler which has published the event gets the error.
        begun: The handlers that the step has begun or continued, and whose coroutines end if the step fails.
        is_unrecorded: Whether a handler waits that has read rows which the step has not noted. The caller takes
            the step again, which notes them then.
        has_listed_keys: Whether a handler has asked for all keys of its task.
        shared_writes: The rows that other tasks have changed for the step (`key_shares`).
        missing: The rows that the step has looked for, and that are not stored.
        changed: Those of them that a handler has changed before another one began.
    """

    # Defaults of the class cost no step anything.
    _out: TaskOutput | None = None  # of the running task
    _packer: EventType[Any] | None = None  # of the pending events
    running: TaskType | None = None
    _key: Any = None  # of the running handler, as the next attributes
    _item: Held | None = None
    _handler: Waiting | None = None
    _turn: Turn | None = None
    _start: Start = (("", ""), None, 0)  # of the running handler
    _missed = -1  # the last turn that has read a row unnoted
    _listed = -1  # the last turn that has asked for all keys of its task
    _share: KeyShare | None = None
    _turns = 0
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
        self._outputs: list[tuple[Any, bytes]] = []
        self.begun: list[Waiting] = []
        self.shared_writes: dict[EntityKey, bytes | None] = {}
        self.missing: set[EntityKey] = set()
        self.changed: set[EntityKey] = set()
        self.cleared: set[EntityKey] = set()

    def _begin(self, task: TaskType, key: Any, place: Place, item: Held | None) -> Any:
        """Begin a handler, and return its `self`."""
        if self.missing or self.cleared:
            self.look_back(task, place[1])
        self._enter(task, key, place, item)
        known: Any = task.rows.prefix + place[1]
        instance = self._txn.instances.get(known)
        if instance is None:
            instance = instance_of(task, place[1])
        if task.noted and kind_of(item) in task.noted:
            self._waiting()
            self._note_live(state_keys(task, place[1]))
        elif type(instance) is not task.rows.unloaded or task.shared is not None:
            self._missed = self._turns
        return instance

    def _enter(self, task: TaskType, key: Any, place: Place, item: Held | None) -> None:
        """Let a handler run."""
        self._turns += 1
        self._txn.turn = self._turns
        self._start = (place, None, self._turns)
        self.running, self._key, self._item = task, key, item
        self._handler = self._turn = None

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
                else f"{self._txn.request_id}!{self._turns}"
            )
            handler = Waiting(handler_id, self.running, self._key, self._start[0], self._item)
            handler.coroutines.append(None)
            self._handler = handler
            self.begun.append(handler)
            self._turn = Turn(None, self._txn.request_id, self._txn.time_us, self._turns)
            handler.turns.append(self._turn)
        return self._handler

    def _require_record(self, handler: Waiting) -> None:
        """Refuse that the running handler waits if one of its reads has not been noted."""
        task = handler.task
        has_missed = self._turns == self._missed or self._turns != self._start[2]
        if has_missed and task.has_state:
            self.is_unrecorded = True
            task.noted.add(kind_of(handler.item))
            raise Unrecorded
        if self._turns == self._listed:
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
        """Send a request to an entity on behalf of the running handler; see `model.entity_ask.ask`."""
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
        self._outputs.append((self._key, data))

    def pack(self) -> None:
        """Encode the pending events, if there are any; after a `RecursionError` they are still pending.

        Raises:
            Unfit: One of them cannot be encoded, or the step has reached its limit of bytes.
        """
        if self.pending:
            values, emptied = [*self.pending], deque[Any]()
            is_fit = self._take_values(values)
            self.pending = emptied  # without a call since the values were taken, because it can raise `RecursionError`
            if not is_fit:
                self.is_unfit = True
                raise Unfit

    def _take_values(self, values: list[Any]) -> bool:
        """Encode values and take all of them; return False, and take none, if one is unfit."""
        assert self._packer is not None, "a task has published them"
        if self._share is None:
            packed = self._packer.packed(values)
            return packed is not None and self.output.pack(packed, len(values))
        encoded = self._packer.encoded(values)
        if encoded is None:
            return False
        outputs = [(None, data) for data in encoded]
        self.output.use(encoded)
        self._outputs += outputs
        return True

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the stored keys that begin with a prefix, in order.

        Raises:
            UserError: The running handler waits, or has waited, for a reply.
        """
        handler = self._handler
        if handler is not None and handler.coroutines != [None]:
            raise listing_error(handler.task)
        self._listed, self.has_listed_keys = self._turns, True
        return self._services.keys(prefix)

    def note_row(self, key: EntityKey, row: bytes) -> None:
        """Note that the running handler is the first handler of the step that reads a row."""
        if self._turn is None:
            self._missed = self._turns
        else:
            self._turn.rows[key] = row

    def note_joined(
        self, entity_type: EntityType, key: EntityKey, values: Mapping[str, Any]
    ) -> None:
        """Note that the running handler begins to use an instance that another handler of the step has used."""
        if self._turn is None:
            self._missed = self._turns
        elif key not in self._turn.rows:
            self._turn.rows[key] = entity_type.encode(values)

    def note_missing(self, key: EntityKey) -> bytes:
        """Note that a row is missing, and return the row of a key without state."""
        self.missing.add(key)
        return self._topology.blank_rows[key.partition("/")[0]]

    def look_back(self, task: TaskType, key_text: str) -> None:
        """Note whether the handlers before the next one have changed attributes that were missing or cleared.

        The next handler may change them back. Then the key has state nevertheless, so its row is stored.
        """
        for key in state_keys(task, key_text):
            instance = self._txn.instances.get(key)
            if instance is None or (key not in self.missing and key not in self.cleared):
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
