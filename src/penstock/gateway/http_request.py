"""An HTTP request, read within its limits.

Promises limits on the size of a body, on the time for which it is received, and on the depth of JSON
before any decoder reads it.
"""

import asyncio
import re
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope

from penstock.base.http import IDEMPOTENCY_KEY, JSON, MIN_EPOCH, REQUEST_ID, media_type_of
from penstock.base.ids import RequestId
from penstock.errors import RequestError
from penstock.gateway.auth.principal import Principal
from penstock.gateway.errors import HttpError
from penstock.gateway.request_ids import check_chosen, named_id
from penstock.process.config import GatewayConfig

# A string without its end matches up to the end of the text, so that each byte is read once.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_JSON_TYPES: Final = ("", JSON, "text/plain", "application/x-www-form-urlencoded")
"""Content types of JSON bodies: `curl -d` sends a form's. `origin_policy` refuses foreign pages."""

_CHOSEN: Final = IDEMPOTENCY_KEY.lower()
_DRAWN: Final = REQUEST_ID.lower()
_OPENING: Final = (b"[", b"{")
_CLOSING: Final = (b"]", b"}")
_QUERY_FIELDS_MAX: Final = 100
_DIGITS_MAX: Final = 18


class HttpRequest:
    """The argument of a handler.

    Attributes:
        path: The values of the names in the route's path.
        headers: The headers by lower-case name; the last one if a header is repeated.
        principal: The sender of the request.
        request_id: The request id as the principal knows it; empty if the request has none.
    """

    __slots__ = ("_config", "_receive", "_scope", "headers", "path", "principal", "request_id")

    def __init__(self, scope: Scope, receive: Receive, config: GatewayConfig) -> None:
        """Check the head.

        Raises:
            HttpError: The headers are too large.
        """
        self._scope = scope
        self._receive = receive
        self._config = config
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers: dict[str, str] = {}
        size = 0
        for name, value in pairs:
            size += len(name) + len(value)
            self.headers[name.decode("latin-1")] = value.decode("latin-1")
        if size > config.header_bytes_max:
            raise HttpError(
                431, "headers-too-large", f"headers take at most {config.header_bytes_max} bytes"
            )
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
        """Return the fields of the query string; the last one if a field is repeated.

        Raises:
            RequestError: The query string is malformed.
        """
        raw: bytes = self._scope["query_string"]
        if not raw:
            return {}
        try:
            text = raw.decode("ascii")
            pairs = parse_qsl(
                text, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
            )
        except ValueError as error:  # also UnicodeDecodeError
            raise RequestError(f"the query string cannot be read: {error}") from error
        return dict(pairs)

    async def body(self, most: int | None = None) -> bytes:
        """Return the whole body.

        Args:
            most: The most bytes; None: as `gateway.body_bytes_max` says.

        Raises:
            HttpError: The body is too large or too slow, or the client has disconnected.
        """
        most = self._config.body_bytes_max if most is None else most
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
        """Wait until the client disconnects; the body must be empty, or read already."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def json(self) -> bytes:
        """Return the body of a JSON request.

        Raises:
            HttpError: `body` raised it, the content type is wrong, or the JSON is nested too deeply.
        """
        body = await self.body()
        if not body:
            return body
        media_type = self.media_type
        if media_type not in _JSON_TYPES and not media_type.endswith("+json"):
            raise HttpError(
                415, "unsupported-media-type", f"the body must be {JSON}, not {media_type}"
            )
        check_depth(body, self._config.depth_max)
        return body

    async def json_lines(self) -> bytes:
        """Return the body of a request in JSON lines; raises as `json`."""
        body = await self.body()
        check_depth(body, self._config.depth_max)
        return body

    @property
    def media_type(self) -> str:
        """The media type of the body."""
        return media_type_of(self.headers.get("content-type", ""))

    def seconds(self, name: str, default: float, most: float) -> float:
        """Return a number of seconds from the query string.

        Args:
            name: The name of the field.
            default: The result if the field is absent.
            most: The largest result.

        Raises:
            RequestError: The field is not a number, or is negative.
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
        """Return the oldest epoch that may answer; -1 if the request names none.

        Raises:
            RequestError: The value is not an epoch.
        """
        text = self.headers.get(MIN_EPOCH.lower()) or self.query().get("min_epoch")
        return -1 if text is None else parse_epoch("min_epoch", text)

    @property
    def is_recorded(self) -> bool:
        """Whether the caller chose a request id, so that the request must be in the log."""
        return _CHOSEN in self.headers

    def chosen_id(self) -> str | None:
        """Return the request id in `Idempotency-Key` or `Penstock-Request-Id`; None without both.

        A client sends an id that it has drawn itself as `Penstock-Request-Id`: a call that is sent
        again takes effect once, and a `@readonly` call need not be recorded.

        Raises:
            RequestError: The id is too long or has a forbidden character.
        """
        text = self.headers.get(_CHOSEN, self.headers.get(_DRAWN))
        return None if text is None else check_chosen(text, self._config.key_bytes_max)

    def named_id(self) -> RequestId:
        """Return the stored id of the request that the path names.

        Raises:
            RequestError: The text cannot be a request id.
            Forbidden: The request belongs to another principal.
        """
        return named_id(self.principal, self.path["id"], self._config.key_bytes_max)


def parse_epoch(name: str, text: str) -> int:
    """Return the epoch in a field.

    Raises:
        RequestError: The text is not an epoch.
    """
    if not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise RequestError(f"{name}={text} is not an epoch: a whole number, 0 or more")
    return int(text)


def check_depth(text: bytes, most: int) -> None:
    """Check that JSON is nested at most `most` deep; other mistakes in it are ignored.

    Raises:
        HttpError: The JSON is nested deeper.
    """
    if text.count(b"[") + text.count(b"{") <= most:
        return
    depth = 0
    for token in _STRUCTURE.finditer(text):
        if token[0] in _OPENING:
            depth += 1
            if depth > most:
                raise HttpError(400, "request", f"JSON is nested at most {most} deep")
        elif token[0] in _CLOSING:
            depth -= 1


def _too_large(most: int) -> HttpError:
    return HttpError(
        413, "record-too-large", f"a body takes at most {most} bytes", Connection="close"
    )
