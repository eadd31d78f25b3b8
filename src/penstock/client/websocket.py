"""`WebSocket`: a connection of whole binary messages, over httpx's own connection.

httpx makes the connection (TLS, proxies, headers, the key) and asks for the upgrade; `wsproto` knows the
bytes of the WebSocket protocol.
"""

import asyncio
import base64
import secrets
from collections.abc import Mapping
from typing import Any, Final, Self

import httpcore
import httpx
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from penstock.base.pipeline import PIPELINE, SUBPROTOCOL
from penstock.client.encoding import error_of
from penstock.client.operation import retry_after_s
from penstock.client.transport import CONNECT_S, response_of
from penstock.errors import OperationalError

_UPGRADED: Final = 101
_READ_BYTES: Final = 256 << 10
_CLOSE_S: Final = 1.0
"""The longest time to say goodbye to a gateway."""


class ConnectionEnded(Exception):
    """The connection has ended, from either side."""


class WebSocket:
    """An open WebSocket to a gateway. `send` and `receive` may run at the same time, in one event loop."""

    def __init__(self, client: httpx.AsyncClient, response: httpx.Response) -> None:
        self._client = client
        self._response = response
        self._stream: Any = response.extensions["network_stream"]
        self._frames = Connection(ConnectionType.CLIENT)
        self._parts: list[bytes] = []
        self._sending = asyncio.Lock()

    @classmethod
    async def dial(cls, url: str, options: Mapping[str, Any]) -> Self:
        """Connect to the gateway with a URL; `options` are those of the httpx client.

        Raises:
            TransportError: There is no connection.
            PenstockError: The gateway refused the handshake.
        """
        client = httpx.AsyncClient(**options)
        try:
            headers = {
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Protocol": SUBPROTOCOL,
            }
            timeout = httpx.Timeout(60.0, connect=CONNECT_S)
            request = client.build_request(
                "GET", f"{url}{PIPELINE}", headers=headers, timeout=timeout
            )
            response = await client.send(request, stream=True)
            if response.status_code != _UPGRADED:
                await response.aread()
                received = response_of(response)
                error = error_of(received)
                if isinstance(error, OperationalError):
                    error.retry_after_s = retry_after_s(received)
                raise error
        except BaseException:
            await client.aclose()
            raise
        return cls(client, response)

    async def send(self, message: bytes) -> None:
        """Send a message.

        Raises:
            ConnectionEnded: The connection has ended.
        """
        await self._send(BytesMessage(data=message))

    async def receive(self) -> bytes:
        """Return the next message.

        Raises:
            ConnectionEnded: The connection has ended.
        """
        while True:
            try:
                for event in self._frames.events():
                    message = await self._message_of(event)
                    if message is not None:
                        return message
                data = await self._stream.read(_READ_BYTES)
                self._frames.receive_data(data or None)
            except (RemoteProtocolError, httpcore.NetworkError, OSError) as error:
                raise ConnectionEnded(str(error)) from error
            if not data:
                raise ConnectionEnded("the gateway closed the connection")

    async def _message_of(self, event: object) -> bytes | None:
        """Return the message that an event completes; None if it completes none.

        Raises:
            ConnectionEnded: The event is the end of the connection.
        """
        if isinstance(event, BytesMessage):
            self._parts.append(bytes(event.data))
            if event.message_finished:
                message = b"".join(self._parts)
                self._parts.clear()
                return message
        elif isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, CloseConnection):
            raise ConnectionEnded(event.reason or "the gateway closed the connection")
        return None

    async def close(self) -> None:
        """End the connection; a gateway that reads nothing does not delay that."""
        try:
            if not self._sending.locked():
                async with asyncio.timeout(_CLOSE_S):
                    await self._send(CloseConnection(code=1000))
        except (ConnectionEnded, TimeoutError):
            pass
        finally:
            await self._response.aclose()
            await self._client.aclose()

    async def _send(self, event: BytesMessage | Any) -> None:
        try:
            async with self._sending:
                await self._stream.write(self._frames.send(event))
        except (LocalProtocolError, httpcore.NetworkError, OSError) as error:
            raise ConnectionEnded(str(error)) from error
