"""Reruns: recorded requests executed again, within their limits and without calls to the outside.

All commands that look at history run handlers here. A request that calls the outside is undone, and
its outcome is a failure that names the call.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple

from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Limits, Outcome
from penstock.engine.failure import DECIDED
from penstock.engine.replay import (
    RecordedEpoch,
    ReplayDifference,
    Replayer,
    RequestRow,
    first_difference,
    first_differing_cascade,
    first_differing_reply,
)
from penstock.engine.streams.waiting import Place
from penstock.engine.tracing import RequestTrace, trace
from penstock.errors import Erased
from penstock.history.sandbox import OutsideCall, Sandbox
from penstock.model.application import App
from penstock.model.catch_up import recorded_cut
from penstock.model.control import is_control
from penstock.model.request import NOT_CUT, Cut, Failure, encode_failure
from penstock.process.guard import CHECK_EVERY, Guard, TamperedWith

REFUSED: Final = "outside-call"
"""The error code of a rerun request that called the outside; no journal has it."""

SHOWN_MAX: Final = 100
"""How many refused calls are shown."""


class ComparedEpoch(NamedTuple):
    """An epoch that has run again and was compared with the recorded epoch.

    Attributes:
        outcomes: The outcomes of its requests; None means that the recorded outcome is used.
        difference: The first difference; None if the epoch is as recorded.
        is_exact: Whether it has no difference, and the state after it is byte for byte as recorded.
    """

    outcomes: list[Outcome | None]
    difference: ReplayDifference | None
    is_exact: bool


class Rerun:
    """Executes requests again over a state of its own.

    Attributes:
        replayer: Executes the requests and holds the state.
        refused: By request id, the first call to the outside, in the order of execution.
        requests: How many requests `run_all` has executed.
        skipped: How many it has not executed, because they had exceeded a limit; control records do not count.
        erased: How many epochs were taken as recorded, because a request or an event concerns an erased person.

    Args:
        state: All entities before the first request; the rerun changes this mapping.
        secret: The journal's secret, from which `random()` and `uuid()` are derived.
    """

    def __init__(
        self, app: App, state: dict[EntityKey, bytes], limits: Limits, secret: bytes
    ) -> None:
        self._app = app
        self._limits = limits
        self._secret = secret
        self.replayer = self._replayer(state)
        self._sandbox = Sandbox(self.replayer.executor)
        self.refused: Mapping[RequestId, OutsideCall] = self._sandbox.refused
        self.requests = self.skipped = self.erased = 0

    def run_all(self, rows: Sequence[RequestRow]) -> list[Outcome | None]:
        """Execute requests in order; the outcome of a skipped request is None."""
        cascades = self.replayer.cascades
        begun, met, known = dict(self.replayer.written), cascades.personal.met, set(self.refused)
        try:
            outcomes = self._run_all(rows, batched=True)
        except TamperedWith:
            # A handler has changed names or settings of the process. The requests run again, with a new `replayer` that
            # looks at these after each transaction, so that no other transaction meets the change. They meet the
            # same calls, which would be listed twice.
            self._sandbox.forget([name for name in self.refused if name not in known])
            self.replayer = self._replayer(self.replayer.state)
            self.replayer.written.update(begun)
            self.replayer.cascades.decided = cascades.decided
            self.replayer.cascades.cuts = cascades.cuts
            self.replayer.cascades.personal.met = met
            self._sandbox.executor = self.replayer.executor
            outcomes = self._run_all(rows, batched=False)
        skipped = outcomes.count(None)
        self.requests += len(outcomes) - skipped
        self.skipped += skipped - sum(is_control(row.body) for row in rows)
        if not self.refused:
            return outcomes
        return [
            None if outcome is None else self._checked(row, outcome)
            for row, outcome in zip(rows, outcomes, strict=True)
        ]

    def _run_all(self, rows: Sequence[RequestRow], *, batched: bool) -> list[Outcome | None]:
        every = CHECK_EVERY if batched else 1
        with (
            Guard(self.replayer.executor, self._limits, batched=batched, every=every) as guard,
            self._sandbox as sandbox,
        ):
            return self.replayer.run_all(sandbox.each(guard.each(rows)))

    def _replayer(self, state: dict[EntityKey, bytes]) -> Replayer:
        replayer = Replayer(self._app, state, self._limits)
        replayer.executor.secret = self._secret
        return replayer

    def compare(self, recorded: RecordedEpoch) -> ComparedEpoch:
        """Execute an epoch, and compare it with the recorded epoch; `replayer.finish` must follow."""
        self.begin(recorded)
        outcomes = self.run_all(recorded.rows)
        if self.follows(recorded, outcomes):
            return ComparedEpoch(outcomes, None, is_exact=True)
        is_exact = (
            self.replayer.written == recorded.changes
            and first_differing_reply(recorded, outcomes) is None
            and first_differing_cascade(self.replayer, recorded) is None
        )
        difference = None if is_exact else first_difference(self.replayer, recorded, outcomes)
        return ComparedEpoch(outcomes, difference, is_exact)

    def follows(self, recorded: RecordedEpoch, outcomes: Sequence[Outcome | None]) -> bool:
        """Take over an epoch that concerns an erased subject as it is recorded; return whether it does.

        Its requests or its events cannot be read, so it cannot run again, and there is nothing to compare.
        """
        if not self.meets_erased(outcomes):
            return False
        self.erased += 1
        self.take_recorded(recorded)
        return True

    def take_recorded(self, recorded: RecordedEpoch) -> None:
        """Take the recorded changes of an epoch in place of those that have been computed."""
        self.replayer.written.clear()
        # A control record runs no handler, and the first epoch of a scratch journal is the state
        # before it.
        self.replayer.take(recorded.changes)

    def meets_erased(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Say whether requests or events that have run concern an erased subject; their outcomes cannot be computed."""
        sent = (request.outcome for run in self.replayer.ran if run for request in run.completed)
        failures = (None if outcome is None else outcome.error for outcome in chain(outcomes, sent))
        return self.replayer.cascades.personal.met or Erased.code in failures

    def begin(self, recorded: RecordedEpoch, *, other_code: bool = False) -> None:
        """Take over what an epoch does not compute.

        These are the outcomes of sent requests and workflow steps that exceeded a limit, the changes of the first
        epoch of a scratch journal, which has no requests, and the changes of a control record, which is an epoch of
        its own.

        Args:
            recorded: The epoch, whose records run next.
            other_code: Whether other code runs, so that all requests and steps run again.
        """
        self.replayer.cascades.personal.met = False
        self.replayer.cascades.decided = {} if other_code else _decided(recorded)
        self.replayer.cascades.cuts = _cuts(recorded)
        is_foundation = recorded.epoch == 0 and not recorded.rows
        if is_foundation or any(is_control(row.body) for row in recorded.rows[:1]):
            self.replayer.take(recorded.changes)

    def broken_waits(self, most: int) -> list[tuple[Place, str]]:
        """Try at most so many handlers that wait; return those that cannot go on: the task and the key, and why."""
        with Guard(self.replayer.executor, self._limits), self._sandbox:
            return list(self.replayer.cascades.broken_waits(most))

    def run_unlimited(self, row: RequestRow) -> Outcome:
        """Execute one request without a time limit."""
        with self._sandbox as sandbox:
            (outcome,) = map(self.replayer.run, sandbox.each([row]))
        return self._checked(row, outcome)

    def trace(self, row: RequestRow, clock: Callable[[], float]) -> RequestTrace:
        """Execute one request and record its calls; `clock` returns seconds."""
        with Guard(self.replayer.executor, self._limits), self._sandbox as sandbox:
            (traced,) = (
                trace(self._app, self.replayer, traced_row, clock)
                for traced_row in sandbox.each([row])
            )
        return replace(traced, outcome=self._checked(row, traced.outcome))

    def trace_recorded(self, row: RequestRow) -> RequestTrace:
        """Take over the recorded outcome of a request that does not run again, and run its cascade."""
        steps = self.replayer.cascades.observe()
        self.replayer.run_all([row])
        self.replayer.cascades.steps = None
        recorded = Outcome(row.error, row.reply, (), {})
        return RequestTrace(recorded, None, {}, self.replayer.cascade, steps)

    def _checked(self, row: RequestRow, outcome: Outcome) -> Outcome:
        """Return a failure if the request has called the outside, else its outcome."""
        call = self.refused.get(row.request_id)
        if call is None:
            return outcome
        failure = Failure(REFUSED, "OutsideCall", f"{call.text}; a rerun refuses such calls")
        return Outcome(REFUSED, encode_failure(failure), outcome.reads, {})


def _decided(recorded: RecordedEpoch) -> dict[RequestId, Outcome]:
    """Return the outcomes of sent requests and workflow steps that do not run again, by their ids."""
    return {
        request_id: Outcome(error, reply, (), {})
        for cascade in recorded.cascades.values()
        for request_id, _, error, reply in cascade.sent
        if error in DECIDED
    }


def _cuts(recorded: RecordedEpoch) -> dict[RequestId, Cut]:
    """Return where cascades were cut, by the id of the record that continues each."""
    return {
        later.request_id: cut
        for cascade in recorded.cascades.values()
        for later in cascade.later
        if (cut := recorded_cut(later.body)) != NOT_CUT
    }


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Exclude all present objects from garbage collections, because a large state slows them."""
    # Frozen objects are never collected, so the garbage goes first.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def outside_calls_json(refused: Mapping[RequestId, OutsideCall]) -> list[dict[str, Any]]:
    """Return the first refused calls as JSON objects."""
    return [
        {"request_id": request_id, "what": call.what, "where": call.where}
        for request_id, call in list(refused.items())[:SHOWN_MAX]
    ]
