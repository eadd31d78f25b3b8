"""`@readonly` calls, `exists` and `POST /read`: answers from the state, without a request in the log.

Readers run the handlers. This process itself answers calls of `exists`, because they run no code of the
application. Promises strict reads, as `runtime.reads.reader` does: an answer shows every change whose reply any
caller had before. All calls of one `POST /read` see one epoch. The values and errors are those of a
request that comes directly after that epoch.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from penstock.base.http import EPOCH_SCHEMA, JSON, MSGPACK, ErrorBody
from penstock.base.ids import EntityKey, Epoch
from penstock.engine.streams.generator_positions import generated_id, position_key, position_of
from penstock.errors import RequestError
from penstock.gateway.flow.admission import Admission
from penstock.gateway.flow.limit_table import Caller
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.intake import flow_caller, require_right, target_in
from penstock.gateway.reader_pool import CallEncoder, EntityReader, ReaderPool
from penstock.gateway.request_ids import RequestIds, stored_id
from penstock.gateway.responses import error_body, json_of, reply_headers, value_of
from penstock.gateway.route import (
    MIN_EPOCH_HEADER,
    REQUESTS,
    SHOWN,
    Answer,
    Route,
    json_content,
    seconds,
)
from penstock.gateway.telemetry.request_timings import TIMINGS, RequestTimings
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.model.reply import Reply
from penstock.model.request import Request, decode_failure, with_caller
from penstock.process.config import Config
from penstock.runtime.reads.arguments import (
    ArgumentSource,
    CallTarget,
    EncodedArguments,
    JsonArguments,
)
from penstock.runtime.reads.messages import ReadCall, ReadOutcome, reply_of

CALLS_MAX: Final = 1_000
"""The most calls of one `POST /read`."""


class ReadBodyCall(Struct, frozen=True, forbid_unknown_fields=True):
    """A call in the body of `POST /read`."""

    method: Annotated[str, Meta(description="The name of the method or function.")]
    entity: Annotated[str, Meta(description="The class; empty for a function.")] = ""
    key: Annotated[str | None, Meta(description="The text of the key, as in a path.")] = None
    arguments: Annotated[
        msgspec.Raw,
        Meta(
            description="By position or by name.",
            extra_json_schema={"oneOf": [{"type": "array"}, {"type": "object"}]},
        ),
    ] = msgspec.field(default_factory=msgspec.Raw)


class ReadBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Calls of `@readonly` methods and functions."""

    calls: Annotated[list[ReadBodyCall], Meta(min_length=1, max_length=CALLS_MAX)]


class ReadAnswer(Struct, frozen=True):
    """The answer to one call: its value or its error."""

    value: Annotated[Any, Meta(description="The result.")] = UNSET
    error: ErrorBody | UnsetType = UNSET


class ReadAnswers(Struct, frozen=True):
    """The answers to all calls, in their order, at one epoch."""

    epoch: Annotated[Epoch, EPOCH_SCHEMA]
    answers: list[ReadAnswer]


_decode_body: Final = msgspec.json.Decoder(ReadBody).decode
_decode_requests: Final = msgspec.msgpack.Decoder(
    Annotated[list[Request], Meta(min_length=1, max_length=CALLS_MAX)]
).decode


class _EncodedCall(NamedTuple):
    """A call as a reader takes it.

    Attributes:
        caller: The caller, as the limits count it.
        sought: The entity of a call of `exists`; None for other calls.
    """

    body: bytes
    caller: Caller
    sought: EntityKey | None


