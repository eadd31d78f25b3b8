"""The messages between a gateway and its readers: encoded structs, each behind its length.

A reader first sends `Ready`. It answers an `Encoding` or an `Upcasting` with `Encoded` or `Failed`. It answers each question with `Started`, then with `Outcomes` until every
call has one. `Failed` ends a question early. A second `Started` voids the outcomes before it: the
reader has found damage and begins again at another epoch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.engine.execute import Limits
from penstock.engine.rows import RowsWanted
from penstock.model.reply import Reply
from penstock.model.request import Failure
from penstock.runtime.reads.arguments import ArgumentSource, CallTarget, SizeLimits

LENGTH_BYTES: Final = 4
_NO_REQUEST: Final = Lsn(-1)


class ReaderSettings(msgspec.Struct, frozen=True):
    """The settings that a reader gets at its start.

    Attributes:
        data: The data directory, an absolute path.
        count: The number of readers that run at a time.
        log_format: `text` or `json`.
    """

    spec: str
    data: Path
    limits: Limits
    count: int
    log_format: str
    log_level: str
    sizes: SizeLimits


class ReadCall(msgspec.Struct, frozen=True, array_like=True):
    """A call of a `@readonly` handler, or a question for rows.

    Attributes:
        request_id: The id that the handler sees; no log has it.
        body: The call, encoded as a request in the log.
        refusal: Why the call fails without a run, because it has ended readers before; empty if it runs.
        rows: A question for rows in place of a call; `body` is empty then.
    """

    request_id: RequestId
    body: bytes
    refusal: str = ""
    rows: RowsWanted | None = None


class Question(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Calls that the same state answers.

    Attributes:
        calls: The calls, in the order of their outcomes.
        is_careful: Whether each outcome is sent at once, so that a death tells which call caused it.
    """

    calls: list[ReadCall]
    is_careful: bool = False


class Encoding(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A call that the reader must encode, because this runs code of the application; it is not run."""

    target: CallTarget
    source: ArgumentSource


class Upcasting(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A row of an earlier schema version that the reader must convert, because this may run code of the application."""

    entity: str
    key: str
    row: bytes


class ReadOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of one call: `error` is None or the code of the failure, `data` the value or failure."""

    error: str | None
    data: bytes


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The reader has loaded the application and waits for questions."""


class Started(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The state is at `epoch`, and the calls run now."""

    epoch: Epoch


class Outcomes(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The outcomes of the next calls."""

    items: list[ReadOutcome]


class Encoded(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to an `Encoding`: the body and the access hint of a log entry; or the row of an `Upcasting`."""

    body: bytes
    hint: bytes = b""


class Failed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """No call has an outcome: the state could not be read, the question is too large, or a call is wrong."""

    failure: Failure


Message = Ready | Started | Outcomes | Encoded | Failed

_encoder: Final = msgspec.msgpack.Encoder()
_questions: Final = msgspec.msgpack.Decoder(Question | Encoding | Upcasting)
_messages: Final = msgspec.msgpack.Decoder(Message)
decode_question: Final[Callable[[bytes], Question | Encoding | Upcasting]] = _questions.decode
decode_message: Final[Callable[[bytes], Message]] = _messages.decode


def reply_of(epoch: Epoch, outcome: ReadOutcome) -> Reply:
    """Return an outcome as a reply without request id and without a position in the log."""
    return Reply(RequestId(""), _NO_REQUEST, epoch, outcome.error, outcome.data)


def framed(message: Message | Question | Encoding | Upcasting) -> bytes:
    """Return a message behind its length."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES) + data
