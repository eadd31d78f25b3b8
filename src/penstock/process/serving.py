"""One server inside a process, from its first connection to its end, and the path of its socket."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from penstock.files.temporary_folder import temporary_folder

END_S: Final = 5
"""Seconds that a server has to end by itself."""

_LOOK_S: Final = 0.01
_SOCKET_PATH_BYTES_MAX: Final = 100
"""The kernel's limit is 108, for path and end."""

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Server(Protocol):
    """The part of granian's embedded server that is used here."""

    async def serve(self) -> None:
        """Serve until `stop`."""

    def stop(self) -> None:
        """End `serve`."""


@asynccontextmanager
async def serving(server: Server, connect: Connect) -> AsyncIterator[asyncio.Task[None]]:
    """Run a server while the block runs, which begins when the server takes connections.

    Args:
        connect: Opens a connection to the server; the connection is closed at once.

    Yields:
        The task that serves; it ends early only with an error of the server.
    """
    task = asyncio.create_task(server.serve())
    try:
        await _until_listening(task, connect)
        yield task
    finally:
        server.stop()
        await asyncio.wait({task}, timeout=END_S)


@contextmanager
def socket_path(path: Path, purpose: str) -> Iterator[Path]:
    """Give a path for a new socket: `path`, or one in a temporary folder, if it is too long. Both end with the block.

    Args:
        purpose: A word of the folder's name, for people.
    """
    with ExitStack() as stack:
        path = path.absolute()
        if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
            path = stack.enter_context(temporary_folder(purpose)) / path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # left by a killed process
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


async def until_stopped(stop: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Wait until the event is set, or the server has ended."""
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()


async def _until_listening(task: asyncio.Task[None], connect: Connect) -> None:
    while not task.done():
        try:
            _, writer = await connect()
        except OSError:
            await asyncio.sleep(_LOOK_S)
        else:
            writer.close()
            return
    await task