class ReadHandler:
    """Answers the calls of one gateway that change nothing.

    Attributes:
        encoder: Encodes the calls of the gateway.

    Args:
        tail: The journal tail, which knows the newest epoch.
        entities: Reads the stores for calls of `exists`.
        pool: The readers; None if calls of `@readonly` handlers are requests in the log.
    """

    def __init__(
        self,
        app: App,
        config: Config,
        admission: Admission,
        tail: AsyncJournalTail,
        entities: EntityReader,
        pool: ReaderPool | None,
    ) -> None:
        self._app = app
        self._config = config
        self._admission = admission
        self._tail = tail
        self._entities = entities
        self._pool = pool
        self.encoder = CallEncoder(app, config, pool)
        self._ids = RequestIds()

    def serves(self, target: CallTarget) -> bool:
        """Return whether a call without a chosen id is answered from the state: `@readonly` or `exists`."""
        if self._pool is None and not _is_existence(target):
            return False
        return self._app.signature(target.entity, target.method).readonly

    async def is_generated(self, request_id: str) -> bool:
        """Say whether an id is that of an atom that a generator has appended, at any time."""
        generated = generated_id(self._app.name, request_id)
        if generated is None:
            return False
        _, (row,) = await self._entities.read([position_key(generated.series)])
        return generated.number < position_of(row)

    async def read(
        self, request: HttpRequest, target: CallTarget, source: ArgumentSource, timeout_s: float
    ) -> Reply:
        """Return the reply to a call that the principal may make; it has no request id.

        Args:
            target: The method or function, which is `@readonly`.
            timeout_s: How long to wait for a reader and its answer.
        """
        call = await self._encoded(request, target, source)
        epoch, (outcome,) = await self._outcomes(request, [call], timeout_s)
        return reply_of(epoch, outcome)

    @Route(
        "POST",
        "/read",
        "read",
        name="requests.read",
        tag=REQUESTS,
        parameters=(MIN_EPOCH_HEADER, seconds("timeout", "Seconds to wait for the answers.")),
        fields=("min_epoch",),
        body=json_content(ReadBody, MSGPACK),
        answers=(Answer("The answers.", json_content(ReadAnswers, MSGPACK), SHOWN),),
        errors=(429, 504),
    )
    async def batch(self, request: HttpRequest) -> Response:
        """Make many calls of `@readonly` handlers.

        All calls read the same epoch, which is not older than the newest epoch at their
        arrival. They are not recorded. The answers have the order of the calls.
        """
        calls = await self._calls(request)
        limit_s = self._config.gateway.reply_timeout_ms / 1_000
        timeout_s = request.wait_s("timeout", limit_s, limit_s)
        epoch, outcomes = await self._outcomes(request, calls, timeout_s)
        headers = reply_headers(epoch)
        if MSGPACK in request.headers.get("accept", ""):
            return Response(msgspec.msgpack.encode(outcomes), 200, headers, MSGPACK)
        answers = [_answer_of(reply_of(epoch, outcome)) for outcome in outcomes]
        return Response(json_of(ReadAnswers(epoch, answers)), 200, headers, JSON)

    async def _outcomes(
        self, request: HttpRequest, calls: Sequence[_EncodedCall], timeout_s: float
    ) -> tuple[Epoch, list[ReadOutcome]]:
        """Wait for the wanted epoch, and answer the calls; record the time if requests are traced."""
        answers = self._answers(request, calls, timeout_s)
        timings: RequestTimings | None = request.scope.get(TIMINGS)
        if timings is None:
            return await answers
        named = [(call.caller.entity, call.caller.method) for call in calls]
        return await timings.read(answers, named)

    async def _answers(
        self, request: HttpRequest, calls: Sequence[_EncodedCall], timeout_s: float
    ) -> tuple[Epoch, list[ReadOutcome]]:
        sought = [call.sought for call in calls if call.sought is not None]
        is_existence = len(sought) == len(calls)
        # `exists` runs no code of the application, so the gateway answers it itself.
        if self._pool is None and not is_existence:
            raise RequestError(
                "this gateway has no readers (gateway.readers = 0); use POST /call for each call"
            )
        min_epoch = request.min_epoch()
        # Before the reading is counted: a wait for an epoch must not fill a limit.
        if min_epoch > self._tail.epoch:
            await self._tail.until(Epoch(min_epoch), timeout_s)
        await self._admission.awake()
        with self._admission.reading([call.caller for call in calls]):
            if self._pool is None or is_existence:
                return await self._existence(sought)
            # `penstock.request_id()` and `random()` work in readers, too; nothing is recorded under
            # these ids.
            drawn = [stored_id(request.principal, self._ids.draw()) for _ in calls]
            rights = request.principal.rights
            asked = [
                ReadCall(name, with_caller(call.body, rights))
                for name, call in zip(drawn, calls, strict=True)
            ]
            return await self._pool.read(asked, timeout_s)

    async def _existence(self, keys: Sequence[EntityKey]) -> tuple[Epoch, list[ReadOutcome]]:
        """Return the outcomes of calls of `exists`, and their epoch."""
        epoch, states = await self._entities.read(keys)
        values = [msgspec.msgpack.encode(state is not None) for state in states]
        return epoch, [ReadOutcome(None, value) for value in values]

    async def _calls(self, request: HttpRequest) -> list[_EncodedCall]:
        """Return the calls of a body, if the principal may make all of them."""
        decoded: list[tuple[CallTarget, ArgumentSource]]
        try:
            if request.media_type == MSGPACK:
                decoded = [
                    _of_request(self._app, call) for call in _decode_requests(await request.body())
                ]
            else:
                decoded = [
                    _of_json(self._app, call) for call in _decode_body(await request.json()).calls
                ]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RequestError(f"the body is not a list of calls: {error}") from error
        calls = []
        for index, (target, source) in enumerate(decoded):
            try:
                calls.append(await self._checked(request, target, source))
            except RequestError as error:
                raise RequestError(f"call {index}: {error}") from error
        return calls

    async def _checked(
        self, request: HttpRequest, target: CallTarget, source: ArgumentSource
    ) -> _EncodedCall:
        require_right(request.principal, target)
        signature = self._app.signature(target.entity, target.method)
        if not signature.readonly:
            raise RequestError(f"{signature.name} is not @readonly; use POST /call")
        return await self._encoded(request, target, source)

    async def _encoded(
        self, request: HttpRequest, target: CallTarget, source: ArgumentSource
    ) -> _EncodedCall:
        body, hint = await self.encoder.encoded(target, source)
        sought = None
        if _is_existence(target):
            assert target.key is not None, "only calls with a key are encoded"
            entity_type = self._app.entity(target.entity)
            key = entity_type.key_at(target.key)
            sought = EntityKey(entity_type.prefix + entity_type.key_text(key))
        return _EncodedCall(body, flow_caller(request.principal, target, hint), sought)


def _is_existence(target: CallTarget) -> bool:
    """Say whether a call is one of `exists`, which no class can define itself."""
    return bool(target.entity) and target.method == "exists"


def _of_json(app: App, call: ReadBodyCall) -> tuple[CallTarget, ArgumentSource]:
    target = target_in(app, call.entity, call.key, call.method)
    return target, JsonArguments(bytes(call.arguments))


def _of_request(app: App, call: Request) -> tuple[CallTarget, ArgumentSource]:
    target = target_in(app, call.entity, call.key, call.method)
    return target, EncodedArguments(call.positional, call.named)


def _answer_of(reply: Reply) -> ReadAnswer:
    if reply.error is None:
        return ReadAnswer(value=value_of(reply))
    return ReadAnswer(error=error_body(decode_failure(reply.data)))
