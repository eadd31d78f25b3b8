"""`http` and `webhook`: ready-made effects that call another system over HTTP.

Each declares an effect for one other system, so that each has places and limits of its own, and no argument chooses who
gets a secret. The id of the effect is the idempotency key, so that the other system does the work once.
"""

import asyncio
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlencode, urljoin, urlsplit
from weakref import WeakKeyDictionary

import msgspec

from penstock.base.http import IDEMPOTENCY_KEY, JSON
from penstock.base.webhook_signature import standard_headers, standard_key
from penstock.errors import DefinitionError
from penstock.log.clock import wall_clock_us
from penstock.model.declaration import caller_place
from penstock.model.effect import (
    RUNNING,
    TIMEOUT,
    RetryAfter,
    effect_id,
    marked_effect,
    secret,
)
from penstock.model.effect import Final as GivenUp
from penstock.model.limit import limit

if TYPE_CHECKING:
    import httpx

ANSWER_BYTES: Final = 256 << 10
"""The largest answer, without a declaration."""

LIMIT: Final = "50 at once"
"""The limit of an effect that declares none."""

_Host: TypeAlias = tuple[str, str | None, int | None]
"""Scheme, name and port."""

Redirects: TypeAlias = Literal["same-host", "any", "none"]

_RETRIED: Final = frozenset({408, 409, 423, 425, 429})
"""Statuses below 500 that another try may change. 409: a first try with the same idempotency key still runs."""

_FINAL: Final = frozenset({501, 505})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HOPS_MAX: Final = 5
_KEPT: Final = ("content-type", "location", "etag")
_OWN_HEADERS: Final = frozenset(
    {IDEMPOTENCY_KEY.lower(), "host", "content-length", "transfer-encoding", "connection"}
)
_VERBS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_SECRET: Final = re.compile(r"\{([A-Za-z_]\w*)\}")
_TOLD: Final = 300
"""The most characters of an answer in the error of an effect."""

_CHUNK: Final = 64 << 10


