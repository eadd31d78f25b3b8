"""A resumption: a stored handler runs again, from its start to the point where it waits, without effect.

A handler that waits longer than a log record is stored as its history. When the reply comes, the handler runs again:
each turn has the rows, the time, the randomness and the replies of its first run. Its writes and its events are
dropped, and its requests have the ids of the first run. A handler that does something else than in its first run is
not deterministic, and fails the step.
"""

from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from types import CoroutineType
from typing import Any

from penstock.base.ids import EntityKey, RequestId
from penstock.base.instants import instant_of
from penstock.engine.execute import Executor
from penstock.engine.failure import Escape
from penstock.engine.streams.handler_start import handler_for, instance_of, question_of
from penstock.engine.streams.personal_work import (
    readable_body,
    readable_question,
    reply_decoder,
)
from penstock.engine.streams.waiting import HandlerCoroutine, Turn, Waiting, hash_of
from penstock.errors import UserError
from penstock.model.application import App
from penstock.model.call import Call, returns_of, sent
from penstock.model.context import Transaction, activate
from penstock.model.streams.ask import Ask
from penstock.model.streams.portal import Portal
from penstock.model.streams.task_type import TaskType
from penstock.model.time_limit import Interrupted


class Resumption:
    """Runs one handler again.

    It is the running step of the handler, so it answers each use of the engine as in the first run.
    """

    running: TaskType | None = None
    pending: deque[Any] | None = None

    def __init__(
        self,
        app: App,
        executor: Executor,
        handler: Waiting,
        abandoned: list[HandlerCoroutine],
    ) -> None:
        self._app = app
        self._topology = app.topology
        self._handler = handler
        self._executor = executor
        # Coroutines that were given up in the first run are given up again; their `finally` blocks run in the caller, in a
        # transaction whose effects are dropped.
        self._abandoned = abandoned
        self._txn: Transaction | None = None
        self._context = Context()
        self._turn = Turn(None)
        self._asked = 0
        self._problem: str | None = None

    def run(self) -> None:
        """Bring the coroutines of the handler to the point where it waits."""
        handler = self._handler
        # The handler fills `awaiting` again: if it then waits for other requests than before, its code has changed.
        stored, handler.awaiting = handler.awaiting, {}
        for turn in handler.turns:
            self._turn, self._asked = turn, 0
            if turn.step:
                self._prepare()
                self._context.run(*(self._play,))  # a star, as in `Executor.perform`
                if self._problem is None and self._asked != len(turn.asks):
                    self._problem = "sent fewer requests"
            elif turn.answer is not None:
                self._pass_over(turn.answer.id)
                handler.settle(turn.answer, is_lost=turn.is_lost)
            if self._problem is not None:
                raise self._refusal()
        self._release()
        if handler.awaiting != stored:
            self._problem = "waited for other requests"
            raise self._refusal()
        handler.awaiting = stored

    def _pass_over(self, ask_id: str) -> None:
        """Give up the coroutine that waits for a reply, if one does."""
        index = self._handler.awaiting.pop(ask_id, None)
        coroutine = None if index is None else self._handler.coroutines[index]
        if coroutine is not None and index is not None:
            self._handler.coroutines[index] = None
            self._abandoned.append(coroutine)

    def _prepare(self) -> None:
        """Begin the transaction of a turn."""
        turn, txn = self._turn, self._txn
        # Turns of one step share a transaction, as they did: a later turn must find the objects of the earlier one.
        if txn is None or txn.request_id != turn.step:
            self._release()
            self._context = self._executor.isolation.fresh_context()
            step_id = RequestId(turn.step)
            rows, secret = self._topology.rows, self._executor.secret
            txn = Transaction(step_id, turn.time_us, self._read, rows, secret)
            txn.step = self
            self._txn = txn
        else:
            self._context.run(self._refresh, txn)
        txn.turn = turn.number

    def _refresh(self, txn: Transaction) -> None:
        """Give live instances the values that other handlers of the same step had given them."""
        for key, row in self._turn.rows.items():
            instance = txn.instances.get(key)
            entity_type = self._topology.rows[key.partition("/")[0]]
            if not txn.is_live(entity_type, instance):
                continue
            values = instance.__dict__
            row = self._topology.blank_rows[entity_type.name] if row is None else row
            row = entity_type.present(values[entity_type.key_name], row)
            if entity_type.encode(values) != row:
                decoded = entity_type.decode(values[entity_type.key_name], row)
                values.clear()
                values.update(decoded)

    def _release(self) -> None:
        """End the transaction of a turn."""
        if self._txn is not None:
            self._context.run(self._txn.release)
            self._txn.step = None  # no cycle: garbage waits until the end of a batch
            self._txn, self._context = None, Context()

    def _play(self) -> None:
        """Run one turn."""
        assert self._txn is not None, "the turn has begun"
        activate(self._txn)
        rows, state = self._turn.rows, self._handler.state
        try:
            state.restrict(rows)
            state.load(self._txn, self._topology.rows)
            state.take_up(self._txn)
            if self._turn.answer is None:
                self._start()
            else:
                self._resume(self._turn.answer.id)
            if self._handler.awaiting:
                state.keep(self._txn, rows)
        except (Interrupted, Escape, MemoryError, RecursionError):
            raise
        except BaseException as raised:  # the first run of this turn raised nothing
            self._problem = self._problem or "raised an exception"
            raise self._refusal() from raised

    def _start(self) -> None:
        handler = self._handler
        handler.coroutines.append(None)
        called = handler_for(handler.task, handler.item)
        instance = instance_of(handler.task, handler.place[1])
        out = () if called.out is None else (called.out,)
        result = called.function(instance, called.decode(handler.item), *out)
        if type(result) is CoroutineType:
            handler.coroutines[0] = result
            self._advance(0)

    def _resume(self, ask_id: str) -> None:
        handler = self._handler
        index = handler.awaiting.pop(ask_id, None)
        assert self._turn.answer is not None, "the caller has looked"
        handler.settle(self._turn.answer)
        if index is None:
            self._problem = "waited for other requests"
        else:
            self._advance(index)

    def _advance(self, index: int) -> None:
        coroutine = self._handler.coroutines[index]
        assert coroutine is not None, "it waits"
        try:
            awaited = coroutine.send(None)
        except StopIteration:
            return
        if not self._handler.accept(awaited, index):
            self._problem = "waited for other requests"

    def _refusal(self) -> UserError:
        # The number of the deployment is not known here, nor to one thread that runs a log; the time is.
        began = instant_of(self._handler.turns[0].time_us)
        return UserError(
            f"{self._handler.task.name}: a handler {self._problem} when it ran again to the point where it waits for a "
            f"reply. Either a deployment has changed its code since it began, on {began:%Y-%m-%d at %H:%M:%S} UTC "
            "(`penstock apps` shows the deployments): then go back to the former code (`penstock rollback`), or send "
            "its event again. Or it is not deterministic: let it depend only on its event, on the attributes of "
            "its task, on replies, and on now(), random() and uuid() of penstock"
        )

    def _diverge(self, problem: str) -> UserError:
        self._problem = problem  # it counts even if the handler catches the exception
        return self._refusal()

    def _read(self, key: EntityKey) -> bytes | None:
        name = key.partition("/")[0]
        row = self._turn.rows.get(key)
        if row is None:
            row = self._topology.blank_rows[name]
            if key not in self._turn.rows and self._topology.rows[name].attributes:
                raise self._diverge(f"read {key}, which it had not read before,")
        return row

    def ask(self, portal: Portal[Any, Any], request: Any) -> Ask[Any]:
        """Return the request that the first run has sent; see `Portal.ask`."""
        handler = self._handler
        _, data = question_of(self._topology, handler.task, handler.key, portal, request)
        assert portal.reply_type is not None, "an application was built with the portal"
        readable = readable_question(portal, data)
        return self._sent(f"portal {portal.name}", readable, portal.reply_type.decode)

    def call(self, call: Call[Any]) -> Ask[Any]:
        """Return the request that the first run has sent; see `model.sending.ask`."""
        body = sent(self._app, call)
        returns = returns_of(self._app, call)
        target = ".".join(filter(None, (call.entity, call.method)))
        readable = readable_body(self._app, body)
        return self._sent(target, readable, reply_decoder(self._app, returns))

    def _sent(self, target: str, data: bytes, decode: Callable[[bytes], Any]) -> Ask[Any]:
        asks, number = self._turn.asks, self._asked
        self._asked += 1
        if number >= len(asks) or asks[number][1:] != (target, hash_of(data)):
            raise self._diverge("sent other requests")
        ask: Ask[Any] = Ask(asks[number][0], target, decode)
        self._handler.asks[ask.id] = ask
        return ask

    def limit(self, ask: Ask[Any], time_us: int) -> None:
        """Do nothing: the first run has limited the time."""

    def follow(self, coroutine: HandlerCoroutine) -> None:
        """Run a coroutine of the handler; see `Ask.then`."""
        self._handler.coroutines.append(coroutine)
        self._advance(len(self._handler.coroutines) - 1)

    def pack(self) -> None:
        """Do nothing: no event is pending."""

    def publish(self, task: TaskType, event: Any) -> None:
        """Check an event; the first run has published it."""
        if task is not self._handler.task:
            raise UserError(f"the output of {task.name} is used outside of its handlers")
        assert task.output is not None, "its `out` has a declared type"
        task.output.encode(event)

    def is_state(self, entity_type: Any, key: EntityKey, values: Mapping[str, Any]) -> bool:
        """Refuse: a handler that waits has not listed its keys."""
        raise self._diverge(f"listed the key {key}")

    def note_cleared(self, key: EntityKey) -> None:
        """Do nothing: the first run has cleared the key."""

    def keys(self, prefix: str) -> list[EntityKey]:
        """Refuse: a handler that waits has not listed its keys."""
        raise self._diverge(f"listed the keys {prefix}…")

    def note_row(self, key: EntityKey, row: bytes) -> None:
        """Do nothing: the first run has noted it."""

    def note_joined(self, entity_type: Any, key: EntityKey, values: Mapping[str, Any]) -> None:
        """Do nothing: the first run has noted it."""
