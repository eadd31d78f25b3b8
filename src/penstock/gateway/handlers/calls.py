"""`/call`, `/send` and `/requests`: requests in, replies out.

Promises that a request which is answered with 2xx, or with an error of its own, is durable and took
effect exactly as the answer says; and that the same request id never takes effect twice.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

from starlette.responses import Response

from penstock.base.http import JSON, MSGPACK
from penstock.base.ids import ONLY_PARTITION, Lsn
from penstock.errors import Overloaded, PenstockError, RecordTooLarge, RequestError, TimedOut
from penstock.gateway.append_batcher import AppendBatcher
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest
from penstock.gateway.request_ids import RequestIds, stored_id
from penstock.gateway.responses import json_of, reply_headers, reply_response, value_of
from penstock.gateway.telemetry.request_timings import TIMINGS, RequestTimings
from penstock.journal.replies import LogPosition
from penstock.journal.tail import AsyncJournalTail
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.reply import Reply
from penstock.model.request import decode_failure, decode_request
from penstock.process.config import Config

DERIVED: Final = "-"
"""In the place of a key: a creation shall derive it."""

DELAY_MAX_S: Final = 366 * 86_400.0

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Arguments = tuple[Sequence[Any], Mapping[str, Any]]


def read_arguments(read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Read arguments, which may run the application's own checks (`__post_init__`).

    Raises:
        RequestError: They do not fit, or such a check raised.
    """
    try:
        return read(*given, **named)
    except PenstockError:
        raise
    except Exception as error:
        _log.info("an argument was refused by the application's own code", exc_info=True)
        raise RequestError(f"an argument was refused: {type(error).__name__}: {error}") from error


