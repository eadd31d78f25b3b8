"""`GET /requests/{id}/trace` and `GET /entities/{Entity}/{key}/history`: the past, recomputed.

Both run requests again, which takes processor time and the memory of a whole state. So it is done by
the commands of the same names, in a process of low priority, a few at a time; a gateway only passes
on what they print. Promises that such a process ends: by itself, by its time, or with the gateway.
"""

import asyncio
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
from starlette.responses import Response

from penstock.errors import (
    ConfigError,
    NoSuchEntity,
    OperationalError,
    Overloaded,
    PenstockError,
    RequestError,
    TimedOut,
)
from penstock.gateway.errors import Refused
from penstock.gateway.exchange import JSON, Exchange
from penstock.model.application import App

RUNNING_MAX: Final = 2
"""Processes of one gateway at once."""

TIME_S: Final = 60.0
_NICE: Final = 10
_FAILURE: Final = re.compile(r"^error \[([a-z-]+)\] (.*)$", re.MULTILINE)
_KINDS: Final[dict[str, type[PenstockError]]] = {
    RequestError.code: RequestError,
    ConfigError.code: RequestError,  # epochs that are not held
    NoSuchEntity.code: NoSuchEntity,
}
_BOUNDS: Final = ("from", "to", "last")


class History:
    """Runs the commands for one gateway."""

    def __init__(self, app: App, spec: str, data: Path) -> None:
        """Serve an application; `spec` says where other processes find it."""
        self._app = app
        self._spec = spec
        self._data = data
        self._running: set[Process] = set()

    async def trace(self, exchange: Exchange) -> Response:
        """Serve `GET /requests/{id}/trace`.

        Raises:
            Forbidden: The principal may not ask in SQL, which shows as much.
            Refused: There is no such request.
            Overloaded: Too many of these run already.
            TimedOut: It took too long.
        """
        exchange.principal.require_sql()
        request_id = exchange.path["id"]
        try:
            return await self._told("trace", (), request_id)
        except RequestError as error:
            raise Refused(404, "not-found", str(error)) from error

    async def history(self, exchange: Exchange) -> Response:
        """Serve `GET /entities/{Entity}/{key}/history`; raises as `trace`.

        Raises:
            RequestError: There is no such class, or a bound is no epoch that is held.
            NoSuchEntity: Nothing has changed such an entity.
        """
        exchange.principal.require_sql()
        entity, key = exchange.path["entity"], exchange.path["key"]
        self._app.signature(entity, "exists")  # says what there is, where this is not
        options: list[str] = []
        for name, text in exchange.query().items():
            if name not in _BOUNDS or not text.isdecimal():
                raise RequestError(f"{name}={text}: there are from, to and last, whole numbers")
            options += [f"--{name}", text]
        return await self._told("history", options, entity, key)

    def close(self) -> None:
        """End what runs."""
        for process in self._running:
            with suppress(ProcessLookupError):
                process.kill()

    async def _told(
        self, command: str, options: tuple[str, ...] | list[str], *what: str
    ) -> Response:
        if len(self._running) >= RUNNING_MAX:
            raise Overloaded(f"{RUNNING_MAX} of these run already; each takes some seconds")
        words = [command, "--data", str(self._data), "--json", *options, "--", *what, self._spec]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        self._running.add(process)
        try:
            with suppress(psutil.Error):
                psutil.Process(process.pid).nice(_NICE)
            async with asyncio.timeout(TIME_S):
                told, messages = await process.communicate()
        except TimeoutError:
            raise TimedOut(
                f"it took longer than {TIME_S:.0f} s; the command has no limit"
            ) from None
        finally:
            self._running.discard(process)
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0:
            return Response(told, 200, None, JSON)
        raise _failure_of(messages.decode(errors="replace"))


def _failure_of(messages: str) -> PenstockError:
    """Return what a command says went wrong."""
    found = _FAILURE.search(messages)
    if found is None:
        return OperationalError("the process that looked into the past has died; try again")
    return _KINDS.get(found[1], OperationalError)(found[2])
