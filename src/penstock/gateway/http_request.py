"""One HTTP request: what came in, read within its limits.

Promises that a body is never larger than allowed and never waited for longer than allowed, and
that JSON is not nested deeper than allowed before any decoder sees it.
"""

import asyncio
import re
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope

from penstock.base.http import IDEMPOTENCY_KEY, JSON, MIN_EPOCH, media_type_of
from penstock.base.ids import RequestId
from penstock.errors import RequestError
from penstock.gateway.auth.principal import Principal
from penstock.gateway.errors import HttpError
from penstock.gateway.request_ids import check_chosen, named_id
from penstock.process.config import GatewayConfig

# A string that does not end reaches to the end, so that each byte is looked at once.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_JSON_KINDS: Final = ("", JSON, "text/plain", "application/x-www-form-urlencoded")
"""What the body may be called: `curl -d` says it is a form. `site` keeps out foreign pages."""

_OPENING: Final = (b"[", b"{")
_CLOSING: Final = (b"]", b"}")
_QUERY_FIELDS_MAX: Final = 100


class HttpRequest:
    """What a handler is given.

    Attributes:
        path: What the names in the route's path stand for.
        headers: By lower-case name; of repeated ones the last.
        principal: Who asks.
        request_id: As the principal knows it; empty where there is none.
    """

    __slots__ = ("_config", "_receive", "_scope", "headers", "path", "principal", "request_id")

    def __init__(self, scope: Scope, receive: Receive, config: GatewayConfig) -> None:
        """Check the head.

        Raises:
            Refused: The headers are too large.
        """
        self._scope = scope
        self._receive = receive
        self._config = config
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) for name, value in pairs) > config.header_bytes_max:
            raise HttpError(
                431, "headers-too-large", f"headers take at most {config.header_bytes_max} bytes"
            )
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in pairs
        }
        self.path: dict[str, str] = {}
        self.principal: Principal
        self.request_id = ""

    @property
    def scope(self) -> Scope:
        """The ASGI scope."""
        return self._scope

    @property
    def verb(self) -> str:
        """The HTTP method."""
        method: str = self._scope["method"]
        return method

    def query(self) -> dict[str, str]:
        """Return the query string's fields; of repeated ones the last.

        Raises:
            RequestError: It is malformed.
        """
        raw: bytes = self._scope["query_string"]
        if not raw:
            return {}
        try:
            text = raw.decode("ascii")
            pairs = parse_qsl(
                text, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
            )
        except ValueError as error:  # of which UnicodeDecodeError is one
            raise RequestError(f"the query string cannot be read: {error}") from error
        return dict(pairs)

    async def body(self) -> bytes:
        """Return the whole body.

        Raises:
            Refused: It is too large, comes too slowly, or the client has gone.
        """
        most = self._config.body_bytes_max
        length = self.headers.get("content-length")
        if length is not None and length.isdecimal() and int(length) > most:
            raise _too_large(most)
        if length in (None, "0") and "transfer-encoding" not in self.headers:
            return b""
        try:
            async with asyncio.timeout(self._config.receive_timeout_ms / 1_000):
                return await self._received(most)
        except TimeoutError:
            raise HttpError(
                408, "request-timeout", "the body did not come in time", Connection="close"
            ) from None

    async def _received(self, most: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message: dict[str, Any] = await self._receive()  # type: ignore[assignment]
            if message["type"] == "http.disconnect":
                raise HttpError(400, "request", "the connection ended before the body")
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > most:
                raise _too_large(most)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def gone(self) -> None:
        """Wait until the client has gone; for exchanges whose body is empty, or has been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def json(self) -> bytes:
        """Return the body, which shall be JSON.

        Raises:
            Refused: As `body` does, or the content type is another one, or it is nested too deeply.
        """
        body = await self.body()
        kind = self.media_type
        if body and kind not in _JSON_KINDS and not kind.endswith("+json"):
            raise HttpError(415, "unsupported-media-type", f"the body must be {JSON}, not {kind}")
        check_depth(body, self._config.depth_max)
        return body

    @property
    def media_type(self) -> str:
        """The body's content type, without parameters."""
        return media_type_of(self.headers.get("content-type", ""))

    def seconds(self, name: str, default: float, most: float) -> float:
        """Return a number of seconds from the query string, bounded.

        Raises:
            RequestError: It is no number, or negative.
        """
        text = self.query().get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not value >= 0:
            raise RequestError(f"{name}={text} must be a number of seconds, 0 or more")
        return min(value, most)

    def min_epoch(self) -> int:
        """Return the epoch that the answer must have seen; -1 where none is named.

        Raises:
            RequestError: It is no epoch.
        """
        text = self.headers.get(MIN_EPOCH.lower()) or self.query().get("min_epoch")
        if text is None:
            return -1
        if not text.isdecimal() or len(text) > 18:
            raise RequestError(f"min_epoch={text} is no epoch: a whole number, 0 or more")
        return int(text)

    def chosen_id(self) -> str | None:
        """Return the request id that the caller has chosen, if any.

        Raises:
            RequestError: It is too long, not printable, or holds a `~`.
        """
        text = self.headers.get(IDEMPOTENCY_KEY.lower())
        return None if text is None else check_chosen(text, self._config.key_bytes_max)

    def named_id(self) -> RequestId:
        """Return the request, as the log stores its id, that the path names.

        Raises:
            RequestError: It is no request id.
            Forbidden: It is another principal's.
        """
        return named_id(self.principal, self.path["id"], self._config.key_bytes_max)


def check_depth(text: bytes, most: int) -> None:
    """Refuse JSON that is nested more than `most` deep, whatever else is wrong with it.

    Raises:
        Refused: It is.
    """
    if text.count(b"[") + text.count(b"{") <= most:
        return
    depth = 0
    for found in _STRUCTURE.finditer(text):
        if found[0] in _OPENING:
            depth += 1
            if depth > most:
                raise HttpError(400, "request", f"JSON is nested at most {most} deep")
        elif found[0] in _CLOSING:
            depth -= 1


def _too_large(most: int) -> HttpError:
    return HttpError(
        413, "record-too-large", f"a body takes at most {most} bytes", Connection="close"
    )
