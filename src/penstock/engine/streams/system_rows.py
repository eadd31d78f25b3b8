"""System rows: rows of the state that belong to no class of the application.

Work that outlives its log record is kept in them: handlers that wait, and events that wait behind these handlers.
Their names begin with `$`, so no class has such a name; that of effects is in `model.waiting_effect`. They are written, restored and copied as entities are.
"""

from typing import Final

from penstock.base.ids import EntityKey, RequestId, bounded, entity_key

WAIT: Final = "$wait"
"""A handler that waits; the key is the id of the handler."""

TURN: Final = "$turn"
"""A turn of such a handler; the key has the id of the handler and the number of the turn, 0 for the event or the question that it has taken."""

LINE: Final = "$line"
"""The handlers of one key of a task that wait, and the length of the line behind them; the key has task and key."""

QUEUED: Final = "$queued"
"""An event or a question in such a line; the key has task, key, and the place in the line. With the name of the task
alone, it is the number of items in all its lines."""

QUESTION: Final = "$question"
"""The place of a question in a line; the key is the id of the question."""

ASKER: Final = "$asker"
"""The handler that waits for a request to an entity; the key is the id of the request."""

REQUESTS: Final = "$requests"
"""The requests that are left of a cascade that was cut; the key is the id of the cascade, and `/` and a number for a page."""

STEPS: Final = "$steps"
"""The workflow steps that are left of such a cascade; the keys are the same."""

PAUSED: Final = "$paused"
"""A workflow that is paused, or was; the key is its name."""

HELD: Final = "$held"
"""A step of a paused workflow; the key has its name and the place of the step."""

BEHIND: Final = "$behind"
"""An atom behind those that a late workflow has missed; the key has its name and the place of the atom."""

LATE: Final = "$late"
"""The progress of a workflow that began with earlier atoms; the key is its name."""

GENERATOR: Final = "$generator"
"""The number of the next atom of a generator; the key is the id of its atoms without their numbers."""

CAPTURE: Final = "$capture"
"""The position of a stream of changes in the log of its database; the key is the name of the stream."""

TABLE: Final = "$table"
"""The rows of an entity in a published table; the key has the name of the table and the key of the entity."""

SCANNED: Final = "$scanned"
"""The progress of a scan for published tables; the key has the class or the workflow."""


def system_key(name: str, text: str) -> EntityKey:
    """Return the key of a system row; a long text is replaced by a hash of it."""
    return entity_key(name, bounded(text))


def former_rest_key(name: str, continuation: RequestId) -> EntityKey:
    """Return the key under which an earlier Penstock has stored a queue whole, for the record that continues it."""
    return system_key(name, f"{continuation}")
