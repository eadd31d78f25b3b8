"""`/call`, `/send`, `POST /streams` and `/requests`: appends requests and returns their replies.

Promises that a request which is answered with 2xx, or with an error of the application, is durable
and took effect exactly as the answer says; and that a request id never takes effect twice.
"""

import logging
import time
from typing import Literal
from urllib.parse import quote

from starlette.responses import Response

from penstock.base.http import JSON, MSGPACK, NDJSON, REQUEST_ID
from penstock.base.ids import Epoch, RequestId
from penstock.base.instants import instant_of
from penstock.engine.failure import cancelled
from penstock.engine.streams.derived_ids import continuation_id, record_of, root_of
from penstock.errors import Gone, RequestError, TimedOut, TooLate
from penstock.gateway.connections import Connections
from penstock.gateway.errors import HttpError, response_of
from penstock.gateway.handlers.reads import ReadHandler
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.intake import (
    AppendBatcher,
    AwaitedReply,
    Intake,
    require_right,
    target_in,
    target_of,
)
from penstock.gateway.request_ids import RequestIds, check_cancels, check_free
from penstock.gateway.responses import (
    CancelledRequest,
    RequestStatus,
    Sent,
    error_body,
    json_of,
    reply_headers,
    reply_response,
    value_of,
)
from penstock.gateway.route import (
    APPENDED,
    CALLED,
    ID,
    NAMED,
    REQUESTS,
    TIMEOUT,
    Answer,
    Parameter,
    Route,
    json_content,
    seconds,
)
from penstock.gateway.telemetry.request_timings import TIMINGS, RequestTimings
from penstock.journal.replies import LogPosition
from penstock.journal.tail import AsyncJournalTail
from penstock.log.clock import wall_clock_us
from penstock.model.application import App
from penstock.model.reply import Reply
from penstock.model.request import decode_failure, decode_request, is_cancelled
from penstock.model.running_step import DELAY_MAX
from penstock.process.config import Config
from penstock.runtime.reads.arguments import (
    ArgumentSource,
    CallTarget,
    JsonArguments,
    JsonLines,
    MsgpackArguments,
)

_log = logging.getLogger(__name__)


def _called(path: str) -> Route:
    """Return a route of calls; the document has one for each method and function."""
    return Route(
        "POST",
        path,
        "call",
        parameters=(ID, TIMEOUT),
        fields=("min_epoch",),
        body={},
        answers=(Answer("The result, committed.", {}, CALLED),),
        errors=APPENDED,
    )


def _sent(path: str, text: str) -> Route:
    """Return a route of requests whose reply the caller does not wait for."""
    return Route(
        "POST",
        path,
        "send",
        parameters=(ID, seconds("delay", "Seconds until the request runs.")),
        body={},
        answers=(Answer(text, json_content(Sent), (*CALLED, "Location"), 202),),
        errors=APPENDED,
    )


