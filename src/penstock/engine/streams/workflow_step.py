"""One step of a workflow: it takes an atom, questions or answers, and publishes one atom.

The step is a transaction. The tasks run one after the other, each with all events of the atom that reach it, in
order; then its `on_atom_complete` runs, and then the next task begins. Functions between the tasks run when a
task asks for its events. The caller undoes a step that fails.
"""

from collections.abc import Callable, Coroutine, Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.flow_events import FlowEvents
from penstock.engine.streams.waits import Answer, Held, PortalQuestion, Waiting, Waits
from penstock.errors import LimitExceeded, UserError
from penstock.model.application import App
from penstock.model.call import Call, encoded, returns_of
from penstock.model.context import Transaction, current
from penstock.model.reply import decode_result
from penstock.model.streams.ask import Ask
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import Atom
from penstock.model.streams.task_type import TaskType
from penstock.model.streams.workflow_plan import WorkflowPlan


class TaskOutput:
    """The `out` of a task's handlers."""

    __slots__ = ("_task",)

    def __init__(self, task: TaskType) -> None:
        self._task = task

    def __call__(self, event: Any, /) -> None:
        """Publish an event in the running step, also if an earlier step handed out this object."""
        step = current().step
        if step is None:
            raise UserError(f"the output of {self._task.name} is used outside of its handlers")
        step.publish(self._task, event)


