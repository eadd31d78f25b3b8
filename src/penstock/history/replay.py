"""Replaying the journal in this process: its requests again, up to the first difference.

Promises that an epoch is compared whole (every reply, every entity that it changed, as bytes) before
the next one begins. Nothing is written anywhere, and no handler reaches outside.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.base.ids import EntityKey, Epoch
from penstock.engine.execute import Limits, Outcome
from penstock.engine.replay import (
    RecordedEpoch,
    ReplayDifference,
    Replayer,
    ValueDifference,
    call_text,
    first_difference,
    first_differing_reply,
    handler_line,
    rejection_of,
    reply_difference,
)
from penstock.history.nondeterminism import Cause, Verdict, find_causes, suspicious_lines
from penstock.history.reader import HistoryReader
from penstock.history.rerun import Rerun
from penstock.model.application import App

PROBED_MAX: Final = 3
"""Requests of one epoch that are run again to find out which is to blame."""

Progress = Callable[[Epoch, int], None]
"""Is told each epoch that is done, and how many requests were run until then."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between the journal and its replay.

    Attributes:
        request_id, lsn, call: The first request after which something differs.
        handler: `file:line` of what it calls.
        findings: What differs.
        verdict: What is to blame, and which request.
    """

    epoch: Epoch
    lsn: int
    request_id: str
    call: str
    handler: str
    findings: tuple[ValueDifference, ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay found.

    Attributes:
        first, last: The epochs that were replayed, both included.
        requests: How many were run; `skipped` were taken as recorded, because they had exceeded a
            limit.
        spent_s: How long running, reading and comparing took, without the state before `first`.
        divergence: None where everything is as recorded.
    """

    first: Epoch
    last: Epoch
    requests: int
    skipped: int
    spent_s: float
    divergence: Divergence | None


def replay(
    past: HistoryReader,
    app: App,
    spec: str,
    limits: Limits,
    span: tuple[Epoch, Epoch],
    told: Progress,
) -> ReplayResult:
    """Run the epochs of a span again, and stop at the first difference.

    Args:
        past: The journal.
        app: The application.
        spec: Where other processes find it, as on the command line.
        limits: What a transaction may use.
        span: First and last epoch.
        told: For progress.

    Raises:
        Corrupt: The journal is damaged.
    """
    first, last = span
    rerun = Rerun(app, past.state_before(first), limits, past.secret)
    replayer = rerun.replayer
    gc.collect()
    gc.freeze()  # a large state shall not be looked through again and again
    requests = skipped = 0
    began = time.perf_counter()
    reached, divergence, spent_s = first, None, 0.0
    try:
        for recorded in past.epochs(first, last):
            if recorded.epoch == 0 and not recorded.rows:
                replayer.take(recorded.changes)  # a state that history begins with: `scratch`
            outcomes = rerun.run_all(recorded.rows)
            untouched = outcomes.count(None)
            requests += len(outcomes) - untouched
            skipped += untouched
            reached = recorded.epoch
            difference = first_difference(replayer, recorded, outcomes)
            spent_s = time.perf_counter() - began
            if difference is not None:
                divergence = _certain(rerun, recorded, outcomes) or _explain(
                    replayer, spec, limits, recorded, outcomes, difference
                )
                break
            replayer.finish()
            told(reached, requests)
    finally:
        gc.unfreeze()
    return ReplayResult(first, reached, requests, skipped, spent_s, divergence)


def _certain(
    rerun: Rerun, recorded: RecordedEpoch, outcomes: list[Outcome | None]
) -> Divergence | None:
    """Explain a difference whose cause nobody has to look for.

    The first request whose reply differs was refused a call to the outside, or calls what the
    application does not have.
    """
    position = first_differing_reply(recorded, outcomes)
    if position is None:
        return None
    row, app = recorded.rows[position], rerun.replayer.app
    call, why = rerun.refused.get(row.request_id), rejection_of(app, row.body)
    if call is None and not why:
        return None
    cause, line = (Cause.CODE, why) if call is None else (Cause.OUTSIDE, call.text)
    return Divergence(
        recorded.epoch,
        row.lsn,
        row.request_id,
        call_text(row.body),
        handler_line(app, row.body),
        (reply_difference(row, outcomes[position]),),
        Verdict(row.request_id, (cause,), (line,)),
    )


def _explain(
    replayer: Replayer,
    spec: str,
    limits: Limits,
    recorded: RecordedEpoch,
    outcomes: list[Outcome | None],
    difference: ReplayDifference,
) -> Divergence:
    """Find out which request is to blame, and why."""
    app, rows = replayer.app, recorded.rows
    blamed = difference.position
    causes: tuple[Cause, ...] = (Cause.CODE,)
    for position in difference.suspects[:PROBED_MAX]:
        outcome = outcomes[position]
        if outcome is not None:
            states = _states_at(replayer, outcomes, position, outcome)
            found = find_causes(
                spec, rows[position], states, outcome, limits, replayer.executor.secret
            )
            if found != (Cause.CODE,):
                blamed, causes = position, found
                break
    row = rows[difference.position]
    lines = suspicious_lines(app, rows[blamed].body, causes)
    return Divergence(
        recorded.epoch,
        row.lsn,
        row.request_id,
        call_text(row.body),
        handler_line(app, row.body),
        difference.findings,
        Verdict(rows[blamed].request_id, causes, lines),
    )


def _states_at(
    replayer: Replayer, outcomes: list[Outcome | None], position: int, outcome: Outcome
) -> dict[EntityKey, bytes | None]:
    """Return what a request touched, as it was before it."""
    states = {key: replayer.state.get(key) for key in outcome.reads}
    for earlier in outcomes[:position]:
        if earlier is not None:
            states.update({key: data for key, data in earlier.writes.items() if key in states})
    return states
