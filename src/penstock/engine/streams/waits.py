"""Waits: the handlers that wait for the reply of a portal.

Nearly always a reply comes in the same cascade, so a waiting handler stays in memory as a coroutine. Its `self` is
an entity instance, which the end of a step turns into a reference; when the handler goes on, its first use of an
attribute loads the state of that moment.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.model.request import Failure
from penstock.model.streams.ask import Ask
from penstock.model.streams.task_type import TaskType


class PortalQuestion(NamedTuple):
    """A request to a portal, on its way to the replying task.

    Attributes:
        id: The id of the request.
        workflow, task: The asker: the names of its workflow and its task.
        portal: The name of the portal.
        key: The key of the replying task; None if that task has no keys.
        data: The encoded request.
    """

    id: str
    workflow: str
    task: str
    portal: str
    key: Any
    data: bytes


class Answer(NamedTuple):
    """The reply to a question: encoded, or the failure in its place."""

    id: str
    data: bytes | None
    failure: Failure | None = None


@dataclass(slots=True, eq=False)
class Waiting:
    """A handler that waits.

    Attributes:
        task: Its task.
        key: Its key; None without keys.
        place: The names of both.
        coroutine: The suspended handler.
        question: The question that it replies to when it ends; None for `on_event`.
    """

    task: TaskType
    key: Any
    place: "Place"
    coroutine: Coroutine[Any, Any, Any]
    question: PortalQuestion | None


Held = PortalQuestion | bytes
"""A question, or an encoded event, that waits behind a handler of the same key."""

Place = tuple[str, str]
"""The name of a task, and the text of a key."""


class Waits:
    """All handlers that wait, of all workflows; the changes of a step that fails can be undone.

    Attributes:
        asks: The requests without a reply, by id.
        waiting: The handlers, by the id of the request whose reply they wait for.
    """

    def __init__(self) -> None:
        self.asks: dict[str, Ask[Any]] = {}
        self.waiting: dict[str, Waiting] = {}
        self._busy: dict[Place, int] = {}
        self._held: dict[Place, list[Held]] = {}
        self._askers: dict[str, tuple[str, str]] = {}
        self._undo: list[Callable[[], object]] = []

    def commit(self) -> None:
        """Keep the changes since the last call of `commit` or `undo`."""
        self._undo.clear()

    def undo(self) -> None:
        """Undo the changes since the last call of `commit` or `undo`."""
        while self._undo:
            self._undo.pop()()

    def send(self, ask: Ask[Any]) -> None:
        """Note a request without a reply."""
        self.asks[ask.id] = ask
        self._undo.append(lambda: self.asks.pop(ask.id))

    def send_request(self, ask_id: str, workflow: str, task: str) -> None:
        """Note the task that waits for the result of a request to an entity."""
        self._askers[ask_id] = (workflow, task)
        self._undo.append(lambda: self._askers.pop(ask_id))

    def take_asker(self, request_id: str) -> tuple[str, str] | None:
        """Remove and return the workflow and the task that wait for the result of a request; None if none does."""
        return self._askers.pop(request_id, None) if self._askers else None

    def answer(self, ask_id: str) -> tuple[Ask[Any], Waiting | None]:
        """Remove a request whose reply has come, and the handler that waits for it."""
        ask = self.asks.pop(ask_id)
        self._undo.append(lambda: self.asks.update({ask_id: ask}))
        handler = self.waiting.pop(ask_id, None)
        if handler is not None:
            waiting = handler
            self._undo.append(lambda: self.waiting.update({ask_id: waiting}))
            self._count(handler.place, -1)
        return ask, handler

    def wait(self, ask_id: str, handler: Waiting) -> None:
        """Let a handler wait for a reply."""
        self.waiting[ask_id] = handler
        self._undo.append(lambda: self.waiting.pop(ask_id))
        self._count(handler.place, 1)

    def _count(self, place: Place, change: int) -> None:
        before = self._busy.get(place, 0)
        self._set_busy(place, before + change)
        self._undo.append(lambda: self._set_busy(place, before))

    def _set_busy(self, place: Place, count: int) -> None:
        if count:
            self._busy[place] = count
        else:
            self._busy.pop(place, None)

    def is_busy(self, place: Place) -> bool:
        """Say whether a handler of this key waits."""
        return place in self._busy

    def hold(self, place: Place, item: Held) -> None:
        """Keep an event or a question until no handler of its key waits."""
        self._held.setdefault(place, []).append(item)
        self._undo.append(lambda: self._take_held(place, -1))

    def next_held(self, place: Place) -> Held | None:
        """Remove and return what was held first, if no handler of its key waits; None if nothing is held."""
        if place not in self._held or place in self._busy:
            return None
        item = self._take_held(place, 0)
        self._undo.append(lambda: self._held.setdefault(place, []).insert(0, item))
        return item

    def _take_held(self, place: Place, index: int) -> Held:
        items = self._held[place]
        item = items.pop(index)
        if not items:
            del self._held[place]
        return item
