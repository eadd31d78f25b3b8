"""Requests: one call from outside, as it travels in the log.

The body says what is called with what; request id and time are the log's. Arguments stay encoded
until the method's signature is known.
"""

from typing import Final

import msgspec

from penstock.errors import RequestError


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call. `entity` is empty for a function; `key` is None where a creation shall derive it."""

    entity: str
    key: str | None
    method: str
    positional: msgspec.Raw
    named: msgspec.Raw


_DECODER: Final = msgspec.msgpack.Decoder(Request)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode_request(request: Request) -> bytes:
    """Return the body of a log entry."""
    return _ENCODER.encode(request)


def decode_request(body: bytes) -> Request:
    """Read a log entry's body.

    Raises:
        RequestError: It is no request.
    """
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise RequestError(f"the body is no request: {error}") from error


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Why a transaction was undone: the error's stable code, its class's name, its message."""

    code: str
    kind: str
    message: str


_FAILURES: Final = msgspec.msgpack.Decoder(Failure)


def encode_failure(failure: Failure) -> bytes:
    """Return a failure as the reply that is journalled."""
    return _ENCODER.encode(failure)


def decode_failure(data: bytes) -> Failure:
    """Read a journalled failure."""
    return _FAILURES.decode(data)
