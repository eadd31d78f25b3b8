"""Calls as HTTP questions, and answers as values and errors.

With an application, arguments and results travel as MessagePack and keep their types; without one,
as JSON. Promises that what is wrong with a call is said before anything is sent, and that an answer
which cannot be understood is an error, never a wrong value.
"""

import re
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.base.http import (
    DERIVED_KEY,
    EPOCH,
    IDEMPOTENCY_KEY,
    JSON,
    MSGPACK,
    decode_error,
    media_type_of,
)
from penstock.base.lowering import lower_reply
from penstock.base.schema import decode_reference, encode_key, refuse
from penstock.client.operation import HttpRequest, HttpResponse
from penstock.errors import BY_CODE, OperationalError, PenstockError, RequestError, Unencodable
from penstock.model.application import App
from penstock.model.call import Call
from penstock.model.declaration import CREATIONS
from penstock.model.reply import raised_by
from penstock.model.request import decode_failure, decode_request

_REQUEST_ID: Final = re.compile(r"[\x21-\x7d]{1,1024}")
_TOLD_MAX: Final = 200


def request_of(app: App | None, call: Call[Any], request_id: str, place: str) -> HttpRequest:
    """Return the question that `POST /call` or `POST /send` asks.

    Raises:
        RequestError: There is no such thing to call, the arguments do not fit, or the request id
            cannot be one.
    """
    if not _REQUEST_ID.fullmatch(request_id):
        raise RequestError(
            f"{request_id!r} is no request id: 1 to 1024 printable ASCII characters, no spaces, no ~"
        )
    kind = JSON if app is None else MSGPACK
    key, content = _plain(call) if app is None else _typed(app, call)
    segments = [place, call.method]
    if call.entity:
        if key == DERIVED_KEY and call.method in CREATIONS:
            raise RequestError(
                f"{call.entity}: {DERIVED_KEY!r} has a key derived, and cannot be one"
            )
        segments = [place, call.entity, DERIVED_KEY if key is None else key, call.method]
    headers = {"Content-Type": kind, "Accept": kind, IDEMPOTENCY_KEY: request_id}
    return HttpRequest("POST", path_of(*segments), headers, content, request_id)


def key_text(app: App | None, entity: str, key: object) -> str:
    """Return the text of an entity's key.

    Raises:
        RequestError: There is no such class, or it cannot have such a key.
    """
    try:
        if app is None:
            return encode_key(key, type(key))
        request = app.request(entity, key, "exists")[0]
        return decode_request(request).key or ""
    except Unencodable as error:
        raise RequestError(f"{entity}: {error}") from error


def path_of(*segments: str) -> str:
    """Return a path; what segments hold of slashes, dots and the like is escaped."""
    return "".join(f"/{_segment(one)}" for one in segments)


def _segment(text: str) -> str:
    if text in (".", ".."):  # which would otherwise be steps along the path
        return text.replace(".", "%2E")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise RequestError(f"{text!r} cannot be sent: {error}") from error


def _typed(app: App, call: Call[Any]) -> tuple[str | None, bytes]:
    """Return the key's text and the arguments, checked by the application."""
    body, _ = app.request(call.entity, call.key, call.method, call.positional, call.named)
    request = decode_request(body)
    return request.key, msgspec.msgpack.encode((request.positional, request.named))


def _plain(call: Call[Any]) -> tuple[str | None, bytes]:
    """Return the key's text and the arguments as JSON, checked by nobody here."""
    label = f"{call.entity}.{call.method}" if call.entity else call.method
    if call.positional and call.named:
        raise RequestError(
            f"{label}: give all arguments by position, or all by name; "
            "a client that knows the application takes both"
        )
    try:
        arguments = lower_reply(dict(call.named) if call.named else list(call.positional))
        content = msgspec.json.encode(arguments, enc_hook=refuse)
    except (Unencodable, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{label}: {error}") from error
    if call.entity and call.key is None and call.method not in CREATIONS:
        raise RequestError(f"{label} needs a key")
    key = None if call.key is None else key_text(None, call.entity, call.key)
    return key, content


def value_of(answer: HttpResponse, returns: Any = Any) -> Any:
    """Return the value that an answer holds, as `returns` says.

    Raises:
        PenstockError: It tells of an error.
    """
    if answer.status != 200:
        raise error_of(answer)
    decode = msgspec.msgpack.decode if is_msgpack(answer) else msgspec.json.decode
    try:
        return decode(answer.content, type=returns, dec_hook=decode_reference)
    except msgspec.ValidationError as error:
        raise Unencodable(f"the result is not what was declared: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise OperationalError(f"the answer cannot be read: {error}; {_shown(answer)}") from error


def error_of(answer: HttpResponse) -> PenstockError:
    """Return the error that an answer tells of, with the class of its code."""
    try:
        if is_msgpack(answer):
            told = decode_failure(answer.content)
            return raised_by(told.code, told.kind, told.message)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _foreign(answer, f"this is no answer of a gateway: {_shown(answer)}")
    body = decode_error(answer.content)
    if body is None:
        return _foreign(answer, f"this is no answer of a gateway: {_shown(answer)}")
    if (
        body.code in BY_CODE or EPOCH.lower() in answer.headers
    ):  # a reply; a code may be the application's
        return raised_by(body.code, body.kind, body.message)
    return _foreign(answer, f"{body.message} [{body.code}]")


def is_msgpack(answer: HttpResponse) -> bool:
    """Say whether an answer is MessagePack."""
    return media_type_of(answer.headers.get("content-type", "")) == MSGPACK


def _foreign(answer: HttpResponse, message: str) -> PenstockError:
    """Return an error for what the tree has no code for: HTTP's own, or another server's."""
    return OperationalError(message) if answer.status >= 500 else RequestError(message)


def _shown(answer: HttpResponse) -> str:
    """Show the beginning of an answer that is not understood, and where it points to."""
    place = answer.headers.get("location", "")
    where = f", which points to {place}" if place else ""
    begin = answer.content[:_TOLD_MAX].decode(errors="replace")
    return f"status {answer.status}{where}, {begin!r}"
