"""`PipelineIntake`: takes the requests of pipelined connections, frame by frame.

The requests of one frame share an append, and a refused request does not affect the others.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.base.http import RETRIABLE, STATUS
from penstock.base.ids import BEFORE_FIRST, Lsn
from penstock.base.pipeline import PIPELINE, Answer
from penstock.errors import OperationalError, PenstockError
from penstock.gateway.auth.principal import Principal
from penstock.gateway.errors import RETRY_AFTER_S, HttpError, error_of, failure_of
from penstock.gateway.intake import Admitted, Intake, require_right, target_in
from penstock.gateway.request_ids import check_chosen, check_free
from penstock.gateway.version import ServedVersion
from penstock.model.application import App
from penstock.model.reply import Reply
from penstock.model.request import decode_request, encode_failure
from penstock.process.config import GatewayConfig
from penstock.runtime.reads.arguments import (
    ArgumentSource,
    CallTarget,
    EncodedArguments,
    MsgpackArguments,
)

_LATE: Final = 504


class PipelinedRequest:
    """A request that a connection has received; it waits for its reply as a future does.

    Attributes:
        body: The body, as in the log.

    Args:
        settled: It gets this request, its answer, and the seconds that it took; once.
        accepted: It gets the id when the request is durable, unless the answer is known before; None if the client
            does not ask for it.
    """

    __slots__ = ("_accepted", "_began_s", "_done", "_settled", "body", "request_id")

    def __init__(
        self,
        request_id: str,
        body: msgspec.Raw,
        settled: Callable[["PipelinedRequest", Answer, float], None],
        accepted: Callable[[str], None] | None = None,
    ) -> None:
        self.request_id = request_id
        self.body = body
        self._settled = settled
        self._accepted = accepted
        self._began_s = time.perf_counter()
        self._done = False

    def done(self) -> bool:
        """Say whether the answer is known."""
        return self._done

    def accept(self, _lsn: Lsn) -> "PipelinedRequest":
        """Note that the request is durable; it takes the reply itself."""
        if self._accepted is not None and not self._done:
            self._accepted(self.request_id)
        return self

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


_TAKEN: Final = msgspec.Raw(b"")


class PipelineIntake:
    """Takes the requests of all pipelined connections of one gateway.

    Args:
        version: Returns the version of the application that takes new requests.
    """

    def __init__(
        self, version: Callable[[], ServedVersion], intake: Intake, settings: GatewayConfig
    ) -> None:
        self.settings = settings
        self._version = version
        self._intake = intake
        self._timeout_s = settings.reply_timeout_ms / 1_000

    async def take(self, principal: Principal, requests: Sequence[PipelinedRequest]) -> None:
        """Append requests of a principal; each of them gets its answer later.

        This returns when the requests have had their turns, which holds back a connection whose principal
        sends more than its share.
        """
        admitted: list[Admitted] = []
        try:
            for request in requests:
                try:
                    await self._admit(principal, request, admitted)
                except (Exception, SystemExit, KeyboardInterrupt) as raised:  # noqa: BLE001 -- every request gets an answer
                    request.set_exception(error_of(raised, PIPELINE))
        finally:  # the connection may end meanwhile; admitted requests outlive it
            self._append(admitted)

    async def _admit(
        self, principal: Principal, request: PipelinedRequest, admitted: list[Admitted]
    ) -> None:
        """Check a request and wait for its turn; add it to the admitted ones."""
        chosen = check_chosen(request.request_id, self.settings.key_bytes_max)
        version = self._version()
        check_free(version.app, principal, chosen)
        target, source = _call_in(version.app, request)
        require_right(principal, target)
        with version:
            encoded = await version.encoder.encoded(target, source)
        item = await self._intake.admit(
            request,
            principal,
            target,
            chosen,
            encoded,
            # If it must wait, the requests before it are appended first, because they may take the room.
            lambda: self._append(admitted),
        )
        admitted.append(item)

    def _append(self, admitted: list[Admitted]) -> None:
        """Append requests, and empty the list."""
        self._intake.append(list(admitted), self._timeout_s)
        admitted.clear()


def _call_in(app: App, request: PipelinedRequest) -> tuple[CallTarget, ArgumentSource]:
    """Return the target and the arguments of a request."""
    call = decode_request(bytes(request.body))
    request.body = _TAKEN  # a request that waits does not keep its frame
    target = target_in(app, call.entity, call.key, call.method)
    if target.stream is not None:
        return target, MsgpackArguments(bytes(call.positional))
    return target, EncodedArguments(call.positional, call.named)
