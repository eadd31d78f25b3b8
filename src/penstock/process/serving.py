"""One HTTP server inside a process, from its first connection to its end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol

END_S: Final = 5
"""Seconds that a server has to end by itself."""

_LOOK_S: Final = 0.01

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
