"""Verifies bearer tokens: JWTs of other issuers, with the public keys of `gateway.jwks`.

The key decides which algorithms are accepted, and only asymmetric ones are known. So a token cannot
choose its algorithm (`none`, or HMAC with a public key as the secret), and it cannot bring a key or
refer to one. `exp` is required; `nbf`, `iat`, `iss` and `aud` are checked if they are present or
configured, with `LEEWAY_S` for clocks that differ.

A verified token is cached until it expires or the keys change, because the check of a signature takes
50 to 100 microseconds.

The public keys come from a JSON Web Key Set file (RFC 7517). Promises that no key of a set is symmetric, private, weak or
ambiguous, and that each key verifies only algorithms of its own type. A set with a forbidden key is refused as a whole.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import AllowedPublicKeys

from penstock.errors import ConfigError, Unauthenticated
from penstock.files.local_root import LocalRoot
from penstock.gateway.auth.principal import Principal, granted
from penstock.gateway.auth.watched_file import WatchedFile
from penstock.process.config import GatewayConfig

LEEWAY_S: Final = 30
CACHED_MAX: Final = 10_000
NAME_MAX: Final = 128
NAMESPACE_MAX: Final = 256
CLAIMS_BYTES_MAX: Final = 1_024
"""The most bytes of the claims that each request of a token holds, as JSON."""

_CHANGING: Final = frozenset({"exp", "iat", "jti", "nbf"})

# A JWT has no padding, so each token has only one spelling.
_SHAPE: Final = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_STRANGE_CLAIMS: Final = (ValueError, TypeError, OverflowError)  # an `exp` of infinity, say
_REASONS: Final = (
    (jwt.ExpiredSignatureError, "the token has expired"),
    (jwt.ImmatureSignatureError, "the token is not valid yet"),
    (jwt.InvalidAudienceError, "the token is for another audience"),
    (jwt.InvalidIssuerError, "the token comes from another issuer"),
    (jwt.MissingRequiredClaimError, "the token lacks a claim that is required here"),
)


RSA_BITS_MIN: Final = 2_048

_FITTING: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
    ("OKP", "Ed448"): frozenset({"EdDSA"}),
}
"""The algorithms that a key can verify, by its type and curve."""

KNOWN: Final = frozenset[str]().union(*_FITTING.values())


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, and the algorithms that it may verify."""

    public: AllowedPublicKeys
    algorithms: frozenset[str]


VerifyingKeys = Mapping[str | None, VerifyingKey]
"""The keys of a set by key id."""


