"""Waiting lines: for each key of a task, the handlers that wait, and the events and questions behind them.

A line is data, which a deployment does not change. Whether a task is `exclusive` decides only when the first item of a
line is taken: when no handler of the key waits, or at once. While items are in a line, new ones go behind them.

A line has one row; each item has a row of its own, and so has the place of each question, by which a cycle of handlers
that wait for each other is found.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey
from penstock.engine.streams.system_rows import LINE, QUESTION, QUEUED, bounded, system_key
from penstock.engine.streams.waiting import Held, Place, PortalQuestion, Waiting
from penstock.model.streams.task_type import TaskType

_HOLDERS_MAX: Final = 16
"""The waiting handlers that a line names; an exclusive task has one for each key, unless it became so meanwhile."""


class _Row(msgspec.Struct, array_like=True):
    """A line, as it is stored; `first` has the items themselves in a row of an earlier Penstock."""

    waiting: int
    first: int | list[PortalQuestion | bytes]
    end: int = 0
    holders: list[str] = []


class _Line:
    """The line of one key.

    Attributes:
        waiting: The number of handlers that wait.
        holders: The ids of the first ones.
        first: The number of the first item.
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


_encode: Final = Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Row).decode
_decode_item: Final = msgspec.msgpack.Decoder(PortalQuestion | bytes).decode
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
        """Begin with nothing in memory.

        Args:
            stored: Returns a row that this record has not read yet.
            undo: Takes a function for each change, which undoes it.
        """
        self._stored = stored
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
                row = _Row(line.waiting, line.first, line.end, line.holders)
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
        """Say whether a task that is not exclusive may have items in line: it was exclusive, and they were put there.

        Only code before the present one can have put the first item there, so a task without items needs one look. Rows
        of an earlier Penstock have no counts; then an item is taken when the handler before it ends.
        """
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
            given = _Row(0, 0) if row is None else _decode(row)
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
            line.items[number] = None if row is None else _decode_item(row)
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
        self.spot_of(question)  # what was read is removed if it is not written again
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
