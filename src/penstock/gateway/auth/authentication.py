"""Finds the principal of a request from its headers.

A credential comes as `Authorization: Bearer …` (an API key or a JWT) or as `X-API-Key: …`, exactly
once and in at most 8 KB; anything else is refused. No credential is ever logged or repeated in a
message.

Without keys and tokens every caller is `ANONYMOUS`, if the gateway listens on loopback only or if
`gateway.open` is set. This ends within a second after the first key is added, and it does not come
back before the next start, even if the file of keys vanishes.

`OriginPolicy` says which web pages may send anonymous requests. Every page in a browser on this machine can send requests
to a port of this machine, and a page whose host name resolves to a loopback address can also read the responses. So a
gateway without keys accepts a page only from itself or from an origin in `gateway.cors_origins`, and a gateway on loopback
accepts only host names of this machine. The header `Origin` reveals a page of another site, and so does `Sec-Fetch-Site`
(Fetch Metadata, W3C), which browsers also send for images and scripts. Programs send neither header. With keys or tokens
these checks are not needed, because a foreign page has no credential.
"""

import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace
from starlette.types import Scope

from penstock.errors import Forbidden, RequestError, Unauthenticated
from penstock.files.layout import KEYS
from penstock.files.roots import shared_root
from penstock.gateway.auth.exposure import NOT_SET, is_loopback
from penstock.gateway.auth.keys import ID_PLACE, PREFIX, ApiKey, KeyRing, decode_keys
from penstock.gateway.auth.principal import ANONYMOUS, GENERATOR, Principal, check_scope
from penstock.gateway.auth.tickets import OPENS_S, Ticket, TicketSigner, target_of, ticket_in
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.model.application import App
from penstock.process.config import Config, GatewayConfig
from penstock.process.generator_key import generator_key

if TYPE_CHECKING:
    from penstock.gateway.auth.tokens import TokenVerifier

_LOCALHOST: Final = "localhost"
_HOSTS_MAX: Final = 64
"""The host names whose check is remembered; most requests have the same one."""

_OWN_SITE: Final = (b"same-origin", b"none")
"""`Sec-Fetch-Site` of the gateway's own pages, and of addresses that the user typed."""

_log = logging.getLogger(__name__)
CREDENTIAL_BYTES_MAX: Final = 8 << 10
_KEY: Final = PREFIX.encode()
_BEARER: Final = b"bearer "
_WORD: Final = re.compile(rb"[A-Za-z0-9._~+/=-]+")
Headers = Iterable[tuple[bytes, bytes]]
"""The headers of a request, with names in lower case, as ASGI has them."""
_NO_KEYS: Final = KeyRing(())


