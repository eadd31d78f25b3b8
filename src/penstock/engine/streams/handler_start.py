"""The start of a handler: its instance, its event or its question, and its `out`."""

from types import AsyncGeneratorType, CoroutineType, GeneratorType, NoneType
from typing import Any, Final

from penstock.base.ids import EntityKey
from penstock.engine.streams.flow_events import UNDECODED
from penstock.engine.streams.waiting import Held, Place, PortalQuestion
from penstock.errors import UserError
from penstock.model.context import current
from penstock.model.streams.portal import Portal
from penstock.model.streams.task_type import ONLY_KEY, TaskType
from penstock.model.streams.topology import Topology

REMEMBERED: Final = frozenset({str, int, NoneType})
"""The types of the keys that `HandlerStarts` remembers."""


class TaskOutput:
    """The `out` of a task's handlers."""

    __slots__ = ("_task",)

    def __init__(self, task: TaskType) -> None:
        self._task = task

    def __call__(self, event: Any, /) -> None:
        """Publish an event in the running step, also if an earlier step handed out this object."""
        step = current().step
        if step is None:
            raise UserError(f"the output of {self._task.name} is used outside of its handlers")
        step.publish(self._task, event)


class HandlerStarts:
    """The places of one task's keys, each with its `self`; a key that comes again in a step costs one look-up.

    Attributes:
        known: The places so far. Keys of other types than those in `REMEMBERED` are never here, because they can lie
            about their equality.
    """

    __slots__ = ("_task", "known")

    def __init__(self, task: TaskType) -> None:
        self._task = task
        self.known: dict[Any, tuple[Place, Any]] = {}

    def of(self, key: Any) -> tuple[Place, Any]:
        """Return the place of a key, and its `self`.

        Raises:
            UserError: The value cannot be a key of the task.
        """
        task = self._task
        text = task.key_text(key)
        known = (task.name, text), task.rows.of_text(text)  # the one of the running transaction
        if type(key) in REMEMBERED:
            self.known[key] = known
        return known


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
        task: The task.
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
        topology: The streams of the application.
        asker: The asking task.
        key: The key of the asking handler; None without keys.
        portal: The portal.
        request: The request.

    Raises:
        UserError: No task of the application replies to the portal, or the request has no key.
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
    """Refuse the result of a handler that would never run.

    Raises:
        UserError: The handler returned a generator or a coroutine.
    """
    if type(result) in (GeneratorType, AsyncGeneratorType, CoroutineType):
        raise UserError(
            f"a handler of {task.name} returned a {type(result).__name__}, which would never run; publish events "
            "with `out(event)`"
        )
