"""An HTTP request, read within its limits.

Promises limits on the size of a body, on the time for which it is received, and on the depth of JSON
before any decoder reads it.
"""

import re
from collections.abc import Collection, Iterable
from typing import Any, Final, overload
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope

from penstock.base.http import (
    CALLER,
    CONSOLE,
    COUNT_MAX,
    EPOCH,
    IDEMPOTENCY_KEY,
    JSON,
    MIN_EPOCH,
    OLDEST_ATOM,
    REQUEST_ID,
    VIEW_STATE,
    media_type_of,
)
from penstock.base.ids import RequestId
from penstock.errors import RequestError
from penstock.gateway.auth.principal import Principal
from penstock.gateway.connections import ComingBodies
from penstock.gateway.errors import HttpError
from penstock.gateway.request_ids import check_chosen, named_id
from penstock.model.application import unknown
from penstock.process.config import GatewayConfig

# A string without its end matches up to the end of the text, so that each byte is read once.
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)
_JSON_TYPES: Final = ("", JSON, "text/plain", "application/x-www-form-urlencoded")
"""Content types of JSON bodies: `curl -d` sends a form's. `OriginPolicy` refuses foreign pages."""

_CHOSEN: Final = IDEMPOTENCY_KEY.lower()
_DRAWN: Final = REQUEST_ID.lower()
_OPENING: Final = (b"[", b"{")
_CLOSING: Final = (b"]", b"}")
_MIN_EPOCH: Final = MIN_EPOCH.lower()
_OWN: Final = b"penstock-"
_NAMES: Final = (MIN_EPOCH, REQUEST_ID)
_HEADERS: Final = frozenset(
    name.lower() for name in (*_NAMES, CONSOLE, CALLER, EPOCH, OLDEST_ATOM, VIEW_STATE)
)
"""The headers of requests and, because a caller may copy what it has got, of answers."""

_QUERY_FIELDS_MAX: Final = 100
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[0-9]{1,32}(\.[0-9]{0,32})?([eE][+-]?[0-9]{1,3})?|\.[0-9]{1,32}")


