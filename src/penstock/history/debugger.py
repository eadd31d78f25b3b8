"""A debugger inside one request's handler, with the state of the moment when it ran.

Requests before it in its epoch run as they ran; this one stops at the first line of its handler.
Limits do not hold while a person looks; what reaches outside is refused all the same.
"""

import inspect
import pdb
import sys
from types import CodeType, FrameType
from typing import Any

from penstock.engine.execute import Limits, Outcome
from penstock.history.reader import HistoryReader, position_of
from penstock.history.rerun import Rerun
from penstock.model.application import App
from penstock.model.declaration import CREATIONS
from penstock.model.request import decode_request


def debug_request(past: HistoryReader, app: App, request_id: str, limits: Limits) -> Outcome:
    """Replay up to a request, stop inside its handler, and return how it came out afterwards.

    Raises:
        RequestError: No epoch holds the request, or it calls nothing that could be stopped in.
        Corrupt: The journal is damaged.
    """
    epoch = past.find(request_id)
    recorded = past.epoch(epoch)
    position = position_of(recorded, request_id)
    row = recorded.rows[position]
    code = code_of(app, row.body)
    rerun = Rerun(app, past.state_before(epoch), limits, past.secret)
    rerun.run_all(recorded.rows[:position])
    stopper = _Stopper(code)
    sys.settrace(stopper)
    try:
        return rerun.run_unlimited(row)
    finally:
        sys.settrace(None)


def code_of(app: App, body: bytes) -> CodeType:
    """Return the code of the handler that a request calls.

    Raises:
        RequestError: There is none.
    """
    request = decode_request(body)
    signature = app.signature(request.entity, request.method)
    function: Any = signature.function
    if request.entity and request.method in CREATIONS:
        function = app.entities[request.entity].initializer or function
    function = inspect.unwrap(getattr(function, "__func__", function))
    code: CodeType = function.__code__
    return code


class _Stopper:
    """A trace function that starts the debugger in the first frame of some code."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._debugger = pdb.Pdb(nosigint=True)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "call" or frame.f_code is not self._code:
            return None
        self._debugger.set_trace(frame)
        return self._debugger.trace_dispatch
