"""`GET /requests/{id}/trace` and `GET /entities/{Entity}/{key}/history`: the past, recomputed.

Both run requests again, which takes processor time and the memory of a whole state. So a child
process of low priority does it (`history.trace`), and only a few run at a time. Promises
that such a process ends: on its own, at its time limit, when the client disconnects, or with the
gateway.
"""

import asyncio
import dataclasses
import logging
import resource
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any, Final

import psutil
from starlette.responses import Response

from penstock.base.http import JSON
from penstock.base.start import program_of
from penstock.errors import (
    ConfigError,
    Overloaded,
    PenstockError,
    RecordTooLarge,
    RequestError,
    TimedOut,
)
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest, whole_number
from penstock.gateway.route import (
    NAMED,
    REQUESTS,
    SQL,
    TO_EPOCH,
    Answer,
    Parameter,
    Route,
    epoch_bound,
    json_content,
)
from penstock.history.trace import HistoryQuery, Lookup, TraceQuery
from penstock.history.trace_document import HistoryDocument, TraceDocument
from penstock.model.application import App
from penstock.process.config import Config
from penstock.process.question import ChildEnded, ChildOutput, answer_in, encode_question

_log = logging.getLogger(__name__)

RUNNING_MAX: Final = 2
"""Child processes of one gateway at the same time."""

# -P: a module in the current directory must not replace one of Penstock.
PROGRAM: Final = program_of("penstock.history.trace")
TIME_S: Final = 60.0
BYTES_MAX: Final = 16 << 20
"""The largest answer of a child process; the gateway holds it in memory."""

CHANGES_DEFAULT: Final = 20
"""Changes in a history if the request does not say how many."""

_PROCESSOR_S: Final = 240
"""Ends also a child of a killed gateway; several threads may use this up within `TIME_S`."""

_NICE: Final = 10
_LOG_BYTES_MAX: Final = 2_000
_CHUNK: Final = 1 << 16
_MINIMUM: Final = {"from": 0, "to": 0, "last": 1}
"""The fields of a history's query string, and the smallest value of each."""


class HistoryHandler:
    """Serves traces and histories of one application.

    Args:
        config: The gateway's configuration; its limits hold in the child process too.
    """

    def __init__(self, app: App, spec: str, config: Config) -> None:
        self._app = app
        self._spec = spec
        self._config = dataclasses.replace(config, data=config.data.absolute())
        self._turns = 0
        self._running: set[Process] = set()

    def serve(self, app: App, spec: str) -> None:
        """Answer from now on with another version of the application."""
        self._app, self._spec = app, spec

    @Route(
        "GET",
        "/requests/{id}/trace",
        "trace",
        name="requests.trace",
        tag=REQUESTS,
        right=SQL,
        parameters=(NAMED,),
        answers=(Answer("The trace.", json_content(TraceDocument)),),
        errors=(413, 429, 504),
    )
    async def trace(self, request: HttpRequest) -> Response:
        """Trace a request.

        Returns the calls of a request, the entities that it read and changed, and its
        position in the order. The request runs again for this, which takes seconds.
        """
        query = TraceQuery(request.named_id())
        try:
            return await self._answer(request, query)
        except RequestError as error:
            raise HttpError(404, "not-found", str(error)) from error

    @Route(
        "GET",
        "/entities/{entity}/{key}/history",
        "history",
        right=SQL,
        parameters=(
            epoch_bound("from", "The first epoch. The default is the newest."),
            TO_EPOCH,
            Parameter(
                "last",
                "query",
                f"The number of newest changes; the default is {CHANGES_DEFAULT}.",
                {"type": "integer", "minimum": 1},
                is_required=False,
            ),
        ),
        answers=(Answer("The newest changes, in order.", json_content(HistoryDocument)),),
        errors=(413, 429, 504),
    )
    async def history(self, request: HttpRequest) -> Response:
        """List the history of an entity.

        Returns each change and the request that made it. Epochs run again for this, which takes
        seconds.
        """
        entity, key = request.path["entity"], request.path["key"]
        self._app.key_of(entity, key)  # raises for an unknown class
        bounds = {
            name: whole_number(name, text, "is not such a number", _MINIMUM[name])
            for name, text in request.query().items()
        }
        query = HistoryQuery(
            entity, key, bounds.get("from"), bounds.get("to"), bounds.get("last", CHANGES_DEFAULT)
        )
        return await self._answer(request, query)

    def close(self) -> None:
        """Kill the child processes that still run."""
        for process in sorted(self._running, key=lambda process: process.pid):
            with suppress(ProcessLookupError):
                process.kill()

    async def _answer(self, request: HttpRequest, query: TraceQuery | HistoryQuery) -> Response:
        """Let a child process answer a query."""
        if self._turns >= RUNNING_MAX:
            raise Overloaded(f"{RUNNING_MAX} of these run already; each takes some seconds")
        self._turns += 1  # before the first `await`, so that no other request comes between
        try:
            question = encode_question(Lookup(self._spec, self._config, query))
            output, messages = await self._run_child(request, question)
        finally:
            self._turns -= 1
        try:
            return Response(answer_in(output, bytes), 200, None, JSON)
        except ChildEnded:
            said = messages[-_LOG_BYTES_MAX:].decode(errors="replace")
            facts = {"status": output.exit_code, "said": said}
            _log.error("the process for a trace or a history failed", extra=facts)
            raise PenstockError(
                "the process that looked into the past failed; the gateway's log says how"
            ) from None
        except PenstockError as error:
            error.args = (str(error).replace(f"in {self._config.data}", "here"),)
            if isinstance(error, ConfigError):  # the epochs are not held: the caller's error here
                raise RequestError(str(error)) from None
            raise

    async def _run_child(self, request: HttpRequest, question: bytes) -> tuple[ChildOutput, bytes]:
        """Run a child process; return its output and its messages."""
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        self._running.add(process)
        try:
            _limit(process.pid)
            async with asyncio.timeout(TIME_S):
                answer, messages = await _output_of(request, process, question)
                return ChildOutput(answer, await process.wait()), messages
        except TimeoutError:
            raise TimedOut(
                f"it took longer than {TIME_S:.0f} s; the command has no limit"
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
            self._running.discard(process)


def _limit(pid: int) -> None:
    """Lower the priority of a process, and bound its processor time in case the gateway dies."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        process.nice(_NICE)
        process.rlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))


async def _output_of(
    request: HttpRequest, process: Process, question: bytes
) -> tuple[bytes, bytes]:
    """Send a question and return the standard output and standard error of a process."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(question)
    process.stdin.close()
    # A task: a cancelled `gather` without an awaiting task leaves a traceback in the log.
    output = asyncio.create_task(_both_of(process.stdout, process.stderr))
    disconnected = asyncio.create_task(request.gone())
    either: tuple[asyncio.Task[Any], ...] = (output, disconnected)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not output.done():
            raise HttpError(400, "request", "the connection ended before the answer")
        return await output
    finally:
        output.cancel()
        disconnected.cancel()


async def _both_of(
    output: asyncio.StreamReader, errors: asyncio.StreamReader
) -> tuple[bytes, bytes]:
    return await asyncio.gather(_all_of(output), _all_of(errors))


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await stream.read(_CHUNK):
        size += len(chunk)
        if size > BYTES_MAX:
            raise RecordTooLarge(
                f"the answer takes more than {BYTES_MAX} bytes; the command has no limit"
            )
        chunks.append(chunk)
    return b"".join(chunks)