class HttpRequest:
    """The argument of a handler.

    Attributes:
        path: The values of the names in the route's path.
        headers: The headers by lower-case name; the values of a repeated header, with commas between (RFC 9110, 5.3).
        principal: The sender of the request.
        request_id: The request id as the principal knows it; empty if the request has none.
        scope: The ASGI scope.
    """

    __slots__ = (
        "_config",
        "_fields",
        "_query",
        "_receive",
        "_receiving",
        "headers",
        "path",
        "principal",
        "request_id",
        "scope",
    )

    def __init__(
        self, scope: Scope, receive: Receive, config: GatewayConfig, receiving: ComingBodies
    ) -> None:
        """Check the head; `receiving` has the client while its body comes.

        Raises:
            HttpError: The headers are too large.
            RequestError: A header begins with `Penstock-`, and is none of Penstock's.
        """
        self.scope = scope
        self._receive = receive
        self._config = config
        self._receiving = receiving
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers: dict[str, str] = {}
        size = 0
        for name, value in pairs:
            size += len(name) + len(value)
            header, text = name.decode("latin-1"), value.decode("latin-1")
            # It would be ignored silently, as a misspelled field of the query string would be.
            if name.startswith(_OWN) and header not in _HEADERS:
                known = ", ".join(_NAMES)
                raise RequestError(f"there is no header {header.title()}; there are {known}")
            # So a header of ours that is repeated is refused: no id and no number has a comma and a space.
            self.headers[header] = (
                f"{self.headers[header]}, {text}" if header in self.headers else text
            )
        if size > config.header_bytes_max:
            raise HttpError(
                431, "headers-too-large", f"headers take at most {config.header_bytes_max} bytes"
            )
        self.path: dict[str, str] = {}
        self._query: dict[str, str] = {}
        self._fields: frozenset[str] | None = frozenset()
        self.principal: Principal
        self.request_id = ""

    @property
    def verb(self) -> str:
        """The HTTP method."""
        method: str = self.scope["method"]
        return method

    def take_query(self, fields: frozenset[str] | None, *, has_filters: bool) -> None:
        """Read the query string, whose fields the route has declared; None: the application's handler checks them."""
        known = None if has_filters else fields
        self._query = query_of(self.scope["query_string"], known)
        self._fields = fields

    def query(self) -> dict[str, str]:
        """Return the fields of the query string."""
        return self._query

    @overload
    def field(self, name: str) -> str | None: ...
    @overload
    def field(self, name: str, default: str) -> str: ...

    def field(self, name: str, default: str | None = None) -> str | None:
        """Return a field of the query string that the route declares, or the default without such a field.

        An argument of the application's own handler may have the same name; it is left alone.
        """
        return default if self._fields is None else self._query.get(name, default)

    def flag(self, name: str) -> bool:
        """Return a field that is `true` or `false`, which is the default."""
        text = self.field(name)
        if text is None:
            return False
        if text not in ("true", "false"):
            raise RequestError(f"{name}={text} must be true or false")
        return text == "true"

    def refuse_fields(self, names: Iterable[str], reason: str) -> None:
        """Refuse fields that mean nothing together with the rest of the request, for a reason."""
        for name in names if self._query else ():
            text = self.field(name)
            if text is not None:
                raise RequestError(f"{name}={text} has no meaning here: {reason}")

    async def body(self, most: int | None = None) -> bytes:
        """Return the whole body.

        Args:
            most: The most bytes; None: as `gateway.body_bytes_max` says.
        """
        setting = "gateway.body_bytes_max = " if most is None else ""
        most = self._config.body_bytes_max if most is None else most
        declared = self._declared(most, setting)
        if declared == 0:  # then no body can come, and the wait for one is saved
            return b""
        limit_s = self._config.receive_timeout_ms / 1_000
        chunks: list[bytes] = []
        size = 0
        try:
            with self._receiving.within(self.scope["client"], limit_s):
                while True:
                    message: dict[str, Any] = await self._receive()  # type: ignore[assignment]
                    if message["type"] == "http.disconnect":
                        raise HttpError(400, "request", "the connection ended before the body")
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if size > most:
                        raise _too_large(setting, most)
                    # With the last bytes the server does not say that they are the last ones, and a further message costs as
                    # much as the first.
                    if size == declared or not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise HttpError(
                408, "request-timeout", "the body did not come in time", Connection="close"
            ) from None

    def _declared(self, most: int, setting: str) -> int | None:
        """Return the length of the body; None if the head does not say it."""
        text = self.headers.get("content-length")
        length = int(text) if text is not None and text.isdecimal() else None
        if length is not None and length > most:
            raise _too_large(setting, most)
        if "transfer-encoding" in self.headers:
            return None
        return 0 if text is None else length

    async def gone(self) -> None:
        """Wait until the client disconnects; the body must be empty, or read already."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def json(self) -> bytes:
        """Return the body of a JSON request."""
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

    def check_json_depth(self, body: bytes) -> None:
        """Check that a JSON body is not nested too deep."""
        check_depth(body, self._config.depth_max)

    async def json_lines(self) -> bytes:
        """Return the body of a request in JSON lines; raises as `json`."""
        body = await self.body()
        check_depth(body, self._config.depth_max)
        return body

    @property
    def media_type(self) -> str:
        """The media type of the body."""
        return media_type_of(self.headers.get("content-type", ""))

    def seconds(self, name: str, default: float) -> float:
        """Return a number of seconds from the query string.

        Raises:
            RequestError: The field is not a number, or is negative.
        """
        text = self.field(name)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text):
            raise RequestError(f"{name}={text} must be a number of seconds, 0 or more")
        return float(text)

    def wait_s(self, name: str, default: float, most: float) -> float:
        """Return how long the caller waits at most; a gateway may answer earlier, which `most` decides.

        Raises:
            RequestError: The field is not a number, or is negative.
        """
        return min(self.seconds(name, default) if self._query else default, most)

    def min_epoch(self) -> int:
        """Return the oldest epoch that may answer; -1 if the request names none.

        Raises:
            RequestError: The value is not an epoch.
        """
        texts = (self.headers.get(_MIN_EPOCH), self.field("min_epoch"))
        return max(
            (parse_epoch("min_epoch", text) for text in texts if text is not None), default=-1
        )

    @property
    def is_recorded(self) -> bool:
        """Whether the caller chose a request id, so that the request must be in the log."""
        return _CHOSEN in self.headers

    def chosen_id(self) -> str | None:
        """Return the request id in `Idempotency-Key` or `Penstock-Request-Id`; None without both.

        A client sends an id that it has drawn itself as `Penstock-Request-Id`: a call that is sent
        again takes effect once, and a `@readonly` call need not be recorded.
        """
        text, drawn = self.headers.get(_CHOSEN), self.headers.get(_DRAWN)
        if text is None:
            text = drawn
        elif drawn is not None and drawn != text:
            raise RequestError(f"{IDEMPOTENCY_KEY} and {REQUEST_ID} name two ids; send one of them")
        return None if text is None else check_chosen(text, self._config.key_bytes_max)

    def choose_id(self, text: str) -> None:
        """Take an id that the body or another header has, in place of one that the caller might have chosen."""
        self.headers.pop(_DRAWN, None)
        self.headers[_CHOSEN] = text

    def named_id(self) -> RequestId:
        """Return the stored id of the request that the path names.

        Raises:
            RequestError: The text cannot be a request id.
        """
        longest, is_read = self._config.key_bytes_max, self.verb in ("GET", "HEAD")
        return named_id(self.principal, self.path["id"], longest, is_read=is_read)


def query_of(raw: bytes, fields: Collection[str] | None) -> dict[str, str]:
    """Return the fields of a query string.

    Args:
        fields: The declared fields; None: any field.
    """
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_QUERY_FIELDS_MAX,
        )
    except ValueError as error:  # also UnicodeDecodeError
        raise RequestError(f"the query string cannot be read: {error}") from error
    query: dict[str, str] = {}
    for name, text in pairs:
        # A misspelled field would be ignored silently, and the answer would be another than asked
        # for.
        if fields is not None and name not in fields:
            raise RequestError(unknown("field of the query string", name, sorted(fields)))
        if name in query:
            raise RequestError(f"{name} stands twice in the query string; send it once")
        query[name] = text
    return query


def whole_number(name: str, text: str, expected: str, least: int, most: int = COUNT_MAX) -> int:
    """Return the whole number in a field.

    Args:
        expected: The meaning of a right number, for the message: `is not an epoch`.

    Raises:
        RequestError: The text is not a number in these bounds.
    """
    number = int(text) if _DIGITS.fullmatch(text) else -1
    if least <= number <= most:
        return number
    bound = f"{least} or more" if most == COUNT_MAX else f"from {least} to {most:,}"
    raise RequestError(f"{name}={text} {expected}: a whole number, {bound}")


def parse_epoch(name: str, text: str) -> int:
    """Return the epoch in a field."""
    return whole_number(name, text, "is not an epoch", 0)


def check_depth(text: bytes, most: int) -> None:
    """Check that JSON is nested at most `most` deep; other mistakes in it are ignored."""
    if text.count(b"[") + text.count(b"{") <= most:
        return
    depth = 0
    for token in _STRUCTURE.finditer(text):
        if token[0] in _OPENING:
            depth += 1
            if depth > most:
                raise HttpError(400, "request", f"JSON is nested at most {most} deep")
        # Brackets that do not match are the decoder's to report.
        elif token[0] in _CLOSING:
            depth -= 1


def _too_large(setting: str, most: int) -> HttpError:
    return HttpError(
        413,
        "record-too-large",
        f"a body takes at most {setting}{most} bytes",
        Connection="close",
    )
