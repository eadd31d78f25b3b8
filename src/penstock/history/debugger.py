"""A debugger inside the handler of one recorded request, with the state of that time.

The earlier requests of the epoch are executed first. Then the request stops at the first line of its
handler. Limits do not apply to it; calls to the outside are refused as usual.
"""

import inspect
import pdb
import sys
from types import CodeType, FrameType
from typing import Any

from penstock.engine.execute import Limits, Outcome
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader, position_of
from penstock.history.rerun import Rerun
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.request import decode_request


def debug_request(
    history: HistoryReader, versions: CodeVersions, request_id: str, limits: Limits
) -> Outcome:
    """Replay up to a request, stop inside its handler, and return its outcome."""
    epoch = history.find(request_id)
    recorded = history.epoch(epoch)
    position = position_of(recorded, request_id)
    row = recorded.rows[position]
    version = versions.at(epoch)
    with version.active():
        stopper = _Stopper(_handler_code(version.app, row.body))
        rerun = Rerun(version.app, history.state_before(epoch), limits, history.secret)
        rerun.begin(recorded)
        rerun.run_all(recorded.rows[:position])
        sys.settrace(stopper)
        try:
            return rerun.run_unlimited(row)
        finally:
            sys.settrace(None)


def _handler_code(app: App, body: bytes) -> CodeType:
    request = decode_request(body)
    signature = app.signature(request.entity, request.method)
    function: Any = signature.function
    if request.method in CREATIONS and request.entity:
        entity = app.entity(request.entity)
        function = entity.initializer if entity.runs_initializer(request.method) else function
    function = inspect.unwrap(getattr(function, "__func__", function))
    code: CodeType = function.__code__
    return code


class _Stopper:
    """A trace function that starts the debugger in the first frame that executes `code`."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._debugger = pdb.Pdb(nosigint=True)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "call" or frame.f_code is not self._code:
            return None
        self._debugger.set_trace(frame)
        return self._debugger.trace_dispatch
