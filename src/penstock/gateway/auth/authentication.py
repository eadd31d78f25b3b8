"""From the headers of a request to its principal.

A credential comes as `Authorization: Bearer …` (an API key or a JWT) or as `X-API-Key: …`, exactly
once and in at most 8 KB; anything else is refused rather than guessed at. No credential is ever
logged or repeated in a message.

With neither keys nor tokens configured, everybody is `ANONYMOUS`, if only this machine reaches the
gateway or `gateway.open` says so. That ends with the first key, within a second and until the next
start, even if the keys' file vanishes. Which web pages may speak for the anonymous, `site` says.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable
from typing import Final, Self

from penstock.errors import RequestError, Unauthenticated
from penstock.gateway.auth.exposure import NOT_SET
from penstock.gateway.auth.keys import PREFIX, ApiKey, KeyRing, KeyStore, decode_keys
from penstock.gateway.auth.origin_policy import OriginPolicy
from penstock.gateway.auth.principal import ANONYMOUS, Principal, check_scope
from penstock.gateway.auth.tokens import TokenVerifier
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.model.application import App
from penstock.process.config import Config

_log = logging.getLogger(__name__)

CREDENTIAL_BYTES_MAX: Final = 8 << 10
_KEY: Final = PREFIX.encode()
_BEARER: Final = b"bearer "
_WORD: Final = re.compile(rb"[A-Za-z0-9._~+/=-]+")

Headers = Iterable[tuple[bytes, bytes]]
"""Of a request, names in lower case, as ASGI has them."""


class Authenticator:
    """Knows who may come in; for one thread."""

    def __init__(
        self,
        keys: WatchedFile[KeyRing | None],
        tokens: TokenVerifier | None,
        site: OriginPolicy | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Let in whoever holds one of the keys or a token.

        Args:
            keys: None in it where no key was ever made.
            tokens: None where none are accepted.
            site: Whom to take for the anonymous principal while there are no keys; None is nobody.
            clock: Seconds since the Unix epoch.
        """
        self._keys = keys
        self._tokens = tokens
        self._site = site if tokens is None else None
        self._clock = clock

    @classmethod
    def of(cls, config: Config, app: App) -> Self:
        """Read the keys of a data directory and the settings of tokens.

        Raises:
            ConfigError: Token settings or the JWKS file cannot be used.
            Corrupt: The keys' file is damaged.
            OperationalError: A file cannot be read.
        """
        settings = config.gateway
        path = KeyStore(config.data).path
        keys = WatchedFile(path, lambda data: _ring(data, app))
        tokens = TokenVerifier(settings) if settings.jwks != NOT_SET else None
        return cls(keys, tokens, OriginPolicy.of(settings))

    def identify(self, headers: Headers, verb: str = "POST") -> Principal:
        """Return who sends these headers.

        Args:
            headers: Of the request.
            verb: Its HTTP method; a link on any site may lead to a `GET`.

        Raises:
            Unauthenticated: They hold no valid credential, or more than one.
            Forbidden: They hold none and need none, but another site's page sent them.
            Corrupt: Keys or JWKS cannot be read now.
        """
        ring = self._keys.value()
        if ring is not None:
            self._site = None
        elif self._site is not None:
            self._site.check(verb, headers)
            return ANONYMOUS
        credential = credential_of(headers)
        if credential.startswith(_KEY):
            return (ring or _NO_KEYS).principal(credential, self._clock())
        if self._tokens is None:
            raise Unauthenticated("the credential is no API key, and no tokens are accepted here")
        return self._tokens.principal(credential, self._clock())


def credential_of(headers: Headers) -> bytes:
    """Return the one credential that headers hold.

    Raises:
        Unauthenticated: There is none, more than one, or something else in its place.
    """
    found: bytes | None = None
    for name, value in headers:
        if name == b"authorization":
            credential = _of_authorization(value)
        elif name == b"x-api-key":
            credential = value
        else:
            continue
        if found is not None:
            raise Unauthenticated("send one credential, in one header")
        found = credential
    if found is None:
        raise Unauthenticated("send a key or a token: Authorization: Bearer …, or X-API-Key: …")
    if len(found) > CREDENTIAL_BYTES_MAX:
        raise Unauthenticated(f"a credential takes at most {CREDENTIAL_BYTES_MAX} bytes")
    if not _WORD.fullmatch(found):
        raise Unauthenticated("the credential has characters that none has")
    return found


def _of_authorization(value: bytes) -> bytes:
    if value[: len(_BEARER)].lower() != _BEARER:
        raise Unauthenticated("Authorization takes the scheme Bearer")
    return value[len(_BEARER) :]


_NO_KEYS: Final = KeyRing(())


def _ring(data: bytes | None, app: App) -> KeyRing | None:
    """Make keys ready; those that this application has outgrown are named in the log."""
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
