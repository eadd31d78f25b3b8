"""A kit that runs an application in both ways of waiting, and compares every byte."""

from collections.abc import Iterable
from typing import Any

from penstock import App, testing
from penstock.engine.limits import Limits
from penstock.model.call import Call
from penstock.model.reply import Reply
from penstock.model.streams.stream import Stream
from penstock.runtime.local.runtime import LocalRuntime


class Kit(testing.Kit):
    """A kit whose handlers wait in memory; a second runtime stores them after each step."""

    def __init__(self, app: App, *, limits: Limits | None = None, **named: Any) -> None:
        super().__init__(app, limits=limits, **named)
        self.runtime: LocalRuntime = TwoWays(app, limits=limits, clock=lambda: self.clock.time_us)
        self.call = self.runtime.call


class TwoWays(LocalRuntime):
    """A local runtime with a second one, whose waits are durable."""

    def __init__(self, app: App, **named: Any) -> None:
        super().__init__(app, **named)
        self.durable = LocalRuntime(app, **named, durable_waits=True)

    def submit(self, call: Call[Any], rights: bytes = b"") -> Reply:
        self.durable._runner._limits = self._runner._limits
        self.durable.submit(call, rights)
        reply = super().submit(call, rights)
        self.compare()
        return reply

    def append(
        self, stream: Stream[Any] | str, events: Iterable[Any], *, request_id: str | None = None
    ) -> Reply:
        events = list(events) if isinstance(events, range) else events
        self.durable._runner._limits = self._runner._limits
        self.durable.failures[:] = self.failures
        self.durable.append(stream, events, request_id=request_id)
        reply = super().append(stream, events, request_id=request_id)
        self.compare()
        return reply

    def settle(self) -> bool:
        self.durable.settle()
        is_settled = super().settle()
        self.compare()
        return is_settled

    def compare(self) -> None:
        """Compare everything that a user can see, and the stored waits."""
        assert self.durable.streams == self.streams
        assert self.durable.state == self.state
        assert self.durable._known == self._known
        assert list(map(_text, self.durable.failures)) == list(map(_text, self.failures))


def _text(error: BaseException) -> tuple[type, str]:
    return type(error), str(error)