def allowed_algorithms(text: str) -> frozenset[str]:
    """Return the algorithms in a comma-separated setting."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    wrong = sorted(names - KNOWN)
    if wrong or not names:
        raise ConfigError(
            f"gateway.jwt_algorithms = {text!r}: {', '.join(wrong) or 'nothing'} cannot be "
            f"accepted; choose from {', '.join(sorted(KNOWN))}"
        )
    return names


def shown_claims(text: str) -> tuple[str, ...]:
    """Return the names of claims in a comma-separated setting.

    Raises:
        ConfigError: A claim differs in each token of a subject, so a repeated request would be another one.
    """
    claims = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if changing := [name for name in claims if name in _CHANGING]:
        raise ConfigError(
            f"gateway.jwt_claims = {text!r}: {', '.join(changing)} differs in each token of a subject; a request that is "
            "repeated with a newer token would be refused"
        )
    return claims


def read_keys(path: Path, data: bytes | None, allowed: frozenset[str]) -> VerifyingKeys:
    """Return the keys of a file that can verify one of the allowed algorithms.

    Keys of unknown types and keys for encryption are skipped (RFC 7517 §5).

    Args:
        data: The content of the file; None without a file.
    """
    if data is None:
        raise ConfigError(f"gateway.jwks: the file {path} does not exist")
    try:
        listed = msgspec.json.decode(data, type=dict[str, Any]).get("keys")
        entries = msgspec.convert(listed, list[dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"gateway.jwks: {path} is not a JSON Web Key Set: {error}") from error
    keys: dict[str | None, VerifyingKey] = {}
    for number, entry in enumerate(entries, start=1):
        where = f"gateway.jwks: {path}, key {number}"
        algorithms = _algorithms_of(entry, where) & allowed
        if not algorithms:
            continue
        kid = _kid_of(entry, where)
        if kid in keys:
            raise ConfigError(f"{where} has the kid of another key")
        keys[kid] = VerifyingKey(_public_key(entry, algorithms, where), algorithms)
    if not keys:
        raise ConfigError(
            f"gateway.jwks: {path} has no key for any of {', '.join(sorted(allowed))}"
        )
    return keys


def _algorithms_of(entry: dict[str, Any], where: str) -> frozenset[str]:
    """Return the algorithms that a key can verify; none if it is not for signatures."""
    # A forbidden key refuses the whole set, because the operator has to know of it at once.
    if entry.get("kty") == "oct":
        raise ConfigError(
            f"{where} is symmetric: a server that can check its tokens can also make them; use RSA, EC or OKP"
        )
    if "d" in entry:
        raise ConfigError(f"{where} is private; give the gateway only public keys")
    fitting = _FITTING.get((str(entry.get("kty")), str(entry.get("crv", ""))))
    if fitting is None or entry.get("use", "sig") != "sig":
        return frozenset()
    own = entry.get("alg")
    if own is None:
        return fitting
    if own not in fitting:
        raise ConfigError(f"{where}: its alg {own!r} is not among {', '.join(sorted(fitting))}")
    return frozenset({own})


def _kid_of(entry: dict[str, Any], where: str) -> str | None:
    kid = entry.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ConfigError(f"{where}: its kid is not a string")
    return kid


def _public_key(entry: dict[str, Any], algorithms: frozenset[str], where: str) -> AllowedPublicKeys:
    try:
        public: AllowedPublicKeys = jwt.PyJWK(entry, min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise ConfigError(f"{where} is malformed") from error
    if isinstance(public, RSAPublicKey) and public.key_size < RSA_BITS_MIN:
        raise ConfigError(f"{where} has {public.key_size} bits; RSA takes at least {RSA_BITS_MIN}")
    return public


class TokenVerifier:
    """Verifies bearer tokens. For one thread.

    Raises:
        ConfigError: The settings or the file cannot be used.
        OperationalError: The file cannot be read.
    """

    def __init__(self, settings: GatewayConfig) -> None:
        path, allowed = settings.jwks, allowed_algorithms(settings.jwt_algorithms)
        self._keys = WatchedFile(
            LocalRoot(path.parent), path.name, lambda data: read_keys(path, data, allowed)
        )
        self._issuer = settings.jwt_issuer or None
        self._audience = settings.jwt_audience or None
        self._shown = shown_claims(settings.jwt_claims)
        self._cached: dict[bytes, tuple[Principal, float]] = {}
        self._cached_by = self._keys.value()

    def principal(self, token: bytes, now_s: float) -> Principal:
        """Return the principal of a token; `now_s` as in `verified`."""
        return self.verified(token, now_s)[0]

    def verified(self, token: bytes, now_s: float) -> tuple[Principal, float]:
        """Return the principal of a token, and when the token ends, in seconds since the Unix epoch.

        Args:
            now_s: Seconds since the Unix epoch; cached tokens expire by it.
        """
        keys = self._keys.value()
        # A key that is no longer in the set must not live on in the cache.
        if keys is not self._cached_by:
            self._cached.clear()
            self._cached_by = keys
        digest = hashlib.sha256(token).digest()  # tokens themselves are not kept in memory
        # The check of a signature takes 50 to 100 microseconds.
        cached = self._cached.get(digest)
        if cached is not None and now_s < cached[1]:
            return cached
        claims = self._verified(token, keys)
        namespace = _namespace_of(claims, digest)
        shown = {name: claims[name] for name in self._shown if name in claims}
        scopes = granted(_words_of(claims))
        try:
            size = len(msgspec.json.encode(shown))
            principal = Principal(_name_of(claims), scopes, namespace, shown)
        except (*_STRANGE_CLAIMS, RecursionError) as error:
            raise Unauthenticated("the token has a claim that cannot be kept") from error
        if size > CLAIMS_BYTES_MAX:
            raise Unauthenticated(
                f"the claims {', '.join(shown)} of the token take more than {CLAIMS_BYTES_MAX} bytes"
            )
        ends_s = float(claims["exp"]) + LEEWAY_S
        self._cache(digest, principal, ends_s)
        return principal, ends_s

    def _verified(self, token: bytes, keys: VerifyingKeys) -> dict[str, Any]:
        """Verify a token, and return its claims."""
        if not _SHAPE.fullmatch(token):
            raise Unauthenticated("the credential is neither an API key nor a JWT")
        try:
            key, algorithm = _key_for(jwt.get_unverified_header(token), keys)
            claims: dict[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                issuer=self._issuer,
                # A token with an audience is refused if none is configured: it was issued for
                # another service.
                audience=self._audience,
                leeway=LEEWAY_S,
                options={"require": ["exp"]},
            )
        except (jwt.PyJWTError, *_STRANGE_CLAIMS) as error:
            raise Unauthenticated(_reason(error)) from error
        return claims

    def _cache(self, digest: bytes, principal: Principal, until_s: float) -> None:
        self._cached.pop(digest, None)  # so that the entry becomes the newest
        if len(self._cached) >= CACHED_MAX:
            # A dict keeps its order of insertion, so the first entry is the oldest.
            del self._cached[next(iter(self._cached))]
        self._cached[digest] = principal, until_s


def _key_for(header: Mapping[str, Any], keys: VerifyingKeys) -> tuple[VerifyingKey, str]:
    """Return the key that a token names, if the key accepts the token's algorithm."""
    kid = header.get("kid")
    if kid is None and len(keys) == 1:
        key: VerifyingKey | None = next(iter(keys.values()))
    else:
        key = keys.get(kid)
    if key is None:
        raise Unauthenticated("the token was signed with a key that this gateway does not know")
    # The key decides, so that a token cannot choose `none`, or HMAC with a public key as the
    # secret.
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in key.algorithms:
        raise Unauthenticated("the token's algorithm is not accepted for its key")
    return key, algorithm


