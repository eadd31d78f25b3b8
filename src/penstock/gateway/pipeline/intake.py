"""`Intake`: appends the requests of pipelined connections, and lets them wait for their replies.

A request passes the same checks as one of `POST /call`: its id, the right of its principal, its arguments,
pauses, limits and fair shares. The requests of one frame share an append, and a refused request does not
affect the others.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import ONLY_PARTITION
from penstock.errors import PenstockError, RequestError, TimedOut
from penstock.gateway.auth.principal import Principal
from penstock.gateway.call_target import flow_caller, require_right, target_in
from penstock.gateway.flow.admission import Ticket
from penstock.gateway.pipeline.pipelined_request import PipelinedRequest
from penstock.gateway.request_ids import check_chosen, check_free, stored_id
from penstock.gateway.version import ServedVersion, SharedParts
from penstock.journal.replies import LogPosition
from penstock.journal.tail import AsyncJournalTail
from penstock.log.api import Entry
from penstock.model.application import App
from penstock.model.request import decode_request
from penstock.runtime.reads.arguments import (
    ArgumentSource,
    CallTarget,
    EncodedArguments,
    MsgpackArguments,
)

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_TAKEN: Final = msgspec.Raw(b"")


class _Admitted(NamedTuple):
    """A request that may be appended now."""

    request: PipelinedRequest
    ticket: Ticket
    entry: Entry


class Intake:
    """Takes the requests of all pipelined connections of one gateway.

    Attributes:
        settings: The gateway's settings.
    """

    def __init__(self, version: Callable[[], ServedVersion], shared: SharedParts) -> None:
        """Create the intake.

        Args:
            version: Returns the version of the application that takes new requests.
            shared: The parts of the gateway that all versions use.
        """
        self.settings = shared.config.gateway
        self._version = version
        self._timeout_s = self.settings.reply_timeout_ms / 1_000
        self._admission = shared.admission
        self._batcher = shared.batcher
        self._tail = shared.tail
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def take(self, principal: Principal, requests: Sequence[PipelinedRequest]) -> None:
        """Append requests of a principal; each of them gets its answer later.

        This returns when the requests have had their turns, which holds back a connection whose principal
        sends more than its share. The append goes on in a task of its own.
        """
        admitted: list[_Admitted] = []
        try:
            for request in requests:
                await self._take(principal, request, admitted)
        finally:  # the connection may end meanwhile; admitted requests outlive it
            self._append_soon(admitted)

    async def close(self) -> None:
        """Wait for the running appends; no connection may be open."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(
        self, principal: Principal, request: PipelinedRequest, admitted: list[_Admitted]
    ) -> None:
        """Add a request to the admitted ones, or answer it with the reason against it."""
        try:
            await self._admit(principal, request, admitted)
        except PenstockError as error:
            request.set_exception(error)
        except (SystemExit, KeyboardInterrupt) as raised:  # from code of an argument's class
            name = type(raised).__name__
            refused = f"the class of an argument raised {name}, which stops nothing here"
            request.set_exception(RequestError(refused))
        except Exception:  # noqa: BLE001 -- every request gets an answer; the log has the traceback
            _log.exception("a pipelined request failed")
            request.fail()

    async def _admit(
        self, principal: Principal, request: PipelinedRequest, admitted: list[_Admitted]
    ) -> None:
        """Check a request and wait for its turn; add it to the admitted ones.

        If it must wait, those before it are appended first, because they may take the room.
        """
        chosen = check_chosen(request.request_id, self.settings.key_bytes_max)
        version = self._version()
        check_free(version.app, principal, chosen)
        target, source = _call_in(version.app, request)
        require_right(principal, target)
        with version:
            body, touches = await version.encoder.encoded(target, source)
        ticket = self._admission.begin(flow_caller(principal, target, touches))
        if self._admission.must_wait(ticket):
            self._append_soon(admitted)
            await self._admission.wait_for_turn(ticket, len(body), self._timeout_s)
        else:
            self._admission.take_turn(ticket)
        time_us = time.time_ns() // 1_000
        entry = Entry(stored_id(principal, chosen), body, touches, time_us)
        admitted.append(_Admitted(request, ticket, entry))

    def _append_soon(self, admitted: list[_Admitted]) -> None:
        """Append requests in a task, and empty the list."""
        if admitted:
            self._start(self._append(list(admitted)))
            admitted.clear()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None  # the event loop itself keeps no task alive
        task.add_done_callback(self._tasks.pop)

    async def _append(self, admitted: Sequence[_Admitted]) -> None:
        """Append admitted requests, and let those in the log wait for their replies."""
        waiting: list[tuple[LogPosition, PipelinedRequest]] = []
        try:
            outcomes = await self._batcher.append_all([item.entry for item in admitted])
        except BaseException:
            for request, ticket, _ in admitted:
                self._admission.abandon(ticket)
                request.fail()
            raise
        for (request, ticket, _), outcome in zip(admitted, outcomes, strict=True):
            if isinstance(outcome, PenstockError):
                self._admission.abandon(ticket)
                request.set_exception(outcome)
            else:
                self._admission.appended(ticket, outcome)
                request.accept()
                waiting.append(((ONLY_PARTITION, outcome), request))
        self._tail.watch(waiting)
        Deadline(self._tail, waiting, self._timeout_s).start()


class Deadline:
    """Answers the requests of one append that have no reply in time, and wakes only while some wait."""

    def __init__(
        self,
        tail: AsyncJournalTail,
        waiting: Sequence[tuple[LogPosition, PipelinedRequest]],
        timeout_s: float,
    ) -> None:
        """Take the requests.

        Args:
            tail: The tail from which the requests wait for their replies.
            waiting: The requests and their positions in the log.
            timeout_s: The longest wait.
        """
        self._tail = tail
        self._waiting = waiting
        self._timeout_s = timeout_s
        self._left_s = timeout_s

    def start(self) -> None:
        """Look at the requests from time to time, until all of them have their answers."""
        self._waiting = [pair for pair in self._waiting if not pair[1].done()]
        if self._waiting:
            pause_s = min(self._left_s, _LOOK_S)
            self._left_s -= pause_s
            asyncio.get_running_loop().call_later(pause_s, self._look)

    def _look(self) -> None:
        if self._left_s > 0:
            self.start()
            return
        late = [pair for pair in self._waiting if not pair[1].done()]
        self._tail.forget(late)
        for _, request in late:
            request.set_exception(
                TimedOut(
                    f"no reply within {self._timeout_s:g} s; the request is durable and will be "
                    "processed; send it again with the same request id"
                )
            )


def _call_in(app: App, request: PipelinedRequest) -> tuple[CallTarget, ArgumentSource]:
    """Return the target and the arguments of a request.

    Raises:
        RequestError: The body is not a request.
    """
    call = decode_request(bytes(request.body))
    request.body = _TAKEN  # a request that waits does not keep its frame
    target = target_in(app, call)
    if target.stream is not None:
        return target, MsgpackArguments(bytes(call.positional))
    return target, EncodedArguments(call.positional, call.named)
