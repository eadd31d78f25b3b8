"""Waits: the handlers that wait for a reply, of all workflows.

Nearly always a reply comes within the same log record, so a handler that waits stays in memory. At the end of the
record, `store` turns each handler that still waits into rows, and forgets it. A later record reads the rows when the
reply arrives. So the rows have all that lives longer than a record, and no row is left when no handler waits.

A record writes the new turns of a handler only. The coroutines of a handler with a long history are kept beside its
rows, so that the history is not played again at each reply.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor
from penstock.engine.streams.derived_ids import timed_question, timeout_id
from penstock.engine.streams.system_rows import ASKER, TURN, WAIT, system_key
from penstock.engine.streams.waiting import (
    Answer,
    HandlerCoroutine,
    Place,
    PortalQuestion,
    Turn,
    Waiting,
    decode_waiting,
    handler_of,
    place_of_row,
)
from penstock.engine.streams.waiting_lines import WaitingLines
from penstock.errors import TimedOut
from penstock.model.context import Read
from penstock.model.request import Failure
from penstock.model.streams.task_type import TaskType

TIMED_OUT: Final = Failure(TimedOut.code, TimedOut.__name__, "no reply in time")
"""The failure of a question whose time is over."""


class Asker(NamedTuple):
    """The handler that has sent a request to an entity: its workflow, its task, its id."""

    workflow: str
    task: str
    handler: str


_encode: Final = Encoder().encode
_decode_asker: Final = msgspec.msgpack.Decoder(Asker).decode

_KEPT_FROM: Final = 16
"""The turns of a history from which on the coroutines are kept; to play fewer turns costs less than a record."""

_KEPT_MAX: Final = 64
"""The handlers whose coroutines a process keeps between two records."""

_KEPT_BYTES: Final = 64 << 20
"""The approximate bytes of their histories, which are kept with them."""


class _Kept(NamedTuple):
    """A handler that is kept beside its rows: the tasks of its application, the secret, its row, the handler."""

    tasks: Mapping[str, TaskType]
    secret: bytes
    row: bytes
    handler: Waiting


class KeptHandlers:
    """The waiting handlers whose coroutines a process keeps; the ones that waited longest go first.

    It is a cache: a handler continues from its coroutines only if its row, which has a hash of all its turns, is the
    one beside which they were kept. Else its history is played again, with the same outcome.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._bytes = 0

    def keep(self, kept: _Kept) -> Iterator[HandlerCoroutine]:
        """Keep a handler; yield the coroutines that the caller must close."""
        yield from self._dropped(kept.handler.id)
        self._kept[kept.handler.id] = kept
        self._bytes += kept.handler.size
        while len(self._kept) > _KEPT_MAX or self._bytes > _KEPT_BYTES:
            yield from self._dropped(next(iter(self._kept)))

    def take(
        self, handler_id: str, tasks: Mapping[str, TaskType], secret: bytes, row: bytes
    ) -> Waiting | None:
        """Remove and return a handler, if its row is this one."""
        kept = self._kept.get(handler_id)
        if kept is None or kept.tasks is not tasks or (kept.secret, kept.row) != (secret, row):
            return None
        del self._kept[handler_id]
        self._bytes -= kept.handler.size
        return kept.handler

    def clear(self) -> Iterator[HandlerCoroutine]:
        """Keep no handler; yield the coroutines that the caller must close."""
        for handler_id in tuple(self._kept):
            yield from self._dropped(handler_id)

    def _dropped(self, handler_id: str) -> Iterator[HandlerCoroutine]:
        kept = self._kept.pop(handler_id, None)
        if kept is not None:
            self._bytes -= kept.handler.size
            yield from kept.handler.forget()


_KEPT: Final = KeptHandlers()


def _is_kept(turns: int) -> bool:
    """Say whether a history of so many turns is not played again at the next reply.

    It is played again at 16, 32, 64 … turns, so that a handler which is not deterministic is found on all ways, and the
    cost of a handler grows with the number of its waits.
    """
    return turns >= _KEPT_FROM and turns & (turns - 1) != 0


