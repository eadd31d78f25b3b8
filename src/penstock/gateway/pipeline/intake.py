"""`PipelineIntake`: takes the requests of pipelined connections, frame by frame.

The requests of one frame share an append, and a refused request does not affect the others.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.base.pipeline import PIPELINE
from penstock.gateway.auth.principal import Principal
from penstock.gateway.call_target import require_right, target_in
from penstock.gateway.errors import error_of
from penstock.gateway.intake import Admitted, Intake
from penstock.gateway.pipeline.pipelined_request import PipelinedRequest
from penstock.gateway.request_ids import check_chosen, check_free
from penstock.gateway.version import ServedVersion
from penstock.model.application import App
from penstock.model.request import decode_request
from penstock.process.config import GatewayConfig
from penstock.runtime.reads.arguments import (
    ArgumentSource,
    CallTarget,
    EncodedArguments,
    MsgpackArguments,
)

_TAKEN: Final = msgspec.Raw(b"")


class PipelineIntake:
    """Takes the requests of all pipelined connections of one gateway."""

    def __init__(
        self, version: Callable[[], ServedVersion], intake: Intake, settings: GatewayConfig
    ) -> None:
        """Create the intake.

        Args:
            version: Returns the version of the application that takes new requests.
        """
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
    target = target_in(app, call)
    if target.stream is not None:
        return target, MsgpackArguments(bytes(call.positional))
    return target, EncodedArguments(call.positional, call.named)
