"""A handler that waits: its coroutines while they are in memory, and its history.

The history has everything that the handler has received, turn by turn. A turn begins with the call of the handler or
with a reply, and ends where the handler waits or ends. `Resumption` makes the coroutines from the history, so the
coroutines can be forgotten at any time between two turns.

A handler is stored as one small row that each record writes again, and a row for each turn that is written once.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from types import CoroutineType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId, bounded
from penstock.engine.execute import Executor
from penstock.engine.streams.derived_ids import timed_question, timeout_id
from penstock.engine.streams.held_state import HeldState
from penstock.engine.streams.system_rows import (
    ASKER,
    LINE,
    QUESTION,
    QUEUED,
    TURN,
    WAIT,
    system_key,
)
from penstock.errors import TimedOut, UserError
from penstock.model.context import Read
from penstock.model.request import Failure
from penstock.model.streams.ask import Ask
from penstock.model.streams.task_type import TaskType

HandlerCoroutine: TypeAlias = "CoroutineType[Any, Any, Any]"
"""A coroutine of a handler."""


class PortalQuestion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request to a portal, on its way to the replying task.

    Attributes:
        workflow, task: The names of the workflow and of the task of that handler.
    """

    id: str
    handler: str
    workflow: str
    task: str
    portal: str
    key: str
    data: bytes


