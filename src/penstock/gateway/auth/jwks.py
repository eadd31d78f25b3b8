"""Reads the public keys that verify tokens from a JSON Web Key Set file (RFC 7517).

Promises that no key of a set is symmetric, private, weak or ambiguous, and that each key verifies
only algorithms of its own type. A set with a forbidden key is refused as a whole. `tokens` verifies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import AllowedPublicKeys

from penstock.errors import ConfigError

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
    """Return the algorithms in a comma-separated setting.

    Raises:
        ConfigError: An algorithm is unknown or symmetric, or the setting is empty.
    """
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    wrong = sorted(names - KNOWN)
    if wrong or not names:
        raise ConfigError(
            f"gateway.jwt_algorithms = {text!r}: {', '.join(wrong) or 'nothing'} cannot be "
            f"accepted; choose from {', '.join(sorted(KNOWN))}"
        )
    return names


def read_keys(path: Path, data: bytes | None, allowed: frozenset[str]) -> VerifyingKeys:
    """Return the keys of a file that can verify one of the allowed algorithms.

    Keys of unknown types and keys for encryption are skipped (RFC 7517 §5).

    Args:
        data: The content of the file; None without a file.

    Raises:
        ConfigError: The file is missing or malformed, holds a forbidden key (symmetric, private,
            too short, or with the id of another key), or holds no usable key.
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
    """Return the algorithms that a key can verify; none if it is not for signatures.

    Raises:
        ConfigError: The key is symmetric or private, or its `alg` does not fit its type.
    """
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
