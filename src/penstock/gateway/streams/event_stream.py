"""`EventStream`: a response of server-sent events that does not end, one for each follower of a stream.

The next events are read when the connection has taken the last ones, so that a slow reader costs no memory. A
reader that takes nothing for a minute is disconnected. While there are no events, a comment is sent from time to
time, so that proxies keep the connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT: Final = b":\n\n"

_FIRST: Final = b"retry: 1000\n\n"
_SEND_S: Final = 60.0
_HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""No proxy may keep the events, or collect them."""


class EventStream(Response):
    """Sends the chunks of an iterator until it ends or the client disconnects."""

    def __init__(self, chunks: AsyncIterator[bytes], headers: dict[str, str]) -> None:
        super().__init__(b"", 200, {**headers, **_HEADERS}, MEDIA_TYPE)
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        sending = asyncio.create_task(self._send_all(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait({sending, leaving})
            with contextlib.suppress(asyncio.CancelledError, TimeoutError, OSError):
                sending.result()

    async def _send_all(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with contextlib.aclosing(self._chunks) as chunks:  # type: ignore[type-var]
            await _send_chunk(send, _FIRST)
            async for chunk in chunks:
                await _send_chunk(send, chunk)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_chunk(send: Send, chunk: bytes) -> None:
    """Send a chunk."""
    async with asyncio.timeout(_SEND_S):
        await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
