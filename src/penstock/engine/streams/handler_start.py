"""A handler of a task, and the `self` of each of its calls."""

from collections.abc import Callable, Sequence
from types import AsyncGeneratorType, CoroutineType, GeneratorType, NoneType
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.base.ids import EntityKey
from penstock.engine.streams.waiting import Held, Place, PortalQuestion
from penstock.errors import UserError
from penstock.model.context import ACTIVE, current
from penstock.model.streams.portal import Portal
from penstock.model.streams.task_type import ONLY_KEY, TaskType
from penstock.model.streams.topology import Topology

_map, _set, _type = map, set, type  # which a handler can have replaced

COMPLETE: Final = "complete"
"""The kind of `on_atom_complete`."""

REMEMBERED: Final = frozenset({str, int, NoneType})
"""The types of the keys whose start a step remembers."""


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
    """Return the `out` of a task's handlers; it publishes an event in the running step, also if an earlier step handed it out."""

    # A function, because CPython needs more work to call an object.
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


class Handler(NamedTuple):
    """A method of a task, as a step calls it: `function(self, value, out)`.

    Attributes:
        kind: The kind of its work, in `TaskType.noted`.
        decode: Returns the value of an item; `on_atom_complete` has None for both.
        out: None if it takes none.
    """

    task: TaskType
    kind: str
    function: Callable[..., Any]
    decode: Callable[[Any], Any]
    out: TaskOutput | None


def handler_for(task: TaskType, item: Held | None) -> Handler:
    """Return the handler that takes an item: an encoded event or a question; None is the end of an atom."""
    if item is None:
        completion = task.completion
        assert completion is not None, "the caller has looked"
        out = task_output(task) if task.completion_takes_out else None
        return Handler(
            task,
            COMPLETE,
            lambda instance, _, *out: completion(instance, *out),
            lambda _: None,
            out,
        )
    if type(item) is PortalQuestion:
        responder = task.responders[item.portal]
        decode_request = responder.portal.request_type
        assert decode_request is not None, "an application was built with it"
        out = task_output(task) if responder.takes_out else None
        return Handler(
            task,
            f"portal {item.portal}",
            responder.function,
            lambda question: decode_request.decode(question.data),
            out,
        )
    return event_handler(task)


def event_handler(task: TaskType) -> Handler:
    """Return the handler that takes encoded events."""
    assert task.event is not None, "an application was built with the task"
    out = task_output(task) if task.takes_out else None
    return Handler(task, "event", task.cls.on_event, task.event.decode, out)  # type: ignore[attr-defined]


def start_of(task: TaskType, key: Any, turn: int) -> Start:
    """Return the start of a key for a turn."""
    text = task.key_text(key)
    instance = task.rows.of_text(text)  # that of the running transaction
    # An instance that is loaded already was used by an earlier turn, and its reads by this turn would go unseen.
    is_fresh = type(instance) is task.rows.unloaded and task.shared is None
    return (task.name, text), instance, turn if is_fresh else 0


def completing_start(task: TaskType, key: Any, turn: int) -> Start:
    """Return the start of `on_atom_complete`, which has no current key if the task has keys."""
    if task.is_keyed:
        return (task.name, ""), task.completing_instance(), 0
    return start_of(task, key, turn)


def instance_of(task: TaskType, key_text: str) -> Any:
    """Return the `self` of a handler; an empty text is `on_atom_complete` of a task with keys."""
    return task.rows.of_text(key_text) if key_text else task.completing_instance()


def state_keys(task: TaskType, key_text: str) -> list[EntityKey]:
    """Return the keys of the rows that a handler has by its `self`."""
    keys = [EntityKey(task.rows.prefix + key_text)] if key_text and task.rows.attributes else []
    if task.shared is not None:
        keys.append(EntityKey(task.shared.prefix + ONLY_KEY))
    return keys


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
        # Of the decoded request, not of the handler's own object, which the function of the key could change.
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
