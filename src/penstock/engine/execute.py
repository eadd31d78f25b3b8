"""The executor: runs one request as one transaction over a `read` function, and returns its writes.

Every transaction takes effect, is undone with a failure, or escapes, for every behaviour of its
handler. The executor changes no state: the caller applies the writes. The caller also interrupts a
handler that runs too long, by raising `Interrupted` inside it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.ids import EntityKey, RequestId, split_entity_key
from penstock.base.lowering import lower_reply
from penstock.base.schema import reason_of, refuse
from penstock.engine.calls import SAMPLED_EVERY, SAMPLED_RUN, CallSampler
from penstock.engine.failure import Escape, cancelled, error_name, exceeded, failure_of
from penstock.engine.isolation import Isolation
from penstock.engine.limits import Limits as Limits
from penstock.errors import (
    Cancelled,
    Erased,
    Forbidden,
    LimitExceeded,
    ReadonlyViolation,
    RequestError,
    Unencodable,
)
from penstock.model.application import App, protected_request
from penstock.model.catch_up import CATCH_UP
from penstock.model.context import Read, Transaction, activate
from penstock.model.declaration import CREATIONS
from penstock.model.entity import CHECKING
from penstock.model.entity_type import EntityType
from penstock.model.index import change_indexes
from penstock.model.personal import ERASED
from penstock.model.principal import principal_id, principal_of
from penstock.model.references import require_references
from penstock.model.request import (
    CONTINUE,
    Failure,
    Request,
    append_events,
    decode_request,
    encode_failure,
    encode_request,
    is_cancelled,
    rights_in,
)
from penstock.model.right import RIGHT
from penstock.model.running_step import Dispatch, Emission
from penstock.model.sealed_value import REPLY, open_value, sealed_request, subject_of
from penstock.model.signature import NONE_BY_NAME, NONE_BY_POSITION, Signature
from penstock.model.streams.published_table import changes_of, encode_changed
from penstock.model.streams.stream import publish
from penstock.model.table_scan import SCAN, decode_piece
from penstock.model.time_limit import Interrupted
from penstock.model.waiting_effect import (
    IGNORED,
    SETTLE,
    Settled,
    Settlement,
    Then,
    decode_settlement,
    effect_key,
    outcome_value,
    reply_of,
    settled,
    then_request,
    waiting_row,
)
from penstock.native.choice import core

# The requests and the steps that wait are counted, and their bytes. A request or a step that causes more than the limits
# allow fails, so a cascade that grows without end cannot fill memory and journal. The queues follow from the order of the
# log alone, so every run fails the same request.


class QueueRoom:
    """Counts the requests and steps that wait in the running cascade.

    Attributes:
        requests: The number of requests that wait.
        steps: The number of workflow steps that wait.
    """

    __slots__ = ("_limits", "_subscribers", "request_bytes", "requests", "step_bytes", "steps")

    def __init__(self, limits: Limits, subscribers: Mapping[str, Sequence[Any]]) -> None:
        self._limits = limits
        self._subscribers = subscribers
        self.clear()

    def clear(self) -> None:
        """Begin another cascade."""
        self.requests = self.request_bytes = self.steps = self.step_bytes = 0

    def take(self, outbox: Sequence[Emission | Dispatch]) -> None:
        """Count the events and requests that a request has sent; they wait now."""
        requests, request_bytes, steps, step_bytes = self._sizes(outbox)
        self.requests += requests
        self.request_bytes += request_bytes
        self.steps += steps
        self.step_bytes += step_bytes

    def remove(self, body: bytes) -> None:
        """Note that a request waits no more."""
        self.requests -= 1
        self.request_bytes -= len(body)

    def check(self, outbox: Sequence[Emission | Dispatch]) -> None:
        """Check whether there is room for the events and requests of a request."""
        if len(outbox) == 1 and type(outbox[0]) is Emission:  # nearly always
            if takers := self._subscribers.get(outbox[0].stream):
                count = len(takers)
                self.check_steps(count, count * sum(map(len, outbox[0].events)))
            return
        requests, request_bytes, steps, step_bytes = self._sizes(outbox)
        if requests:
            self._check("requests", self.requests + requests, self.request_bytes + request_bytes)
        if steps:
            self.check_steps(steps, step_bytes)

    def has_room(self, steps: int, size: int) -> bool:
        """Say whether there is room for workflow steps with these bytes."""
        limits = self._limits
        has_bytes = self.step_bytes + size <= limits.cascade_queue_bytes
        return has_bytes and self.steps + steps <= limits.cascade_queue

    def check_steps(self, steps: int, size: int) -> None:
        """Check whether there is room for workflow steps with these bytes; raises as `check`."""
        self._check("workflow steps", self.steps + steps, self.step_bytes + size)

    def _sizes(self, outbox: Sequence[Emission | Dispatch]) -> tuple[int, int, int, int]:
        """Return the number and the bytes of the requests, and of the workflow steps, that wait then."""
        requests = request_bytes = steps = step_bytes = 0
        for item in outbox:
            if isinstance(item, Emission):
                if takers := self._subscribers.get(item.stream):
                    steps += len(takers)
                    step_bytes += len(takers) * sum(map(len, item.events))
            elif not item.delay_us:
                requests += 1
                request_bytes += len(item.body)
        return requests, request_bytes, steps, step_bytes

    def _check(self, what: str, count: int, size: int) -> None:
        limits = self._limits
        if count > limits.cascade_queue:
            exceeded = (
                f"{count} {what} would wait, more than cascade_queue = {limits.cascade_queue}"
            )
        elif size > limits.cascade_queue_bytes:
            exceeded = (
                f"{what} of {size} bytes would wait, more than "
                f"cascade_queue_bytes = {limits.cascade_queue_bytes}"
            )
        else:
            return
        raise LimitExceeded(
            f"the queue of the cascade is full: {exceeded}; send less at once, or the rest from "
            "later requests (send_after)"
        )


def check_sizes(
    limits: Limits,
    touched: int,
    size: int,
    writes: Mapping[EntityKey, bytes | None],
    outbox: Sequence[Emission | Dispatch],
) -> None:
    """Check a transaction against the limits of sizes.

    Args:
        size: The bytes of its result.
    """
    if touched > limits.entities:
        raise LimitExceeded(f"touched {touched} entities, more than entities = {limits.entities}")
    total = size + sum(map(len, filter(None, writes.values())))
    if outbox:
        total += sum(map(_size_of, outbox))
    if total > limits.state_bytes:
        _check_states(writes, limits.state_bytes)
    if total > limits.output_bytes:
        raise LimitExceeded(
            f"result, changes and events take {total} bytes, more than "
            f"output_bytes = {limits.output_bytes}"
        )


def _check_states(writes: Mapping[EntityKey, bytes | None], state_bytes: int) -> None:
    """Check that no single state is too large."""
    for key, data in writes.items():
        if data is not None and len(data) > state_bytes:
            raise LimitExceeded(
                f"{key} takes {len(data)} bytes, more than state_bytes = {state_bytes}"
            )


def _size_of(sent: Emission | Dispatch) -> int:
    return sum(map(len, sent.events)) if isinstance(sent, Emission) else len(sent.body)


_ENCODER: Final = Encoder(refuse)
_SCALARS: Final = frozenset({int, bool, str, float, type(None)})
_NIL: Final = _ENCODER.encode(None)
_WITHOUT_HANDLER: Final = frozenset({CONTINUE, CATCH_UP, SCAN, SETTLE})


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How a transaction ended.

    `error` is None if it took effect, else the code of the failure. `reply` is the encoded value or
    failure. `reads` are all touched entities, in first-touch order; `writes` are the new states.
    `outbox` are the events and requests that it sends.
    """

    error: str | None
    reply: bytes
    reads: tuple[EntityKey, ...]
    writes: dict[EntityKey, bytes | None]
    outbox: Sequence[Emission | Dispatch] = ()


