"""Execute one request as one transaction: plain Python over a `read` function, writes returned.

`Executor.run` promises that whatever the handler does, its transaction ends in exactly one
`Outcome`: took effect, was undone with a failure, or escaped. It changes nothing itself; who calls
it decides what to do with the writes. Interrupting a handler that runs too long is the caller's
part, by raising `Interrupted` inside it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from penstock.base.ids import EntityKey, RequestId
from penstock.base.lowering import lower_reply
from penstock.base.schema import reason_of, refuse
from penstock.engine.calls import SAMPLED_EVERY, SAMPLED_RUN, CallSampler
from penstock.engine.failure import Escape, Interrupted, exceeded, failure_of
from penstock.engine.isolation import Isolation
from penstock.errors import LimitExceeded, ReadonlyViolation, RequestError, Unencodable
from penstock.model.application import App
from penstock.model.context import Read, Transaction, activate
from penstock.model.declaration import CREATIONS
from penstock.model.entity_type import EntityType
from penstock.model.request import Failure, Request, decode_request, encode_failure
from penstock.model.signature import Signature

_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=refuse)
_SCALARS: Final = frozenset({int, bool, str, float, type(None)})
_NIL: Final = _ENCODER.encode(None)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one transaction may use; exceeding it undoes that transaction alone.

    Attributes:
        time_ms: Wall-clock milliseconds of one handler.
        memory_bytes: Bytes that a handler may allocate on top of the process's own.
        depth: Python call depth inside a handler.
        reply_bytes: Encoded size of a result.
        state_bytes: Encoded size of one entity.
        output_bytes: Encoded size of the result and of all entities that it changed, together.
        entities: Entities that one transaction may touch.
    """

    time_ms: int = 15_000
    memory_bytes: int = 1 << 30
    depth: int = 900
    reply_bytes: int = 4 << 20
    state_bytes: int = 4 << 20
    output_bytes: int = 64 << 20
    entities: int = 1_000_000


class Outcome(NamedTuple):
    """How a transaction ended.

    `error` is None where it took effect, else the failure's code. `reply` is the encoded value or
    failure. `reads` are all entities looked at, in first-touch order; `writes` what they became.
    """

    error: str | None
    reply: bytes
    reads: tuple[EntityKey, ...]
    writes: dict[EntityKey, bytes | None]


_NOTHING: Final[dict[EntityKey, bytes | None]] = {}
_Processed = tuple[bytes, dict[EntityKey, bytes | None], Failure | None]
"""Reply, writes, failure."""