class Answer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reply to the request `id` of a handler: encoded, or the failure in its place."""

    id: str
    handler: str
    data: bytes | None
    failure: Failure | None = None


Held = PortalQuestion | bytes
"""A question, or an encoded event, that a task takes."""

Place = tuple[str, str]
"""The name of a task, and the text of a key."""


SentAsk: TypeAlias = tuple[str, str, int]
"""A request that a handler has sent: its id, its target, and a hash of the request."""


class Turn(msgspec.Struct, array_like=True):
    """A part of the work of a handler.

    Attributes:
        answer: The reply that arrived; None in the first turn.
        step: The id of the step; empty if the reply arrived and no coroutine waited for it.
        time_us: The time of the step, in microseconds since the Unix epoch.
        number: The number of the turn in its step; `random` and `uuid` depend on it.
        rows: The rows that the turn has read, as they were at their first use; None for a row without state.
        is_lost: Whether the step that took the reply failed, so the coroutine that waited for it was given up.
    """

    answer: Answer | None
    step: str = ""
    time_us: int = 0
    number: int = 0
    rows: dict[EntityKey, bytes | None] = {}
    asks: list[SentAsk] = []
    is_lost: bool = False

    @property
    def size(self) -> int:
        """The approximate size in bytes, when it is stored."""
        size = 64 + 64 * len(self.asks)
        for key, row in self.rows.items():
            size += len(key) + (1 if row is None else len(row))
        if self.answer is not None and self.answer.data is not None:
            size += len(self.answer.data)
        return size


class _Row(msgspec.Struct, array_like=True):
    """A handler that waits, as it is stored; its item and its turns are rows of their own.

    In a row of an earlier Penstock, `item` and `turns` are the item and the turns themselves, and the rest is missing.
    """

    id: str
    task: str
    key: str
    item: PortalQuestion | bytes | None
    turns: int | list[Turn]
    awaiting: dict[str, int]
    size: int = 0
    digest: bytes = b""
    is_in_line: bool | None = None
    timers: int = 0


_encode: Final = Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Row).decode
_decode_item: Final = msgspec.msgpack.Decoder(PortalQuestion | bytes | None).decode
_decode_turn: Final = msgspec.msgpack.Decoder(Turn).decode


class Waiting:
    """A handler that runs or waits.

    Attributes:
        id: The id: that of its question; else the step, and the number of the first turn there.
        key: Its key; None without keys.
        item: The event or the question that it has taken; None for `on_atom_complete`.
        awaiting: The number of the coroutine that waits, by the id of the awaited request.
        asks: The requests without a reply, by id; only while the coroutines are in memory.
        coroutines: The coroutine of the handler itself, None for a plain method; then those of its `then`. The list is
            empty while the coroutines are not in memory.
        counted: The number of turns in `size`, which is the approximate size of the history in bytes.
        stored: The number of turns that have a row; if there are any, the item has a row, too.
        is_recalled: Whether `item` and `turns` are in memory; else only the handler's own row was read.
        is_in_line: Whether the line of its key counts it.
        timers: The number of its records in the log that end the time of a question.
    """

    __slots__ = (
        "asks",
        "awaiting",
        "coroutines",
        "counted",
        "digest",
        "id",
        "is_in_line",
        "is_recalled",
        "item",
        "key",
        "place",
        "size",
        "state",
        "stored",
        "task",
        "timers",
        "turns",
    )

    def __init__(
        self, handler_id: str, task: TaskType, key: Any, place: Place, item: Held | None
    ) -> None:
        self.id = handler_id
        self.task = task
        self.key = key
        self.place = place
        self.item = item
        self.turns: list[Turn] = []
        self.awaiting: dict[str, int] = {}
        self.asks: dict[str, Ask[Any]] = {}
        self.state = HeldState()
        self.coroutines: list[HandlerCoroutine | None] = []
        self.counted = self.size = self.stored = self.timers = 0
        self.digest = b""
        self.is_recalled = True
        self.is_in_line = False

    def settle(self, answer: Answer, *, is_lost: bool = False) -> None:
        """Hand over a reply to the coroutines in memory."""
        ask = self.asks.pop(answer.id, None)
        if ask is None:
            return
        if is_lost:
            ask.fail("the step that took its reply failed")
        elif answer.failure is None:
            ask.reply = answer.data
        else:
            failure = answer.failure
            ask.fail(f"{failure.kind}: {failure.message}", failure.code)

    def accept(self, awaited: Any, index: int) -> bool:
        """Let a coroutine wait for a request; return whether it may: the request is its own, and awaited once."""
        if type(awaited) is not Ask or awaited.id in self.awaiting:
            return False
        if self.asks.get(awaited.id) is not awaited:
            return False
        self.awaiting[awaited.id] = index
        return True

    def send(self, ask: Ask[Any], data: bytes) -> None:
        """Note a request that the running turn sends."""
        self.asks[ask.id] = ask
        self.turns[-1].asks.append((ask.id, ask.target, xxh3_64_intdigest(data)))

    def count_size(self) -> int:
        """Return the approximate size of the history in bytes."""
        for turn in self.turns[self.counted :]:
            self.size += turn.size
        self.counted = len(self.turns)
        return self.size

    def has_received(self, question: str) -> bool:
        """Say whether a request has its reply."""
        return any(turn.answer is not None and turn.answer.id == question for turn in self.turns)

    def last_turn(self) -> Turn:
        """Return the last turn in which a coroutine ran."""
        last = self.turns[-1]
        return last if last.step else next(turn for turn in reversed(self.turns) if turn.step)

    def forget(self) -> Iterator[HandlerCoroutine]:
        """Drop the coroutines, and yield those that the caller must close."""
        coroutines, self.coroutines = self.coroutines, []
        self.asks = {}
        self.state = HeldState()
        return (
            coroutine
            for coroutine in coroutines
            if coroutine is not None and coroutine.cr_frame is not None
        )

    def encode(self) -> bytes:
        """Return its own row; those of its new turns come before it, by `new_rows`."""
        self.count_size()
        return _encode(
            _Row(
                self.id,
                *self.place,
                None,
                self.stored,
                self.awaiting,
                self.size,
                self.digest,
                self.is_in_line,
                self.timers,
            )
        )

    def new_rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the row of each turn that has none, by its number from 1; that of the item has the number 0."""
        for turn in self.turns[self.stored :] if self.is_recalled else ():
            if not self.stored:
                yield 0, _encode(self.item)
            row = _encode(turn)
            self.stored += 1
            self.digest = blake2b(row, digest_size=16, key=self.digest).digest()
            yield self.stored, row

    def recall(self, rows: Iterator[bytes]) -> None:
        """Take the rows of the item and of all turns."""
        self.item = _decode_item(next(rows))
        self.turns = list(map(_decode_turn, rows))
        self.counted, self.is_recalled = len(self.turns), True


