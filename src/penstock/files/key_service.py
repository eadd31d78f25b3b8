"""The port of a key service (a KMS), which keeps the file of the subjects' keys encrypted.

A random data key encrypts the file, and the service encrypts the data key (envelope encryption). So the service sees no
personal data and no key of a subject, and a process asks it once for each version of the file. Each version has a data key
of its own. The service is code of users: it may fail, and it may never return.
"""

import importlib
import secrets
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol, TypeVar

import msgspec

from penstock.errors import ConfigError, JournalUnavailable

PLAIN: Final = "plain"
"""The setting for a file that no service encrypts."""

ANSWER_S: Final = 5.0
"""How long a call of a service may take."""

_DATA_KEY_BYTES: Final = 32
_CONTEXT: Final = b"subjects' keys"

T = TypeVar("T")


class KeyService(Protocol):
    """A service that encrypts keys with a key that is in no file of Penstock; users write it."""

    def wrap(self, data_key: bytes) -> bytes:
        """Return 32 bytes in encrypted form."""

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return the 32 bytes that `wrap` was given."""


class Wrapped(msgspec.Struct, frozen=True):
    """Data that only a key service can open.

    Attributes:
        service: The name of the service, such as `vault_keys:Vault`.
        key: The data key, encrypted by the service.
        data: The data, encrypted with the data key by AES-SIV (RFC 5297).
    """

    service: str
    key: bytes
    data: bytes

    def opened(self) -> bytes:
        """Return the data.

        Raises:
            JournalUnavailable: The service refuses, fails or does not answer.
            ValueError: The bytes were changed, or the service has another key; the message begins with a verb.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 -- of `server`, and slow
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415 -- as above

        data_key = _asked(self.service, "unwrap", self.key)
        try:
            return AESSIV(data_key).decrypt(self.data, [_CONTEXT])
        except (InvalidTag, ValueError) as error:
            raise ValueError(
                f"is damaged, or encrypted with another key than the key service {self.service} has"
            ) from error


def wrapped(service: str, data: bytes) -> Wrapped:
    """Encrypt data with a new data key, which a service encrypts.

    The service must decrypt the data key before this function returns, so that no data are stored that it cannot open.

    Raises:
        JournalUnavailable: The service refuses, fails or does not answer.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # noqa: PLC0415 -- of `server`, and slow

    data_key = secrets.token_bytes(_DATA_KEY_BYTES)
    wrapped_key = _asked(service, "wrap", data_key)
    if _asked(service, "unwrap", wrapped_key) != data_key:
        raise ConfigError(
            f"key service {service}: unwrap does not return the bytes that wrap was given"
        )
    return Wrapped(service, wrapped_key, AESSIV(data_key).encrypt(data, [_CONTEXT]))


def is_service(name: str) -> bool:
    """Say whether a name has the form of a service's name, `module:name`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), attribute])


@lru_cache(maxsize=8)
def _service_named(name: str) -> KeyService:
    """Return the service that a class or a function without parameters makes; a process makes each service once."""
    module, _, attribute = name.partition(":")
    try:
        service: KeyService = _in_time(
            lambda: getattr(importlib.import_module(module), attribute)()
        )
    except _FailedError as error:
        raise ConfigError(
            f"key service {name} cannot be made: {error}; install its module where Penstock is installed, or name the "
            "module's folder in PYTHONPATH"
        ) from error
    return service


def _asked(name: str, method: str, given: bytes) -> bytes:
    """Return the answer of a service.

    Args:
        method: `wrap` or `unwrap`.
    """
    service = _service_named(name)
    try:
        answer: object = _in_time(lambda: getattr(service, method)(given))
    except _FailedError as error:
        raise JournalUnavailable(
            f"key service {name} cannot {method} the key of the subjects' keys: {error}"
        ) from error
    if type(answer) is not bytes:
        raise ConfigError(
            f"key service {name}: {method} must return bytes, not {type(answer).__name__}"
        )
    return answer


class _FailedError(Exception):
    """The code of a service failed."""


def _in_time(call: Callable[[], T]) -> T:
    """Call the code of a service, in a thread that stays behind if the code does not return.

    Raises:
        _FailedError: It failed or took too long.
    """
    answers: list[T] = []
    failures: list[str] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 -- the code of users
            failures.append(_text_of(error))

    thread = threading.Thread(target=run, name="key service", daemon=True)
    thread.start()
    thread.join(ANSWER_S)
    if answers:
        return answers[0]
    raise _FailedError(failures[0] if failures else f"no answer after {ANSWER_S:g} s")


def _text_of(error: BaseException) -> str:
    """Return a line about an exception, whose own text may fail."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 -- the code of users
        return type(error).__name__
