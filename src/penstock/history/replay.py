"""Replay: executes the journal's requests again, up to the first difference.

Each epoch is compared completely before the next one begins: every reply, every changed entity, and the atoms,
sent requests and later records of every cascade, as bytes. A replay writes no file, and its handlers cannot call the outside.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.deployment.loading import Location
from penstock.engine.execute import Limits, Outcome
from penstock.engine.replay import (
    RecordedEpoch,
    ReplayDifference,
    Replayer,
    ValueDifference,
    first_differing_reply,
    reply_difference,
)
from penstock.engine.request_text import call_text, handler_line, rejection_of
from penstock.engine.streams.recorded_cascade import cascade_differences
from penstock.history.cascade_trace import described
from penstock.history.code_versions import CodeVersion, CodeVersions
from penstock.history.companion import SpanReplay, Tally, companion
from penstock.history.determinism_run import result_of
from penstock.history.nondeterminism import Cause, Verdict, find_causes, suspicious_lines
from penstock.history.reader import HistoryReader
from penstock.history.rerun import Rerun, frozen_heap
from penstock.journal.api import Commit
from penstock.model.application import App

PROBED_MAX: Final = 3
"""How many requests of one epoch are examined to find the cause of a difference."""

FINDINGS_MAX: Final = 100
"""How many differences of a cascade are listed."""

DIVERGENCES_MAX: Final = 3
"""How many epochs that differ are examined and shown in full."""

Progress = Callable[[Epoch, int], None]
"""Receives each finished epoch, and the number of executed requests."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between an epoch of the journal and its replay.

    Attributes:
        epoch: The epoch that differs.
        lsn, request_id, call: The first request after which a value differs.
        handler: `file:line` of its handler.
        findings: The values that differ.
        verdict: The request that causes the difference, and why.
        deployment: The deployment whose code has run; None for the present code.
        environment: How Python and libraries differ from those of the deployment.
    """

    epoch: Epoch
    lsn: int
    request_id: str
    call: str
    handler: str
    findings: tuple[ValueDifference, ...]
    verdict: Verdict
    deployment: int | None = None
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay.

    Attributes:
        first, last: The first and the last replayed epoch.
        requests: How many requests were executed.
        skipped: How many were not executed, because they had exceeded a limit.
        erased: How many epochs were not compared, because a request concerns an erased person.
        spent_s: The time for executing, reading and comparing, without the state before `first`.
        deployments: The deployments whose code has run, in order; None stands for the present code.
        differing: How many epochs differ. After each of them, the replay goes on with the recorded state.
        divergences: The first of their differences, at most `DIVERGENCES_MAX`.
    """

    first: Epoch
    last: Epoch
    requests: int
    skipped: int
    erased: int
    spent_s: float
    deployments: tuple[int | None, ...]
    differing: int
    divergences: tuple[Divergence, ...]

    @property
    def divergence(self) -> Divergence | None:
        """The first difference; None if everything is as recorded."""
        return self.divergences[0] if self.divergences else None


def replay(
    history: HistoryReader,
    versions: CodeVersions,
    limits: Limits,
    span: tuple[Epoch, Epoch],
    progress: Progress,
) -> ReplayResult:
    """Execute the epochs of a span again, each with its code.

    Args:
        span: The first and the last epoch.
        progress: Receives each finished epoch.
    """
    first, last = span
    state = history.state_before(first)
    used: list[int | None] = []
    with frozen_heap():
        run = _Run(history, limits, progress, first)
        for version, begin, end in versions.spans(first, last):
            used.append(version.deployment)
            with version.active():
                run.replay(version, state, begin, end)
    deployments = tuple(dict.fromkeys(used))
    differing = run.differing, tuple(run.divergences)
    return ReplayResult(first, run.reached, *run.tally, run.spent_s, deployments, *differing)