class Waits:
    """The handlers that wait; the changes of a step that fails can be undone.

    Attributes:
        abandoned: The coroutines that nothing continues; the caller closes them.
        awaited: The handlers that have begun to wait, each with its request; the caller empties it.
    """

    def __init__(
        self,
        read: Read,
        tasks: Mapping[str, TaskType],
        keys: Callable[[str], list[EntityKey]],
        executor: Executor,
    ) -> None:
        """Begin with nothing in memory.

        Args:
            keys: Returns the stored keys that begin with a prefix, in order.
            executor: Has the secret on which `random` and `uuid` depend.
        """
        self._read = read
        self._tasks = tasks
        self._executor = executor
        self._keys = keys
        self._handlers: dict[str, Waiting] = {}
        self._askers: dict[str, Asker] = {}
        self._rows: dict[EntityKey, bytes] = {}  # as they were when this record read them
        self._turns: dict[EntityKey, tuple[str, int]] = {}  # of the handlers among these rows
        self._undo: list[Callable[[], object]] = []
        self.lines = WaitingLines(self._stored, self._undo)
        self.abandoned: list[HandlerCoroutine] = []
        self.awaited: list[tuple[str, str]] = []

    def commit(self) -> None:
        """Keep the changes since the last call of `commit` or `undo`."""
        self._undo.clear()

    def undo(self) -> None:
        """Undo the changes since the last call of `commit` or `undo`."""
        while self._undo:
            self._undo.pop()()
        self.lines.ready.clear()
        self.lines.held.clear()
        self.awaited.clear()

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is in memory, so that `store` changes nothing."""
        in_memory = self._handlers or self._askers or self._rows or self.abandoned
        return self.lines.is_forgotten and not in_memory

    def store(self) -> dict[EntityKey, bytes | None]:
        """Return the changes of the system rows, and forget everything in memory."""
        rows: dict[EntityKey, bytes] = {}
        turns: dict[EntityKey, bytes | None] = {}
        for handler in self._handlers.values():
            if not handler.is_in_line:
                self.lines.enter(handler)
            turns |= {_turn_key(handler.id, number): row for number, row in handler.new_rows()}
            row = rows[system_key(WAIT, handler.id)] = handler.encode()
            self.abandoned += self._kept_or_forgotten(handler, row)
        if not self._executor.is_roomy:
            self.abandoned += _KEPT.clear()
        for request_id, asker in self._askers.items():
            rows[system_key(ASKER, request_id)] = _encode(asker)
        rows |= self.lines.forget()
        before = self._rows
        for key, (handler_id, count) in self._turns.items():
            if key in before and key not in rows and count:
                turns |= {_turn_key(handler_id, number): None for number in range(count + 1)}
        writes: dict[EntityKey, bytes | None] = {key: None for key in before if key not in rows}
        writes |= {key: row for key, row in rows.items() if before.get(key) != row}
        for memory in (self._handlers, self._askers, self._rows, self._turns):
            memory.clear()
        self._undo.clear()
        return writes | turns

    def _kept_or_forgotten(self, handler: Waiting, row: bytes) -> Iterator[HandlerCoroutine]:
        """Keep the coroutines of a handler beside its row, or forget them; yield those that must be closed."""
        executor = self._executor
        if handler.coroutines and executor.is_roomy and _is_kept(len(handler.turns)):
            return _KEPT.keep(_Kept(self._tasks, executor.secret, row, handler))
        return handler.forget()

    def _stored(self, key: EntityKey) -> bytes | None:
        """Return a row that this record has not read yet; None if it does not exist."""
        if key in self._rows:
            return None
        row = self._read(key)
        if row is not None:
            self._rows[key] = row
        return row

    def handler(self, handler_id: str) -> Waiting | None:
        """Return a handler that waits; None if it waits no more, or the application has its task no more.

        Its history may not be in memory; see `recall`.
        """
        handler = self._handlers.get(handler_id)
        if handler is None:
            key = system_key(WAIT, handler_id)
            row = self._stored(key)
            if row is not None:
                handler = _KEPT.take(handler_id, self._tasks, self._executor.secret, row)
                handler = handler or decode_waiting(row, self._tasks)
            if handler is not None:
                self._turns[key] = handler_id, handler.stored
                self._handlers[handler_id] = handler
        return handler

    def every(self, most: int) -> Iterator[tuple[Place, Waiting | None]]:
        """Yield the place of each handler that waits, at most so many, and the handler; None if its task is gone."""
        for key in self._keys(f"{WAIT}/")[:most]:
            row = self._required(key)
            handler = decode_waiting(row, self._tasks)
            if handler is not None:
                self.recall(handler)
            yield place_of_row(row)[0], handler

    def recall(self, handler: Waiting) -> None:
        """Read the history of a handler, if it is not in memory."""
        if not handler.is_recalled:
            numbers = range(handler.stored + 1)
            handler.recall(self._required(_turn_key(handler.id, number)) for number in numbers)

    def _required(self, key: EntityKey) -> bytes:
        row = self._read(key)
        assert row is not None, "each turn of a handler has a row"
        return row

    def forget(self, answer: Answer) -> None:
        """Remove the handler that waits for an answer, because the application has its task no more.

        If the task comes back, the handler is not there to block its key.
        """
        key = system_key(WAIT, answer.handler)
        row = self._stored(key)
        if row is not None:
            place, turns, is_in_line = place_of_row(row)
            self._turns[key] = answer.handler, turns
            if is_in_line:
                self.lines.leave(answer.handler, place, None)
            self.commit()

    def touch(self, handler: Waiting) -> None:
        """Remember a handler as it is now; its next turn can be undone."""
        self.recall(handler)
        turns, awaiting = len(handler.turns), {**handler.awaiting}
        counted, size, timers = handler.counted, handler.size, handler.timers

        def restore() -> None:
            del handler.turns[turns:]
            handler.awaiting, handler.timers = awaiting, timers
            handler.counted, handler.size = counted, size
            self.abandoned += handler.forget()

        self._undo.append(restore)

    def keep(self, handler: Waiting) -> None:
        """Let a handler wait."""
        if handler.id in self._handlers:
            return
        self._handlers[handler.id] = handler
        self._undo.append(lambda: self._handlers.pop(handler.id))
        if handler.task.exclusive:  # other tasks have no use for it before the handler is stored
            self.lines.enter(handler)

    def drop(self, handler: Waiting) -> None:
        """Forget a handler that waits no more."""
        del self._handlers[handler.id]
        self._undo.append(lambda: self._handlers.update({handler.id: handler}))
        if handler.is_in_line:
            self.lines.leave(handler.id, handler.place, handler.task)

    def lose(self, answer: Answer) -> PortalQuestion | None:
        """Give up the coroutine that waits for a reply, because the step that took the reply failed.

        Returns:
            The question that gets no reply then; None without any.
        """
        handler = self.handler(answer.handler)
        if handler is None:
            return None
        self.touch(handler)
        self.end_time(handler, answer.id)
        handler.turns.append(Turn(answer, is_lost=True))
        self.abandoned += handler.forget()
        index = handler.awaiting.pop(answer.id, None)
        if not handler.awaiting:
            self.drop(handler)
        is_reply = index == 0 and type(handler.item) is PortalQuestion
        return handler.item if is_reply else None  # type: ignore[return-value]

    def cycle(self, question: str, asker: str) -> list[Place]:
        """Return the handlers that wait for each other if a handler waits for a question; empty if it waits for others.

        A question waits for the handlers of the key behind which it is in line, or for the handler that has taken it;
        a handler waits for each question that it awaits. One that is on its way waits for none yet. So a cycle closes
        only when a question is put in line, or when a handler awaits a question that it had sent before.
        """
        waiting = self.handler(asker)
        if waiting is None or question not in waiting.awaiting:
            return []
        before: dict[str, tuple[Place, str]] = {question: (waiting.place, "")}
        todo, seen = [question], {asker}
        while todo:
            each = todo.pop()
            for blocker in self._blockers(each):
                if blocker == asker:
                    return _way(before, each)
                handler = self.handler(blocker)
                if handler is not None and blocker not in seen:
                    seen.add(blocker)
                    todo += handler.awaiting
                    before |= dict.fromkeys(handler.awaiting, (handler.place, each))
        return []

    def _blockers(self, question: str) -> list[str]:
        """Return the ids of the handlers for which a question waits."""
        spot = self.lines.spot_of(question)
        if spot is None:
            return [handler_of(question)]
        task = self._tasks.get(spot[0][0])
        return self.lines.holders(spot[0]) if task is not None and task.exclusive else []

    def send_request(self, request_id: str, asker: Asker) -> None:
        """Note the handler that waits for the result of a request to an entity."""
        self._askers[request_id] = asker
        self._undo.append(lambda: self._askers.pop(request_id))

    def take_arrived(
        self, record: RequestId, reply: bytes, failure: Failure | None
    ) -> tuple[Asker, Answer] | None:
        """Return the reply to a handler that has processed with a record, or the end of the time of its question.

        Args:
            failure: The failure of its request; None if it took effect.

        Returns:
            The handler and the reply; None if no handler has sent the record, or if the question has its reply.
        """
        asker = self.take_asker(record)
        if asker is None:
            return None
        question = timed_question(record)
        if question is None:
            return asker, Answer(record, asker.handler, None if failure else reply, failure)
        handler = self.handler(asker.handler)
        if handler is None:
            return None
        handler.timers -= 1
        if question not in handler.awaiting:
            self.recall(handler)
            if handler.has_received(question):  # its time was not ended by an earlier Penstock
                return None
        return asker, Answer(question, asker.handler, None, TIMED_OUT)

    def end_time(self, handler: Waiting, question: str) -> None:
        """Forget that the time of a question is limited, because it has its reply."""
        if handler.timers <= 0:
            return
        request_id = timeout_id(question)
        asker = self.take_asker(request_id)
        if asker is not None:
            handler.timers -= 1
            self._undo.append(lambda: self._askers.update({request_id: asker}))

    def take_asker(self, request_id: RequestId) -> Asker | None:
        """Remove and return the handler that has sent a request; None if no handler has sent it."""
        asker = self._askers.pop(request_id, None)
        if asker is None:
            row = self._stored(system_key(ASKER, request_id))
            asker = None if row is None else _decode_asker(row)
        return asker


def _turn_key(handler_id: str, number: int) -> EntityKey:
    return system_key(TURN, f"{handler_id}/{number}")


def _way(before: Mapping[str, tuple[Place, str]], question: str) -> list[Place]:
    """Return the places of the handlers on the way to a question, in order."""
    places: list[Place] = []
    while question:
        place, question = before[question]
        places.append(place)
    return places[::-1]
