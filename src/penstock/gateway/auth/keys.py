"""API keys: random secrets, each with a name and scopes.

A key has the form `psk_<id>_<secret>`: an id of 8 hexadecimal digits, then 256 random bits. The store
holds only the SHA-256 of the whole key. That is enough, because such a secret cannot be guessed; slow,
salted hashes protect passwords, which can be guessed, and would here only cost processor time. A key
is looked up by its id, which is not secret, and its digest is compared in constant time.

`keys.json` is replaced as a whole, by one writer at a time, and is its owner's alone (0600). A
checksum covers it, so that damage never changes the scopes of a key.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from penstock.errors import ConfigError, Corrupt, OperationalError, Unauthenticated
from penstock.files import shared_file
from penstock.files.layout import KEYS
from penstock.files.roots import shared_root
from penstock.gateway.auth.principal import Principal, Scope

PREFIX: Final = "psk_"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_ID_BYTES: Final = 4
_SECRET_BYTES: Final = 32
_LAST: Final = 4
_ID: Final = re.compile(rf"[0-9a-f]{{{2 * _ID_BYTES}}}")
ID_PLACE: Final = slice(len(PREFIX), len(PREFIX) + 2 * _ID_BYTES)

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class ApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored record of a key.

    Attributes:
        id: The id, which is a part of the key.
        name: A unique name for people.
        digest: The SHA-256 of the whole key, hexadecimal.
        last: The last characters of the key, by which its owner recognises it.
        scopes: The scopes that the key grants.
        created: The time of its creation.
        expires: The time of its end; None if it does not expire.
    """

    id: str
    name: str
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    last: str
    scopes: tuple[Scope, ...]
    created: _Moment
    expires: _Moment | None = None

    def is_expired(self, now: datetime) -> bool:
        """Say whether the key has expired."""
        return self.expires is not None and self.expires <= now


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file: the keys, and the SHA-256 of their JSON without spaces."""

    checksum: str
    keys: tuple[ApiKey, ...]


class KeyStore:
    """The keys in a data directory; each method reads the file again."""

    def __init__(self, data: Path) -> None:
        """Use a data directory; `add` creates it if it does not exist."""
        self._data = data

    @property
    def exists(self) -> bool:
        """Whether a key was ever made here; then the gateway accepts no request without a key."""
        try:
            return shared_root(self._data).has(KEYS)
        except OSError as error:
            raise OperationalError(f"cannot look for {KEYS}: {error.strerror}") from error

    def read(self) -> tuple[ApiKey, ...]:
        """Return the records of all keys, the oldest first.

        Raises:
            Corrupt: The file is damaged.
            OperationalError: It cannot be read.
        """
        return shared_file.read(shared_root(self._data), KEYS, decode_keys)

    def add(
        self, name: str, scopes: Iterable[Scope], expires: datetime | None, now: datetime
    ) -> tuple[ApiKey, str]:
        """Make a key, store its record, and return both; the key cannot be read again.

        Raises:
            Corrupt: The file is damaged; nothing is added.
            OperationalError: It cannot be written; nothing is added.
        """
        if not NAME.fullmatch(name) or _ID.fullmatch(name):
            raise ConfigError(
                f"{name!r} cannot be the name of a key: use up to 64 letters, digits, dots, dashes and "
                "underscores, and not eight hexadecimal digits, which are an id"
            )
        words = tuple(sorted(set(scopes)))

        def edit(keys: tuple[ApiKey, ...]) -> tuple[bytes, tuple[ApiKey, str]]:
            if any(key.name == name for key in keys):
                raise ConfigError(
                    f"a key named {name!r} exists already; revoke it, or choose another name"
                )
            key_id = _free_id({key.id for key in keys})
            secret = f"{PREFIX}{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
            # Slow, salted hashes protect passwords, which can be guessed; 256 random bits cannot.
            digest = hashlib.sha256(secret.encode()).hexdigest()
            made = ApiKey(key_id, name, digest, secret[-_LAST:], words, now, expires)
            return encode_keys((*keys, made)), (made, secret)

        return shared_file.change(self._data, KEYS, decode_keys, edit)

    def revoke(self, name_or_id: str) -> ApiKey:
        """Remove a key, and return its record."""

        def edit(keys: tuple[ApiKey, ...]) -> tuple[bytes, ApiKey]:
            for gone in keys:
                if name_or_id in (gone.name, gone.id):
                    # The file stays when the last key goes: while it exists, no request is accepted
                    # without a key.
                    return encode_keys(tuple(key for key in keys if key is not gone)), gone
            names = ", ".join(key.name for key in keys) or "none"
            raise ConfigError(f"no key is named {name_or_id!r}; the keys are: {names}")

        return shared_file.change(self._data, KEYS, decode_keys, edit)


def encode_keys(keys: tuple[ApiKey, ...]) -> bytes:
    """Return the file that holds these keys."""
    return msgspec.json.format(msgspec.json.encode(_Stored(_checksum(keys), keys))) + b"\n"


def decode_keys(data: bytes | None) -> tuple[ApiKey, ...]:
    """Return the keys that a file holds; none if `data` is None: the file does not exist."""
    if data is None:
        return ()
    try:
        stored = msgspec.json.decode(data, type=_Stored)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"the API keys cannot be read: {error}") from error
    # Damage must never change the scopes of a key.
    if stored.checksum != _checksum(stored.keys):
        raise Corrupt("the API keys do not fit their checksum")
    return stored.keys


class KeyRing:
    """API keys, prepared for authentication."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._entries: dict[bytes, tuple[bytes, float, Principal]] = {
            key.id.encode(): (
                bytes.fromhex(key.digest),
                key.expires.timestamp() if key.expires is not None else float("inf"),
                Principal(key.name, frozenset(key.scopes), key.name),
            )
            for key in keys
        }

    def named(self, key_id: bytes, now_s: float) -> Principal:
        """Return the principal of the key with an id, for a caller whose ticket proves the key; `now_s` as in `principal`."""
        _, expires_s, principal = self._entries.get(key_id, _NOBODY)
        if now_s >= expires_s:
            raise Unauthenticated(
                "the API key with which the ticket was asked for is not valid any more"
            )
        return principal

    def principal(self, presented: bytes, now_s: float) -> Principal:
        """Return the principal of a key.

        Args:
            now_s: Seconds since the Unix epoch.
        """
        digest = hashlib.sha256(presented).digest()
        expected, expires_s, principal = self._entries.get(presented[ID_PLACE], _NOBODY)
        # In constant time; an unknown id takes the same path, so the time tells nothing.
        if not hmac.compare_digest(digest, expected):
            raise Unauthenticated("the API key is not valid; it may have been revoked")
        if now_s >= expires_s:
            raise Unauthenticated(f"the API key {principal.name} has expired")
        return principal


_NOBODY: Final = (bytes(1), 0.0, Principal("nobody", frozenset()))
"""The entry for an unknown id; no SHA-256 has its length."""


def _checksum(keys: tuple[ApiKey, ...]) -> str:
    return hashlib.sha256(msgspec.json.encode(keys)).hexdigest()


def _free_id(taken: set[str]) -> str:
    while (chosen := secrets.token_hex(_ID_BYTES)) in taken:
        pass
    return chosen


def utc_now() -> datetime:
    """Return the time, to the second, as keys store it."""
    return datetime.now(UTC).replace(microsecond=0)