@dataclass(frozen=True)
class Answer:
    """The answer of another system.

    Attributes:
        headers: The kept headers, by name in lower case.
    """

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are replaced."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the value of a JSON body.

        Raises:
            msgspec.DecodeError: It is not JSON.
        """
        return msgspec.json.decode(self.body)


@dataclass(frozen=True, slots=True)
class _Side:
    """The other system, as it was declared.

    Attributes:
        name: The name of the effect.
        url: Its address; `{NAME}` stands for a secret.
        headers: The headers of each call; they are for this host alone.
        accepts: Statuses that are results, in addition to 200 to 299.
        finals: Whether a status ends the tries.
    """

    name: str
    url: str
    headers: Mapping[str, str]
    keeps: frozenset[str]
    accepts: frozenset[int]
    finals: Callable[[int], bool]
    redirects: Redirects
    answer_bytes: int
    timeout_s: float


def http(  # noqa: PLR0913 -- the declaration of a side is one call
    name: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    keeps: Sequence[str] = _KEPT,
    accepts: Sequence[int] = (),
    redirects: Redirects = "same-host",
    answer_bytes: int = ANSWER_BYTES,
    tries: int | None = None,
    timeout: timedelta = TIMEOUT,
    until: timedelta | None = None,
    once: bool = False,
    limits: Sequence[str] = (LIMIT,),
) -> Callable[..., Answer]:
    """Declare an effect that calls another system over HTTP.

    ```python
    card = http(
        "card", "https://api.card.example/v1", headers={"Authorization": "Bearer {CARD_KEY}"}
    )

    send(card, "POST", "/charges", json={"cents": 500}).then(
        self.charged
    )  # charged(self, outcome: Outcome[Answer])
    ```

    The arguments of the effect are the verb, the path behind `url`, and by name `json`, `body`, `query` and `headers`. Its result
    is the `Answer`. The header `Idempotency-Key` is the id of the effect. An answer with 408, 409, 423, 425, 429 or 500 and
    more is a failure that is tried again, not before the time of its `Retry-After`. Any other status is a failure for good.

    Args:
        name: The name of the effect.
        url: The address. In it and in `headers`, `{NAME}` stands for a secret.
        headers: Headers of each call. They are sent to the host of `url` alone.
        keeps: The headers of the answer that the result has.
        accepts: Statuses that are a result, too, such as 402 or 404.
        redirects: The hosts to which the effect follows a redirect: the `same-host`, `any`, or `none`.
        answer_bytes: The largest answer; a longer one is a failure for good.
        tries, timeout, until, once: The arguments of `effect`.
        limits: The texts of `limit`.

    Raises:
        DefinitionError: An argument is wrong.
    """
    where = caller_place()
    side = _Side(
        name,
        url,
        dict(headers or {}),
        frozenset(each.lower() for each in keeps),
        frozenset(accepts),
        _is_final,
        redirects,
        answer_bytes,
        timeout.total_seconds(),
    )
    _check(side, where)

    async def call(
        verb: str,
        path: str = "",
        *,
        json: Any = None,
        body: bytes = b"",
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        if json is not None and body:
            raise GivenUp("give json or body, and not both")
        given = dict(headers or {})
        if json is not None:
            body = msgspec.json.encode(json)
            given.setdefault("Content-Type", JSON)
        return await _called(side, verb, path, query or {}, given, body)

    return _declared(call, name, where, tries, timeout, until, once=once, limits=limits)


def webhook(  # noqa: PLR0913 -- the declaration of a side is one call
    name: str,
    url: str,
    *,
    keys: Sequence[str],
    tries: int | None = None,
    timeout: timedelta = TIMEOUT,
    until: timedelta | None = timedelta(days=1),
    limits: Sequence[str] = (LIMIT,),
) -> Callable[..., int]:
    """Declare an effect that sends signed webhooks to another system, as Standard Webhooks describes them.

    ```python
    crm = webhook("crm", "https://crm.example/hooks", keys=("CRM_KEY",))

    send(crm, "order.paid", {"order": self.order_id})
    ```

    The arguments of the effect are the type of the event and its data. The body is `{"type": …, "timestamp": …, "data": …}`, and
    its time is that of the send, so that all tries have the same body. `webhook-id` is the id of the effect. Each answer
    but 200 to 299 is a failure that is tried again; 410 ends the tries. A redirect is not followed. The result is the status.

    Args:
        name: The name of the effect.
        url: The address; `{NAME}` stands for a secret.
        keys: The names of the secrets that sign, each of them. While a secret is exchanged there are two; the receiver needs one.
        tries, timeout, until: The arguments of `effect`.
        limits: The texts of `limit`.

    Raises:
        DefinitionError: An argument is wrong.
    """
    where = caller_place()
    side = _Side(
        name,
        url,
        {},
        frozenset(),
        frozenset(),
        lambda status: status == 410,
        "none",
        ANSWER_BYTES,
        timeout.total_seconds(),
    )
    _check(side, where)
    if isinstance(keys, str) or not keys or not all(_is_name(each) for each in keys):
        raise DefinitionError([f"{where}: {name}: keys has the names of secrets, and at least one"])

    async def call(event: str, data: Any) -> int:
        sent_us = RUNNING.get().sent_us
        sent = datetime.fromtimestamp(sent_us / 1e6, UTC).isoformat().replace("+00:00", "Z")
        body = msgspec.json.encode({"type": event, "timestamp": sent, "data": data})
        signing = [standard_key(each, secret(each)) for each in keys]
        signed = standard_headers(signing, effect_id(), wall_clock_us() // 1_000_000, body)
        given = {**signed, "Content-Type": JSON}
        return (await _called(side, "POST", "", {}, given, body)).status

    return _declared(call, name, where, tries, timeout, until, once=False, limits=limits)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _declared(  # noqa: PLR0913 -- the arguments of `effect`
    call: Callable[..., Any],
    name: str,
    where: str,
    tries: int | None,
    timeout: timedelta,
    until: timedelta | None,
    *,
    once: bool,
    limits: Sequence[str],
) -> Callable[..., Any]:
    call.__name__ = call.__qualname__ = name
    call = limit(*limits)(call) if limits else call
    return marked_effect(call, where, tries, timeout, until, once=once)


def _check(side: _Side, where: str) -> None:
    """Check a declaration.

    Raises:
        DefinitionError: It is wrong.
    """
    complaints = []
    if not _is_name(side.name):
        complaints.append("the name of an effect is that of a function")
    if not side.url.startswith(("https://", "http://", "{")):
        complaints.append(f"url={side.url!r} begins with https://, http:// or a {{SECRET}}")
    if any(mark in side.url for mark in "?#"):
        complaints.append(f"url={side.url!r} has no ? and no #; a call names its query")
    if wrong := sorted(_OWN_HEADERS.intersection(map(str.lower, side.headers))):
        complaints.append(f"the header {wrong[0]} is set by the effect")
    if side.redirects not in ("same-host", "any", "none"):
        complaints.append(f"redirects={side.redirects!r} must be same-host, any or none")
    if not 0 < side.answer_bytes <= 1 << 30:
        complaints.append(f"answer_bytes={side.answer_bytes} is not from 1 to {1 << 30}")
    if complaints:
        raise DefinitionError([f"{where}: {side.name}: {each}" for each in complaints])


def _is_final(status: int) -> bool:
    return status in _FINAL or (status < 500 and status not in _RETRIED)


def with_secrets(text: str) -> str:
    """Return a declared text with its secrets."""
    return _SECRET.sub(lambda match: secret(match[1]), text)


class _Request(NamedTuple):
    """One request of a call; a redirect gives another one.

    Attributes:
        given: The headers that the call gives to each host.
    """

    verb: str
    url: str
    given: Mapping[str, str]
    body: bytes

    @property
    def what(self) -> str:
        """The request in errors: without its query, which may name a person."""
        return f"{self.verb} {urlsplit(self.url)._replace(query='').geturl()}"


async def _called(
    side: _Side,
    verb: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Call the other system, and follow its redirects."""
    base = with_secrets(side.url).rstrip("/")
    _check_call(base, verb, path, headers)
    own = {name: with_secrets(text) for name, text in side.headers.items()}
    given = {**headers, IDEMPOTENCY_KEY: effect_id(), "Accept-Encoding": "gzip"}
    url, home = base + path, _host_of(base)
    request = _Request(verb, f"{url}?{urlencode(query)}" if query else url, given, body)
    for _ in range(_HOPS_MAX + 1):
        # The declared headers are for the declared host alone: they may have secrets.
        sent = {**own, **given} if _host_of(request.url) == home else given
        answer = await _answer_to(side, request, sent)
        is_redirect = answer.status in _REDIRECTS and "location" in answer.headers
        if not is_redirect or answer.status in side.accepts:
            return _result(side, request, answer)
        request = _redirected(side, request, answer, home)
    raise GivenUp(f"{request.what}: more than {_HOPS_MAX} redirects")


