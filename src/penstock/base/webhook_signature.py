"""Signatures of webhooks: those of Standard Webhooks, which are sent and checked, and those of GitHub and Stripe, which are checked.

A signature is an HMAC-SHA256 (RFC 2104) over the bytes that were sent. In Standard Webhooks
(https://www.standardwebhooks.com, 1.0.0) it is over `ID.SECONDS.BODY`, and a message may have several of them, so that a
secret can be exchanged while messages are under way.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from penstock.errors import ConfigError, Unauthenticated

Form: TypeAlias = Literal["standard", "github", "stripe"]
"""How a sender signs."""

PREFIX: Final = "whsec_"
"""The usual beginning of a secret of Standard Webhooks."""

_KEY_BYTES_MIN: Final = 24
_ID: Final = "webhook-id"
_TIME: Final = "webhook-timestamp"
_SIGNATURES: Final = "webhook-signature"
_VERSION: Final = "v1,"
_SECONDS: Final = re.compile(r"[0-9]{1,12}")


def standard_key(name: str, secret: str) -> bytes:
    """Return the key in a secret of Standard Webhooks, which is base64.

    Args:
        name: The name of the secret, for the message, which does not show the secret.

    Raises:
        ConfigError: The secret has another form.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(
            f"the secret {name} must be {PREFIX} and base64, as Standard Webhooks has it"
        ) from error
    if len(key) < _KEY_BYTES_MIN:
        raise ConfigError(
            f"the secret {name} has {len(key)} bytes, and a webhook needs at least {_KEY_BYTES_MIN}: "
            f"echo {PREFIX}$(openssl rand -base64 32)"
        )
    return key


def standard_headers(
    keys: Iterable[bytes], message_id: str, time_s: int, body: bytes
) -> dict[str, str]:
    """Return the headers of a message that is sent: its id, its time and a signature with each key."""
    content = f"{message_id}.{time_s}.".encode() + body
    signatures = [_VERSION + base64.b64encode(_hmac(key, content)).decode() for key in keys]
    return {_ID: message_id, _TIME: str(time_s), _SIGNATURES: " ".join(signatures)}


class _Signed(NamedTuple):
    """A message as its headers describe it.

    Attributes:
        content: The bytes that were signed.
        signatures: The signatures, one of which must be right.
        time_s: When it was sent, seconds since the Unix epoch; None if the form does not sign a time.
    """

    content: bytes
    signatures: list[bytes]
    time_s: int | None


def check_signature(
    form: Form,
    secrets: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    now_s: float,
    tolerance_s: float,
) -> str:
    """Check a message that has come, and return the id that its sender has given to the event.

    Args:
        secrets: The secrets by name. While a secret is exchanged there are two.
        headers: The headers by name in lower case.
        tolerance_s: The longest difference between the time of the message and `now_s`; a stranger may repeat an older message.

    Raises:
        Unauthenticated: The signature is missing or wrong, or the message is too old or too new.
        ConfigError: A secret has a wrong form.
    """
    read, key_of, id_of = _FORMS[form]
    signed = read(headers, body)
    if signed.time_s is not None and abs(now_s - signed.time_s) > tolerance_s:
        raise Unauthenticated(
            f"the webhook was signed more than {tolerance_s:g} s before or after this time; its sender must sign it again"
        )
    # Once for each secret: a stranger may send thousands of signatures with a large body.
    expected = [_hmac(key_of(name, secret), signed.content) for name, secret in secrets.items()]
    # All are compared, each in constant time, so that the time of an answer tells nothing.
    right = [hmac.compare_digest(each, given) for each in expected for given in signed.signatures]
    if not any(right):
        raise Unauthenticated("the signature of the webhook is wrong")
    return id_of(headers, body)


def _hmac(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, hashlib.sha256)


def _header(headers: Mapping[str, str], name: str) -> str:
    if name not in headers:
        raise Unauthenticated(
            f"this path takes signed webhooks only, and the header {name} is missing"
        )
    return headers[name]


def _time_in(text: str) -> int:
    if not _SECONDS.fullmatch(text):
        raise Unauthenticated("the time of the webhook is not a number of seconds")
    return int(text)


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _standard(headers: Mapping[str, str], body: bytes) -> _Signed:
    message_id, time = _header(headers, _ID), _header(headers, _TIME)
    signatures = []
    for each in _header(headers, _SIGNATURES).split(" "):
        if each.startswith(_VERSION):  # others are of versions that this module does not know
            try:
                signatures.append(base64.b64decode(each[len(_VERSION) :], validate=True))
            except (binascii.Error, ValueError):
                continue
    content = f"{message_id}.{time}.".encode("latin-1") + body
    return _Signed(content, signatures, _time_in(time))


def _github(headers: Mapping[str, str], body: bytes) -> _Signed:
    given = _header(headers, "x-hub-signature-256")
    return _Signed(body, [_hex(given.removeprefix("sha256="))], None)


def _stripe(headers: Mapping[str, str], body: bytes) -> _Signed:
    parts = [part.partition("=") for part in _header(headers, "stripe-signature").split(",")]
    times = [value for name, _, value in parts if name.strip() == "t"]
    if len(times) != 1:
        raise Unauthenticated("the header stripe-signature has no time")
    signatures = [_hex(value) for name, _, value in parts if name.strip() == "v1"]
    return _Signed(f"{times[0]}.".encode("latin-1") + body, signatures, _time_in(times[0]))


def _id_in_body(_headers: Mapping[str, str], body: bytes) -> str:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        event = None
    given = event.get("id") if isinstance(event, dict) else None
    if not isinstance(given, str):
        raise Unauthenticated("the body of the webhook has no id of the event")
    return given


def _plain_key(_name: str, secret: str) -> bytes:
    return secret.encode()


_FORMS: Final[
    Mapping[
        Form,
        tuple[
            Callable[[Mapping[str, str], bytes], _Signed],
            Callable[[str, str], bytes],
            Callable[[Mapping[str, str], bytes], str],
        ],
    ]
] = {
    "standard": (_standard, standard_key, lambda headers, _: _header(headers, _ID)),
    "github": (_github, _plain_key, lambda headers, _: _header(headers, "x-github-delivery")),
    "stripe": (_stripe, _plain_key, _id_in_body),
}
"""For each form: reads the headers, makes a key of a secret, finds the id of the event."""
