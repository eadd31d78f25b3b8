"""Waits: the handlers that wait for a reply, of all workflows.

Nearly always a reply comes within the same log record, so a handler that waits stays in memory. At the end of the
record, `store` turns each handler that still waits into a row, and forgets it. A later record reads the row when the
reply arrives. So the rows have all that lives longer than a record, and no row is left when no handler waits.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.streams.derived_ids import timed_question
from penstock.engine.streams.system_rows import ASKER, LINE, WAIT, system_key
from penstock.engine.streams.waiting import (
    Answer,
    HandlerCoroutine,
    Held,
    Place,
    PortalQuestion,
    Turn,
    Waiting,
    decode_waiting,
)
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


class Line(msgspec.Struct, array_like=True):
    """The events and questions of one key of an exclusive task.

    Attributes:
        waiting: The number of handlers of the key that wait.
        held: The events and questions behind them, in order.
    """

    waiting: int = 0
    held: list[PortalQuestion | bytes] = []


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_line: Final = msgspec.msgpack.Decoder(Line).decode
_decode_asker: Final = msgspec.msgpack.Decoder(Asker).decode


class Waits:
    """The handlers that wait; the changes of a step that fails can be undone.

    Attributes:
        abandoned: The coroutines that nothing continues; the caller closes them.
    """

    def __init__(self, read: Read, tasks: Mapping[str, TaskType]) -> None:
        """Begin with nothing in memory.

        Args:
            read: Reads system rows.
            tasks: The tasks by name.
        """
        self._read = read
        self._tasks = tasks
        self._handlers: dict[str, Waiting] = {}
        self._lines: dict[Place, Line] = {}
        self._askers: dict[str, Asker] = {}
        self._rows: dict[EntityKey, bytes] = {}  # as they were when this record read them
        self._undo: list[Callable[[], object]] = []
        self.abandoned: list[HandlerCoroutine] = []

    def commit(self) -> None:
        """Keep the changes since the last call of `commit` or `undo`."""
        self._undo.clear()

    def undo(self) -> None:
        """Undo the changes since the last call of `commit` or `undo`."""
        while self._undo:
            self._undo.pop()()

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is in memory, so that `store` changes nothing."""
        return not (self._handlers or self._lines or self._askers or self._rows or self.abandoned)

    def store(self) -> dict[EntityKey, bytes | None]:
        """Return the changes of the system rows, and forget everything in memory."""
        rows: dict[EntityKey, bytes] = {}
        for handler in self._handlers.values():
            rows[system_key(WAIT, handler.id)] = handler.encode()
            self.abandoned += handler.forget()
        for place, line in self._lines.items():
            if line.waiting or line.held:
                rows[_line_key(place)] = _encode(line)
        for request_id, asker in self._askers.items():
            rows[system_key(ASKER, request_id)] = _encode(asker)
        before = self._rows
        writes: dict[EntityKey, bytes | None] = {key: None for key in before if key not in rows}
        writes |= {key: row for key, row in rows.items() if before.get(key) != row}
        for memory in (self._handlers, self._lines, self._askers, self._rows):
            memory.clear()
        return writes

    def _stored(self, key: EntityKey) -> bytes | None:
        """Return a row that this record has not read yet; None if it does not exist."""
        if key in self._rows:
            return None
        row = self._read(key)
        if row is not None:
            self._rows[key] = row
        return row

    def handler(self, handler_id: str) -> Waiting | None:
        """Return a handler that waits; None if it waits no more, or the application has its task no more."""
        handler = self._handlers.get(handler_id)
        if handler is None:
            row = self._stored(system_key(WAIT, handler_id))
            handler = None if row is None else decode_waiting(row, self._tasks)
            if handler is not None:
                self._handlers[handler_id] = handler
        return handler

    def touch(self, handler: Waiting) -> None:
        """Remember a handler as it is now; its next turn can be undone."""
        turns, awaiting = len(handler.turns), {**handler.awaiting}
        counted, size = handler.counted, handler.size

        def restore() -> None:
            del handler.turns[turns:]
            handler.awaiting, handler.counted, handler.size = awaiting, counted, size
            self.abandoned += handler.forget()

        self._undo.append(restore)

    def keep(self, handler: Waiting) -> None:
        """Let a handler wait."""
        if handler.id in self._handlers:
            return
        self._handlers[handler.id] = handler
        self._undo.append(lambda: self._handlers.pop(handler.id))
        if handler.task.exclusive:
            self._count(handler.place, 1)

    def drop(self, handler: Waiting) -> None:
        """Forget a handler that waits no more."""
        del self._handlers[handler.id]
        self._undo.append(lambda: self._handlers.update({handler.id: handler}))
        if handler.task.exclusive:
            self._count(handler.place, -1)

    def lose(self, answer: Answer, questions: list[PortalQuestion], events: list[bytes]) -> None:
        """Give up the coroutine that waits for a reply, because the step that took the reply failed.

        Args:
            answer: The reply.
            questions: Takes the questions that get no reply: that of the handler, and those behind it.
            events: Takes the events behind the handler.
        """
        handler = self.handler(answer.handler)
        if handler is None:
            return
        self.touch(handler)
        handler.turns.append(Turn(answer, is_lost=True))
        self.abandoned += handler.forget()
        index = handler.awaiting.pop(answer.id, None)
        if not handler.awaiting:
            self.drop(handler)
        if index is None:
            return
        if index == 0 and type(handler.item) is PortalQuestion:
            questions.append(handler.item)
        for item in self.all_held(handler):
            if type(item) is PortalQuestion:
                questions.append(item)
            else:
                events.append(item)  # type: ignore[arg-type]

    def send_request(self, request_id: str, asker: Asker) -> None:
        """Note the handler that waits for the result of a request to an entity."""
        self._askers[request_id] = asker
        self._undo.append(lambda: self._askers.pop(request_id))

    def take_arrived(
        self, record: RequestId, reply: bytes, failure: Failure | None
    ) -> tuple[Asker, Answer] | None:
        """Return the reply to a handler that has processed with a record, or the end of the time of its question.

        Args:
            record: The id of the record.
            reply: The result of its request.
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
        if handler is None or handler.has_received(question):
            return None
        return asker, Answer(question, asker.handler, None, TIMED_OUT)

    def take_asker(self, request_id: RequestId) -> Asker | None:
        """Remove and return the handler that has sent a request; None if no handler has sent it."""
        asker = self._askers.pop(request_id, None)
        if asker is None:
            row = self._stored(system_key(ASKER, request_id))
            asker = None if row is None else _decode_asker(row)
        return asker

    def _line(self, place: Place) -> Line:
        line = self._lines.get(place)
        if line is None:
            row = self._stored(_line_key(place))
            line = self._lines[place] = Line() if row is None else _decode_line(row)
        return line

    def _count(self, place: Place, change: int) -> None:
        line = self._line(place)
        line.waiting += change

        def restore() -> None:
            line.waiting -= change

        self._undo.append(restore)

    def is_busy(self, place: Place) -> bool:
        """Say whether a handler of a key of an exclusive task waits."""
        return self._line(place).waiting > 0

    def hold(self, place: Place, item: Held) -> None:
        """Keep an event or a question until no handler of its key waits."""
        held = self._line(place).held
        held.append(item)
        self._undo.append(held.pop)

    def all_held(self, handler: Waiting) -> Iterator[Held]:
        """Remove and yield the items behind a handler, while no handler of its key waits."""
        if handler.task.exclusive:
            while (item := self.next_held(handler.place)) is not None:
                yield item

    def next_held(self, place: Place) -> Held | None:
        """Remove and return the first item behind the handlers of a key, if none of them waits; else None."""
        line = self._line(place)
        if not line.held or line.waiting:
            return None
        item = line.held.pop(0)
        self._undo.append(lambda: line.held.insert(0, item))
        return item


def _line_key(place: Place) -> EntityKey:
    return system_key(LINE, "/".join(place))
