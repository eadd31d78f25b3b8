"""HTTP responses from replies: plain values, with epoch and request id in headers."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from penstock.base.http import EPOCH, JSON, MSGPACK, REQUEST_ID
from penstock.base.ids import Epoch
from penstock.base.json_keys import json_bytes
from penstock.gateway.errors import error_response, outcome_status
from penstock.model.reply import Reply
from penstock.model.request import decode_failure

TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"


def _extension_data(value: object) -> object:
    """Return the bytes of a MessagePack extension, which JSON does not have."""
    if isinstance(value, msgspec.msgpack.Ext):
        return value.data
    raise TypeError(f"{type(value).__qualname__} cannot be in a reply")


_encode: Final = msgspec.json.Encoder(decimal_format="string", enc_hook=_extension_data).encode
_decode: Final = msgspec.msgpack.Decoder().decode


def json_of(value: Any) -> bytes:
    """Return a value that was decoded from MessagePack, or a struct with such values, as JSON.

    Bytes (in base64), dates, decimals and UUIDs become strings, and so do NaN and the infinities. A
    key that is not a string becomes its own JSON, as a string.
    """
    return json_bytes(_encode, value)


def reply_headers(epoch: Epoch, request_id: str = "") -> dict[str, str]:
    """Return the headers that every response carries."""
    headers = {EPOCH: str(epoch)}
    if request_id:
        headers[REQUEST_ID] = request_id
    return headers


def reply_response(reply: Reply, request_id: str, accept: str) -> Response:
    """Return the response to a call: the value as JSON, or the reply itself as MessagePack.

    Args:
        reply: The reply to the request.
        request_id: The request id as the caller knows it.
        accept: The `Accept` header of the request.
    """
    headers = reply_headers(reply.epoch, request_id)
    if MSGPACK in accept:
        status = 200 if reply.error is None else outcome_status(reply.error)
        return Response(reply.data, status, headers, MSGPACK)
    if reply.error is None:
        return Response(json_of(_decode(reply.data)), 200, headers, JSON)
    return failure_response(reply, request_id, outcome_status(reply.error))


def failure_response(reply: Reply, request_id: str, status: int) -> Response:
    """Return the response to a request that failed.

    Args:
        reply: The reply, which holds a failure.
        request_id: The request id as the caller knows it.
        status: The HTTP status.
    """
    failure_response = decode_failure(reply.data)
    headers = reply_headers(reply.epoch, request_id)
    return error_response(
        status, failure_response.code, failure_response.kind, failure_response.message, headers
    )


def value_of(reply: Reply) -> Any:
    """Return the untyped value of a reply without a failure."""
    return _decode(reply.data)


def route_response(value: Any, status: int, content_type: str, headers: dict[str, str]) -> Response:
    """Return the response of an application's own path: text, bytes, or JSON.

    Args:
        value: The result of the call.
        status: The HTTP status.
        content_type: The content type of the route; empty chooses one by the value.
        headers: The headers of the response.
    """
    if isinstance(value, str):
        return Response(value, status, headers, content_type or TEXT)
    if isinstance(value, bytes):
        return Response(value, status, headers, content_type or BYTES)
    return Response(json_of(value), status, headers, content_type or JSON)
