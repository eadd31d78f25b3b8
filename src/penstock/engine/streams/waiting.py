"""A handler that waits: its coroutines while they are in memory, and its history.

The history has everything that the handler has received, turn by turn. A turn begins with the call of the handler or
with a reply, and ends where the handler waits or ends. `Resumption` makes the coroutines from the history, so the
coroutines can be forgotten at any time between two turns.

A handler is stored as one small row that each record writes again, and a row for each turn that is written once.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from types import CoroutineType
from typing import Any, Final, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey
from penstock.engine.streams.held_state import HeldState
from penstock.errors import UserError
from penstock.model.request import Failure
from penstock.model.streams.ask import Ask
from penstock.model.streams.task_type import TaskType

HandlerCoroutine: TypeAlias = "CoroutineType[Any, Any, Any]"
"""A coroutine of a handler."""


class PortalQuestion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request to a portal, on its way to the replying task.

    Attributes:
        workflow, task: The names of the workflow and of the task of that handler.
        data: The encoded request.
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
    """Say what a handler can await, if it failed because it used asyncio.

    Raises:
        UserError: The handler needs an event loop, which a transaction does not have.
    """
    if type(error) is RuntimeError and error.args == ("no running event loop",):
        raise UserError(
            f"a handler of {task.name} uses asyncio, and no event loop runs in a transaction; it can await its own "
            "requests to portals and entities, each once"
        ) from error
