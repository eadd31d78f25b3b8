"""The local runtime: one thread takes the requests one by one. It *is* the guarantee.

Whatever the Spark runtime answers must equal, byte for byte, what this one answers for the same
log. It has no epochs to speak of, no rounds and no recovery: dictionaries, in order. It serves
unit tests, debugging with `pdb`, and as the oracle.

A failure raises what it raises for a caller of any other runtime: `Aborted` with the name of the
user's exception in `kind`. Only here that exception is at hand too, as its `__cause__`, so that a
test's report shows where in the handler it was raised.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.engine.execute import Executor, Limits, Outcome
from penstock.errors import RequestConflict, RequestError
from penstock.log.api import Record
from penstock.model.application import App
from penstock.model.context import active
from penstock.model.reply import Reply, caller_of
from penstock.process.guard import Guard


class LocalRuntime:
    """Runs an application in this thread, without Spark and without disk.

    Attributes:
        app: The application.
        state: For every entity its encoded attributes.
        call: Calls entities as one writes it: `runtime.call.Item("i1").update_stock(5)`.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: Limits | None = None,
        clock: Callable[[], int] = lambda: 0,
        secret: bytes = b"",
    ) -> None:
        """Start with no entities.

        Args:
            app: The application.
            limits: What a transaction may use.
            clock: Gives microseconds since the Unix epoch.
            secret: What `random()` and `uuid()` mix in; of a journal, to agree with it.
        """
        self.app = app
        self.state: dict[EntityKey, bytes] = {}
        self.call = caller_of(self)
        self._limits = limits or Limits()
        self._executor = Executor(app, self.state.get, self._limits)
        self._executor.secret = secret
        self._executor.keeps_raised = True
        self._clock = clock
        self._known: dict[RequestId, tuple[bytes, Reply]] = {}

    def submit(
        self,
        entity: str,
        key: object,
        method: str,
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> Reply:
        """Process one request; see `penstock.model.reply.Runtime`."""
        if active() is not None:
            raise RequestError("a handler calls entities itself; it cannot wait for a request")
        body, _ = self.app.request(entity, key, method, positional, named)
        lsn = Lsn(len(self._known))
        chosen = RequestId(f"local-{lsn}" if request_id is None else request_id)
        fresh = chosen not in self._known
        with Guard(self._executor, self._limits):
            reply = self._take(Record(lsn, chosen, body, self._clock()))
        return replace(reply, cause=self._executor.raised) if fresh else reply

    def replay(self, records: Iterable[Record]) -> list[Reply]:
        """Process the records of a log, in order, and return their replies."""
        with Guard(self._executor, self._limits) as guard:
            return [self._take(record) for record in guard.each(records)]

    def _take(self, record: Record) -> Reply:
        known = self._known.get(record.request_id)
        if known is not None:
            if known[0] != record.body:
                raise RequestConflict(f"request id {record.request_id} has another body already")
            return known[1]
        outcome = self._executor.run(record.request_id, record.body, record.time_us)
        self._apply(outcome)
        reply = Reply(
            record.request_id, record.lsn, Epoch(record.lsn), outcome.error, outcome.reply
        )
        self._known[record.request_id] = (record.body, reply)
        return reply

    def _apply(self, outcome: Outcome) -> None:
        for key, data in outcome.writes.items():
            if data is None:
                self.state.pop(key, None)
            else:
                self.state[key] = data