class CallHandler:
    """Accepts the requests of one gateway.

    Args:
        reads: Answers the calls that need no request in the log; its encoder encodes all calls.
    """

    def __init__(  # noqa: PLR0913 -- the parts that all versions of a gateway share
        self,
        app: App,
        config: Config,
        intake: Intake,
        batcher: AppendBatcher,
        tail: AsyncJournalTail,
        reads: ReadHandler,
        connections: Connections,
    ) -> None:
        self._app = app
        self._config = config
        self._intake = intake
        self._batcher = batcher
        self._tail = tail
        self._reads = reads
        self._connections = connections
        self._encoder = reads.encoder
        self._ids = RequestIds()

    @Route(
        "POST",
        "/streams/{stream}",
        "append",
        parameters=(ID, TIMEOUT),
        body={},
        answers=(Answer("The number of events, committed.", {}, CALLED),),
        errors=APPENDED,
    )
    @_called("/call/{entity}/{key}/{method}")
    @_called("/call/{function}")
    async def call(self, request: HttpRequest) -> Response:
        """Append a request or an atom, wait for its epoch, and return the reply."""
        target = target_of(self._app, request)
        source = await self._source(request, target)
        reply = await self.process(request, target, source)
        return reply_response(reply, request.request_id, request.headers.get("accept", ""))

    @_sent("/send/streams/{stream}", "The append is durable.")
    @_sent("/send/{entity}/{key}/{method}", "The request is durable.")
    @_sent("/send/{function}", "The request is durable.")
    async def send(self, request: HttpRequest) -> Response:
        """Append a request or an atom, or schedule it with `delay`; do not wait."""
        target = target_of(self._app, request)
        source = await self._source(request, target)
        # Before the body is encoded: a wrong delay costs nothing.
        delay_s = request.seconds("delay", 0.0)
        if delay_s > DELAY_MAX.total_seconds():
            raise RequestError(
                f"delay={request.field('delay')} is too long: at most {DELAY_MAX.total_seconds():.0f} "
                f"seconds ({DELAY_MAX.days} days)"
            )
        encoded = await self._prepared(request, target, source)
        if delay_s > 0:
            due_us = wall_clock_us() + int(delay_s * 1_000_000)
            unused = AwaitedReply(self._tail, is_sent=True)
            admitted = await self._intake.admit(
                unused, request.principal, target, request.request_id, encoded
            )
            try:
                await self._batcher.schedule(admitted.entry, due_us)
            finally:
                # A scheduled request is not under way until it is due, so its ticket ends here.
                self._intake.abandon(admitted)
        else:
            sent = await self._append(request, target, encoded, 0.0, is_sent=True)
            await sent.durable()
        headers = reply_headers(self._tail.epoch, request.request_id)
        headers |= _location(request.request_id)
        return Response(json_of(Sent(request.request_id)), 202, headers, JSON)

    @Route(
        "GET",
        "/requests/{id}",
        "requests",
        name="requests.status",
        tag=REQUESTS,
        parameters=(NAMED, seconds("wait", "Seconds to wait for the reply.")),
        answers=(Answer("The status.", json_content(RequestStatus, MSGPACK), CALLED),),
        errors=(410, 504),
    )
    async def status(self, request: HttpRequest) -> Response:
        """Get the status of a request."""
        limit_s = self._config.gateway.reply_timeout_ms / 1_000
        wait_s = request.wait_s("wait", 0.0, limit_s)
        if not wait_s:
            return await self._status(request, 0.0, limit_s)
        with self._connections.staying():
            return await self._status(request, wait_s, limit_s)

    async def _status(self, request: HttpRequest, wait_s: float, limit_s: float) -> Response:
        """Return the status of a request, after a wait of at most `wait_s` for its reply."""
        request_id = request.named_id()
        request.request_id = request.path["id"]
        place = await self._batcher.place_of(request_id)
        if place is None:
            due_us = await self._batcher.due_of(request_id)
            if due_us is not None:
                status = RequestStatus(
                    request.request_id, None, "scheduled", due_us=due_us, due=instant_of(due_us)
                )
                return self._status_response(status)
            place = await self._batcher.place_of(request_id)  # it may have become due meanwhile
        if place is None:
            reply = await self._sent_reply(request, request_id, wait_s, limit_s)
            if reply is None:
                raise await self._forgotten(request, request_id)
            return self._answered_response(request, reply)
        await self._check_may_ask(request, request_id, place)
        reply = await self._reply_within(place, wait_s, limit_s)
        if reply is None:
            return self._status_response(await self._without_reply(request.request_id, place))
        return self._answered_response(request, reply)

    @Route(
        "DELETE",
        "/requests/{id}",
        "requests",
        name="requests.cancel",
        tag=REQUESTS,
        parameters=(
            NAMED,
            Parameter(
                "beginning",
                "query",
                "With `true`, the path may name the beginning of an id, if the id of no other scheduled request "
                "of the same principal begins so. The answer has the complete id.",
                {"type": "boolean", "default": False},
            ),
        ),
        answers=(Answer("The request is cancelled.", json_content(CancelledRequest), CALLED),),
        errors=(409,),
    )
    async def cancel(self, request: HttpRequest) -> Response:
        """Cancel a scheduled request.

        Cancels a request that was sent with a delay and is not due yet. It never runs, its
        id stays taken, and its result is the error `cancelled`. A repetition returns the same answer.
        A request that was due before is refused with `too-late`; `Location` names its result. If an operator
        names a request that has run, and a part of its cascade still waits, this part is ended instead.
        """
        request_id = request.named_id()
        request.request_id = request.path["id"]
        # Before the look-up, so that the answer tells nothing of requests of others.
        check_cancels(request.principal, request.request_id)
        if request.flag("beginning"):
            completed = await self._batcher.complete(request_id)
            request.request_id += completed[len(request_id) :]
            request_id = completed
        status: Literal["cancelled", "ending"] = "cancelled"
        try:
            lsn = await self._batcher.cancel(request_id)
        except TooLate as error:
            # The request has run; a part of its cascade may still wait, which an operator can end.
            is_admin, status = request.principal.is_admin, "ending"
            lsn = await self._batcher.end_cascade(self._config, request_id) if is_admin else None
            if lsn is None:
                return response_of(
                    error, {REQUEST_ID: request.request_id, **_location(request.request_id)}
                )
        if lsn is None:
            raise _unknown(request.request_id)
        body = json_of(CancelledRequest(request.request_id, lsn, status))
        headers = reply_headers(self._tail.epoch, request.request_id)
        return Response(body, 200, headers | _location(request.request_id), JSON)

    async def process(
        self, request: HttpRequest, target: CallTarget, source: ArgumentSource
    ) -> Reply:
        """Append a request that the principal may make, and return its reply.

        A `@readonly` call is answered from the state instead, unless the caller chose a request id.

        Args:
            request: The HTTP request; it gets its request id if it is appended.
        """
        limit_s = self._config.gateway.reply_timeout_ms / 1_000
        timeout_s = request.wait_s("timeout", limit_s, limit_s)
        if not request.is_recorded and target.stream is None and self._reads.serves(target):
            return await self._reads.read(request, target, source, timeout_s)
        request.refuse_fields(
            ("min_epoch",), "a call that is recorded is newer than each epoch before"
        )
        encoded = await self._prepared(request, target, source)
        awaited = await self._append(request, target, encoded, timeout_s)
        reply = await awaited.reply()
        timings: RequestTimings | None = request.scope.get(TIMINGS)
        if timings is not None:
            timings.answered(reply)
        return reply

    async def _append(
        self,
        request: HttpRequest,
        target: CallTarget,
        encoded: tuple[bytes, bytes],
        timeout_s: float,
        *,
        is_sent: bool = False,
    ) -> AwaitedReply:
        """Admit a request, and begin to append it under its id. The append goes on if the client disconnects."""
        timings: RequestTimings | None = request.scope.get(TIMINGS)
        awaited = AwaitedReply(self._tail, timings, is_sent=is_sent)
        admitted = await self._intake.admit(
            awaited, request.principal, target, request.request_id, encoded
        )
        if timings is not None:
            timings.append_begins(target.owner, target.method, admitted.entry.request_id)
        self._intake.append((admitted,), timeout_s)
        return awaited

    async def _reply_within(
        self, place: LogPosition, wait_s: float, limit_s: float
    ) -> Reply | None:
        """Return the reply at a log position; None if it does not come within `wait_s`.

        A cancelled request has its status before its epoch, so it is not awaited.
        """
        is_open = not self._tail.is_committed(place)
        if is_open and (wait_s == 0 or await self._is_cancelled(place)):
            return None
        try:
            return await self._tail.reply(place, wait_s or limit_s)
        except TimedOut:
            return None

    async def _check_may_ask(
        self, request: HttpRequest, request_id: RequestId, place: LogPosition
    ) -> None:
        """Check that the principal may make the request whose reply it asks for, or is an operator.

        For a record that a cascade has appended, the right to make the request at the root of the cascade counts.
        """
        if request.principal.may_watch:
            return
        root = root_of(request_id)
        root_place = place if root == request_id else await self._batcher.place_of(root)
        body = None if root_place is None else await self._batcher.body_of(root_place)
        if body is None:  # the log was truncated
            request.principal.require_watch()
        else:
            call = decode_request(body)
            target = target_in(self._app, call.entity, call.key, call.method)
            require_right(request.principal, target)

    async def _sent_reply(
        self, request: HttpRequest, request_id: RequestId, wait_s: float, limit_s: float
    ) -> Reply | None:
        """Return the reply to a request that the cascade of a record has sent; None without such a request.

        Args:
            wait_s: How long to wait for the record, and for the parts of its cascade.
        """
        record = record_of(request_id)
        place = await self._batcher.place_of(record) if record else None
        if place is not None:
            # The right at the root counts: the caller of the record may see all that its cascade has
            # sent.
            await self._check_may_ask(request, record, place)
        deadline_s = time.monotonic() + wait_s
        while place is not None:
            left_s = max(0.0, deadline_s - time.monotonic())
            if await self._reply_within(place, left_s, limit_s) is None:
                break
            reply = await self._tail.sent_reply(place, request_id)
            if reply is not None:
                return reply
            record = continuation_id(record)  # a long cascade is cut
            place = await self._batcher.place_of(record)
        return None

    async def _forgotten(self, request: HttpRequest, request_id: RequestId) -> Exception:
        """Return the error for an id that the log does not know; it may have forgotten the id."""
        # The state knows the position of each generator always; the log forgets ids after their
        # retention.
        if await self._reads.is_generated(request_id):
            return Gone(f"{request.request_id} was appended, and its reply is no longer kept")
        return _unknown(request.request_id)

    async def _without_reply(self, request_id: str, place: LogPosition) -> RequestStatus:
        """Return the status of a request in the log that has no reply yet: cancelled or pending."""
        if not await self._is_cancelled(place):
            return RequestStatus(request_id, None, "pending", lsn=place[1])
        error = error_body(cancelled())
        return RequestStatus(request_id, None, "cancelled", lsn=place[1], error=error)

    async def _is_cancelled(self, place: LogPosition) -> bool:
        body = await self._batcher.body_of(place)
        return body is not None and is_cancelled(body)

    async def _source(self, request: HttpRequest, target: CallTarget) -> ArgumentSource:
        """Read the arguments or events, if the principal may make the call or the append."""
        require_right(request.principal, target)
        if target.stream is not None:
            self._app.open_stream(target.stream)  # an unknown stream needs no body
            return await _events_in(request)
        self._app.signature(target.entity, target.method)  # an unknown method needs no body
        if request.media_type != MSGPACK:
            return JsonArguments(await request.json())
        return MsgpackArguments(await request.body())

    async def _prepared(
        self, request: HttpRequest, target: CallTarget, source: ArgumentSource
    ) -> tuple[bytes, bytes]:
        """Give a request its id, and return the body and the access hint of its log entry."""
        # Only now: a request that is refused before has no id, so its answer names none.
        chosen = request.chosen_id()
        if chosen is not None:
            check_free(self._app, request.principal, chosen)
        request.request_id = chosen or self._ids.draw()
        return await self._encoder.encoded(target, source)

    def _answered_response(self, request: HttpRequest, reply: Reply) -> Response:
        if MSGPACK in request.headers.get("accept", ""):
            return reply_response(reply, request.request_id, MSGPACK)
        return self._status_response(_answered(request.request_id, reply))

    def _status_response(self, status: RequestStatus) -> Response:
        epoch = self._tail.epoch if status.epoch is None else Epoch(status.epoch)
        return Response(json_of(status), 200, reply_headers(epoch, status.request_id), JSON)


async def _events_in(request: HttpRequest) -> ArgumentSource:
    """Read the body of an append: a JSON array, JSON lines, or a MessagePack array."""
    if request.media_type == MSGPACK:
        return MsgpackArguments(await request.body())
    if request.media_type == NDJSON:
        return JsonLines(await request.json_lines())
    return JsonArguments(await request.json())


def _location(request_id: str) -> dict[str, str]:
    """Return the header that names the path of a request's status and result."""
    return {"Location": f"/requests/{quote(request_id, safe='')}"}


def _unknown(request_id: str) -> HttpError:
    return HttpError(
        404, "not-found", f"no request has the id {request_id}, or its id is no longer kept"
    )


def _answered(request_id: str, reply: Reply) -> RequestStatus:
    if reply.error is None:
        return RequestStatus(
            request_id, reply.epoch, "answered", lsn=reply.lsn, value=value_of(reply)
        )
    error = error_body(decode_failure(reply.data))
    return RequestStatus(request_id, reply.epoch, "answered", lsn=reply.lsn, error=error)