class WorkflowStep:
    """Runs one step of one workflow.

    Attributes:
        events: The published atom, after `run`.
        requests: The requests to entities that its handlers have sent: ids and bodies.
        questions: The requests that its handlers have sent, by the name of the portal.
        answers: The replies that its handlers have given, by the workflow and the task of the asker.
        resumed: The handlers that the step has begun or continued; they are lost if the step fails.
    """

    def __init__(
        self,
        plan: WorkflowPlan,
        app: App,
        waits: Waits,
        txn: Transaction,
        keys: Callable[[str], list[EntityKey]],
        size_max: int,
    ) -> None:
        """Prepare a step.

        Args:
            plan: The workflow.
            app: The application.
            waits: The waiting handlers; the step changes them.
            txn: The transaction of the step.
            keys: Returns the stored keys that begin with a prefix, in order.
            size_max: The most bytes of all events, questions and answers together.
        """
        self._plan = plan
        self._app = app
        self._topology = app.topology
        self._waits = waits
        self._txn = txn
        self._keys = keys
        self._size_left = size_max
        self._size_max = size_max
        self._flow = FlowEvents(plan)
        self._running: tuple[TaskType, Any] | None = None
        self._asked = 0
        self.events: list[bytes] = []
        self.requests: list[tuple[RequestId, bytes]] = []
        self.questions: dict[str, list[PortalQuestion]] = {}
        self.answers: dict[tuple[str, str], list[Answer]] = {}
        self.resumed: list[Waiting] = []

    def take_atom(self, atom: Atom) -> None:
        """Run an atom of the source through all tasks."""
        self._flow.atom = atom
        self._run(self._plan.tasks, None)

    def take_questions(self, task: TaskType, questions: Sequence[PortalQuestion]) -> None:
        """Let a task reply to questions."""

        def reply_all() -> None:
            for question in questions:
                self._take(task, question.key, question)

        self._run((task, *self._plan.behind[task.name]), reply_all)

    def take_answers(self, task: TaskType, answers: Sequence[Answer]) -> None:
        """Let the handlers of a task go on."""

        def resume_all() -> None:
            for answer in answers:
                self._resume(answer)

        self._run((task, *self._plan.behind[task.name]), resume_all)

    def _run(self, tasks: Sequence[TaskType], first: Callable[[], None] | None) -> None:
        """Run tasks in order; `first` gives the first one its input in place of the events."""
        for task in tasks:
            if first is not None:
                first()
                first = None
            else:
                for key, event in self._flow.events(self._plan.nodes[task.name].inputs[0]):
                    assert task.event is not None, "an application was built with the task"
                    self._take(task, key, task.event.encode(event))
            self._complete(task)
        encode = self._plan.workflow.events.encode
        for _, event in self._flow.events(self._plan.workflow.last):
            self._add(self.events, encode(event))

    def _complete(self, task: TaskType) -> None:
        if task.completion is None:
            return
        self._running = (task, None)
        instance = task.completing_instance()
        arguments = [TaskOutput(task)] if task.completion_takes_out else []
        self._refuse_generator(task, task.completion(instance, *arguments))
        self._running = None

    def _take(self, task: TaskType, key: Any, item: Held) -> None:
        """Give a task an event or a question, or hold it back behind a waiting handler."""
        place = (task.name, task.key_text(key))
        if task.exclusive and self._waits.is_busy(place):
            self._waits.hold(place, item)
            return
        handler, takes_out, value = self._handler(task, item)
        question = item if isinstance(item, PortalQuestion) else None
        instance = task.rows.of_text(place[1])
        self._running = (task, key)
        result = (
            handler(instance, value, TaskOutput(task)) if takes_out else handler(instance, value)
        )
        if type(result) is CoroutineType:
            self._advance(Waiting(task, key, place, result, question))
        else:
            self._refuse_generator(task, result)
            if question is not None:
                self._reply(question, result)
        self._running = None

    @staticmethod
    def _handler(task: TaskType, item: Held) -> tuple[Callable[..., Any], bool, Any]:
        """Return the handler of an event or a question, whether it takes `out`, and the decoded value."""
        if isinstance(item, PortalQuestion):
            responder = task.responders[item.portal]
            assert responder.portal.request_type is not None, "an application was built with it"
            value = responder.portal.request_type.decode(item.data)
            return responder.function, responder.takes_out, value
        assert task.event is not None, "an application was built with the task"
        handler: Callable[..., Any] = task.cls.on_event  # type: ignore[attr-defined]
        return handler, task.takes_out, task.event.decode(item)

    @staticmethod
    def _refuse_generator(task: TaskType, result: Any) -> None:
        if type(result) in (GeneratorType, AsyncGeneratorType, CoroutineType):
            raise UserError(
                f"a handler of {task.name} returned a {type(result).__name__}, which would never run; publish events "
                "with `out(event)`"
            )

    def _advance(self, handler: Waiting) -> None:
        """Run a handler until it waits or ends."""
        self._running = (handler.task, handler.key)
        self.resumed.append(handler)
        try:
            awaited = handler.coroutine.send(None)
        except StopIteration as stop:
            self._running = None
            if handler.question is not None:
                self._reply(handler.question, stop.value)
            return
        self._running = None
        waits = self._waits
        ask_id = awaited.id if type(awaited) is Ask else ""
        if waits.asks.get(ask_id) is not awaited or ask_id in waits.waiting:
            raise UserError(
                f"a handler of {handler.task.name} awaits {type(awaited).__name__}; it can await its own requests "
                "to portals, each once"
            )
        waits.wait(ask_id, handler)

    def _resume(self, answer: Answer) -> None:
        """Hand over a reply, and let the handler go on that waits for it."""
        ask, handler = self._waits.answer(answer.id)
        if answer.failure is None:
            ask.reply = answer.data
        else:
            ask.fail(f"{answer.failure.kind}: {answer.failure.message}")
        if handler is None:
            return
        self._advance(handler)
        while (item := self._waits.next_held(handler.place)) is not None:
            self._take(handler.task, handler.key, item)

    def _reply(self, question: PortalQuestion, value: Any) -> None:
        reply_type = self._topology.portals[question.portal].reply_type
        assert reply_type is not None, "an application was built with the portal"
        data = reply_type.encode(value)
        self._count(len(data))
        asker = (question.workflow, question.task)
        self.answers.setdefault(asker, []).append(Answer(question.id, data))

    def ask(self, portal: Portal[Any, Any], request: Any) -> Ask[Any]:
        """Send a request to a portal on behalf of the running handler; see `Portal.ask`."""
        if self._running is None:
            raise UserError(f"portal {portal.name}: only the handler of a task can ask")
        if self._topology.portals.get(portal.name) is not portal or portal.request_type is None:
            raise UserError(f"{portal.where}: no task of this application replies to {portal.name}")
        asker, key = self._running
        _, responding = self._topology.responders[portal.name]
        data = portal.request_type.encode(request)
        if portal.key is not None:
            key = portal.key(portal.request_type.decode(data))
        elif responding.is_keyed and not asker.is_keyed:
            raise UserError(
                f"portal {portal.name}: {responding.name} has keys, and {asker.name} asks without one; declare the "
                "portal with key="
            )
        responding.key_text(
            key
        )  # refuses a value that cannot be a key, here and not at the other task
        self._count(len(data))
        assert portal.reply_type is not None, "an application was built with the portal"
        ask = self._new_ask(f"portal {portal.name}", portal.reply_type.decode)
        question = PortalQuestion(
            ask.id, self._plan.workflow.flow_name, asker.name, portal.name, key, data
        )
        self.questions.setdefault(portal.name, []).append(question)
        return ask

    def _new_ask(self, target: str, decode: Callable[[bytes], Any]) -> Ask[Any]:
        ask: Ask[Any] = Ask(f"{self._txn.request_id}?{self._asked}", target, decode)
        self._asked += 1
        self._waits.send(ask)
        return ask

    def call(self, call: Call[Any]) -> Ask[Any]:
        """Send a request to an entity on behalf of the running handler; see `model.streams.ask.ask`."""
        if self._running is None:
            raise UserError(f"{call.method}: only the handler of a task can ask")
        body, _ = encoded(self._app, call)
        self._count(len(body))
        returns = returns_of(self._app, call)
        ask = self._new_ask(
            ".".join(filter(None, (call.entity, call.method))),
            lambda data: decode_result(data, returns),
        )
        self._waits.send_request(ask.id, self._plan.workflow.flow_name, self._running[0].name)
        self.requests.append((RequestId(ask.id), body))
        return ask

    def follow(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine on behalf of the running handler; see `Ask.then`."""
        if self._running is None:
            coroutine.close()
            raise UserError("only the handler of a task can name a method for a reply")
        task, key = running = self._running
        self._advance(Waiting(task, key, (task.name, task.key_text(key)), coroutine, None))
        self._running = running

    def publish(self, task: TaskType, event: Any) -> None:
        """Add an event to the output of the running task."""
        if self._running is None or self._running[0] is not task:
            raise UserError(f"the output of {task.name} is used outside of its handlers")
        assert task.output is not None, "its `out` has a declared type"
        data = task.output.encode(event)
        self._count(len(data))
        self._flow.outputs.setdefault(task.name, []).append((self._running[1], data))

    def _add(self, events: list[bytes], data: bytes) -> None:
        self._count(len(data))
        events.append(data)

    def _count(self, size: int) -> None:
        self._size_left -= size + 1
        if self._size_left < 0:
            raise LimitExceeded(
                f"the events of the step take more than output_bytes = {self._size_max} bytes"
            )

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the stored keys that begin with a prefix, in order."""
        return self._keys(prefix)

    def blank_row(self, name: str) -> bytes:
        """Return the row of a key without state, by the name of its entity class."""
        return self._topology.blank_rows[name]
