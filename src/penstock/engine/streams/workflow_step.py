"""One step of a workflow: it takes an atom, questions or answers, and publishes one atom.

The step is a transaction. The tasks run one after the other, each with all events of the atom that reach it, in
order; then its `on_atom_complete` runs, and then the next task begins. Functions between the tasks run when a
task asks for its events. The caller undoes a step that fails.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from types import CoroutineType
from typing import Any, Final

from penstock.engine.streams.direct_task import DirectTask
from penstock.engine.streams.flow_events import UNDECODED, FlowEvents, Piece
from penstock.engine.streams.handler_start import (
    HandlerStarts,
    refuse_generator,
    start_handler,
    state_keys,
    task_output,
)
from penstock.engine.streams.handler_turns import HandlerTurns
from penstock.engine.streams.key_shares import KeyShare, SharedTurns, divided_tasks
from penstock.engine.streams.resumption import Resumption
from penstock.engine.streams.step_services import Unfit
from penstock.engine.streams.waiting import (
    Answer,
    HandlerCoroutine,
    Held,
    Place,
    PortalQuestion,
    Turn,
    Waiting,
    refuse_asyncio,
)
from penstock.errors import UserError
from penstock.model.streams.stream import Atom
from penstock.model.streams.task_type import ONLY_KEY, TaskType

PACKED_MIN: Final = 64
"""The least events of an atom whose published events are encoded together: below, it costs more than it saves."""


class WorkflowStep(HandlerTurns):
    """Runs one step of one workflow.

    Attributes:
        is_eager: Whether each event is encoded when it is published, so that no event is ever pending.
    """

    _flow: FlowEvents  # of all ways to take something but `_run_direct`, which needs none
    _packs = False
    is_eager = False

    def take_atom(self, atom: Atom, direct: DirectTask | None = None) -> None:
        """Run an atom of the source through all tasks.

        Args:
            direct: The direct task of the workflow, if it has one.
        """
        if direct is not None and len(atom) == 1 and not direct.task.noted:
            self._run_direct(direct, atom[0])
            return
        self._flow = FlowEvents(self._plan, atom)
        self._packs = len(atom) >= PACKED_MIN
        self._run(self._plan.tasks, None)

    def _run_direct(self, direct: DirectTask, data: bytes) -> None:
        """Run the only event of an atom through the only task: `_run` without loops.

        A handler has as many frames below it as in `_take_piece`, so its depth does not depend on the size of an atom.
        """
        self._take_only_event(direct, data)
        self.running = None
        self._txn.turn = 0
        self.output.publish(self._outputs)

    def _take_only_event(self, direct: DirectTask, data: bytes) -> None:
        """Give the only event of an atom to the only task: `_take_events` for it."""
        task = direct.task
        value = direct.decode(data)
        key = None if direct.key is None else direct.key(value)
        text = task.key_text(key)
        instance = task.rows.of_text(text)
        self._turns = self._txn.turn = 1
        self.running = task
        self._key = key
        self._item = data
        is_fresh = type(instance) is task.rows.unloaded and task.shared is None
        self._start = (task.name, text), instance, 1 if is_fresh else 0
        self._call_directly(direct, instance, value, data)

    def _call_directly(self, direct: DirectTask, instance: Any, value: Any, data: bytes) -> None:
        """Call the handler of the only event: `_take_piece` for it.

        Args:
            direct: The only task.
            data: The encoded event.
        """
        handler: Any = direct.task.cls.on_event  # type: ignore[attr-defined]
        result = handler(instance, value, *direct.out)
        if result is not None:
            self._finish(direct.task, data, result)
        if self._handler is not None:
            self._end()

    def take_share(self, atom: Atom, share: KeyShare) -> None:
        """Run the handlers of an atom whose keys are in a share; publish nothing.

        Raises:
            UserError: A handler needs the other keys, or waits: a single task must run the step.
        """
        self._flow = FlowEvents(self._plan, atom)
        self._packs = len(atom) >= PACKED_MIN
        share.tasks = []  # of an attempt before this one
        self._share = share
        self._run(divided_tasks(self._plan), None)
        if self.begun or self.has_listed_keys:
            raise UserError("the atom cannot be divided")

    def _begin_task(self, task: TaskType) -> None:
        """Let a task run."""
        self._outputs = self._flow.outputs[task.name] = []
        self._out = task_output(task)
        if self._packs and task is self._plan.sink_task and not self.is_eager:
            self.pending, self._packer = deque(), task.output

    def take_shared(self, atom: Atom, shared: SharedTurns) -> None:
        """Run an atom of the source through all tasks, with the turns of shares where these have run."""
        step, tasks = self._txn.request_id, self._plan.tasks
        self._flow = FlowEvents(self._plan, atom)
        self._packs = len(atom) >= PACKED_MIN
        done = 0
        for turns in shared.turns(step):
            self._begin_task(tasks[done])
            done += 1
            self._turns += turns.turns
            if not self.output.pack(turns.outputs, len(turns.sizes)):
                self.is_unfit = True  # the handler that has exceeded the limit gets the error
                raise Unfit
            if self.pending is None:
                self._outputs += [(None, data) for data in turns.events()]
        self.shared_writes = shared.writes(step)
        self._run(tasks[done:], None)

    def take_questions(self, task: TaskType, questions: Sequence[PortalQuestion]) -> None:
        """Let a task reply to questions."""

        def reply_all() -> None:
            for question in questions:
                self._take(task, task.key_at(question.key), question.key, question)

        self._flow = FlowEvents(self._plan)
        self._run((task, *self._plan.behind[task.name]), reply_all)

    def take_next(self, task: TaskType, place: Place) -> None:
        """Let a task take the first item in the line of a key."""

        def take() -> None:
            item = self._waits.lines.take(task, place)
            assert item is not None, "the caller has looked"
            self._start_handler(task, task.key_at(place[1]), place, item)

        self._flow = FlowEvents(self._plan)
        self._run((task, *self._plan.behind[task.name]), take)

    def take_answers(self, task: TaskType, answers: Sequence[Answer]) -> None:
        """Let the handlers of a task go on."""

        def resume_all() -> None:
            for answer in answers:
                self._resume(answer)

        self._flow = FlowEvents(self._plan)
        self._run((task, *self._plan.behind[task.name]), resume_all)

    def _run(self, tasks: Sequence[TaskType], first: Callable[[], None] | None) -> None:
        """Run tasks in order; `first` gives the first one its input in place of the events."""
        for task in tasks:
            self._begin_task(task)
            if first is not None:
                first()
                first = None
            else:
                self._take_events(task)
            if task.completion is not None:
                self._complete(task)
        if self._share is not None:
            return
        if self.pending is not None:
            self.pack()
            self.output.publish_packed()
        elif self._flow.has_events:
            workflow = self._plan.workflow
            self.output.publish(self._flow.encoded(workflow.last, workflow.events))

    def _complete(self, task: TaskType) -> None:
        text = "" if task.is_keyed else ONLY_KEY
        instance = self._begin(task, None, (task.name, text), None)
        refuse_generator(task, start_handler(task, None, instance, self._out))
        self._end()

    def _take_events(self, task: TaskType) -> None:
        """Give a task its events, in order."""
        assert task.event is not None, "an application was built with the task"
        share, first, places = self._share, self._turns, array("I")
        has_lines = task.exclusive or self._waits.lines.has_items(task)
        if share is not None and (task.noted or has_lines):
            raise UserError("a handler waits")
        starts = HandlerStarts(task)
        for piece in self._flow.taken(self._plan.nodes[task.name].inputs[0], task.event):
            if has_lines or task.noted:
                self._take_each(task, piece)
                continue
            last = self._turns + len(piece[0])
            turns: Iterable[int] = range(self._turns + 1, last + 1)
            if share is not None:
                piece, turns = share.own(task, piece, turns)
                turns = self._placed(turns, places)
            self._take_piece(starts, piece, turns)
            self._turns = last
            self.pack()
        if share is not None:
            share.note(task, self._turns - first, places, [data for _, data in self._outputs])

    def _placed(self, turns: Iterable[int], places: "array[int]") -> Iterator[int]:
        """Yield turns, and note after each of them the place of its outputs."""
        for turn in turns:
            yield turn
            published = len(self._outputs) + len(self.pending or ())
            places.extend([turn] * (published - len(places)))

    def _take_each(self, task: TaskType, piece: Piece) -> None:
        """Give a task events, some of which may wait."""
        keys, events, encoded = piece
        decoded = repeat(UNDECODED) if events is None else events
        for key, event, data in zip(keys, decoded, encoded, strict=False):
            self._take(task, key, task.key_text(key), data, event)

    def _take_piece(self, starts: HandlerStarts, piece: Piece, turns: Iterable[int]) -> None:
        """Give a task events, in order.

        This is `_take` for each of them. Tasks take most events without a wait, and then the calls between the parts
        of a turn would cost as much as the turn, so this loop has them in one place.
        """
        task, txn, out = starts.task, self._txn, self._out
        handler: Any = task.cls.on_event  # type: ignore[attr-defined]
        takes_out = task.takes_out
        keys, decoded, encoded = piece
        events = map(task.event.decode, encoded) if decoded is None else decoded  # type: ignore[union-attr]
        columns = zip(keys, events, encoded, starts.known(keys), turns, strict=True)
        missing, cleared = self.missing, self.cleared
        for key, event, data, known, turn in columns:
            self._start = start = known or starts.of(key, turn)
            if start[2] != turn and (missing or cleared):  # handlers before it have used the rows
                self.look_back(task, start[0][1])
            self._turns = txn.turn = turn
            self.running = task
            self._key = key
            self._item = data
            result = handler(start[1], event, out) if takes_out else handler(start[1], event)
            if result is not None:
                self._finish(task, data, result)
            if self._handler is not None:
                self._end()
            self.running = None
            txn.turn = 0

    def _take(
        self, task: TaskType, key: Any, text: str, item: Held, event: Any = UNDECODED
    ) -> None:
        """Give a task an event or a question, or hold it back behind a waiting handler.

        Args:
            key: The key; None without keys.
            item: The encoded event, or the question.
            event: The decoded event, if handlers can share it.
        """
        place, lines = (task.name, text), self._waits.lines
        if (task.exclusive or lines.has_items(task)) and lines.is_blocked(task, place):
            lines.hold(task, place, item)
            return
        self._start_handler(task, key, place, item, event)

    def _start_handler(
        self, task: TaskType, key: Any, place: Place, item: Held, event: Any = UNDECODED
    ) -> None:
        """Let a handler take an event or a question."""
        instance = self._begin(task, key, place, item)
        self._finish(task, item, start_handler(task, item, instance, self._out, event))
        self._end()

    def _finish(self, task: TaskType, item: Held, result: Any) -> None:
        """Take the result of a handler that has run; a coroutine has not begun yet."""
        if type(result) is CoroutineType:
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
        waits.end_time(handler, answer.id)
        self.begun.append(handler)
        index = handler.awaiting.get(answer.id)
        if index is None:
            handler.turns.append(Turn(answer))
            handler.settle(answer)
            return
        if not handler.coroutines:
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
        self._enter(handler.task, handler.key, handler.place, handler.item)
        turn = Turn(answer, step_id, self._txn.time_us, self._turns)
        self._handler, self._turn = handler, turn
        self._note_live(handler.state.load(self._txn, self._topology.rows))
        if handler.task.has_state:
            self._note_live(state_keys(handler.task, handler.place[1]))
        if last.step == step_id:
            self._note_live(last.rows)
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
            coroutine.close()
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