def _redirected(side: _Side, request: _Request, answer: Answer, home: _Host) -> _Request:
    """Return the request that a redirect asks for.

    Raises:
        Final: It is not allowed, or would be another call.
    """
    url = urljoin(request.url, answer.headers["location"])
    told = f"{request.what} answered {answer.status}"
    if side.redirects == "none":
        text = f"{told}, and a redirect is not followed"
        raise GivenUp(text) if side.finals(answer.status) else ConnectionError(text)
    if side.redirects == "same-host" and _host_of(url) != home:
        raise GivenUp(f'{told}: a redirect to another host, which redirects="any" would follow')
    if answer.status == 303:
        return request._replace(url=url, verb="HEAD" if request.verb == "HEAD" else "GET", body=b"")
    if answer.status in (301, 302) and request.verb not in ("GET", "HEAD"):
        # Some clients would send a GET without the body, which is another call.
        raise GivenUp(f"{told}: the address has changed; declare the new one")
    return request._replace(url=url)


def _result(side: _Side, request: _Request, answer: Answer) -> Answer:
    """Return an answer as the result of the effect.

    Raises:
        Exception: Its status is a failure.
    """
    if 200 <= answer.status < 300 or answer.status in side.accepts:
        kept = {name: text for name, text in answer.headers.items() if name in side.keeps}
        return Answer(answer.status, answer.body, kept)
    text = f"{request.what} answered {answer.status}"
    if answer.body:
        text += f": {answer.text[:_TOLD]}"
    if side.finals(answer.status):
        raise GivenUp(text)
    after_s = _seconds_in(answer.headers.get("retry-after"))
    raise ConnectionError(text) if after_s is None else RetryAfter(after_s, text)


