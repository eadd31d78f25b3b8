"""The local runtime: one thread processes the requests one by one. It defines the guarantee.

The Spark runtime must answer each log with the same bytes as this runtime. There are no epochs,
rounds or recovery here, only dictionaries. It serves unit tests, debugging with `pdb`, and the tests
of the engine as the oracle.

A failure raises the same error as any other runtime: `Aborted`, with the name of the handler's
exception in `kind`. Only here the exception itself is its `__cause__`, so that the report of a test
shows the line of the handler that raised it.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.engine.execute import Executor, Limits
from penstock.engine.replay import apply_changes
from penstock.errors import RequestConflict, RequestError
from penstock.log.api import Record
from penstock.model.application import App
from penstock.model.call import Call
from penstock.model.context import active
from penstock.model.reply import Reply, caller_of
from penstock.process.guard import Guard


class LocalRuntime:
    """Runs an application in this thread, without Spark and without disk.

    Attributes:
        app: The application.
        state: The encoded attributes of every entity.
        call: Calls entities: `runtime.call.Item("i1").update_stock(5)`.
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
            limits: The limits of one transaction.
            clock: Returns microseconds since the Unix epoch.
            secret: The secret of a journal, which `random()` and `uuid()` use, to agree with it.
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

    def submit(self, call: Call[Any]) -> Reply:
        """Process a call as one request; see `penstock.model.reply.Runtime`."""
        if active() is not None:
            raise RequestError("a handler calls entities itself; it cannot wait for a request")
        body, _ = self.app.request(call.entity, call.key, call.method, call.positional, call.named)
        lsn = Lsn(len(self._known))
        request_id = RequestId(f"local-{lsn}" if call.request_id is None else call.request_id)
        fresh = request_id not in self._known
        with Guard(self._executor, self._limits):
            reply = self._process(Record(lsn, request_id, body, self._clock()))
        return replace(reply, cause=self._executor.raised) if fresh else reply

    def replay(self, records: Iterable[Record]) -> list[Reply]:
        """Process the records of a log, in order, and return their replies."""
        with Guard(self._executor, self._limits) as guard:
            return [self._process(record) for record in guard.each(records)]

    def _process(self, record: Record) -> Reply:
        known = self._known.get(record.request_id)
        if known is not None:
            if known[0] != record.body:
                raise RequestConflict(f"request id {record.request_id} has another body already")
            return known[1]
        outcome = self._executor.run(record.request_id, record.body, record.time_us)
        apply_changes(self.state, outcome.writes)
        reply = Reply(
            record.request_id, record.lsn, Epoch(record.lsn), outcome.error, outcome.reply
        )
        self._known[record.request_id] = (record.body, reply)
        return reply
