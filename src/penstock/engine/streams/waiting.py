"""A handler that waits: its coroutines while they are in memory, and its history.

The history has everything that the handler has received, turn by turn. A turn begins with the call of the handler or
with a reply, and ends where the handler waits or ends. `Resumption` makes the coroutines from the history, so the
coroutines can be forgotten at any time between two turns.
"""

from collections.abc import Iterator, Mapping
from types import CoroutineType
from typing import Any, Final, TypeAlias

import msgspec
from xxhash import xxh3_64_intdigest

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
        id: The id of the request.
        handler: The id of the asking handler.
        workflow, task: The names of the workflow and of the task of that handler.
        portal: The name of the portal.
        key: The text of the key of the replying task.
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
        asks: The requests that the turn has sent.
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
    """A handler that waits, as it is stored."""

    id: str
    task: str
    key: str
    item: PortalQuestion | bytes | None
    turns: list[Turn]
    awaiting: dict[str, int]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Row).decode


class Waiting:
    """A handler that runs or waits.

    Attributes:
        id: The id: the step, and the number of the first turn there.
        task: Its task.
        key: Its key; None without keys.
        place: The names of both.
        item: The event or the question that it has taken; None for `on_atom_complete`.
        turns: Its history.
        awaiting: The number of the coroutine that waits, by the id of the awaited request.
        asks: The requests without a reply, by id; only while the coroutines are in memory.
        state: The attributes that variables of the coroutines hold.
        coroutines: The coroutine of the handler itself, None for a plain method; then those of its `then`. The list is
            empty while the coroutines are not in memory.
        counted: The number of turns in `size`, which is the approximate size of the history in bytes.
    """

    __slots__ = (
        "asks",
        "awaiting",
        "coroutines",
        "counted",
        "id",
        "item",
        "key",
        "place",
        "size",
        "state",
        "task",
        "turns",
    )

    def __init__(
        self, handler_id: str, task: TaskType, key: Any, place: Place, item: Held | None
    ) -> None:
        """Begin without a history.

        Args:
            handler_id: The id.
            task: Its task.
            key: Its key; None without keys.
            place: The name of the task, and the text of the key.
            item: The event or the question; None for `on_atom_complete`.
        """
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
        self.counted = self.size = 0

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
            ask.fail(f"{answer.failure.kind}: {answer.failure.message}")

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
        """Return the row."""
        return _encode(
            _Row(self.id, self.place[0], self.place[1], self.item, self.turns, self.awaiting)
        )


def decode_waiting(data: bytes, tasks: Mapping[str, TaskType]) -> Waiting | None:
    """Return the handler of a row, without coroutines; None if the application has its task no more."""
    row = _decode(data)
    task = tasks.get(row.task)
    if task is None:
        return None
    handler = Waiting(row.id, task, task.key_at(row.key), (row.task, row.key), row.item)
    handler.turns = row.turns
    handler.awaiting = row.awaiting
    return handler


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
