"""From replies to HTTP answers: bare values, with epoch and request id in headers."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from penstock.base.http import EPOCH, JSON, MSGPACK, REQUEST_ID
from penstock.base.ids import Epoch
from penstock.gateway.errors import STATUS, error_response
from penstock.model.reply import Reply
from penstock.model.request import decode_failure

TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"


def _in_text(value: object) -> object:
    """Return what JSON cannot say otherwise: a MessagePack extension, as its bytes."""
    if isinstance(value, msgspec.msgpack.Ext):
        return value.data
    raise TypeError(f"{type(value).__qualname__} is no value of a reply")


_encode: Final = msgspec.json.Encoder(decimal_format="string", enc_hook=_in_text).encode
_decode: Final = msgspec.msgpack.Decoder().decode


def json_of(value: Any) -> bytes:
    """Return a value that was decoded from MessagePack as JSON.

    What JSON has no word for is a string: bytes (base64), dates, decimals, UUIDs. NaN and
    infinities are null; a key that is no string is its own JSON, as a string.
    """
    try:
        return _encode(value)
    except TypeError:  # a key that is a tuple, a truth value, null: seldom, so not looked for
        return _encode(_with_text_keys(value))


def _with_text_keys(value: Any) -> Any:
    match value:
        case dict():
            return {_key_text(key): _with_text_keys(one) for key, one in value.items()}
        case list() | tuple():
            return [_with_text_keys(one) for one in value]
        case _:
            return value


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else _encode(key).decode().strip('"')


def reply_headers(epoch: Epoch, request_id: str = "") -> dict[str, str]:
    """Return what every answer carries."""
    headers = {EPOCH: str(epoch)}
    if request_id:
        headers[REQUEST_ID] = request_id
    return headers


def reply_response(reply: Reply, request_id: str, accept: str) -> Response:
    """Answer a call: the value as JSON, or the reply as it is where MessagePack is wanted.

    Args:
        reply: What became of it.
        request_id: As the caller knows it.
        accept: The header of that name.
    """
    headers = reply_headers(reply.epoch, request_id)
    if MSGPACK in accept:
        status = 200 if reply.error is None else STATUS.get(reply.error, 400)
        return Response(reply.data, status, headers, MSGPACK)
    if reply.error is None:
        return Response(json_of(_decode(reply.data)), 200, headers, JSON)
    return failure_response(reply, request_id, STATUS.get(reply.error, 400))


def failure_response(reply: Reply, request_id: str, status: int) -> Response:
    """Answer with the failure that a reply is.

    Args:
        reply: What became of a request.
        request_id: As the caller knows it.
        status: Of the answer.
    """
    told = decode_failure(reply.data)
    headers = reply_headers(reply.epoch, request_id)
    return error_response(status, told.code, told.kind, told.message, headers)


def value_of(reply: Reply) -> Any:
    """Return the value of a reply that is none of a failure, untyped."""
    return _decode(reply.data)


def route_response(value: Any, status: int, content_type: str, headers: dict[str, str]) -> Response:
    """Answer at a path of the application's own: text as text, bytes as bytes, all else as JSON."""
    if isinstance(value, str):
        return Response(value, status, headers, content_type or TEXT)
    if isinstance(value, bytes):
        return Response(value, status, headers, content_type or BYTES)
    return Response(json_of(value), status, headers, content_type or JSON)
