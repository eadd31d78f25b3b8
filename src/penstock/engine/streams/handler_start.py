"""The start of a handler: its instance, its event or its question, and its `out`."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from types import AsyncGeneratorType, CoroutineType, GeneratorType, NoneType
from typing import Any, Final, TypeAlias

from penstock.base.ids import EntityKey
from penstock.engine.streams.flow_events import UNDECODED
from penstock.engine.streams.waiting import Held, Place, PortalQuestion
from penstock.errors import UserError
from penstock.model.context import ACTIVE, current
from penstock.model.streams.portal import Portal
from penstock.model.streams.task_type import ONLY_KEY, TaskType
from penstock.model.streams.topology import Topology

_map, _set, _type = map, set, type  # which a handler can have replaced

REMEMBERED: Final = frozenset({str, int, NoneType})
"""The types of the keys that `HandlerStarts` remembers."""


PENDING_MAX: Final = 10_000
"""The events that a handler may publish before they are encoded."""

TaskOutput: TypeAlias = Callable[[Any], None]
"""The `out` of a task's handlers."""

Start: TypeAlias = tuple[Place, Any, int]
"""The place of a key, its `self`, and the first turn that uses it; 0 if an earlier part of the step may have."""


def are_remembered(keys: Sequence[Any]) -> bool:
    """Say whether keys can be remembered: those of other types can lie about their equality."""
    return _set(_map(_type, keys)) <= REMEMBERED


def task_output(task: TaskType) -> TaskOutput:
    """Return the `out` of a task's handlers: a function, because CPython calls an object with more work.

    It publishes an event in the running step, also if an earlier step handed it out.
    """

    def out(event: Any, /) -> None:
        try:
            step = ACTIVE.get().step
        except LookupError:
            step = current().step  # its error
        if step is None:
            raise UserError(f"the output of {task.name} is used outside of its handlers")
        pending = step.pending
        if pending is None or step.running is not task:
            step.publish(task, event)
            return
        pending.append(event)
        if len(pending) >= PENDING_MAX:
            try:  # noqa: SIM105 -- `suppress` takes frames
                step.pack()
            except RecursionError:  # they stay pending
                pass

    return out


class HandlerStarts:
    """The places of one task's keys, each with its `self`; a key that comes again in a step costs one look-up."""

    __slots__ = ("_known", "task")

    def __init__(self, task: TaskType) -> None:
        self.task = task
        self._known: dict[Any, Start] = {}

    def known(self, keys: Sequence[Any]) -> Iterator[Start | None]:
        """Return the starts that are known when each of some keys begins a turn."""
        return map(self._known.get, keys) if are_remembered(keys) else repeat(None, len(keys))

    def of(self, key: Any, turn: int) -> Start:
        """Return the start of a key that is not among the known ones, for a turn."""
        task = self.task
        text = task.key_text(key)
        instance = task.rows.of_text(text)  # that of the running transaction
        is_fresh = type(instance) is task.rows.unloaded and task.shared is None
        start = (task.name, text), instance, turn if is_fresh else 0
        if type(key) in REMEMBERED:
            self._known[key] = start
        return start


def instance_of(task: TaskType, key_text: str) -> Any:
    """Return the `self` of a handler; an empty text is `on_atom_complete` of a task with keys."""
    return task.rows.of_text(key_text) if key_text else task.completing_instance()


def state_keys(task: TaskType, key_text: str) -> list[EntityKey]:
    """Return the keys of the rows that a handler has by its `self`."""
    keys = [EntityKey(task.rows.prefix + key_text)] if key_text and task.rows.attributes else []
    if task.shared is not None:
        keys.append(EntityKey(task.shared.prefix + ONLY_KEY))
    return keys


def start_handler(
    task: TaskType,
    item: Held | None,
    instance: Any,
    out: TaskOutput | None,
    event: Any = UNDECODED,
) -> Any:
    """Call a handler, and return its result; that of an `async` handler is a coroutine that has not begun.

    Args:
        item: The encoded event or the question; None for `on_atom_complete`.
        instance: The `self` of the handler.
        out: Its `out`.
        event: The decoded event, if handlers can share it.
    """
    if item is None:
        assert task.completion is not None, "the caller has looked"
        return task.completion(instance, *[out] * task.completion_takes_out)
    if type(item) is PortalQuestion:
        responder = task.responders[item.portal]
        assert responder.portal.request_type is not None, "an application was built with it"
        handler, takes_out = responder.function, responder.takes_out
        value = responder.portal.request_type.decode(item.data)
    else:
        assert task.event is not None, "an application was built with the task"
        handler, takes_out = task.cls.on_event, task.takes_out  # type: ignore[attr-defined]
        value = task.event.decode(item) if event is UNDECODED else event  # type: ignore[arg-type]
    return handler(instance, value, out) if takes_out else handler(instance, value)


def question_of(
    topology: Topology, asker: TaskType, key: Any, portal: Portal[Any, Any], request: Any
) -> tuple[str, bytes]:
    """Return the text of the key under which a portal takes a request, and the encoded request.

    Args:
        key: The key of the asking handler; None without keys.

    Raises:
        Unencodable: The request does not fit its type.
    """
    origin = portal.origin
    if topology.portals.get(portal.name) is not origin or portal.request_type is None:
        raise UserError(f"{portal.where}: no task of this application replies to {portal.name}")
    _, responding = topology.responders[portal.name]
    data = portal.request_type.encode(request)
    if origin.key is not None:
        assert origin.request_type is not None, "an application was built with the portal"
        key = origin.key(origin.request_type.decode(data))
    elif responding.is_keyed and not asker.is_keyed:
        raise UserError(
            f"portal {portal.name}: {responding.name} has keys, and {asker.name} asks without one; declare the "
            "portal with key="
        )
    return responding.key_text(key), data  # refuses a value that cannot be a key


def refuse_generator(task: TaskType, result: Any) -> None:
    """Refuse the result of a handler that would never run."""
    if type(result) in (GeneratorType, AsyncGeneratorType, CoroutineType):
        raise UserError(
            f"a handler of {task.name} returned a {type(result).__name__}, which would never run; publish events "
            "with `out(event)`"
        )
