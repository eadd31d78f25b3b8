"""A rerun: requests of the past once more, held to their limits and kept from the outside.

All commands that look back run handlers by it. A request that reaches outside is undone, and its outcome
is a failure that says so.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Limits, Outcome
from penstock.engine.replay import Replayer, RequestRow
from penstock.engine.tracing import RequestTrace, trace
from penstock.history.sandbox import OutsideCall, Sandbox
from penstock.model.application import App
from penstock.model.request import Failure, encode_failure
from penstock.process.guard import Guard

REFUSED: Final = "outside-call"
"""The code of a request that was refused a call; only the past has it."""

SHOWN_MAX: Final = 100
"""Refused calls that are shown."""


class Rerun:
    """Runs requests again over a state of its own.

    Attributes:
        replayer: Runs them.
        refused: The call that each request was refused, by its id, in the order in which they ran.
    """

    def __init__(
        self, app: App, state: dict[EntityKey, bytes], limits: Limits, secret: bytes
    ) -> None:
        """Begin.

        Args:
            app: The application.
            state: The state before; the rerun's from now on.
            limits: What a transaction may use.
            secret: The journal's.
        """
        self.replayer = Replayer(app, state, limits)
        self.replayer.executor.secret = secret
        self._app = app
        self._limits = limits
        self._isolation = Sandbox(self.replayer.executor)
        self.refused: Mapping[RequestId, OutsideCall] = self._isolation.refused

    def run_all(self, rows: Sequence[RequestRow]) -> list[Outcome | None]:
        """Process requests in order; None stands for one that is taken as recorded."""
        with Guard(self.replayer.executor, self._limits) as guard, self._isolation as isolation:
            outcomes = self.replayer.run_all(isolation.each(guard.each(rows)))
        if not self.refused:
            return outcomes
        return [
            one if one is None else self._told(row, one)
            for row, one in zip(rows, outcomes, strict=True)
        ]

    def run_unlimited(self, row: RequestRow) -> Outcome:
        """Process one request, for as long as it takes."""
        with self._isolation as isolation:
            (outcome,) = map(self.replayer.run, isolation.each([row]))
        return self._told(row, outcome)

    def trace(self, row: RequestRow, clock: Callable[[], float]) -> RequestTrace:
        """Process one request and watch it; `clock` returns seconds."""
        with Guard(self.replayer.executor, self._limits), self._isolation as isolation:
            (traced,) = (
                trace(self._app, self.replayer, one, clock) for one in isolation.each([row])
            )
        return RequestTrace(self._told(row, traced.outcome), traced.root, traced.undone)

    def _told(self, row: RequestRow, outcome: Outcome) -> Outcome:
        """Return an outcome that says so where the request was refused a call."""
        call = self.refused.get(row.request_id)
        if call is None:
            return outcome
        failure = Failure(REFUSED, "OutsideCall", f"{call.text}; looking back refuses that")
        return Outcome(REFUSED, encode_failure(failure), outcome.reads, {})


def outside_calls_json(refused: Mapping[RequestId, OutsideCall]) -> list[dict[str, Any]]:
    """Return the calls that were refused as plain data; the first ones."""
    return [
        {"request_id": request_id, "what": call.what, "where": call.where}
        for request_id, call in list(refused.items())[:SHOWN_MAX]
    ]
