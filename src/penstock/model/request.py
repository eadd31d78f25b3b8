"""Requests: calls from outside, in the form that the log stores.

The body holds the name of the method and the arguments; the log adds request id and time. Arguments
stay encoded until the signature of the method is known.
"""

from typing import Final

import msgspec

from penstock.base.encoder import Encoder
from penstock.errors import RecordTooLarge, RequestError


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call, or an append to a stream.

    `entity` is empty for a function, and `key` is None if a creation derives it. In an append, `entity` is empty and
    `key` is the name of the stream; `positional` are the events. `named` has the arguments by name, and under `NAMES` the
    list of the parameters that the first arguments by position belong to; it is absent in requests of earlier versions.
    """

    entity: str
    key: str | None
    method: str
    positional: msgspec.Raw
    named: msgspec.Raw

    @property
    def stream(self) -> str | None:
        """The stream of an append; None for a call."""
        return None if self.entity else self.key


RECORD_BYTES_MAX: Final = 1 << 20
"""The default of the setting `record_bytes_max`."""

_FIVE_ELEMENTS: Final = b"\x95"
_SIX_ELEMENTS: Final = b"\x96"
_SEVEN_ELEMENTS: Final = b"\x97"
_EIGHT_ELEMENTS: Final = b"\x98"
_CANCELLED: Final = frozenset({_SIX_ELEMENTS, _EIGHT_ELEMENTS})
_WITH_CALLER: Final = frozenset({_SEVEN_ELEMENTS, _EIGHT_ELEMENTS})
_LONGER: Final = _CANCELLED | _WITH_CALLER
_NIL: Final = b"\xc0"
_TRUE: Final = b"\xc3"


NAMES: Final = ""
"""The name of the list of parameters in `Request.named`; no parameter has it."""

THEN: Final = "$then"
"""The name of the method of `.then` in `Request.named` of a request for an effect; no parameter has it."""

APPEND: Final = "append"
"""The method of an append."""

CONTINUE: Final = "$continue"
"""The method of a record that continues a cascade; no function can have this name."""

_EVENTS: Final = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_DECODER: Final = msgspec.msgpack.Decoder(Request)
_ELEMENTS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ENCODER: Final = Encoder()


def check_size(body: bytes, most: int, request_id: str = "") -> None:
    """Check that the body of a request is not longer than the setting `record_bytes_max` allows.

    Args:
        request_id: The id of the request, for the message, if it has one already.

    Raises:
        RecordTooLarge: It is longer.
    """
    if len(body) > most:
        name = f"request {request_id!r}" if request_id else "the request"
        raise RecordTooLarge(f"{name} takes {len(body)} bytes, more than record_bytes_max = {most}")


def encode_request(request: Request) -> bytes:
    """Return the body of a log entry."""
    return _ENCODER.encode(request)


def decode_request(body: bytes) -> Request:
    """Read a log entry's body.

    Raises:
        RequestError: The body is not a request.
    """
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise RequestError(f"the body is not a request: {error}") from error


def cancelled_body(body: bytes) -> bytes:
    """Return the body of the same request with a mark: it was cancelled, and must not run.

    The mark is a further element of the array, the sixth or the eighth. `decode_request` ignores it and returns the call.
    """
    assert not is_cancelled(body), "only a request without the mark is cancelled"
    head = _EIGHT_ELEMENTS if body[:1] == _SEVEN_ELEMENTS else _SIX_ELEMENTS
    return b"".join((head, body[1:], _TRUE))


def is_cancelled(body: bytes) -> bool:
    """Say whether a log entry's body has the mark of `cancelled_body`."""
    return body[:1] in _CANCELLED


def uncancelled_body(body: bytes) -> bytes:
    """Return the body that `cancelled_body` was given; a body without the mark as it is."""
    if not is_cancelled(body):
        return body
    head = _SEVEN_ELEMENTS if body[:1] == _EIGHT_ELEMENTS else _FIVE_ELEMENTS
    return b"".join((head, body[1 : -len(_TRUE)]))