class CallHandler:
    """Takes the requests of one gateway."""

    def __init__(
        self, app: App, config: Config, batcher: AppendBatcher, following: AsyncJournalTail
    ) -> None:
        """Use what appends and what follows."""
        self._app = app
        self._config = config
        self._batcher = batcher
        self._following = following
        self._ids = RequestIds()
        self._newest = Lsn(0)  # after the newest record that this gateway knows of

    async def call(self, request: HttpRequest) -> Response:
        """Serve `POST /call/…`: append, wait for the epoch, answer."""
        target = self._target(request)
        request.principal.require_call(target[0], target[2])
        arguments = await self._arguments(request, target[0], target[2])
        reply = await self.process(request, *target, arguments)
        return reply_response(reply, request.request_id, request.headers.get("accept", ""))

    async def send(self, request: HttpRequest) -> Response:
        """Serve `POST /send/…`: append, or schedule with `?delay=`, and answer at once."""
        entity, key, method = self._target(request)
        request.principal.require_call(entity, method)
        arguments = await self._arguments(request, entity, method)
        delay_s = request.seconds("delay", 0.0, DELAY_MAX_S)
        self._name(request)
        body, touches = self._encoded(entity, key, method, arguments)
        self._check_load()
        if delay_s > 0:
            due_us = time.time_ns() // 1_000 + int(delay_s * 1_000_000)
            request_id = stored_id(request.principal, request.request_id)
            await self._batcher.schedule(request_id, body, touches, due_us)
        else:
            await self._append(request, entity, method, body, touches)
        headers = reply_headers(self._following.epoch, request.request_id)
        headers["Location"] = f"/requests/{quote(request.request_id, safe='')}"
        return Response(json_of({"request_id": request.request_id}), 202, headers, JSON)

    async def status(self, request: HttpRequest) -> Response:
        """Serve `GET /requests/{id}`: what became of a request; `?wait=` waits for its reply."""
        request_id = request.named_id()
        request.request_id = request.path["id"]
        limit_s = self._config.gateway.reply_timeout_ms / 1_000
        wait_s = request.seconds("wait", 0.0, limit_s)
        place = await self._batcher.place_of(request_id)
        if place is None:
            due_us = await self._batcher.due_of(request_id)
            if due_us is not None:
                told: dict[str, Any] = {"status": "scheduled", "due_us": due_us}
                return self._standing(request, told)
            place = await self._batcher.place_of(request_id)  # it may have become due meanwhile
        if place is None:
            raise HttpError(
                404,
                "not-found",
                f"no request has the id {request.request_id}, or it is known no longer",
            )
        await self._check_asker(request, place)
        try:
            if wait_s == 0 and not self._following.is_committed(place):
                raise TimedOut("nobody waits")
            reply = await self._following.reply(place, wait_s or limit_s)
        except TimedOut:
            return self._standing(request, {"status": "pending", "lsn": place[1]})
        if MSGPACK in request.headers.get("accept", ""):
            return reply_response(reply, request.request_id, MSGPACK)
        told = {"status": "answered", "lsn": reply.lsn}
        if reply.error is None:
            told["value"] = value_of(reply)
        else:
            failed = decode_failure(reply.data)
            told["error"] = {
                "code": failed.code,
                "kind": failed.kind,
                "message": failed.message,
            }
        return self._standing(request, told, reply)

    async def process(
        self, request: HttpRequest, entity: str, key: object, method: str, arguments: Arguments
    ) -> Reply:
        """Append a request that the principal may make, and return its reply, whatever that is.

        Raises:
            PenstockError: It was not appended, or its reply did not come in time.
        """
        timeout_s = self._config.gateway.reply_timeout_ms / 1_000
        if b"timeout" in request.scope["query_string"]:
            timeout_s = request.seconds("timeout", timeout_s, timeout_s)
        self._name(request)
        body, touches = self._encoded(entity, key, method, arguments)
        self._check_load()
        lsn = await self._append(request, entity, method, body, touches)
        reply = await self._following.reply((ONLY_PARTITION, lsn), timeout_s)
        timings: RequestTimings | None = request.scope.get(TIMINGS)
        if timings is not None:
            timings.answered(reply)
        return reply

    async def _append(
        self, request: HttpRequest, entity: str, method: str, body: bytes, touches: bytes
    ) -> Lsn:
        """Append a request under the exchange's id, and note it where exchanges are traced."""
        request_id = stored_id(request.principal, request.request_id)
        append = self._batcher.append(request_id, body, touches)
        timings: RequestTimings | None = request.scope.get(TIMINGS)
        if timings is None:
            lsn = await append
        else:
            lsn = await timings.append(append, entity, method, request_id)
        self._newest = max(self._newest, Lsn(lsn + 1))
        return lsn

    async def _check_asker(self, request: HttpRequest, place: LogPosition) -> None:
        """Let those ask for a reply who may make the request, and operators.

        Raises:
            Forbidden: The principal may not.
        """
        if request.principal.is_admin:
            return
        body = await self._batcher.body_of(place)
        if body is None:  # forgotten by the log
            request.principal.require_admin()
        else:
            asked = decode_request(body)
            request.principal.require_call(asked.entity, asked.method)

    def _target(self, request: HttpRequest) -> tuple[str, str | None, str]:
        """Return entity class, key and method that a path names."""
        path = request.path
        if "function" in path:
            return "", None, path["function"]
        key: str | None = path["key"]
        if path["method"] in CREATIONS and key == DERIVED:
            key = None
        return path["entity"], key, path["method"]

    async def _arguments(self, request: HttpRequest, entity: str, method: str) -> Arguments:
        signature = self._app.signature(entity, method)
        if request.media_type != MSGPACK:
            return read_arguments(signature.of_json, await request.json())
        return read_arguments(signature.of_msgpack, await request.body())

    def _encoded(
        self, entity: str, key: object, method: str, arguments: Arguments
    ) -> tuple[bytes, bytes]:
        if isinstance(key, str):
            most = self._config.gateway.key_bytes_max
            if len(key.encode()) > most:
                raise RecordTooLarge(f"a key takes at most {most} bytes")
            key = self._app.key_of(entity, key)
        body, touches = self._app.request(entity, key, method, *arguments)
        if len(body) > self._config.record_bytes_max:
            raise RecordTooLarge(
                f"the request takes {len(body)} bytes, at most {self._config.record_bytes_max}"
            )
        return body, touches

    def _name(self, request: HttpRequest) -> None:
        """Give the exchange the request id that its caller has chosen, or a new one."""
        request.request_id = request.chosen_id() or self._ids.draw()

    def _check_load(self) -> None:
        """Refuse instead of letting queues grow.

        Raises:
            Overloaded: Too many wait here, or too much waits in the log.
        """
        settings = self._config.gateway
        if self._following.waiting >= settings.waiting_max:
            raise Overloaded(f"{settings.waiting_max} requests wait here already")
        lag = self._newest - self._following.positions.get(ONLY_PARTITION, Lsn(0))
        if lag > settings.lag_max:
            raise Overloaded(f"{lag} requests wait in the log, at most {settings.lag_max} may")

    def _standing(
        self, request: HttpRequest, told: dict[str, Any], reply: Reply | None = None
    ) -> Response:
        epoch = self._following.epoch if reply is None else reply.epoch
        known = {"request_id": request.request_id, "epoch": None if reply is None else epoch}
        headers = reply_headers(epoch, request.request_id)
        return Response(json_of(known | told), 200, headers, JSON)