_NOTHING: Final[dict[EntityKey, bytes | None]] = {}


def _ignore() -> None:
    """Do nothing."""


Effect = tuple[bytes, dict[EntityKey, bytes | None]]
"""The encoded result of a transaction, and its writes."""

_Processed = tuple[bytes, dict[EntityKey, bytes | None], Failure | None]
"""Reply, writes, failure."""


def _no_result(_request_id: RequestId) -> bytes:
    """Return the result of a record without a handler."""
    return _NIL


class Executor:
    """Runs the requests of one application against one `read` function.

    Attributes:
        secret: The secret of the journal, which `random()` and `uuid()` use; empty in tests.
        interrupted: Why the handler is interrupted. The caller sets it when it raises `Interrupted`,
            so that a handler which swallows the exception is still undone.
        escaped: The key on which the last run escaped. `read` sets it when it raises `Escape`, so
            that a handler which swallows the exception still escapes.
        touched: The entities that the last run touched, in first-touch order.
        known: After an escape, all references that the run held, as a forecast of its accesses.
        running: Whether a handler runs now; `runs` counts them.
        signature: The method or function that a request calls; None for other work.
        declared_ms: The time that the running handler declares by `@limit(time=…)`; None if it declares none.
        on_declared: Is called when `declared_ms` changes.
        stopped: Set by the process's handler of SIGINT: the process must end.
        is_roomy: Whether the process has the memory to keep handlers that wait (`engine.streams.waiting`).
        keeps_raised: Whether `raised` keeps the exception of the last run. It keeps the frames of the
            handler alive, so only a runtime that shows tracebacks sets it.
        raised: The exception that left the handler of the last run.
        sampler: Observes calls, if it is set; no outcome depends on it.
        root: The method that the last run called, as the sampler names it.
        delivers: Whether the caller delivers the events and requests that handlers send.
        room: The room in the queues of the running cascade, for the requests that the request sends.
        continued: Returns the encoded result of a record that continues earlier work, or raises an error if it cannot.
    """

    __slots__ = (
        "_app",
        "_has_strict_references",
        "_indexed",
        "_limits",
        "_published",
        "_read",
        "continued",
        "declared_ms",
        "delivers",
        "escaped",
        "interrupted",
        "is_roomy",
        "isolation",
        "keeps_raised",
        "known",
        "on_declared",
        "raised",
        "room",
        "root",
        "running",
        "runs",
        "sampler",
        "secret",
        "signature",
        "stopped",
        "touched",
    )

    def __init__(
        self, app: App, read: Read, limits: Limits, *, changes_indexes: bool = True
    ) -> None:
        """Prepare to run requests.

        Args:
            changes_indexes: Whether transactions write the rows of indexes; else somebody else does it.
        """
        self._app = app
        self._read = read
        self._limits = limits
        self._has_strict_references = any(
            entity_type.must_exist for entity_type in app.entities.values()
        )
        tables = app.topology.tables.values()
        self._published = frozenset(table.source.stored_name for table in tables if table.source)
        self._indexed = app.indexed if changes_indexes else {}
        self.secret = b""
        self.isolation = Isolation(app, limits.depth)
        self.interrupted: str | None = None
        self.escaped: EntityKey | None = None
        self.touched: tuple[EntityKey, ...] = ()
        self.known: tuple[EntityKey, ...] = ()
        self.running = False
        self.runs = 0
        self.signature: Signature | None = None
        self.declared_ms: int | None = None
        self.on_declared: Callable[[], object] = _ignore
        self.stopped = False
        self.is_roomy = True
        self.keeps_raised = False
        self.raised: BaseException | None = None
        self.sampler: CallSampler | None = None
        self.root: str | None = None
        self.delivers = False
        self.room = QueueRoom(limits, app.topology.subscribers)
        self.continued: Callable[[RequestId], bytes] = _no_result

    def run(self, request_id: RequestId, body: bytes, time_us: int) -> Outcome:
        """Process a request to its end; a cancelled request runs nothing.

        Raises:
            Escape: `read` raised `Escape`, even if the handler caught it. `touched` has the entities
                that were touched before.
        """
        if is_cancelled(body):
            self._forget()
            self.touched = ()
            return Outcome(Cancelled.code, encode_failure(cancelled()), (), _NOTHING)
        txn = Transaction(request_id, time_us, self._read, self._app.entities, self.secret)
        txn.outlets = self._app if self.delivers else None
        txn.rights = rights_in(body)
        return self.perform(txn, lambda: self._call(body, txn))

    def perform(self, txn: Transaction, work: Callable[[], Effect]) -> Outcome:
        """Process a transaction to its end: `run` for any work that runs handlers.

        Args:
            txn: The transaction, which has not begun.
            work: Runs the handlers, and returns the result and the writes.
        """
        self._forget()
        self.runs += 1
        # A call with a star counts as many frames before CPython has specialized the code as after it.
        call: Any = (self._process, work, txn)
        reply, writes, failure = self.isolation.context().run(*call)
        self.isolation.leave()
        self.declare(None)
        return self._outcome(txn, reply, writes, failure)

    def declare(self, time_ms: int | None) -> None:
        """Let the running handler have the time that it declares; None ends that."""
        if time_ms != self.declared_ms:
            self.declared_ms = time_ms
            self.on_declared()

    def _outcome(
        self,
        txn: Transaction,
        reply: bytes,
        writes: dict[EntityKey, bytes | None],
        failure: Failure | None,
    ) -> Outcome:
        """Return how a transaction ended, or raise the exception that leaves it without outcome.

        Args:
            failure: Why the transaction is undone; None if it is not.
        """
        if self.stopped:
            self.stopped = False
            raise KeyboardInterrupt
        if txn.damage is not None:
            raise txn.damage
        if self.escaped is not None:  # even if the handler has caught it
            raise Escape(self.escaped)
        if self.interrupted is not None:  # even if the handler swallowed it
            failure = exceeded(self.interrupted)
        if failure is not None:
            return Outcome(failure.code, encode_failure(failure), self.touched, _NOTHING)
        return Outcome(None, reply, self.touched, writes, txn.outbox or ())

    def _process(self, work: Callable[[], Effect], txn: Transaction) -> _Processed:
        """Run a transaction in a context of its own, and say how it ended."""
        activate(txn)
        before = txn.before  # kept here, because a handler can replace it in the transaction
        self.isolation.enter()
        reply, writes = b"", _NOTHING
        failure: Failure | None = None
        try:
            self.running = True
            try:
                reply, writes = work()
            except BaseException as raised:  # noqa: BLE001 -- user code may raise any exception
                self.isolation.restore_names(everywhere=False)
                failure = self._describe(raised)
            failure = self._end(txn, before) or failure
        except Interrupted:  # raised between two lines of this method, or inside a `__del__`
            self.isolation.restore_names(everywhere=False)
            failure = self._end(txn, before) or failure
        return reply, writes, failure

    def _forget(self) -> None:
        self.interrupted = self.escaped = self.raised = self.root = self.signature = None

    def _describe(self, raised: BaseException) -> Failure:
        """Return the failure of an exception; its class and its text are user code."""
        if self.keeps_raised:
            self.raised = raised
        return failure_of(raised, self._limits.memory_bytes, self._limits.depth)

    def _end(self, txn: Transaction, before: Collection[EntityKey]) -> Failure | None:
        """Keep the touched keys, and release the entities, whose `__del__` is user code.

        Returns:
            The failure of a handler that has damaged its transaction object; None for others.
        """
        failure = None
        self.touched = tuple(before)
        try:
            self._end_look(len(before))
            if self.escaped is not None:
                self.known = tuple(txn.instances)
            txn.release()
        except Interrupted:
            raise
        except BaseException as raised:  # noqa: BLE001 -- the handler has reached into Penstock
            failure = self._describe(raised)
        self.running = False
        return failure

    def _begin_look(self, request: Request, signature: Signature) -> None:
        """Let the sampler observe a handler; its own errors are never failures of the handler."""
        try:
            sampler = self.sampler
            assert sampler is not None, "the caller has looked"
            self.root = sampler.settled.get(signature)
            if self.root is None or self.runs % SAMPLED_EVERY < SAMPLED_RUN:
                self.root = sampler.begin(request.entity, request.method, signature, self.runs)
        except Exception:  # noqa: BLE001 -- statistics are dropped, the request goes on
            self.sampler = None

    def _end_look(self, touched: int) -> None:
        sampler = self.sampler
        if sampler is not None and sampler.running is not None:
            try:
                sampler.end(touched)
            except Exception:  # noqa: BLE001 -- statistics are dropped, the request goes on
                self.sampler = None

    def _call(self, body: bytes, txn: Transaction) -> Effect:
        request = decode_request(body)
        if request.stream is not None:
            return self._append(request, request.stream, txn)
        if request.method in _WITHOUT_HANDLER or (
            not request.entity and request.method in self._app.effects
        ):
            return self._perform_own(request, txn)
        if self._app.is_personal:
            request = self._app.opened(request)
        self.signature = signature = self._app.signature(request.entity, request.method)
        self.declare(signature.time_ms)
        arguments, named = signature.decode(request.positional, request.named)
        if self.sampler is not None:
            self._begin_look(request, signature)
        result = self._result(request, signature, arguments, named, txn)
        reply = self._encode(result)
        writes = txn.conclude()
        self._check(signature, txn, len(reply), writes)
        return reply, writes

    def _perform_own(self, request: Request, txn: Transaction) -> Effect:
        """Do the work of a request that calls no handler here."""
        if request.method == SCAN:
            return self._scan(request, txn)
        if request.method == SETTLE:
            return self._settle(request, txn)
        if request.method in _WITHOUT_HANDLER:
            return self.continued(txn.request_id), _NOTHING
        return self._begin_to_wait(request, txn)

    def _check(
        self,
        signature: Signature,
        txn: Transaction,
        size: int,
        writes: dict[EntityKey, bytes | None],
    ) -> None:
        """Check the writes of a call with a result of `size` bytes."""
        if writes and self._has_strict_references:
            require_references(txn, writes)
        if writes and signature.readonly:  # a generator of its own, or the reply's encoding, did it
            changed = next(iter(writes))
            raise ReadonlyViolation(f"{signature.name} is @readonly and changed {changed}")
        check_sizes(self._limits, len(txn.before), size, writes, txn.outbox)
        if writes and self._indexed:  # the rows of indexes are no part of what the sizes limit
            change_indexes(txn, writes, self._indexed)
        if txn.outbox:
            self.room.check(txn.outbox)
        # Last: a transaction must not fail because somebody publishes a table.
        if writes and self._published and txn.outlets is not None:
            self._hand_over(txn, writes.items())

    def _hand_over(
        self, txn: Transaction, changed: Iterable[tuple[EntityKey, bytes | None]]
    ) -> None:
        """Hand changed entities to the published tables of their classes."""
        events: dict[str, list[bytes]] = {}
        for key, state in changed:
            name, text = split_entity_key(key)
            if name in self._published:
                events.setdefault(name, []).append(encode_changed(text, state))
        txn.outbox += [Emission(changes_of(name), tuple(each)) for name, each in events.items()]

    def _scan(self, request: Request, txn: Transaction) -> Effect:
        """Hand the entities of a scan to the published tables of their class, as they are now."""
        piece = decode_piece(request)
        if piece.entity in self._published:
            keys = [EntityKey(f"{piece.entity}/{text}") for text in piece.keys]
            for key in keys:
                txn.before[key] = self._read(key)
            self._hand_over(txn, [(key, txn.before[key]) for key in keys])
        return _NIL, _NOTHING

    def _begin_to_wait(self, request: Request, txn: Transaction) -> Effect:
        """Write the row of an effect, where a handler would be called: the effect process calls the function."""
        key = effect_key(txn.request_id)
        txn.before[key] = None  # no other request has this id
        writes: dict[EntityKey, bytes | None] = {
            key: waiting_row(txn.request_id, request, txn.time_us)
        }
        check_sizes(self._limits, 1, 0, writes, ())
        return _NIL, writes

    def _settle(self, request: Request, txn: Transaction) -> Effect:
        """Let the row of an effect take its outcome, or an order; a row that does not wait for it ignores it."""
        settlement = decode_settlement(request)
        key = effect_key(settlement.effect)
        txn.before[key] = row = self._read(key)
        done = settled(row, settlement)
        reply = reply_of(settlement, done)
        if done is IGNORED:
            return reply, _NOTHING
        if done.has_ended and done.then is not None and txn.outlets is not None:
            # A request of its own: if the method fails, the effect has its outcome nevertheless.
            txn.outbox.append(Dispatch(self._then_body(settlement, done, done.then), 0))
        return reply, {key: done.row}

    def _then_body(self, settlement: Settlement, done: Settled, then: Then) -> bytes:
        """Return the body of the request that hands an outcome to a method."""
        app = self._app
        value, subject = bytes(settlement.value), None
        if app.keys is not None and (subject := subject_of(value)) is not None:
            try:
                value = open_value(app.keys, value, REPLY)
            except Erased:
                # The effect has ended nevertheless: its row must not wait for a person who is gone.
                value, subject = _NIL, None
                settlement = msgspec.structs.replace(settlement, error=ERASED)
        if subject is not None and not done.is_done:
            settlement = msgspec.structs.replace(settlement, error=msgspec.msgpack.decode(value))
        call = then_request(then, outcome_value(settlement, done, value))
        if app.is_personal:
            call = protected_request(app.entity, app.keys, call, ())
            if subject is not None and subject_of(bytes(call.positional)) is None:
                assert app.keys is not None, "the outcome was encrypted"
                call = sealed_request(app.keys, subject, call)
        return encode_request(call)

    def _result(
        self,
        request: Request,
        signature: Signature,
        arguments: Sequence[Any],
        named: dict[str, Any],
        txn: Transaction,
    ) -> Any:
        """Call the handler that a request names."""
        if not request.entity:
            return signature.function(*arguments, **named)
        entity = self._app.entity(request.entity)
        if request.method in CREATIONS:
            create = getattr(entity.cls, request.method)
            if entity.allows is None:
                return self._create(entity, create, request, arguments, named)
            if request.method in CHECKING:  # the row that is there counts, too
                create = self._checking(entity, request.method, txn)
            made = self._create(entity, create, request, arguments, named)
            self.require_right(entity, made, txn)
            return made
        if request.key is None:
            raise RequestError(f"{request.entity}.{request.method} needs a key")
        root = entity.of_text(request.key)
        if request.method != "exists":
            txn.load(entity, root)
            if entity.allows is not None:
                self.require_right(entity, root, txn)
        return signature.function(root, *arguments, **named)

    def _checking(self, entity: EntityType, method: str, txn: Transaction) -> Callable[..., Any]:
        """Return a creation of a class with a right, which is asked about the entity that exists."""

        def check(former: Any) -> None:
            self.require_right(entity, former, txn)

        return lambda *arguments, **named: CHECKING[method](entity.cls, arguments, named, check)

    def require_right(self, entity: EntityType, instance: Any, txn: Transaction) -> None:
        """Ask the right of a class whether the caller of a request may use an entity; the application itself may.

        Raises:
            Forbidden: It returns anything but True, or raises an exception.
        """
        assert entity.allows is not None, "the caller has looked"
        if not principal_id(txn.request_id):
            return
        caller = principal_of(txn.request_id, txn.rights)
        key = entity.text_of(instance)
        if type(instance) is not entity.cls:
            txn.load(entity, instance)
        try:
            answer = entity.allows(instance, caller)
        except (Escape, Interrupted, MemoryError, RecursionError):
            raise  # no answer of the right: the request runs again elsewhere, or has exceeded a limit
        except BaseException as raised:
            # The text of the exception may show the row.
            why = f"; {RIGHT} raised {error_name(raised)}"
            raise Forbidden(f"{caller.id} may not use {entity.name} {key!r}{why}") from raised
        if answer is not True:
            why = "" if answer is False else f"; {RIGHT} returned neither True nor False"
            raise Forbidden(f"{caller.id} may not use {entity.name} {key!r}{why}")

    def _append(self, request: Request, name: str, txn: Transaction) -> Effect:
        """Publish the events of an append; its result is their number."""
        stream = self._app.taking_stream(name)
        if self.sampler is not None:
            self.root = f"streams/{name}"
        events = append_events(request)
        if events:
            readable = stream.events.without_erased(events)
            stream.events.decode_all(readable)  # the type may have changed since the append
            publish(txn, stream, tuple(events))
        reply = _ENCODER.encode(len(events))
        check_sizes(self._limits, len(txn.before), len(reply), _NOTHING, txn.outbox)
        if txn.outbox:
            self.room.check(txn.outbox)
        return reply, _NOTHING

    @staticmethod
    def _create(
        entity: EntityType,
        create: Callable[..., Any],
        request: Request,
        arguments: Sequence[Any],
        named: dict[str, Any],
    ) -> Any:
        """Run a creation; the key comes from the request if it is not among the arguments."""
        key_text = request.key
        if key_text is None:
            return create(*arguments, **named)
        key = entity.key_at(key_text)
        if CREATIONS[request.method].keeps:
            return create(key, *arguments, **named)
        if entity.initializer is None:
            return create(key, **named)
        assert entity.creation is not None, "an application was built with the class"
        if entity.key_name in entity.creation.parameters and entity.key_name not in named:
            bound = dict(zip(entity.creation.parameters, arguments, strict=False))
            if entity.key_name not in bound:
                named = {**named, entity.key_name: key}
        made = create(*arguments, **named)
        if getattr(made, entity.key_name) != key:
            raise RequestError(f"the request names {entity.name} {key_text!r}, it created {made!r}")
        return made

    def _encode(self, result: Any) -> bytes:
        if result is None:
            return _NIL
        try:
            data = _ENCODER.encode(result if type(result) in _SCALARS else lower_reply(result))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Unencodable(f"the result cannot be encoded: {reason_of(error)}") from error
        if len(data) > self._limits.reply_bytes:
            raise LimitExceeded(
                f"the result takes {len(data)} bytes, more than reply_bytes = "
                f"{self._limits.reply_bytes}"
            )
        return data


if core is not None:  # the compiled methods do the same, and call these where they give up
    core.replace_executor(
        Executor,
        Isolation,
        Outcome,
        Interrupted,
        decode_request=decode_request,
        rights_in=rights_in,
        encode=msgspec.msgpack.Encoder().encode,
        without_method={"exists", *CREATIONS} | _WITHOUT_HANDLER,
        sampled=(SAMPLED_EVERY, SAMPLED_RUN),
        bare=(NONE_BY_POSITION, NONE_BY_NAME),
    )
