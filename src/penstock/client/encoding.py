"""Calls as HTTP requests, and HTTP responses as values and errors.

With an application, arguments and results travel as MessagePack and keep their types; without one,
they travel as JSON. A wrong call is refused before anything is sent. A response that cannot be
understood is an error, never a wrong value.
"""

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.base.http import (
    DERIVED_KEY,
    EPOCH,
    IDEMPOTENCY_KEY,
    JSON,
    MSGPACK,
    OLDEST_ATOM,
    REQUEST_ID,
    decode_error,
    media_type_of,
)
from penstock.base.json_floats import decode_json
from penstock.base.json_keys import json_bytes
from penstock.base.key_text import encode_key
from penstock.base.lowering import lower_reply
from penstock.base.schema import refuse
from penstock.base.stored_type import decode_stored
from penstock.client.operation import HttpResponse, OutgoingRequest, retry_after_s
from penstock.errors import (
    BY_CODE,
    Gone,
    OperationalError,
    PenstockError,
    RequestError,
    Unencodable,
)
from penstock.model.application import App
from penstock.model.call import Call, readable, returns_of
from penstock.model.declaration import CREATIONS
from penstock.model.reply import raised_by, unfit_result
from penstock.model.request import Failure, decode_failure, encode_request

_REQUEST_ID: Final = re.compile(r"[\x21-\x7d]{1,1024}")
_SHOWN_MAX: Final = 200

encode_json: Final = msgspec.json.Encoder(enc_hook=refuse).encode
"""Encodes lowered values as JSON."""


def request_of(app: App | None, call: Call[Any], request_id: str, place: str) -> OutgoingRequest:
    """Return the request to `POST /call`, `POST /streams` or `POST /send`.

    Args:
        app: The application, if the client knows it.
        call: The call or the append.
        request_id: The id of the request.
        place: `call` or `send`.

    Returns:
        The request, which carries the id: as `Idempotency-Key` if the caller of the client chose it, or
        for `/send`; otherwise as `Penstock-Request-Id`, which lets a gateway answer a `@readonly` call
        without a request in the log.

    Raises:
        RequestError: The application has no such class, method or stream, the arguments or events do not fit,
            or the request id has a wrong form.
    """
    require_request_id(request_id)
    media_type = JSON if app is None else MSGPACK
    key, content = _plain(call) if app is None else _typed(app, call)
    segments = [place, call.method]
    if call.stream is not None:
        segments = ["streams", call.stream] if place == "call" else [place, "streams", call.stream]
    elif call.entity:
        if key == DERIVED_KEY and call.method in CREATIONS:
            raise RequestError(
                f"{call.entity}: {DERIVED_KEY!r} cannot be a key; it stands for a derived key"
            )
        segments = [place, call.entity, DERIVED_KEY if key is None else key, call.method]
    is_recorded = call.request_id is not None or place == "send"
    name = IDEMPOTENCY_KEY if is_recorded else REQUEST_ID
    headers = {"Content-Type": media_type, "Accept": media_type, name: request_id}
    return OutgoingRequest("POST", path_of(*segments), headers, content, request_id)


def require_request_id(text: str) -> None:
    """Check the form of a request id.

    Raises:
        RequestError: It is wrong.
    """
    if not _REQUEST_ID.fullmatch(text):
        raise RequestError(
            f"{text!r} is not a request id: 1 to 1024 printable ASCII characters, without "
            "spaces and ~"
        )


def read_body(app: App | None, calls: Sequence[Call[Any]]) -> bytes:
    """Return the body of `POST /read`: MessagePack if the application is known, else JSON.

    Raises:
        RequestError: A call is wrong, and nothing was sent; the message has its position.
    """
    encoded = []
    for index, call in enumerate(calls):
        try:
            encoded.append(_plain_read(call) if app is None else _typed_read(app, call))
        except RequestError as error:
            raise RequestError(f"call {index}: {error}") from error
    return (
        msgspec.json.encode({"calls": encoded}) if app is None else msgspec.msgpack.encode(encoded)
    )


def _typed_read(app: App, call: Call[Any]) -> msgspec.Raw:
    return msgspec.Raw(encode_request(readable(app, call)))


def _plain_read(call: Call[Any]) -> dict[str, Any]:
    key, content = _plain(call)
    fields = {"entity": call.entity, "key": key, "method": call.method}
    return fields | {"arguments": msgspec.Raw(content)}


def read_answers(
    app: App | None, calls: Sequence[Call[Any]], response: HttpResponse
) -> list[tuple[Any, PenstockError | None]]:
    """Return the value or the error of each call of a `POST /read`.

    Args:
        app: The application, if the client knows it.
        calls: The calls.
        response: The response.

    Raises:
        PenstockError: The response describes an error of the whole request.
    """
    if app is None:
        answers = value_of(response, dict[str, Any])["answers"]
        return [
            (None, raised_by(Failure(error["code"], error["kind"], error["message"])))
            if (error := answer.get("error"))
            else (answer["value"], None)
            for answer in answers
        ]
    outcomes: list[tuple[str | None, bytes]] = value_of(response, list[tuple[str | None, bytes]])
    return [
        _typed_answer(app, call, response, *outcome)
        for call, outcome in zip(calls, outcomes, strict=True)
    ]


