"""The view's process: HTTP on a Unix socket, for gateways and for `penstock sql`.

`POST /sql` executes a query, `POST /tables` those of the tables of a view, and `GET /status` returns the status of the SQL view. Errors have
the statuses that gateways give them. Headers name the epoch, and say whether the view is being rebuilt. SIGTERM,
SIGINT, or the end of standard input under a supervisor end the process after the running queries.
Queries run in children of this process (`query_pool`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from penstock.base.http import (
    CALLER,
    EPOCH,
    JSON,
    MIN_EPOCH,
    RETRIABLE,
    RETRY_AFTER,
    STATUS,
    VIEW_STATE,
    encode_error,
)
from penstock.deployment.code_in_force import CodeInForce
from penstock.deployment.isolated_upcasts import isolated_upcasts
from penstock.errors import Overloaded, PenstockError, QueryError
from penstock.files.layout import RUN
from penstock.model.application import App
from penstock.process import presence, startup
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.process.serving import serving, socket_path, until_stopped
from penstock.process.stop import stop_event
from penstock.sql_view.query import Query
from penstock.sql_view.query_body import Count
from penstock.sql_view.query_pool import EncodedResult, ResultOptions
from penstock.sql_view.result_format import ResultFormat, accepted_format
from penstock.sql_view.table_answers import TablesBody
from penstock.sql_view.view import View

_log = logging.getLogger(__name__)

ROLE: Final = "view"
SOCKET: Final = "view.sock"
WAITING_MAX: Final = 64
"""How many queries may wait or run; one caller may have half of them."""

_CHUNK: Final = 1 << 18
_decode: Final = msgspec.json.Decoder(Query).decode
_decode_tables: Final = msgspec.json.Decoder(TablesBody).decode
_decode_count: Final = msgspec.json.Decoder(Count).decode
_encode: Final = msgspec.json.Encoder().encode


class ViewEndpoints:
    """The endpoints of the socket."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._threads = ThreadPoolExecutor(WAITING_MAX, thread_name_prefix="penstock-query")
        self._inside: Counter[str] = Counter()

    def application(self) -> Starlette:
        """Return the routes as an ASGI application."""
        return Starlette(
            routes=[
                Route("/sql", self._sql, methods=["POST"]),
                Route("/tables", self._tables, methods=["POST"]),
                Route("/status", self._status, methods=["GET"]),
            ],
            exception_handlers={Exception: self._failed},
        )

    def close(self) -> None:
        """Wait for the running queries."""
        self._threads.shutdown()

    async def _sql(self, request: Request) -> Response:
        return await self._in_thread(request, self._execute)

    async def _tables(self, request: Request) -> Response:
        return await self._in_thread(request, self._answer_tables)

    async def _in_thread(
        self, request: Request, answer: Callable[[Request, bytes], Response]
    ) -> Response:
        body = await request.body()
        caller = request.headers.get(CALLER, "")
        if self._inside.total() >= WAITING_MAX or self._inside[caller] >= WAITING_MAX // 2:
            return self._refusal(Overloaded("too many queries wait already; try again later"))
        self._inside[caller] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, answer, request, body)
        finally:
            self._inside[caller] -= 1
            self._inside += Counter()  # removes callers without queries

    async def _status(self, _request: Request) -> Response:
        loop = asyncio.get_running_loop()
        status = await loop.run_in_executor(None, self._view.status)
        return Response(_encode(status), media_type=JSON)

    def _execute(self, request: Request, body: bytes) -> Response:
        try:
            query = _query_of(body, request.headers.get(MIN_EPOCH))
            chosen = accepted_format(request.headers.get("accept", ""))
            options = ResultOptions(chosen, request.headers.get(CALLER, ""))
            return self._response(self._view.execute(query, options), chosen)
        except PenstockError as error:
            return self._refusal(error)

    def _answer_tables(self, request: Request, body: bytes) -> Response:
        try:
            asked = _decode_tables(body)
            answers = self._view.answers(asked, request.headers.get(CALLER, ""))
            return self._response(answers, ResultFormat.ARROW)
        except PenstockError as error:
            return self._refusal(error)

    def _response(self, result: EncodedResult, chosen: ResultFormat) -> Response:
        headers = {EPOCH: str(result.epoch), **self._state()}
        if result.size <= _CHUNK:
            with result.body as body:
                return Response(body.read(result.size), 200, headers, chosen)
        headers["Content-Length"] = str(result.size)
        return StreamingResponse(_chunks(result), 200, headers, chosen)

    async def _failed(self, _request: Request, error: Exception) -> Response:
        _log.error("a query failed", exc_info=error)
        return self._refusal(PenstockError("the SQL view failed at this query; its log says why"))

    def _refusal(self, error: PenstockError) -> Response:
        status = STATUS[error.code]
        headers = self._state() | ({RETRY_AFTER: "1"} if status in RETRIABLE else {})
        body = encode_error(error.code, type(error).__name__, str(error))
        return Response(body, status, headers, JSON)

    def _state(self) -> dict[str, str]:
        return {VIEW_STATE: "rebuilding"} if self._view.rebuilding else {}


def serve_view(app: App, spec: str, config: Config, *, supervised: bool = False) -> None:
    """Keep an application's view and execute queries, until the process is options to stop.

    Args:
        supervised: Whether the end of standard input stops the process, too.
    """
    DataDirectory(config.data).create(config.key_service)
    startup.note(config.data, ROLE, "its tables are opened")
    with (
        isolated_upcasts(),
        closing(DataDirectory(config.data).open_journal(app)) as journal,
    ):
        code = CodeInForce(config.data, spec, known=journal.known)
        view = View(config.data, app, journal, config.view, code)
        # The lock of the view shows that no other view runs, which would have this socket.
        with closing(view), socket_path(config.data / RUN / SOCKET, ROLE) as socket:
            view.start(spare=True)
            uvloop.run(_serve(view, spec, config, socket, supervised=supervised))


async def _serve(view: View, spec: str, config: Config, socket: Path, *, supervised: bool) -> None:
    endpoints = ViewEndpoints(view)
    server = Server(
        endpoints.application(),
        uds=socket,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        log_enabled=False,
    )
    try:
        async with (
            stop_event(supervised=supervised) as stop,
            serving(server, lambda: asyncio.open_unix_connection(socket)) as task,
        ):
            socket.chmod(0o600)  # the umask of the process keeps others out before
            with presence.present(config.data, ROLE, spec, socket=str(socket)):
                startup.finish(config.data, ROLE)
                _log.info("view.listening", extra={"socket": str(socket), "epoch": view.epoch})
                await until_stopped(stop, task)
    finally:
        await asyncio.get_running_loop().run_in_executor(None, endpoints.close)


def _chunks(result: EncodedResult) -> Iterator[bytes]:
    """Yield the body of a result in pieces."""
    left = result.size
    with result.body as body:
        while left > 0:
            data = body.read(min(_CHUNK, left))
            left -= len(data)
            yield data


def _query_of(body: bytes, min_epoch: str | None) -> Query:
    """Decode a query; `min_epoch` is the header's value for a body without this field."""
    try:
        query = _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise QueryError(f"the body is not a query: {error}") from error
    if query.min_epoch is None and min_epoch is not None:
        try:
            query = msgspec.structs.replace(query, min_epoch=_decode_count(min_epoch))
        except msgspec.MsgspecError as error:
            raise QueryError(f"{MIN_EPOCH}: {min_epoch} is not an epoch: {error}") from error
    return query