class _Run:
    """Replays the epochs of each version of the code.

    Attributes:
        reached: The last epoch that was replayed.
        tally: The number of executed requests, of skipped requests, and of epochs that were not compared.
        spent_s, differing, divergences: As in `ReplayResult`.
    """

    def __init__(
        self, history: HistoryReader, limits: Limits, progress: Progress, first: Epoch
    ) -> None:
        self._history = history
        self._limits = limits
        self._progress = progress
        self._began = time.perf_counter()
        self.reached = first
        self.tally = Tally()
        self.spent_s = 0.0
        self.differing = 0
        self.divergences: list[Divergence] = []

    def replay(
        self, version: CodeVersion, state: dict[EntityKey, bytes], first: Epoch, last: Epoch
    ) -> None:
        """Replay the epochs of a version; the state follows."""
        span = SpanReplay(version.app, state, self._limits, self._history.secret)
        with companion(self._history, span, first, last) as second:
            for commit in self._history.commits(first, last):
                proven = second.proof(commit)
                if proven is None:
                    is_exact = self._epoch(version, span, commit)
                    if not is_exact:  # the state is not that of the companion
                        second.dismiss()
                else:
                    span.take(self._history.changes(commit))
                    self._note(commit.epoch, proven)
                self._progress(self.reached, self.tally.requests)

    def _epoch(self, version: CodeVersion, span: SpanReplay, commit: Commit) -> bool:
        """Replay an epoch in this process; return whether it is exactly as recorded."""
        recorded = self._history.recorded(commit)
        compared, tally = span.run(recorded)
        self._note(commit.epoch, tally)
        if compared.difference is not None:
            self.differing += 1
            if len(self.divergences) < DIVERGENCES_MAX:
                difference = compared.outcomes, compared.difference
                self.divergences.append(
                    _divergence_of(version, span.rerun, self._limits, recorded, *difference)
                )
            span.rerun.take_recorded(recorded)  # so that each difference is one of its own epoch
        span.finish()
        return compared.is_exact

    def _note(self, epoch: Epoch, tally: Tally) -> None:
        self.reached = epoch
        self.tally = self.tally.plus(tally)
        self.spent_s = time.perf_counter() - self._began


def _divergence_of(
    version: CodeVersion,
    rerun: Rerun,
    limits: Limits,
    recorded: RecordedEpoch,
    outcomes: list[Outcome | None],
    difference: ReplayDifference,
) -> Divergence:
    """Return the divergence of an epoch that differs, with its cause."""
    divergence = _known_cause(rerun, recorded, outcomes) or _find_cause(
        rerun.replayer, version.location, limits, recorded, outcomes, difference
    )
    return replace(divergence, deployment=version.deployment, environment=version.environment)


def _known_cause(
    rerun: Rerun, recorded: RecordedEpoch, outcomes: list[Outcome | None]
) -> Divergence | None:
    """Return the divergence if its cause needs no search, else None.

    The cause is known if the first request with another reply has called the outside, or calls a
    handler that the application does not have.
    """
    position = first_differing_reply(recorded, outcomes)
    if position is None:
        return None
    row, app = recorded.rows[position], rerun.replayer.app
    call, rejection = rerun.refused.get(row.request_id), rejection_of(app, row.body)
    if call is None and not rejection:
        return None
    cause, line = (Cause.CODE, rejection) if call is None else (Cause.OUTSIDE, call.text)
    findings = (reply_difference(row, outcomes[position]),)
    return _divergence(
        app, recorded, position, findings, Verdict(row.request_id, (cause,), (line,))
    )


def _find_cause(
    replayer: Replayer,
    location: Location,
    limits: Limits,
    recorded: RecordedEpoch,
    outcomes: list[Outcome | None],
    difference: ReplayDifference,
) -> Divergence:
    """Execute the suspected requests in child processes, and return the divergence."""
    app, rows = replayer.app, recorded.rows
    culprit = difference.position
    causes: tuple[Cause, ...] = (Cause.CODE,)
    for position in difference.suspects[:PROBED_MAX]:
        outcome = outcomes[position]
        if outcome is None:
            continue
        states = _states_before(replayer, outcomes, position, rows[position].request_id)
        secret = replayer.executor.secret
        result = result_of(outcome, replayer.ran[position])
        suspected = find_causes(location, rows[position], states, result, limits, secret)
        if suspected != (Cause.CODE,):
            culprit, causes = position, suspected
            break
    lines = suspicious_lines(app, rows[culprit].body, causes)
    verdict = Verdict(rows[culprit].request_id, causes, lines)
    position = difference.position
    was, now = recorded.cascade(rows[position]), replayer.ran[position]
    cascade = map(described, islice(cascade_differences(was, now, app.keys), FINDINGS_MAX))
    findings = (*difference.findings, *cascade)
    return _divergence(app, recorded, position, findings, verdict)


def _divergence(
    app: App,
    recorded: RecordedEpoch,
    position: int,
    findings: tuple[ValueDifference, ...],
    verdict: Verdict,
) -> Divergence:
    row = recorded.rows[position]
    call, handler = call_text(row.body), handler_line(app, row.body)
    return Divergence(recorded.epoch, row.lsn, row.request_id, call, handler, findings, verdict)


def _states_before(
    replayer: Replayer, outcomes: list[Outcome | None], position: int, request_id: RequestId
) -> dict[EntityKey, bytes | None]:
    """Return the entities and rows that a request and its cascade have read, as they were before it."""
    outcome = outcomes[position]
    assert outcome is not None, "the caller has looked"
    keys = dict.fromkeys([*outcome.reads, *replayer.step_reads.get(request_id, ())])
    states = {key: replayer.state.get(key) for key in keys}
    for earlier in outcomes[:position]:
        if earlier is not None:
            states.update({key: data for key, data in earlier.writes.items() if key in states})
    return states
