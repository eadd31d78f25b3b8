"""Bearer tokens: JWTs that others sign, verified with the public keys of `gateway.auth.jwks`.

The key decides which algorithms it verifies, and only asymmetric ones are known, so that a token
can neither choose its algorithm (`none`, HMAC with a public key as the secret) nor bring a key or
point to one. `exp` is required; `nbf`, `iat`, `iss` and `aud` are checked as far as they are there
or configured, with `LEEWAY_S` for clocks that differ. A token that names an audience is refused
where none is configured: it was meant for somebody else.

A verified token is remembered until it expires or the keys change, because a signature costs 50 to
100 microseconds.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import jwt

from penstock.errors import Unauthenticated
from penstock.gateway.auth.jwks import VerifyingKey, VerifyingKeys, allowed_algorithms, read_keys
from penstock.gateway.auth.principal import Principal, granted
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.process.config import GatewayConfig

LEEWAY_S: Final = 30
REMEMBERED_MAX: Final = 10_000
NAME_MAX: Final = 128
NAMESPACE_MAX: Final = 256

# Padding is no part of a JWT; without it, each token can be written in one way only.
_SHAPE: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_STRANGE_CLAIMS: Final = (ValueError, TypeError, OverflowError)  # an `exp` of infinity, say
_REASONS: Final = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token comes from another issuer"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim that is required here"),
)


class TokenVerifier:
    """Verifies bearer tokens; for one thread."""

    def __init__(self, settings: GatewayConfig) -> None:
        """Read the keys.

        Raises:
            ConfigError: The settings or the file cannot be used.
            OperationalError: The file cannot be read.
        """
        path, allowed = settings.jwks, allowed_algorithms(settings.jwt_algorithms)
        self._keys = WatchedFile(path, lambda data: read_keys(path, data, allowed))
        self._issuer = settings.jwt_issuer or None
        self._audience = settings.jwt_audience or None
        self._remembered: dict[bytes, tuple[Principal, float]] = {}
        self._remembered_by = self._keys.value()

    def principal(self, token: bytes, now_s: float) -> Principal:
        """Return who a token is for.

        Args:
            token: As it came.
            now_s: Seconds since the Unix epoch; ends what is remembered.

        Raises:
            Unauthenticated: It is not valid, or not valid now.
            Corrupt: The file of keys cannot be read now.
        """
        keys = self._keys.value()
        if keys is not self._remembered_by:
            self._remembered.clear()
            self._remembered_by = keys
        digest = hashlib.sha256(token).digest()  # tokens themselves are not kept in memory
        found = self._remembered.get(digest)
        if found is not None and now_s < found[1]:
            return found[0]
        claims = self._verified(token, keys)
        namespace = _namespace_of(claims, digest)
        principal = Principal(_name_of(claims), granted(_words_of(claims)), namespace)
        self._remember(digest, principal, float(claims["exp"]) + LEEWAY_S)
        return principal

    def _verified(self, token: bytes, keys: VerifyingKeys) -> dict[str, Any]:
        """Return the claims of a token that is valid now."""
        if not _SHAPE.fullmatch(token):
            raise Unauthenticated("the credential is neither an API key nor a JWT")
        try:
            key, algorithm = _key_for(jwt.get_unverified_header(token), keys)
            claims: dict[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_S,
                options={"require": ["exp"]},
            )
        except (jwt.PyJWTError, *_STRANGE_CLAIMS) as error:
            raise Unauthenticated(_reason(error)) from error
        return claims

    def _remember(self, digest: bytes, principal: Principal, until_s: float) -> None:
        self._remembered.pop(digest, None)  # what is remembered anew is the newest again
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = principal, until_s


def _key_for(header: Mapping[str, Any], keys: VerifyingKeys) -> tuple[VerifyingKey, str]:
    """Return the key that a token names, if it may verify the token's algorithm."""
    kid = header.get("kid")
    if kid is None and len(keys) == 1:
        key: VerifyingKey | None = next(iter(keys.values()))
    else:
        key = keys.get(kid)
    if key is None:
        raise Unauthenticated("the token was signed with a key that is not known here")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in key.algorithms:
        raise Unauthenticated("the token's algorithm is not accepted for its key")
    return key, algorithm


def _reason(error: Exception) -> str:
    """Say why a token is refused, without a word of what is in it."""
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return "the token is not valid"


def _name_of(claims: Mapping[str, Any]) -> str:
    name = str(claims.get("sub", "token"))[:NAME_MAX]
    return "".join(one if one.isprintable() else "?" for one in name)


def _namespace_of(claims: Mapping[str, Any], digest: bytes) -> str:
    """Return what a token's request ids are stored under.

    That is `@` and the subject with what is no letter, digit or one of `-._@:` percent-encoded. A
    long one is `@=` and its SHA-256. A token without a subject shares its ids with no other token.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        return f"@={digest.hex()}"
    text = quote(subject, safe="@:", errors="surrogatepass").replace("~", "%7E")
    if len(text) > NAMESPACE_MAX:
        text = f"={hashlib.sha256(subject.encode(errors='surrogatepass')).hexdigest()}"
    return f"@{text}"


def _words_of(claims: Mapping[str, Any]) -> list[str]:
    """Return the words of `scope`, else of `scopes`: one text, or a list of them."""
    claimed = claims.get("scope", claims.get("scopes", []))
    words = claimed.split(" ") if isinstance(claimed, str) else claimed
    if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
        raise Unauthenticated("the token's scopes are neither a text nor a list of texts")
    return words
