"""The local runtime: one thread processes the requests one by one. It defines the guarantee.

The Spark runtime must answer each log with the same bytes as this runtime. There are no epochs,
rounds or recovery here, only dictionaries. It serves unit tests, debugging with `pdb`, and the tests
of the engine as the oracle.

A failure raises the same error as any other runtime: `Aborted`, with the name of the handler's
exception in `kind`. Only here the exception itself is its `__cause__`, so that the report of a test
shows the line of the handler that raised it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.base.ids import EntityKey, Epoch, Lsn, RequestId
from penstock.engine.execute import Executor, Limits
from penstock.engine.replay import apply_changes
from penstock.engine.streams.cascade import CASCADE_STEPS, Cascade, Cascades
from penstock.errors import PenstockError, RequestConflict, RequestError
from penstock.log.api import Record
from penstock.model.application import App
from penstock.model.call import Call
from penstock.model.context import active
from penstock.model.reply import Reply, caller_of, raised_by
from penstock.model.request import Failure
from penstock.model.streams.stream import Atom
from penstock.process.guard import Guard


class LocalRuntime:
    """Runs an application in this thread, without Spark and without disk.

    Attributes:
        app: The application.
        state: The encoded attributes of every entity, and of every key of a task.
        streams: The published atoms of each stream, in order, by the name of the stream.
        failures: The failures of workflow steps, each with its exception as `__cause__`.
        call: Calls entities: `runtime.call.Item("i1").update_stock(5)`.
    """

    def __init__(
        self,
        app: App,
        *,
        limits: Limits | None = None,
        clock: Callable[[], int] = lambda: 0,
        secret: bytes = b"",
        cascade_steps: int = CASCADE_STEPS,
    ) -> None:
        """Start with no entities.

        Args:
            app: The application.
            limits: The limits of one transaction.
            clock: Returns microseconds since the Unix epoch.
            secret: The secret of a journal, which `random()` and `uuid()` use, to agree with it.
            cascade_steps: The most steps of a cascade before the rest becomes the work of a later record.
        """
        self.app = app
        self.state: dict[EntityKey, bytes] = {}
        self.call = caller_of(self)
        self._limits = limits or Limits()
        self._executor = Executor(app, self.state.get, self._limits)
        self._executor.secret = secret
        self._executor.keeps_raised = True
        self._clock = clock
        self.streams: dict[str, list[Atom]] = {name: [] for name in app.topology.streams}
        self._cascades = Cascades(
            app,
            self._executor,
            self.state.get,
            self._keys,
            self._apply,
            self._limits,
            steps_max=cascade_steps,
        )
        self._cascades.on_failure = self._note_failure
        self._cut: deque[Cascade] = deque()
        self.failures: list[PenstockError] = []
        self._known: dict[RequestId, tuple[bytes, Reply]] = {}

    def submit(self, call: Call[Any]) -> Reply:
        """Process a call as one request; see `penstock.model.reply.Runtime`."""
        if active() is not None:
            raise RequestError("a handler calls entities itself; it cannot wait for a request")
        body, _ = self.app.request(call.entity, call.key, call.method, call.positional, call.named)
        return self._submit(body, call.request_id)

    def append(self, stream: str, events: Iterable[Any], *, request_id: str | None = None) -> Reply:
        """Publish events on a stream, as one atom, and run what they cause.

        Args:
            stream: The name of a stream of the application.
            events: The events of the atom.
            request_id: The id of the append; an append with a known id has no effect.

        Raises:
            RequestError: The stream does not exist, or an event does not fit its type.
        """
        return self._submit(self.app.append(stream, events), request_id)

    def _submit(self, body: bytes, chosen_id: str | None) -> Reply:
        lsn = Lsn(len(self._known))
        request_id = RequestId(f"local-{lsn}" if chosen_id is None else chosen_id)
        fresh = request_id not in self._known
        with Guard(self._executor, self._limits):
            self.continue_cascades()
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
        self._apply(outcome.writes)
        cascade = self._cascades.begin(record.request_id, record.time_us, outcome.emitted)
        if cascade is not None:
            self._run(cascade)
        reply = Reply(
            record.request_id, record.lsn, Epoch(record.lsn), outcome.error, outcome.reply
        )
        self._known[record.request_id] = (record.body, reply)
        return reply

    def continue_cascades(self) -> bool:
        """Take the next steps of each cascade that was cut; return whether any has steps left."""
        for _ in range(len(self._cut)):
            self._run(self._cut.popleft())
        return bool(self._cut)

    def _run(self, cascade: Cascade) -> None:
        if not self._cascades.run(cascade):
            self._cut.append(cascade)
        for atom in cascade.published:
            self.streams[atom.stream].append(atom.events)
        cascade.published.clear()

    def _apply(self, writes: dict[EntityKey, bytes | None]) -> None:
        apply_changes(self.state, writes)

    def _note_failure(self, failure: Failure) -> None:
        error = raised_by(failure.code, failure.kind, failure.message)
        error.__cause__ = self._executor.raised
        self.failures.append(error)

    def _keys(self, prefix: str) -> list[EntityKey]:
        return sorted(key for key in self.state if key.startswith(prefix))