def _seconds_in(hint: str | None) -> float | None:
    """Return the pause in a header `Retry-After`: seconds or a date (RFC 9110, 10.2.3); None without one."""
    if hint is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", hint.strip()):
        return float(hint)
    try:
        return max(0.0, parsedate_to_datetime(hint).timestamp() - wall_clock_us() / 1e6)
    except (ValueError, TypeError):
        return None


def _check_call(base: str, verb: str, path: str, headers: Mapping[str, str]) -> None:
    """Check the arguments of a call, which may come from anywhere.

    Raises:
        Final: They would call something else than was declared.
    """
    if verb not in _VERBS:
        raise GivenUp(f"the verb {verb!r} must be {', '.join(_VERBS[:-1])} or {_VERBS[-1]}")
    segments = path.replace("%2e", ".").replace("%2E", ".").split("/")
    if path and (path[0] != "/" or any(mark in path for mark in "?#\\") or ".." in segments):
        raise GivenUp(
            "the path begins with / and has no ?, #, \\ or ..; use query=, and quote texts from outside"
        )
    if any(ord(letter) < 33 or ord(letter) == 127 for letter in base + path):
        raise GivenUp("an address has no spaces and no control characters")
    for name in headers:
        if name.lower() in _OWN_HEADERS:
            raise GivenUp(f"the header {name} is set by the effect")


def _host_of(url: str) -> _Host:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port


_CLIENTS: Final["WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]"] = (
    WeakKeyDictionary()
)


@lru_cache(1)
def _trust() -> ssl.SSLContext:
    """Return the certificates that are trusted: those of the system. To read them takes as long as many calls."""
    return ssl.create_default_context()


def _client() -> "httpx.AsyncClient":
    """Return the client of the running loop, which keeps connections."""
    import httpx  # noqa: PLC0415 -- no other process needs it

    loop = asyncio.get_running_loop()
    if loop not in _CLIENTS:
        bounds = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        _CLIENTS[loop] = httpx.AsyncClient(verify=_trust(), limits=bounds, follow_redirects=False)
    return _CLIENTS[loop]


async def _answer_to(side: _Side, request: _Request, headers: Mapping[str, str]) -> Answer:
    """Send one request; return its answer with all headers."""
    import httpx  # noqa: PLC0415 -- no other process needs it

    client = _client()
    try:
        sent = client.build_request(
            request.verb,
            request.url,
            content=request.body or None,
            headers=dict(headers),
            timeout=side.timeout_s,
        )
        answer = await client.send(sent, stream=True)
        try:
            encoding = answer.headers.get("content-encoding", "identity").lower()
            chunks = answer.aiter_raw(_CHUNK)
            body = await _body_of(chunks, encoding, side.answer_bytes, request.what)
        finally:
            await answer.aclose()
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
        raise GivenUp(f"{request.what}: {error}") from error
    except httpx.TimeoutException as error:
        raise TimeoutError(f"{request.what}: no answer within {side.timeout_s:g} s") from error
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ConnectionError(f"{request.what}: {reason}") from error
    named = {name.lower(): text for name, text in answer.headers.items()}
    return Answer(answer.status_code, body, named)


async def _body_of(chunks: AsyncIterator[bytes], encoding: str, most: int, what: str) -> bytes:
    """Return the body of an answer, which must not grow beyond its bound when it is unpacked either."""
    unpack = None
    if encoding in ("gzip", "x-gzip"):
        unpack = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    elif encoding != "identity":
        raise GivenUp(f"{what}: the answer is encoded as {encoding}, which was not asked for")
    body = bytearray()
    async for chunk in chunks:
        try:
            body += chunk if unpack is None else unpack.decompress(chunk, most + 1 - len(body))
        except zlib.error as error:
            raise ConnectionError(f"{what}: the answer is damaged: {error}") from error
        if len(body) > most:
            raise GivenUp(
                f"{what}: the answer has more than answer_bytes = {most} bytes; the call may have done its work"
            )
    return bytes(body)