class Executor:
    """Runs the requests of one application against one `read` function.

    Attributes:
        secret: The journal's, which `random()` and `uuid()` mix in; empty in tests.
        isolation: Keeps what a handler does to its process from those after it.
        interrupted: Set by whoever raises `Interrupted`, so that a handler which swallows it is
            still undone.
        escaped: The key that the last run escaped on, if it did; `read` sets it when it raises
            `Escape`, so that a handler which swallows it has escaped all the same.
        touched: The entities that the last run looked at, in first-touch order.
        known: After an escape, all references that the run held: what it will touch, most likely.
        running: Whether a handler runs now; `runs` counts them.
        stopped: Set by the process's own handler of SIGINT: whoever runs the process wants to end it.
        keeps_raised: Whether `raised` keeps what left the last run's handler. It keeps the handler's
            frames alive, so only a runtime that shows tracebacks to people sets it.
        raised: What left the last run's handler.
        sampler: Looks at who calls whom, where it is set; no outcome depends on it.
        root: What the last run called, as the sampler names it; None where it called nothing.
    """

    def __init__(self, app: App, read: Read, limits: Limits) -> None:
        self._app = app
        self._read = read
        self._limits = limits
        self.secret = b""
        self.isolation = Isolation(app.context, limits.depth)
        self.interrupted: str | None = None
        self.escaped: EntityKey | None = None
        self.touched: tuple[EntityKey, ...] = ()
        self.known: tuple[EntityKey, ...] = ()
        self.running = False
        self.runs = 0
        self.stopped = False
        self.keeps_raised = False
        self.raised: BaseException | None = None
        self.sampler: CallSampler | None = None
        self.root: str | None = None

    def run(self, request_id: RequestId, body: bytes, time_us: int) -> Outcome:
        """Process a request to its end.

        Raises:
            KeyboardInterrupt: SIGINT came while it ran; nothing of it is an outcome.
            Escape: It touched what `read` refused with `Escape`, even where the handler went on.
                What it touched until then is in `touched`.
            IntegrityError: An entity that it touched is stored in another shape than its class's.
        """
        self._forget()
        txn = Transaction(request_id, time_us, self._read, self._app.entities, self.secret)
        self.runs += 1
        reply, writes, failure = self.isolation.context().run(self._process, body, txn)
        self.isolation.leave()
        if self.stopped:
            self.stopped = False
            raise KeyboardInterrupt
        self._withhold(txn)
        if self.interrupted is not None:  # even where the handler swallowed it
            failure = exceeded(self.interrupted)
        if failure is not None:
            return Outcome(failure.code, encode_failure(failure), self.touched, _NOTHING)
        return Outcome(None, reply, self.touched, writes)

    def _process(self, body: bytes, txn: Transaction) -> _Processed:
        """Run a transaction in a context of its own, and say how it ended."""
        activate(txn)
        before = txn.before  # a handler can reach the transaction, and replace what it has read
        self.isolation.enter()
        reply, writes = b"", _NOTHING
        failure: Failure | None = None
        try:
            self.running = True
            try:
                reply, writes = self._call(body, txn)
            except BaseException as raised:  # noqa: BLE001 -- user code ends here, whatever it did
                self.isolation.restore_names(everywhere=False)
                failure = self._describe(raised)
            failure = self._end(txn, before) or failure
        except Interrupted:  # a tick between two lines of ours, or inside a `__del__`
            self.isolation.restore_names(everywhere=False)
            failure = self._end(txn, before) or failure
        return reply, writes, failure

    def _forget(self) -> None:
        self.interrupted = self.escaped = self.raised = self.root = None

    def _describe(self, raised: BaseException) -> Failure:
        """Return the failure that an exception is; its class and its text are user code."""
        if self.keeps_raised:
            self.raised = raised
        return failure_of(raised, self._limits.memory_bytes, self._limits.depth)

    def _end(self, txn: Transaction, before: Collection[EntityKey]) -> Failure | None:
        """Keep what the run has touched, and let go of its entities, whose `__del__` is user code.

        Returns:
            The failure of a handler that has spoiled its transaction from inside; None for others.
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

    def _withhold(self, txn: Transaction) -> None:
        """Raise what makes a run no outcome, even where the handler has caught it."""
        if txn.damage is not None:
            raise txn.damage
        if self.escaped is not None:
            raise Escape(self.escaped)

    def _begin_look(self, request: Request, signature: Signature) -> None:
        """Let the sampler look at a handler; what fails in it is never the handler's failure."""
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

    def _call(self, body: bytes, txn: Transaction) -> tuple[bytes, dict[EntityKey, bytes | None]]:
        request = decode_request(body)
        signature = self._app.signature(request.entity, request.method)
        arguments, named = signature.decode(request.positional, request.named)
        if self.sampler is not None:
            self._begin_look(request, signature)
        if request.entity:
            kind = self._app.entities[request.entity]
            if request.method in CREATIONS:
                create = getattr(kind.cls, request.method)
                result = self._create(kind, create, request.key, arguments, named)
            elif request.key is None:
                raise RequestError(f"{request.entity}.{request.method} needs a key")
            else:
                root = kind.of_text(request.key)
                if request.method != "exists":
                    txn.load(kind, root)
                result = signature.function(root, *arguments, **named)
        else:
            result = signature.function(*arguments, **named)
        reply = self._encode(result)
        writes = txn.conclude()
        if writes and signature.readonly:  # a generator of its own, or the reply's encoding, did it
            changed = next(iter(writes))
            raise ReadonlyViolation(f"{signature.name} is @readonly and changed {changed}")
        self._check_sizes(txn, len(reply), writes)
        return reply, writes

    @staticmethod
    def _create(
        kind: EntityType,
        create: Callable[..., Any],
        key_text: str | None,
        arguments: Sequence[Any],
        named: dict[str, Any],
    ) -> Any:
        """Run a creation; the key comes from the request where the arguments do not hold it."""
        if key_text is None:
            return create(*arguments, **named)
        key = kind.key_at(key_text)
        if kind.initializer is None:
            return create(key, **named)
        assert kind.creation is not None, "an application was built with the class"
        if kind.key_name in kind.creation.parameters and kind.key_name not in named:
            bound = dict(zip(kind.creation.parameters, arguments, strict=False))
            if kind.key_name not in bound:
                named = {**named, kind.key_name: key}
        made = create(*arguments, **named)
        if getattr(made, kind.key_name) != key:
            raise RequestError(f"the request names {kind.name} {key_text!r}, it created {made!r}")
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

    def _check_sizes(
        self, txn: Transaction, size: int, writes: dict[EntityKey, bytes | None]
    ) -> None:
        """Hold a transaction with a result of `size` bytes to the limits of what it leaves."""
        limits = self._limits
        if len(txn.before) > limits.entities:
            raise LimitExceeded(
                f"touched {len(txn.before)} entities, more than entities = {limits.entities}"
            )
        total = size
        for key, data in writes.items():
            if data is not None:
                total += len(data)
                if len(data) > limits.state_bytes:
                    raise LimitExceeded(
                        f"{key} takes {len(data)} bytes, more than "
                        f"state_bytes = {limits.state_bytes}"
                    )
        if total > limits.output_bytes:
            raise LimitExceeded(
                f"result and changes take {total} bytes, more than "
                f"output_bytes = {limits.output_bytes}"
            )
