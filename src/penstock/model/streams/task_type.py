"""The description of a task: a class of the user in one place of one workflow.

A task is to the engine what an entity class is: it has rows by key. `task_rows` makes the entity classes of these
rows, `task_handlers` finds the handlers, and `task_definition` checks all of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from penstock.errors import UserError
from penstock.model.attribute import new_value
from penstock.model.entity_type import EntityType
from penstock.model.personal import PersonalType
from penstock.model.streams.event_type import EventType
from penstock.model.streams.portal import Portal
from penstock.model.streams.stream import UNKNOWN

_LARGEST: Final = 1 << 63
KEY: Final = "__task_key"
"""The attribute that holds the key of an instance."""

ONLY_KEY: Final = "-"
"""The text of the key of a task without keys, and of the row that all keys share."""


class Responder(msgspec.Struct, frozen=True):
    """The method of a task that replies to a portal."""

    portal: Portal[Any, Any]
    function: Callable[..., Any]
    takes_out: bool


@dataclass(slots=True, eq=False)
class TaskType:
    """A task of a workflow.

    Attributes:
        name: Workflow and task: `wordcount.Count`.
        where: `file:line` of the operator.
        is_keyed: Whether the task has state by key.
        key_annotation: The type of the keys; `UNKNOWN` for `str` and `int`.
        exclusive: Whether the events of a key wait while a handler of that key waits.
        shared: The row of the attributes that all keys share; None without such attributes.
        event: The type of the events that it takes.
        output: The type of the events that it publishes; None if it publishes none.
        takes_out: Whether `on_event` takes `out`.
        completion: `on_atom_complete`, if there is one.
        completion_takes_out: Whether it takes `out`.
        responders: The methods that reply to portals, by the name of the portal.
        completing: The class of `self` in `on_atom_complete` of a task with keys.
        noted: The kinds of handlers that have waited although other handlers of their step had used the same rows. The
            engine adds them, and from then on notes their reads from their start. No result depends on it.
    """

    name: str
    cls: type
    where: str
    is_keyed: bool
    key_annotation: Any
    exclusive: bool
    rows: EntityType
    shared: EntityType | None = None
    event: EventType[Any] | None = None
    output: EventType[Any] | None = None
    takes_out: bool = False
    completion: Callable[..., Any] | None = None
    completion_takes_out: bool = False
    responders: dict[str, Responder] = field(default_factory=dict)
    completing: type = object
    noted: set[str] = field(default_factory=set)

    @property
    def has_state(self) -> bool:
        """Whether its handlers have any attributes."""
        return bool(self.rows.attributes) or self.shared is not None

    def key_text(self, value: object) -> str:
        """Return the text of a key, as rows have it.

        Raises:
            Unencodable: The value cannot be a key of this task.
        """
        if not self.is_keyed:
            return ONLY_KEY
        if self.key_annotation is int and type(value) is int and -_LARGEST <= value < _LARGEST:
            return int.__repr__(value)
        if self.key_annotation is not UNKNOWN:
            return self.rows.key_text(value)
        if type(value) not in (str, int):
            raise UserError(
                f"{self.where}: {self.name} got a key of type {type(value).__qualname__}; without a declared "
                "type a key is a str or an int: give .key a function with a declared result"
            )
        return self.rows.key_text(msgspec.json.encode(value).decode())

    def key_at(self, text: str) -> Any:
        """Return the key with a text; None for a task without keys."""
        if not self.is_keyed:
            return None
        value = self.rows.key_at(text)
        return msgspec.json.decode(value) if self.key_annotation is UNKNOWN else value

    def blank_rows(self) -> dict[str, bytes]:
        """Return the row of a key without state, by the name of the entity class."""
        types = [self.rows, *([self.shared] if self.shared else [])]
        return {entity_type.name: _blank_row(entity_type) for entity_type in types}

    def completing_instance(self) -> Any:
        """Return the `self` of `on_atom_complete`: it has no current key, unless the task has no keys."""
        if not self.is_keyed:
            return self.rows.of_text(ONLY_KEY)
        return object.__new__(self.completing)


def flow_of(task: str) -> str:
    """Return the name of the workflow of a task, by the name of the task."""
    return task.partition(".")[0]


def _blank_row(entity_type: EntityType) -> bytes:
    """Return the row of the defaults, which is never encrypted."""
    values = {name: new_value(default) for name, default in entity_type.defaults.items()}
    row = EntityType.encode(entity_type, {KEY: ONLY_KEY, **values})
    if isinstance(entity_type, PersonalType):
        entity_type.blank = row
    return row