def handler_of(question: str) -> str:
    """Return the id of the handler that replies to a question."""
    return f"{question}!"


def decode_waiting(data: bytes, tasks: Mapping[str, TaskType]) -> Waiting | None:
    """Return the handler of a row, without coroutines; None if the application has its task no more."""
    row = _decode(data)
    task = tasks.get(row.task)
    if task is None:
        return None
    handler = Waiting(row.id, task, task.key_at(row.key), (row.task, row.key), row.item)
    handler.awaiting = row.awaiting
    if isinstance(row.turns, int):
        handler.is_recalled, handler.stored = False, row.turns
        handler.size, handler.digest, handler.timers = row.size, row.digest, row.timers
    else:
        handler.turns = row.turns
    handler.is_in_line = (
        row.is_in_line is not False
    )  # an earlier Penstock did not say; see `WaitingLines.leave`
    return handler


def place_of_row(data: bytes) -> tuple[Place, int, bool]:
    """Return the place of a handler whose task may be gone, the number of its stored turns, and whether it is in line."""
    row = _decode(data)
    turns = row.turns if isinstance(row.turns, int) else 0
    return (row.task, row.key), turns, row.is_in_line is not False


def hash_of(data: bytes) -> int:
    """Return a 64-bit hash, by which a handler that runs again is compared with its first run."""
    return xxh3_64_intdigest(data)


def refuse_asyncio(error: RuntimeError, task: TaskType) -> None:
    """Name the things that a handler can await, if it failed because it used asyncio."""
    if type(error) is RuntimeError and error.args == ("no running event loop",):
        raise UserError(
            f"a handler of {task.name} uses asyncio, and no event loop runs in a transaction; it can await its own "
            "requests to portals and entities, each once"
        ) from error


# Nearly always a reply comes within the same log record, so a handler that waits stays in memory. At the end of the
# record, `store` turns each handler that still waits into rows, and forgets it. A later record reads the rows when the
# reply arrives. So the rows have all that lives longer than a record, and no row is left when no handler waits.
#
# A record writes the new turns of a handler only. The process keeps the coroutines of a handler with a long history, so
# that the history is not played again at each reply.


TIMED_OUT: Final = Failure(TimedOut.code, TimedOut.__name__, "no reply in time")
"""The failure of a question whose time is over."""


class Asker(NamedTuple):
    """The handler that has sent a request to an entity: its workflow, its task, its id."""

    workflow: str
    task: str
    handler: str


_decode_asker: Final = msgspec.msgpack.Decoder(Asker).decode

_KEPT_FROM: Final = 16
"""The turns of a history from which on the coroutines are kept; to play fewer turns costs less than a record."""

_KEPT_MAX: Final = 64
"""The handlers whose coroutines a process keeps between two records."""

_KEPT_BYTES: Final = 64 << 20
"""The approximate bytes of their histories, which are kept with them."""


class _Kept(NamedTuple):
    """A handler that is kept: the tasks of its application, the secret, its row, the handler.

    Attributes:
        size: The approximate bytes of its history in its row; that of the handler changes when a turn is undone.
    """

    tasks: Mapping[str, TaskType]
    secret: bytes
    row: bytes
    handler: Waiting
    size: int


