"""Isolation: handlers that run to look back reach nothing outside of their process.

A handler that calls a service did so when its request was processed, and must not do so again in a
trace or a replay. Such a call is refused, the request is undone, and the first call of each request is
kept. A handler that swallows the refusal is undone all the same.

CPython does not announce every call, so these are not refused: calls by extensions in C (libpq, gRPC),
and bytes sent through a connection or a file that was opened when the application was imported.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Final, NamedTuple, Self

from penstock.base.ids import RequestId
from penstock.engine.execute import Executor
from penstock.engine.failure import Interrupted
from penstock.engine.replay import RequestRow
from penstock.history import audit_hook as hook
from penstock.process.loading import is_own

_NOBODY: Final = RequestId("")


class OutsideCallRefused(Interrupted):
    """A handler reached outside while it ran to look back; carries how."""


class OutsideCall(NamedTuple):
    """A call that a handler was refused.

    Attributes:
        what: The call, to be read after "the handler".
        where: `folder/file:line` of the application; empty if none of its lines is running.
    """

    what: str
    where: str

    @property
    def text(self) -> str:
        """It in one sentence, without the request."""
        return f"the handler {self.what}{f' ({self.where})' if self.where else ''}"


class Sandbox:
    """Refuses calls to the outside while the block runs; may be entered again.

    Attributes:
        refused: The first call that each request was refused, by its id.
    """

    def __init__(self, executor: Executor) -> None:
        """Isolate the handlers that an executor runs."""
        self.refused: dict[RequestId, OutsideCall] = {}
        self._executor = executor
        self._running = _NOBODY

    def __enter__(self) -> Self:
        self._thread = threading.current_thread()
        self._without_bytecode = sys.dont_write_bytecode
        sys.dont_write_bytecode = True  # handlers may import
        hook.enter(self._refuse)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hook.leave()
        sys.dont_write_bytecode = self._without_bytecode

    def each(self, rows: Iterable[RequestRow]) -> Iterator[RequestRow]:
        """Yield rows, and note which of them runs."""
        for row in rows:
            self._running = row.request_id
            yield row

    def _refuse(self, what: str) -> None:
        call = OutsideCall(what, _own_line())
        self.refused.setdefault(self._running, call)
        self._executor.interrupted = call.text
        if threading.current_thread() is self._thread:
            raise OutsideCallRefused(call.text)


def _own_line() -> str:
    """Return the innermost line of the application that runs in this thread."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 -- the only way to see them
    while frame is not None:
        name, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
        if is_own(file) and not file.startswith("<") and name.partition(".")[0] != "penstock":
            return f"{'/'.join(file.split('/')[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
