"""The requests and answers of a pipeline: calls as bodies for the log, and answers as values and errors."""

from typing import Any, Final

import msgspec

from penstock.base.http import STATUS
from penstock.base.lowering import lower_reply
from penstock.base.pipeline import Answer
from penstock.base.schema import refuse
from penstock.client.encoding import key_text, require_request_id
from penstock.client.pipeline_link import error_from
from penstock.errors import PenstockError, RequestError, Unencodable
from penstock.model.application import App
from penstock.model.call import Call, readable
from penstock.model.declaration import CREATIONS
from penstock.model.reply import decode_result, raised_by
from penstock.model.request import Failure, Request, encode_request

_OK: Final = 200
_FAILURES: Final = msgspec.msgpack.Decoder(Failure)


def body_of(app: App | None, call: Call[Any], request_id: str) -> bytes:
    """Return the body of a request, as in the log; nothing is encrypted, which is the gateway's work.

    Args:
        app: The application, if the client knows it; else the gateway checks the arguments.
        call: The call or the append.
        request_id: The id of the request.

    Raises:
        RequestError: The application has no such class, method or stream, the arguments or events do not
            fit, or the request id has a wrong form.
    """
    require_request_id(request_id)
    if app is not None:
        return encode_request(readable(app, call))
    label = f"{call.entity}.{call.method}" if call.entity else call.method
    if call.entity and call.key is None and call.method not in CREATIONS:
        raise RequestError(f"{label} needs a key")
    try:
        positional = _packed(list(call.positional))
        named = _packed(dict(call.named))
    except (Unencodable, TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{label}: {error}") from error
    key = call.stream
    if call.entity and call.key is not None:
        key = key_text(None, call.entity, call.key)
    return encode_request(Request(call.entity, key, call.method, positional, named))


def value_in(answer: Answer | PenstockError, returns: Any) -> Any:
    """Return the value of an answer, as the type `returns`.

    Raises:
        PenstockError: The answer is an error.
    """
    if isinstance(answer, PenstockError):
        raise answer
    if answer.status == _OK:
        return decode_result(bytes(answer.data), returns)
    failure = _FAILURES.decode(answer.data)
    if answer.epoch < 0 and failure.code not in STATUS:
        raise error_from(answer.status, failure.code, failure.message)
    raise raised_by(failure)


def _packed(arguments: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(lower_reply(arguments), enc_hook=refuse))