class KeptHandlers:
    """The waiting handlers whose coroutines a process keeps; the ones that waited longest go first.

    It is a cache: a handler continues from its coroutines only if its row, which has a hash of all its turns, is still
    the row with which they were kept. Otherwise its history is played again, with the same outcome.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._bytes = 0

    def keep(self, kept: _Kept) -> Iterator[HandlerCoroutine]:
        """Keep a handler; yield the coroutines that the caller must close."""
        yield from self._dropped(kept.handler.id)
        self._kept[kept.handler.id] = kept
        self._bytes += kept.size
        while len(self._kept) > _KEPT_MAX or self._bytes > _KEPT_BYTES:
            yield from self._dropped(next(iter(self._kept)))

    def take(
        self, handler_id: str, tasks: Mapping[str, TaskType], secret: bytes, row: bytes
    ) -> Waiting | None:
        """Remove and return a handler, if it was kept with this row."""
        kept = self._kept.get(handler_id)
        if kept is None or kept.tasks is not tasks or (kept.secret, kept.row) != (secret, row):
            return None
        del self._kept[handler_id]
        self._bytes -= kept.size
        return kept.handler

    def clear(self) -> Iterator[HandlerCoroutine]:
        """Keep no handler; yield the coroutines that the caller must close."""
        for handler_id in tuple(self._kept):
            yield from self._dropped(handler_id)

    def _dropped(self, handler_id: str) -> Iterator[HandlerCoroutine]:
        kept = self._kept.pop(handler_id, None)
        if kept is not None:
            self._bytes -= kept.size
            yield from kept.handler.forget()


_KEPT: Final = KeptHandlers()


def _is_kept(turns: int) -> bool:
    """Say whether a history of so many turns is not played again at the next reply."""
    # At 16, 32, 64 … turns it is played again, so that a handler which is not deterministic is found on all ways, and the
    # cost of a handler grows with the number of its waits.
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
        if (
            not self._executor.is_roomy
        ):  # coroutines hold memory, and each can be made again from its rows
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
        """Keep the coroutines of a handler together with its row, or forget them; yield those that must be closed."""
        executor = self._executor
        if handler.coroutines and executor.is_roomy and _is_kept(len(handler.turns)):
            return _KEPT.keep(_Kept(self._tasks, executor.secret, row, handler, handler.size))
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
        """Remove the handler that waits for an answer, because the application has its task no more."""
        # If the task comes back, the handler must not be there to block its key.
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
        if not handler.is_recalled:
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
        handler.turns.append(
            Turn(answer, is_lost=True)
        )  # so that a resumption gives up the same coroutine
        self.abandoned += handler.forget()
        index = handler.awaiting.pop(answer.id, None)
        if not handler.awaiting:
            self.drop(handler)
        is_reply = index == 0 and type(handler.item) is PortalQuestion
        return handler.item if is_reply else None  # type: ignore[return-value]

    def cycle(self, question: str, asker: str) -> list[Place]:
        """Return the handlers that wait for each other if a handler waits for a question; empty if it waits for others."""
        # A question waits for the handlers of the key behind which it is in line, or for the handler that has taken it; a
        # handler waits for each question that it awaits. A question on its way waits for none yet. So a cycle closes only
        # when a question is put in line, or when a handler awaits a question that it had sent before.
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


# A line is data, which a deployment does not change. Whether a task is `exclusive` decides only when the first item of a
# line is taken: when no handler of the key waits, or at once. While items are in a line, new ones go behind them.
#
# A line has one row; each item has a row of its own, and so has the place of each question, by which a cycle of handlers
# that wait for each other is found.


_HOLDERS_MAX: Final = 16
"""The waiting handlers that a line names; an exclusive task has one for each key, unless it became so meanwhile."""


class _WaitingLinesRow(msgspec.Struct, array_like=True):
    """A line, as it is stored; `first` has the items themselves in a row of an earlier Penstock."""

    waiting: int
    first: int | list[PortalQuestion | bytes]
    end: int = 0
    holders: list[str] = []


class _Line:
    """The line of one key.

    Attributes:
        end: The number behind the last item.
        items: The items that are in memory, by number; None for one that was taken.
    """

    __slots__ = ("end", "first", "holders", "items", "waiting")

    def __init__(self, waiting: int, first: int, end: int, holders: list[str]) -> None:
        self.waiting = waiting
        self.first = first
        self.end = end
        self.holders = holders
        self.items: dict[int, Held | None] = {}


_waiting_lines_decode: Final = msgspec.msgpack.Decoder(_WaitingLinesRow).decode
_waiting_lines_decode_item: Final = msgspec.msgpack.Decoder(PortalQuestion | bytes).decode
_decode_spot: Final = msgspec.msgpack.Decoder(tuple[str, str, int]).decode

_decode_count: Final = msgspec.msgpack.Decoder(int).decode

Spot = tuple[Place, int]
"""The place of a line, and the number of an item there."""


class WaitingLines:
    """The lines of an application's tasks.

    Attributes:
        ready: The places with items that may be taken; the caller empties it.
        held: The questions that were put into a line; the caller empties it.
    """

    def __init__(
        self,
        stored: Callable[[EntityKey], bytes | None],
        undo: list[Callable[[], object]],
    ) -> None:
        self._stored = stored  # returns a row that this record has not read yet
        self._undo = undo
        self._lines: dict[Place, _Line] = {}
        self._spots: dict[str, Spot | None] = {}  # of questions; None for one that was taken
        self._counts: dict[str, int] = {}  # of the items in all lines of a task
        self._lined: dict[str, bool] = {}  # whether a task had items when it was first looked at
        self.ready: dict[Place, TaskType] = {}
        self.held: list[PortalQuestion] = []

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is in memory."""
        return not (self._lines or self._spots or self._counts)

    def forget(self) -> Iterator[tuple[EntityKey, bytes]]:
        """Yield the rows, and forget everything in memory."""
        for place, line in self._lines.items():
            if line.waiting or line.first < line.end:
                row = _WaitingLinesRow(line.waiting, line.first, line.end, line.holders)
                yield _line_key(place), _encode(row)
            for number, item in line.items.items():
                if item is not None:
                    yield _item_key(place, number), _encode(item)
        for question, spot in self._spots.items():
            if spot is not None:
                yield system_key(QUESTION, question), _encode((*spot[0], spot[1]))
        counts = {system_key(QUEUED, task): count for task, count in self._counts.items() if count}
        yield from ((key, _encode(count)) for key, count in counts.items())
        for memory in (self._lines, self._spots, self._counts):
            memory.clear()

    def has_items(self, task: TaskType) -> bool:
        """Say whether a task that is not exclusive may have items in line: it was exclusive, and they were put there."""
        # Only code before the present one can have put the first item there, so a task without items needs one look. Rows
        # of an earlier Penstock have no counts; then an item is taken when the handler before it ends.
        has_had = self._lined.get(task.name)
        if has_had is None:
            has_had = self._lined[task.name] = self._count(task.name) > 0
        return has_had

    def is_blocked(self, task: TaskType, place: Place) -> bool:
        """Say whether a new item of a key goes behind others."""
        line = self._line(place)
        return line.first < line.end or (task.exclusive and line.waiting > 0)

    def enter(self, handler: Waiting) -> None:
        """Count a handler that waits."""
        line = self._changing(handler.place)
        line.waiting += 1
        if len(line.holders) < _HOLDERS_MAX:
            line.holders = [*line.holders, handler.id]
        handler.is_in_line = True

    def leave(self, handler_id: str, place: Place, task: TaskType | None) -> None:
        """Count a handler no more; the next item may be taken then."""
        line = self._changing(place)
        if handler_id in line.holders or line.waiting > len(
            line.holders
        ):  # else it was never counted
            line.waiting -= 1
        line.holders = [holder for holder in line.holders if holder != handler_id]
        if task is not None:
            self.note_ready(task, place)

    def note_ready(self, task: TaskType, place: Place) -> None:
        """Note a place in `ready` if its first item may be taken."""
        line = self._line(place)
        if line.first < line.end and not (task.exclusive and line.waiting):
            self.ready[place] = task

    def hold(self, task: TaskType, place: Place, item: Held) -> None:
        """Put an item behind the others."""
        line = self._changing(place)
        self._set_item(line, line.end, item)
        _set(self._counts, place[0], self._count(place[0]) + 1, self._undo)
        if type(item) is PortalQuestion:
            self._set_spot(item.id, (place, line.end))
            self.held.append(item)
        line.end += 1
        self.note_ready(task, place)

    def first(self, task: TaskType, place: Place) -> Held | None:
        """Return the first item of a line, if it may be taken; else None."""
        line = self._line(place)
        while line.first < line.end and not (task.exclusive and line.waiting):
            item = self._item(place, line, line.first)
            if item is not None:
                return item
            self._changing(place)
            line.first += 1  # it was withdrawn
        return None

    def take(self, task: TaskType, place: Place) -> Held | None:
        """Remove and return the first item of a line, if it may be taken; else None."""
        item = self.first(task, place)
        if item is not None:
            line = self._changing(place)
            self._remove(line, place, line.first)
            line.first += 1
            if type(item) is PortalQuestion:
                self._set_spot(item.id, None)
        return item

    def spot_of(self, question: str) -> Spot | None:
        """Return the place of a question in a line; None if it is in no line."""
        if question not in self._spots:
            row = self._stored(system_key(QUESTION, question))
            if row is None:
                return None
            task, key, number = _decode_spot(row)
            self._spots[question] = (task, key), number
        return self._spots[question]

    def holders(self, place: Place) -> list[str]:
        """Return the ids of the handlers of a place that wait."""
        return self._line(place).holders

    def withdraw(self, question: str) -> PortalQuestion | None:
        """Remove and return a question that is in a line."""
        spot = self.spot_of(question)
        if spot is None:
            return None
        place, number = spot
        line = self._changing(place)
        item = self._item(place, line, number)
        self._remove(line, place, number)
        self._set_spot(question, None)
        if number == line.end - 1:
            line.end -= 1
        assert item is None or type(item) is PortalQuestion, "its place was noted"
        return item

    def _line(self, place: Place) -> _Line:
        line = self._lines.get(place)
        if line is None:
            row = self._stored(_line_key(place))
            given = _WaitingLinesRow(0, 0) if row is None else _waiting_lines_decode(row)
            if isinstance(given.first, int):
                line = _Line(given.waiting, given.first, given.end, given.holders)
            else:
                line = _Line(given.waiting, 0, len(given.first), [])
                line.items = dict(enumerate(given.first))
            self._lines[place] = line
        return line

    def _changing(self, place: Place) -> _Line:
        """Return a line that changes."""
        line = self._line(place)
        waiting, first, end, holders = line.waiting, line.first, line.end, line.holders

        def restore() -> None:
            line.waiting, line.first, line.end, line.holders = waiting, first, end, holders

        self._undo.append(restore)
        return line

    def _item(self, place: Place, line: _Line, number: int) -> Held | None:
        if number not in line.items:
            row = self._stored(_item_key(place, number))
            line.items[number] = None if row is None else _waiting_lines_decode_item(row)
        return line.items[number]

    def _count(self, task: str) -> int:
        if task not in self._counts:
            row = self._stored(system_key(QUEUED, task))
            self._counts[task] = 0 if row is None else _decode_count(row)
        return self._counts[task]

    def _remove(self, line: _Line, place: Place, number: int) -> None:
        self._set_item(line, number, None)
        _set(self._counts, place[0], max(0, self._count(place[0]) - 1), self._undo)

    def _set_item(self, line: _Line, number: int, item: Held | None) -> None:
        _set(line.items, number, item, self._undo)

    def _set_spot(self, question: str, spot: Spot | None) -> None:
        self.spot_of(question)  # a row that was read is removed if it is not written again
        _set(self._spots, question, spot, self._undo)


def _set(memory: dict[Any, Any], key: Any, value: Any, undo: list[Callable[[], object]]) -> None:
    """Set a value that can be undone."""
    if key in memory:
        former = memory[key]
        undo.append(lambda: memory.update({key: former}))
    else:
        undo.append(lambda: memory.pop(key, None))
    memory[key] = value


def _line_key(place: Place) -> EntityKey:
    return system_key(LINE, "/".join(place))


def _item_key(place: Place, number: int) -> EntityKey:
    task, key = place
    return EntityKey(f"{QUEUED}/{task}/{bounded(key)}/{number}")