def with_caller(body: bytes, rights: bytes) -> bytes:
    """Return the body of the same request with the rights of its caller, as `model.principal` encodes them.

    They are the seventh element of the array, after an empty one. `decode_request` ignores it and returns the call.
    """
    assert body[:1] == _FIVE_ELEMENTS, "a gateway has just encoded the call"
    return b"".join((_SEVEN_ELEMENTS, body[1:], _NIL, rights)) if rights else body


def rights_in(body: bytes) -> bytes:
    """Return the rights that `with_caller` has added to the body of a log entry; empty without them, or if it is no request."""
    if body[:1] not in _WITH_CALLER:
        return b""
    try:
        return bytes(_ELEMENTS.decode(body)[6])
    except (msgspec.MsgspecError, IndexError):  # the transaction reads the body next, and fails
        return b""


def call_in(body: bytes) -> bytes:
    """Return the call alone: the body of a log entry without the rights of its caller and without `cancelled_body`'s mark.

    Two requests with one id are the same request if their calls are equal. The id names the principal, so the rest of
    the caller is what a key or a token may do at the moment, which changes between a request and its repetition.
    """
    if body[:1] not in _LONGER:
        return body
    try:
        return b"".join((_FIVE_ELEMENTS, *_ELEMENTS.decode(body)[:5]))
    except (msgspec.MsgspecError, RecursionError):
        # Nothing that a gateway has encoded: it does so with more frames on the stack than this has, so it fails first.
        return body


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """The place at which a cascade was cut; it is in the body of the record that continues the cascade.

    So the log says where each cascade was cut, and every other run cuts it there, too.

    Attributes:
        requests: The number of its requests that ran before the cut; None if no request was left.
        steps: The number of its workflow steps that ran before the cut; None if no step was left.
    """

    requests: int | None = None
    steps: int | None = None


_CONTINUATION_HEAD: Final = b"\xa0\xc0" + _ENCODER.encode(CONTINUE)
_CUTS: Final = msgspec.msgpack.Decoder(Cut)
_NO_NAMES: Final = msgspec.Raw(b"\x80")
NOT_CUT: Final = Cut()


def packed_append(stream: str, events: bytes) -> bytes:
    """Return the body of an append to a stream; `events` is a MessagePack array of them."""
    return encode_request(Request("", stream, APPEND, msgspec.Raw(events), msgspec.Raw(b"\x80")))


def encode_continuation(cut: Cut = NOT_CUT) -> bytes:
    """Return the body of a record that continues earlier work, such as a cascade which was cut."""
    positional = b"\x90" if cut == NOT_CUT else _ENCODER.encode(cut)
    return encode_request(Request("", None, CONTINUE, msgspec.Raw(positional), _NO_NAMES))


def is_continuation(body: bytes) -> bool:
    """Say whether a record continues earlier work, also if it was cancelled meanwhile."""
    return body.startswith(_CONTINUATION_HEAD, 1) and body[:1] in (_FIVE_ELEMENTS, _SIX_ELEMENTS)


def cut_of(body: bytes) -> Cut:
    """Return the place at which a cascade was cut, from the body of the record that continues it.

    It is `NOT_CUT` for other records, and for those that an earlier Penstock has appended.
    """
    return _CUTS.decode(decode_request(body).positional) if is_continuation(body) else NOT_CUT


def append_events(request: Request) -> list[bytes]:
    """Return the encoded events of an append."""
    try:
        return [*map(bytes, _EVENTS.decode(request.positional))]
    except msgspec.MsgspecError as error:
        raise RequestError(f"the body is not an append: {error}") from error


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """The error of an undone transaction: its stable code, the name of its class, its message."""

    code: str
    kind: str
    message: str


_FAILURES: Final = msgspec.msgpack.Decoder(Failure)


def encode_failure(failure: Failure) -> bytes:
    """Return the data of a reply that reports a failure."""
    return _ENCODER.encode(failure)


def decode_failure(data: bytes) -> Failure:
    """Read the data of a reply that reports a failure."""
    return _FAILURES.decode(data)