def _reason(error: Exception) -> str:
    """Return why a token is refused; the text repeats nothing of the token."""
    for error_type, reason in _REASONS:
        if isinstance(error, error_type):
            return reason
    return "the token is not valid"


def _name_of(claims: Mapping[str, Any]) -> str:
    name = str(claims.get("sub", "token"))[:NAME_MAX]
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _namespace_of(claims: Mapping[str, Any], digest: bytes) -> str:
    """Return the prefix of the stored request ids of a token.

    The prefix is `@` and the subject; characters other than letters, digits and `-._@:` are
    percent-encoded. A long subject is replaced by `=` and its SHA-256. A token without a subject has
    a prefix of its own.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        return f"@={digest.hex()}"
    text = quote(subject, safe="@:", errors="surrogatepass").replace("~", "%7E")
    if len(text) > NAMESPACE_MAX:
        text = f"={hashlib.sha256(subject.encode(errors='surrogatepass')).hexdigest()}"
    return f"@{text}"


def _words_of(claims: Mapping[str, Any]) -> list[str]:
    """Return the words of the claim `scope`, or else `scopes`: a text, or a list of texts."""
    claimed = claims.get("scope", claims.get("scopes", []))
    words = claimed.split(" ") if isinstance(claimed, str) else claimed
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Unauthenticated("the token's scopes are neither a text nor a list of texts")
    return words
