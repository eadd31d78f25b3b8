"""`PipelinedRequest`: one request of a pipelined connection, until its answer is known."""

import math
import time
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.base.http import RETRIABLE, STATUS
from penstock.base.ids import BEFORE_FIRST, Lsn
from penstock.base.pipeline import Answer
from penstock.errors import OperationalError, PenstockError
from penstock.gateway.errors import RETRY_AFTER_S, HttpError, failure_of
from penstock.model.reply import Reply
from penstock.model.request import encode_failure

_LATE: Final = 504


class PipelinedRequest:
    """A request that a connection has received; it waits for its reply as a future does.

    Attributes:
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

    def accept(self, _lsn: Lsn) -> None:
        """Note that the request is durable."""
        if self._accepted is not None and not self._done:
            self._accepted(self.request_id)

    def set_result(self, reply: Reply) -> None:
        """Answer with the recorded reply."""
        status = 200 if reply.error is None else STATUS.get(reply.error, 400)
        self._settle(Answer(self.request_id, status, reply.epoch, msgspec.Raw(reply.data)))

    def set_exception(self, error: PenstockError | HttpError) -> None:
        """Answer with an error of the gateway."""
        status = error.status if isinstance(error, HttpError) else STATUS[error.code]
        data = msgspec.Raw(encode_failure(failure_of(error)))
        self._settle(
            Answer(self.request_id, status, BEFORE_FIRST, data, _retry_after_s(error, status))
        )

    def _settle(self, answer: Answer) -> None:
        if not self._done:
            self._done = True
            self._settled(self, answer, time.perf_counter() - self._began_s)


def _retry_after_s(error: PenstockError | HttpError, status: int) -> float:
    if isinstance(error, HttpError) or (status not in RETRIABLE and status != _LATE):
        return 0.0
    if isinstance(error, OperationalError) and error.retry_after_s > 0:
        return math.ceil(error.retry_after_s * 1_000) / 1_000
    return float(RETRY_AFTER_S.get(error.code, 1))
