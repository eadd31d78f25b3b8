"""`PipelinedRequest`: one request of a pipelined connection, until its answer is known."""

import math
import time
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.base.http import RETRIABLE, STATUS
from penstock.base.ids import BEFORE_FIRST
from penstock.base.pipeline import Answer
from penstock.errors import IntegrityError, OperationalError, PenstockError
from penstock.gateway.errors import MESSAGE_MAX, RETRY_AFTER_S, HttpError
from penstock.model.reply import Reply

_LATE: Final = 504
_encode: Final = msgspec.msgpack.Encoder().encode


class PipelinedRequest:
    """A request that a connection has received; it waits for its reply as a future does.

    Attributes:
        request_id: The id as the client knows it.
        body: The body, as in the log.
    """

    __slots__ = ("_accepted", "_began_s", "_done", "_settled", "body", "request_id")

    def __init__(
        self,
        request_id: str,
        body: msgspec.Raw,
        settled: Callable[["PipelinedRequest", Answer, float], None],
        accepted: Callable[[str], None] | None = None,
    ) -> None:
        """Begin to wait.

        Args:
            request_id: The id as the client knows it.
            body: The body, as in the log.
            settled: It gets this request, its answer, and the seconds that it took; once.
            accepted: It gets the id when the request is durable, unless the answer is known before; None if the client
                does not ask for it.
        """
        self.request_id = request_id
        self.body = body
        self._settled = settled
        self._accepted = accepted
        self._began_s = time.perf_counter()
        self._done = False

    def done(self) -> bool:
        """Say whether the answer is known."""
        return self._done

    def accept(self) -> None:
        """Note that the request is durable."""
        if self._accepted is not None and not self._done:
            self._accepted(self.request_id)

    def set_result(self, reply: Reply) -> None:
        """Answer with the recorded reply."""
        status = 200 if reply.error is None else STATUS.get(reply.error, 400)
        self._settle(Answer(self.request_id, status, reply.epoch, msgspec.Raw(reply.data)))

    def set_exception(self, error: PenstockError | HttpError) -> None:
        """Answer with an error of the gateway."""
        status, retry_after_s, data = _described(error)
        self._settle(
            Answer(self.request_id, status, BEFORE_FIRST, msgspec.Raw(data), retry_after_s)
        )

    def fail(self) -> None:
        """Answer that the gateway failed; its log has the error."""
        error = HttpError(500, "gateway-failed", "the gateway failed; its log has the error")
        self.set_exception(error)

    def _settle(self, answer: Answer) -> None:
        if not self._done:
            self._done = True
            self._settled(self, answer, time.perf_counter() - self._began_s)


def _described(error: PenstockError | HttpError) -> tuple[int, float, bytes]:
    """Return the status of an error, the seconds before a repetition, and code, class and message."""
    message = str(error)
    if isinstance(error, HttpError):
        return error.status, 0.0, _encode((error.code, "Refused", message))
    if isinstance(error, IntegrityError):
        message = "stored data is damaged; the gateway's log names it"
    if len(message) > MESSAGE_MAX:
        message = f"{message[:MESSAGE_MAX]} …"
    status = STATUS[error.code]
    data = _encode((error.code, error.kind or type(error).__name__, message))
    return status, _retry_after_s(error, status), data


def _retry_after_s(error: PenstockError, status: int) -> float:
    if status not in RETRIABLE and status != _LATE:
        return 0.0
    if isinstance(error, OperationalError) and error.retry_after_s > 0:
        return math.ceil(error.retry_after_s * 1_000) / 1_000
    return float(RETRY_AFTER_S.get(error.code, 1))
