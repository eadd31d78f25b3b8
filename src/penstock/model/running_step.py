"""The step of a workflow that runs, as the handlers of tasks see it through their transaction."""

from typing import Any, Protocol

from penstock.base.ids import EntityKey


class RunningStep(Protocol):
    """What a handler of a task can ask the engine for."""

    def ask(self, portal: Any, request: Any) -> Any:
        """Send a request to a portal, and return what the handler can await."""

    def follow(self, coroutine: Any) -> None:
        """Run a coroutine on behalf of the running handler."""

    def publish(self, task: Any, event: Any) -> None:
        """Add an event to the output of a task."""

    def blank_row(self, name: str) -> bytes:
        """Return the row of a key without state, by the name of its entity class."""

    def keys(self, prefix: str) -> list[EntityKey]:
        """Return the stored keys that begin with a prefix, in order."""