class OriginPolicy:
    """The origins and host names that are accepted without credentials."""

    def __init__(self, origins: Iterable[str], hosts: Iterable[str] | None) -> None:
        """Accept the gateway's own pages and those of other origins.

        Args:
            origins: The origins in the form of browsers, `https://shop.example`, without wildcards.
            hosts: Host names of this machine, apart from loopback addresses; None accepts any.
        """
        self._origins = frozenset(origin.encode() for origin in origins)
        self._hosts = None if hosts is None else frozenset(hosts)

    @classmethod
    def of(cls, settings: GatewayConfig) -> Self | None:
        """Return the policy of the settings; None if no request is accepted without credentials."""
        origins = allowed_origins(settings)
        if settings.open:
            return cls(origins, None)
        if is_loopback(settings.host):
            return cls(origins, [_LOCALHOST, settings.host.lower()])
        return None

    def check(self, verb: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Check the origin and the host name of a request."""
        sent = dict(headers)
        host, origin = sent.get(b"host", b""), sent.get(b"origin", b"")
        if self._hosts is not None and host and not _is_local(host, self._hosts):
            raise Forbidden(
                "without keys this gateway accepts only host names of its own machine, such as "
                "localhost; make a key, or set gateway.open = 1"
            )
        if origin in self._origins:
            return
        is_foreign = sent.get(b"sec-fetch-site", b"none") not in _OWN_SITE
        if is_foreign and not origin and _is_link(verb, sent):
            # A link may be on any site: `GET` changes nothing, and the page with the link cannot read the response.
            return
        if is_foreign or (origin and origin.partition(b"://")[2] != host):
            raise Forbidden(
                "without keys this gateway accepts no pages of other sites; make a key, or add the "
                "page's origin to gateway.cors_origins"
            )


def allowed_origins(settings: GatewayConfig) -> list[str]:
    """Return the origins in `gateway.cors_origins`."""
    return [origin.strip() for origin in settings.cors_origins.split(",") if origin.strip()]


def _is_link(verb: str, sent: Mapping[bytes, bytes]) -> bool:
    """Say whether a browser sent a request because its user followed a link."""
    shown = sent.get(b"sec-fetch-mode"), sent.get(b"sec-fetch-dest")
    return verb == "GET" and shown == (b"navigate", b"document")


@lru_cache(_HOSTS_MAX)
def _is_local(host: bytes, names: frozenset[str]) -> bool:
    text = host.decode("latin-1").lower()
    name = text[1:].partition("]")[0] if text[:1] == "[" else text.partition(":")[0]
    if name in names or name.endswith(f".{_LOCALHOST}"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Authenticator:
    """Authenticates requests. For one thread.

    Args:
        keys: The API keys; holds None if no key was ever made.
        tokens: Verifies tokens; None if tokens are not accepted.
        origin_policy: Checks anonymous requests while there are no keys; None refuses them all.
        clock: Seconds since the Unix epoch.
        secret: The secret of the journal, for its generators and for tickets; empty for no generators, and tickets of this process alone.
    """

    def __init__(
        self,
        keys: WatchedFile[KeyRing | None],
        tokens: "TokenVerifier | None",
        origin_policy: OriginPolicy | None,
        clock: Callable[[], float] = time.time,
        *,
        secret: bytes = b"",
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._origin_policy = origin_policy if tokens is None else None
        self._clock = clock
        self._generator = b"Bearer " + generator_key(secret).encode() if secret else b""
        self._tickets = TicketSigner(secret or secrets.token_bytes())

    @classmethod
    def of(cls, config: Config, app: App, secret: bytes = b"") -> Self:
        """Return the authenticator of a gateway's configuration.

        Args:
            secret: The secret of its journal.
        """
        settings = config.gateway
        keys = WatchedFile(shared_root(config.data), KEYS, lambda content: _ring(content, app))
        tokens = None
        if settings.jwks != NOT_SET:
            from penstock.gateway.auth.tokens import TokenVerifier  # noqa: PLC0415 -- with cryptography

            tokens = TokenVerifier(settings)
        return cls(
            keys,
            tokens,
            OriginPolicy.of(settings),
            secret=secret,
        )

    @property
    def is_far(self) -> bool:
        """Whether the keys are in an object store, so that `awake` has to be awaited first."""
        return self._keys.is_far

    async def awake(self) -> None:
        """Look at the keys before the next use, if nobody has used them for some seconds."""
        await self._keys.awake()

    def identify(self, headers: Headers, verb: str = "POST") -> Principal:
        """Return the principal that sent these headers.

        Args:
            verb: The HTTP method; a link on another site may lead to a `GET`.
        """
        ring = self._keys.value()
        if ring is not None:
            # For good: a file of keys that vanishes must not open the gateway again.
            self._origin_policy = None
        elif self._origin_policy is not None:
            self._origin_policy.check(verb, headers)
            # Without keys, its generators are told apart, because no other caller may use their request
            # ids.
            return GENERATOR if self._is_generator(headers) else ANONYMOUS
        credential = credential_of(headers)
        if credential.startswith(_KEY):
            return (ring or _NO_KEYS).principal(credential, self._clock())
        if self._tokens is None:
            raise Unauthenticated(
                "the credential is not an API key, and this gateway accepts no tokens"
            )
        return self._tokens.principal(credential, self._clock())

    def ticket(self, headers: Headers, path: bytes, query: bytes) -> tuple[str, float]:
        """Return a ticket for an event stream, and when it opens none any more; the sender of the headers is known already.

        Args:
            path: The path of the stream, encoded; `query` is its query string.
        """
        now_s = self._clock()
        made = Ticket(target_of(path, query), now_s + OPENS_S)
        if self._keys.value() is not None or self._origin_policy is None:
            credential = credential_of(headers)
            if credential.startswith(_KEY):
                made = replace(made, key=credential[ID_PLACE].decode())
            elif self._tokens is not None:
                principal, ends_s = self._tokens.verified(credential, now_s)
                made = replace(
                    made,
                    name=principal.name,
                    namespace=principal.namespace,
                    scopes=sorted(principal.scopes),
                    claims=dict(principal.claims),
                    ends_s=ends_s,
                )
        return self._tickets.sign(made), made.opens_until_s

    def follower(self, scope: Scope, *, opens: bool = False) -> Principal:
        """Return the principal of a request for an event stream, which may have a ticket in place of a header.

        Args:
            opens: Whether the request opens the stream; later, the key or the token of its ticket decides.
        """
        headers, query = scope["headers"], scope["query_string"]
        text = ticket_in(query)
        if text is None:
            return self.identify(headers, scope["method"])
        if any(name in (b"authorization", b"x-api-key") for name, _ in headers):
            raise Unauthenticated("send one credential: a ticket, or a header")
        path = scope.get("raw_path") or scope["path"].encode()
        ticket, now_s = self._tickets.read(text, path, query), self._clock()
        if opens and now_s >= ticket.opens_until_s:
            raise Unauthenticated(f"the ticket has expired: it opens its stream for {OPENS_S} s")
        if ticket.key:
            return (self._keys.value() or _NO_KEYS).named(ticket.key.encode(), now_s)
        if ticket.namespace:
            if self._tokens is None:
                raise Unauthenticated("this gateway accepts no tokens, and no tickets of tokens")
            return ticket.principal(now_s)
        return self.identify(headers, scope["method"])  # without keys, a ticket gives nothing

    def _is_generator(self, headers: Headers) -> bool:
        """Say whether the headers have the key of the generators."""
        if self._generator:
            for name, value in headers:
                if name == b"authorization" and secrets.compare_digest(value, self._generator):
                    return True
        return False


def credential_of(headers: Headers) -> bytes:
    """Return the credential in the headers."""
    credential: bytes | None = None
    for name, value in headers:
        if name == b"authorization":
            given = _of_authorization(value)
        elif name == b"x-api-key":
            given = value
        else:
            continue
        # With two credentials, a proxy and this gateway might check different ones.
        if credential is not None:
            raise Unauthenticated("send one credential, in one header")
        credential = given
    if credential is None:
        raise Unauthenticated("send a key or a token: Authorization: Bearer …, or X-API-Key: …")
    if len(credential) > CREDENTIAL_BYTES_MAX:
        raise Unauthenticated(f"a credential takes at most {CREDENTIAL_BYTES_MAX} bytes")
    if not _WORD.fullmatch(credential):
        raise Unauthenticated("the credential contains characters that no credential has")
    return credential


def _of_authorization(value: bytes) -> bytes:
    if value[: len(_BEARER)].lower() != _BEARER:
        raise Unauthenticated("the header Authorization must have the scheme Bearer")
    return value[len(_BEARER) :]


def _ring(data: bytes | None, app: App) -> KeyRing | None:
    """Prepare the keys, and log the scopes that this application does not have."""
    if data is None:
        return None
    keys = decode_keys(data)
    for key in keys:
        _warn_of_scopes(key, app)
    return KeyRing(keys)


def _warn_of_scopes(key: ApiKey, app: App) -> None:
    for scope in key.scopes:
        try:
            check_scope(scope, app)
        except RequestError as error:
            _log.warning("key %s: %s", key.name, error)
