"""`GET /requests/{id}/trace` and `GET /entities/{Entity}/{key}/history`: the past, recomputed.

Both run requests again, which takes processor time and the memory of a whole state. So it is done by
the commands of the same names, in a process of low priority, a few at a time; a gateway only passes
on what they print. Promises that such a process ends: by itself, by its time, or with the gateway.
"""

import asyncio
import dataclasses
import logging
import os
import re
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psutil
from starlette.responses import Response

from penstock.base.http import JSON
from penstock.errors import (
    BY_CODE,
    ConfigError,
    Internal,
    Overloaded,
    PenstockError,
    RecordTooLarge,
    RequestError,
    TimedOut,
)
from penstock.gateway.errors import HttpError
from penstock.gateway.http_request import HttpRequest
from penstock.model.application import App
from penstock.model.reply import raised_by
from penstock.process.config import PREFIX, Config

_log = logging.getLogger(__name__)

RUNNING_MAX: Final = 2
"""Processes of one gateway at once."""

# -P: what lies in the current directory is no part of Penstock, whatever it is called.
PROGRAM: Final = (sys.executable, "-P", "-m", "penstock")
TIME_S: Final = 60.0
BYTES_MAX: Final = 16 << 20
"""What a process may print; the gateway holds it while it is sent."""

_PROCESSOR_S: Final = 240
"""Ends also what a killed gateway has left behind; several threads may use it up in `TIME_S`."""

_NICE: Final = 10
_DIGITS_MAX: Final = 18
_CHUNK: Final = 1 << 16
_FAILURE: Final = re.compile(r"^error \[([a-z-]+)\] (.*)$", re.MULTILINE)
_LEAST: Final = {"from": 0, "to": 0, "last": 1}
"""What the query string may name, and from which number on."""


class HistoryHandler:
    """Runs the commands for one gateway."""

    def __init__(self, app: App, spec: str, config: Config) -> None:
        """Serve an application; `spec` says where other processes find it."""
        self._app = app
        self._spec = spec
        self._config = config
        self._turns = 0
        self._running: set[Process] = set()

    async def trace(self, request: HttpRequest) -> Response:
        """Serve `GET /requests/{id}/trace`.

        Raises:
            Forbidden: The principal may not ask in SQL, which shows as much, or the request is
                another principal's.
            Refused: There is no such request.
            Overloaded: Too many of these run already.
            TimedOut: It took too long.
            RecordTooLarge: The answer is larger than a gateway holds.
        """
        request.principal.require_sql()
        request_id = request.named_id()
        try:
            return await self._told(request, "trace", (), request_id)
        except RequestError as error:
            raise HttpError(404, "not-found", str(error)) from error

    async def history(self, request: HttpRequest) -> Response:
        """Serve `GET /entities/{Entity}/{key}/history`; raises as `trace`.

        Raises:
            RequestError: There is no such class, or a bound is no epoch that is held.
            NoSuchEntity: Nothing has changed such an entity.
        """
        request.principal.require_sql()
        entity, key = request.path["entity"], request.path["key"]
        self._app.key_of(entity, key)  # says what there is, where this is not
        options: list[str] = []
        for name, text in request.query().items():
            options += [f"--{name}", str(_number(name, text))]
        return await self._told(request, "history", options, entity, key)

    def close(self) -> None:
        """End what runs."""
        for process in sorted(self._running, key=lambda one: one.pid):
            with suppress(ProcessLookupError):
                process.kill()

    async def _told(
        self, request: HttpRequest, command: str, options: Sequence[str], *what: str
    ) -> Response:
        """Run a command in its turn, and answer what it printed."""
        if self._turns >= RUNNING_MAX:
            raise Overloaded(f"{RUNNING_MAX} of these run already; each takes some seconds")
        if any("\0" in one for one in what):
            raise RequestError("a NUL character cannot be asked about here, but in SQL")
        self._turns += 1  # before the first pause, so that no other exchange comes between
        try:
            data = str(self._config.data)
            words = (command, "--data", data, "--json", *options, "--", *what, self._spec)
            status, told, messages = await self._ran(request, words)
        finally:
            self._turns -= 1
        if status == 0:  # handlers may print, too: what is asked for is the last line
            return Response(told.rstrip().rpartition(b"\n")[2], 200, None, JSON)
        said = messages.decode(errors="replace").replace(f"in {data}", "here")
        raise _failure_of(status, said)

    async def _ran(self, request: HttpRequest, words: Sequence[str]) -> tuple[int, bytes, bytes]:
        """Run a command; return its exit code and what it printed."""
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=self._environment()
        )
        self._running.add(process)
        try:
            _humble(process.pid)
            async with asyncio.timeout(TIME_S):
                told, messages = await _while_asked(request, process)
                return await process.wait(), told, messages
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

    def _environment(self) -> dict[str, str]:
        """Return the environment of a process that holds handlers to the limits that hold here."""
        limits = dataclasses.asdict(self._config.limits).items()
        return os.environ | {f"{PREFIX}LIMITS_{name.upper()}": str(one) for name, one in limits}


def _number(name: str, text: str) -> int:
    """Return a bound that the query string names.

    Raises:
        RequestError: There is no such bound, or it is no such number.
    """
    if name not in _LEAST:
        raise RequestError(f"there is no {name} here; there are {', '.join(_LEAST)}")
    number = int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else -1
    if number < _LEAST[name]:
        raise RequestError(f"{name}={text} must be a whole number, {_LEAST[name]} or more")
    return number


def _humble(pid: int) -> None:
    """Let a process give way to others, and end by itself whatever becomes of this one."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        process.nice(_NICE)
        process.rlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))


async def _while_asked(request: HttpRequest, process: Process) -> tuple[bytes, bytes]:
    """Return what a process prints until its end.

    Raises:
        Refused: The client has gone before; nobody reads this.
        RecordTooLarge: It prints too much.
    """
    assert process.stdout is not None, "asked for"
    assert process.stderr is not None, "asked for"
    printed = asyncio.gather(_all_of(process.stdout), _all_of(process.stderr))
    gone = asyncio.create_task(request.gone())
    either: tuple[asyncio.Future[Any], ...] = (printed, gone)
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not printed.done():
            raise HttpError(400, "request", "the connection ended before the answer")
        return await printed
    finally:
        printed.cancel()
        gone.cancel()


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await stream.read(_CHUNK):
        size += len(chunk)
        if size > BYTES_MAX:
            raise RecordTooLarge(f"it takes more than {BYTES_MAX} bytes; the command has no limit")
        chunks.append(chunk)
    return b"".join(chunks)


def _failure_of(status: int, messages: str) -> PenstockError:
    """Return what a command says went wrong; what it did not expect is for the gateway's log."""
    found = _FAILURE.search(messages)
    if found is not None and found[1] == ConfigError.code:  # epochs that are not held
        return RequestError(found[2])
    if found is not None and found[1] in BY_CODE and found[1] != Internal.code:
        return raised_by(found[1], BY_CODE[found[1]].__name__, found[2])
    _log.error("a look into the past failed", extra={"status": status, "said": messages[-2_000:]})
    return PenstockError("the process that looked into the past failed; the gateway's log says how")