def _typed_answer(
    app: App, call: Call[Any], response: HttpResponse, error: str | None, data: bytes
) -> tuple[Any, PenstockError | None]:
    status = 200 if error is None else 400
    try:
        own_response = HttpResponse(status, response.headers, data)
        return value_of(own_response, returns_of(app, call)), None
    except PenstockError as raised:
        return None, raised


def key_text(app: App | None, entity: str, key: object) -> str:
    """Return the text of an entity's key.

    Raises:
        RequestError: The application has no such class, or the class cannot have such a key.
    """
    try:
        if app is None:
            return encode_key(key, type(key))
        return app.readable_request(entity, key, "exists", (), {})[0].key or ""
    except Unencodable as error:
        raise RequestError(f"{entity}: {error}") from error


def path_of(*segments: str) -> str:
    """Return a path; slashes, dots and the like inside segments are escaped."""
    return "".join(f"/{_segment(segment)}" for segment in segments)


def _segment(text: str) -> str:
    if text in (".", ".."):  # else they would be steps along the path
        return text.replace(".", "%2E")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise RequestError(f"{text!r} cannot be sent: {error}") from error


def _typed(app: App, call: Call[Any]) -> tuple[str | None, bytes]:
    """Return the key's text and the arguments or events, checked by the application."""
    request = readable(app, call)
    if call.stream is not None:
        return None, bytes(request.positional)
    return request.key, msgspec.msgpack.encode((request.positional, request.named))


def _plain(call: Call[Any]) -> tuple[str | None, bytes]:
    """Return the key's text and the arguments or events as JSON; the gateway checks them."""
    label = f"{call.entity}.{call.method}" if call.entity else call.method
    label = label if call.stream is None else f"stream {call.stream}"
    if call.positional and call.named:
        raise RequestError(
            f"{label}: give all arguments by position, or all by name; "
            "a client that knows the application takes both"
        )
    try:
        arguments = lower_reply(dict(call.named) if call.named else list(call.positional))
        content = json_bytes(encode_json, arguments)
    except (Unencodable, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{label}: {error}") from error
    if call.entity and call.key is None and call.method not in CREATIONS:
        raise RequestError(f"{label} needs a key")
    if call.key is None or call.stream is not None:
        return None, content
    return key_text(None, call.entity, call.key), content


def decode_msgpack(data: bytes | msgspec.Raw, annotation: Any) -> Any:
    """Return the value of a type that MessagePack holds."""
    return decode_stored(data, annotation)


def value_of(response: HttpResponse, returns: Any = Any) -> Any:
    """Return the value that a response holds, as the type `returns`.

    Raises:
        PenstockError: The response describes an error.
    """
    if response.status != 200:
        raise error_of(response)
    decode = decode_msgpack if is_msgpack(response) else decode_json
    try:
        return decode(response.content, returns)
    except msgspec.ValidationError as error:
        raise unfit_result(error, returns) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OperationalError(
            f"the response cannot be read: {error}; {_shown(response)}"
        ) from error


def error_of(response: HttpResponse) -> PenstockError:
    """Return the error that a response describes, as the class of its code."""
    try:
        if is_msgpack(response):
            return raised_by(decode_failure(response.content))
        body = decode_error(response.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        body = None
    if body is None:
        return _foreign(response, f"this is not a response of a gateway: {_shown(response)}")
    from_gateway = EPOCH.lower() in response.headers  # its code may be the application's
    if body.code in BY_CODE or from_gateway:
        error = raised_by(Failure(body.code, body.kind, body.message))
        if isinstance(error, OperationalError):
            error.retry_after_s = retry_after_s(response)
        if isinstance(error, Gone):
            oldest = response.headers.get(OLDEST_ATOM.lower(), "")
            error.oldest = int(oldest) if oldest.isdecimal() else -1
        return error
    of_http = body.kind == "Refused"  # a path, a verb or a header that the gateway refuses
    return _foreign(response, body.message if of_http else f"{body.message} [{body.code}]")


def is_msgpack(response: HttpResponse) -> bool:
    """Say whether a response is MessagePack."""
    return media_type_of(response.headers.get("content-type", "")) == MSGPACK


def _foreign(response: HttpResponse, message: str) -> PenstockError:
    """Return an error for a code that Penstock does not have: a proxy's or another server's."""
    return OperationalError(message) if response.status >= 500 else RequestError(message)


def _shown(response: HttpResponse) -> str:
    """Show the beginning of a response that is not understood, and its redirect."""
    place = response.headers.get("location", "")
    where = f", which points to {place}" if place else ""
    begin = response.content[:_SHOWN_MAX].decode(errors="replace")
    return f"status {response.status}{where}, {begin!r}"
