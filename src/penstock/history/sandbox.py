"""The sandbox of reruns: handlers that run again cannot call the outside of their process.

A handler that calls a service did so when its request was processed, and must not repeat the call in
a trace or a replay. The sandbox refuses the call, undoes the request, and keeps the first call of
each request. A handler that catches the refusal is undone, too.

CPython does not announce every call. So the sandbox does not refuse calls of C extensions (libpq,
gRPC), nor bytes sent through connections and files that were opened when the application was imported.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Final, NamedTuple, Self

from penstock.base.ids import RequestId
from penstock.deployment.loading import is_own
from penstock.engine.execute import Executor
from penstock.engine.replay import RequestRow
from penstock.history import audit_hook
from penstock.model.time_limit import Interrupted
from penstock.process.logs import mute_handlers

_NO_REQUEST: Final = RequestId("")


class OutsideCallRefused(Interrupted):
    """A handler of a rerun has called the outside; the message says how."""


class OutsideCall(NamedTuple):
    """A call that a handler was refused.

    Attributes:
        what: The call; the text continues "the handler …".
        where: `folder/file:line` of the application; empty if the call comes from no line of it.
    """

    what: str
    where: str

    @property
    def text(self) -> str:
        """The call in one sentence."""
        return f"the handler {self.what}{f' ({self.where})' if self.where else ''}"


class Sandbox:
    """Refuses calls to the outside while its block runs; it may be entered several times.

    Attributes:
        refused: By request id, the first refused call.
        executor: Runs the handlers.
    """

    def __init__(self, executor: Executor) -> None:
        self.refused: dict[RequestId, OutsideCall] = {}
        self.executor = executor
        self._running = _NO_REQUEST

    def __enter__(self) -> Self:
        self._thread = threading.current_thread()
        self._without_bytecode = sys.dont_write_bytecode
        sys.dont_write_bytecode = True  # handlers may import
        audit_hook.enter(self._refuse)
        mute_handlers(muted=True)
        return self

    def __exit__(self, *_exception: object) -> None:
        mute_handlers(muted=False)
        audit_hook.leave()
        sys.dont_write_bytecode = self._without_bytecode

    def each(self, rows: Iterable[RequestRow]) -> Iterator[RequestRow]:
        """Yield rows; the last yielded row is the running request."""
        for row in rows:
            self._running = row.request_id
            yield row

    def forget(self, request_ids: Iterable[RequestId]) -> None:
        """Forget the refused calls of requests, which will run again."""
        for request_id in request_ids:
            del self.refused[request_id]

    def _refuse(self, what: str) -> None:
        call = OutsideCall(what, _own_line())
        self.refused.setdefault(self._running, call)
        # A handler may catch the error; its transaction fails all the same.
        self.executor.interrupted = call.text
        if threading.current_thread() is self._thread:
            raise OutsideCallRefused(call.text)


def _own_line() -> str:
    """Return the innermost running line of the application in this thread."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- the only way to see them
    while frame is not None:
        name, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
        if is_own(file) and not file.startswith("<") and name.partition(".")[0] != "penstock":
            return f"{'/'.join(file.split('/')[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
