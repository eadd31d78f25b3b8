"""The dependencies of a transaction, as its handlers see them: the running step, and the outlets."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

import msgspec

from penstock.base.ids import EntityKey

DELAY_MAX: Final = timedelta(days=365_000)
"""The longest delay of a request, and the longest time-out; the log can store the time that follows from it."""


class RunningStep(Protocol):
    """The services of the engine for a handler of a task.

    Attributes:
        running: The task whose handler runs; None between two handlers.
        pending: Takes the events of the running task until `pack` encodes them; None if `publish` takes each of them. It
            is a deque, because CPython sometimes calls `list.append` without a look at the limit of recursion.
    """

    running: Any
    pending: deque[Any] | None

    def pack(self) -> None:
        """Encode the pending events."""

    def ask(self, portal: Any, request: Any) -> Any:
        """Send a request to a portal, and return an awaitable."""

    def call(self, call: Any) -> Any:
        """Send a request to an entity, and return an awaitable."""

    def limit(self, ask: Any, time_us: int) -> None:
        """Let a request of the running handler fail if it has no result after a time."""

    def follow(self, coroutine: Any) -> None:
        """Run a coroutine on behalf of the running handler."""

    def publish(self, task: Any, event: Any) -> None:
        """Add an event to the output of a task."""

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the stored keys that begin with a prefix, in order."""

    def is_state(self, entity_type: Any, key: EntityKey, values: Mapping[str, Any]) -> bool:
        """Say whether the values of a stored or live key are state: not those of a key that no handler has changed."""

    def note_cleared(self, key: EntityKey) -> None:
        """Note that a handler has set the attributes of a key to their defaults, so that its row is removed."""

    def note_row(self, key: EntityKey, row: bytes) -> None:
        """Note that the running handler is the first handler of the step that reads a row."""

    def note_joined(self, entity_type: Any, key: EntityKey, values: Mapping[str, Any]) -> None:
        """Note that the running handler begins to use an instance that another handler of the step has used."""


class Emission(msgspec.Struct, frozen=True):
    """Events that a transaction publishes: the name of the stream, and the encoded events."""

    stream: str
    events: tuple[bytes, ...]


class Dispatch(msgspec.Struct, frozen=True):
    """A request that a transaction sends: its body, and its delay in microseconds."""

    body: bytes
    delay_us: int


class Outlet(Protocol):
    """The application, as far as a transaction sends events and requests to it."""

    @property
    def topology(self) -> Any:
        """Its streams."""

    @property
    def effects(self) -> Mapping[str, Any]:
        """Its effects, by name."""

    def effect_request(
        self, name: str, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> bytes:
        """Return the body of a request for an effect; see `App.effect_request`."""

    def entity(self, name: str) -> Any:
        """Return the entity class with a name; see `App.entity`."""

    def signature(self, entity: str, method: str) -> Any:
        """Return the signature of a method or function; see `App.signature`."""

    def request(
        self,
        entity: str,
        key: object,
        method: str,
        positional: Sequence[Any],
        named: Mapping[str, Any],
    ) -> tuple[bytes, bytes]:
        """Return the body of a request; see `App.request`."""

    def append(self, stream: str, events: Iterable[Any]) -> bytes:
        """Return the body of an append; see `App.append`."""
