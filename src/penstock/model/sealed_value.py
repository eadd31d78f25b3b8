"""Sealed values: arguments, replies and events that concern a subject, encrypted with its key.

A sealed value is a MessagePack extension with the name of the subject and the encrypted bytes, so that it can be
opened without its request. `personal` has the rows of personal classes.
"""

from typing import Any, Final

import msgspec

from penstock.base.encoder import Encoder
from penstock.base.subject_keys import SubjectKeys
from penstock.errors import RequestError
from penstock.model.request import NAMES, THEN, Request, decode_request

ARGUMENTS: Final = b"arguments"
REPLY: Final = b"reply"
EVENT: Final = b"event"
PERSONAL: Final = "<personal>"
"""The text that stands for encrypted values."""
FIRST_BYTES: Final = (b"\xc7", b"\xc8", b"\xc9")
"""The first bytes of MessagePack extensions of any size; sealed values begin with one of them."""

_EXT: Final = 81
_encode: Final = Encoder().encode
_decode_ext: Final = msgspec.msgpack.Decoder(msgspec.msgpack.Ext).decode
_decode_sealed: Final = msgspec.msgpack.Decoder(tuple[str, bytes]).decode
_decode_arguments: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_decode_shown: Final = msgspec.msgpack.Decoder(ext_hook=lambda *_: PERSONAL).decode
_NO_NAMES: Final = msgspec.Raw(b"\x80")


def seal_value(keys: SubjectKeys, subject: str, data: bytes, context: bytes) -> bytes:
    """Return MessagePack data, encrypted with the key of a subject.

    Args:
        context: `ARGUMENTS`, `REPLY` or `EVENT`.
    """
    return _encode(msgspec.msgpack.Ext(_EXT, _encode((subject, keys.seal(subject, data, context)))))


def open_value(keys: SubjectKeys, data: bytes, context: bytes) -> bytes:
    """Return the data of `seal_value`; data that is not sealed is returned as it is.

    Raises:
        Erased: The key of the subject is destroyed.
        Corrupt: The bytes were changed, or are encrypted with other keys.
    """
    sealed = _parts(data)
    return data if sealed is None else keys.unseal(sealed[0], sealed[1], context)


def subject_of(data: bytes) -> str | None:
    """Return the subject of a sealed value; None for other data."""
    sealed = _parts(data)
    return None if sealed is None else sealed[0]


def subject_of_request(body: bytes) -> str | None:
    """Return the subject of the body of a request; None if it concerns no subject, or is no request."""
    try:
        return subject_of(bytes(decode_request(body).positional))
    except RequestError:
        return None


def is_erased(keys: SubjectKeys | None, data: bytes) -> bool:
    """Say whether data is a sealed value whose key is destroyed; this decrypts nothing."""
    if keys is None or (sealed := _parts(data)) is None:
        return False
    return keys.is_erased(*sealed)


def is_erased_request(keys: SubjectKeys | None, body: bytes) -> bool:
    """Say whether the body of a request has arguments whose key is destroyed."""
    try:
        return is_erased(keys, bytes(decode_request(body).positional))
    except RequestError:
        return False


def decode_shown(data: bytes) -> Any:
    """Return data as MessagePack has it; `<personal>` stands for each sealed value in it."""
    return _decode_shown(data)


def sealed_request(keys: SubjectKeys, subject: str, request: Request) -> Request:
    """Return a request with its arguments encrypted with the key of a subject."""
    arguments = _encode((request.positional, request.named))
    sealed = msgspec.Raw(seal_value(keys, subject, arguments, ARGUMENTS))
    return Request(request.entity, request.key, request.method, sealed, _NO_NAMES)


def opened_request(keys: SubjectKeys, request: Request) -> Request:
    """Return a request with readable arguments; raises as `open_value`."""
    stored = bytes(request.positional)
    arguments = open_value(keys, stored, ARGUMENTS)
    if arguments is stored:
        return request
    return Request(request.entity, request.key, request.method, *_decode_arguments(arguments))


def shown_arguments(request: Request) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a request as MessagePack has them; `<personal>` stands for encrypted arguments."""
    if subject_of(bytes(request.positional)) is not None:
        return [PERSONAL], {}
    named = decode_shown(request.named)
    named.pop(NAMES, None)
    named.pop(THEN, None)
    return decode_shown(request.positional), named


def _parts(data: bytes) -> tuple[str, bytes] | None:
    if not data.startswith(FIRST_BYTES):
        return None
    try:
        ext = _decode_ext(data)
        return _decode_sealed(ext.data) if ext.code == _EXT else None
    except msgspec.MsgspecError:  # an extension of another program
        return None
