"""Replay: executes the journal's requests again, up to the first difference.

Each epoch is compared completely before the next one begins: every reply, every changed entity, and the atoms,
sent requests and later records of every cascade, as bytes. A replay writes no file, and its handlers cannot call the outside.
"""

import gc
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from struct import Struct
from typing import IO, Final, NamedTuple, NoReturn

import psutil

from penstock.base.ids import EntityKey, Epoch, RequestId
from penstock.deployment.loading import Location
from penstock.engine.execute import Limits, Outcome
from penstock.engine.replay import (
    RecordedEpoch,
    ReplayDifference,
    Replayer,
    ValueDifference,
    apply_changes,
    first_differing_reply,
    reply_difference,
)
from penstock.engine.request_text import call_text, handler_line, rejection_of
from penstock.engine.streams.recorded_cascade import cascade_differences
from penstock.history.cascade_trace import described
from penstock.history.code_versions import CodeVersion, CodeVersions
from penstock.history.determinism_run import result_of
from penstock.history.nondeterminism import Cause, Verdict, find_causes, suspicious_lines
from penstock.history.reader import HistoryReader
from penstock.history.rerun import ComparedEpoch, Rerun, frozen_heap
from penstock.journal.api import Commit, PartKind
from penstock.model.application import App
from penstock.process.child_process import ChildProcess, start

TURN_REQUESTS: Final = 2_000
"""A turn ends with the epoch that reaches this number of requests."""

SHARED_MIN: Final = 10_000
"""A span with fewer requests is run by one process."""


class Turns:
    """Says which epochs the second process runs; it is asked for each epoch of a span, in order."""

    def __init__(self) -> None:
        self._turn = 0
        self._requests = 0

    def are_second(self, commit: Commit) -> bool:
        """Say whether the second process runs the epoch of a commit, and go on behind this epoch."""
        if self._requests >= TURN_REQUESTS:
            self._turn += 1
            self._requests = 0
        self._requests += requests_of(commit)
        return self._turn % 2 == 1


def requests_of(commit: Commit) -> int:
    """Return the number of requests of an epoch."""
    return sum(part.rows for part in commit.parts_of(PartKind.TRANSACTIONS))


def is_worth_sharing(commits: Iterable[Commit]) -> bool:
    """Say whether the epochs of a span have enough requests for two processes."""
    requests = 0
    return any((requests := requests + requests_of(commit)) >= SHARED_MIN for commit in commits)


class Tally(NamedTuple):
    """How many requests were executed, how many were skipped, and how many epochs were not compared; see `Rerun`."""

    requests: int = 0
    skipped: int = 0
    erased: int = 0

    def plus(self, other: "Tally") -> "Tally":
        """Return the sum."""
        return Tally(*map(sum, zip(self, other, strict=True)))


class SpanReplay:
    """Replays epochs in order, over a state.

    Attributes:
        state: The entities before the next epoch; the replay changes this mapping.
    """

    def __init__(
        self, app: App, state: dict[EntityKey, bytes], limits: Limits, secret: bytes
    ) -> None:
        """Begin; see `Rerun`."""
        self.state = state
        self._app = app
        self._limits = limits
        self._secret = secret
        self._rerun: Rerun | None = None

    @property
    def rerun(self) -> Rerun:
        """The rerun that executes the next epoch, or has executed the last one."""
        if self._rerun is None:
            self._rerun = Rerun(self._app, self.state, self._limits, self._secret)
        return self._rerun

    def run(self, recorded: RecordedEpoch) -> tuple[ComparedEpoch, Tally]:
        """Execute an epoch and compare it; if it is as recorded, `finish` must follow."""
        rerun = self.rerun
        before = rerun.requests, rerun.skipped, rerun.erased
        compared = rerun.compare(recorded)
        after = rerun.requests, rerun.skipped, rerun.erased
        return compared, Tally(*(now - then for now, then in zip(after, before, strict=True)))

    def finish(self) -> None:
        """Add the changes of the epoch that has run to the state."""
        self.rerun.replayer.finish()

    def take(self, changes: dict[EntityKey, bytes | None]) -> None:
        """Add the recorded changes of an epoch that another process runs to the state."""
        apply_changes(self.state, changes)
        self._rerun = None


_PROOF: Final = Struct("<4q")
"""The epoch, and its tally."""

_IDLE_S: Final = 5.0
"""A companion that sends no proof for so long, and uses no processor meanwhile, is given up."""


class Companion:
    """The second process of a replay, which runs every second turn at the same time; it may not exist.

    It is a fork that adds the recorded changes of the other turns to its state, and sends a proof for
    each epoch that is byte for byte as recorded. If it does not work, the replay goes on without it.
    """

    def __init__(self, child: ChildProcess | None, source: int) -> None:
        self._child = child
        self._source = source
        self._turns = Turns()

    def proof(self, commit: Commit) -> Tally | None:
        """Wait for the proof that an epoch is as recorded; it is asked for each epoch, in order.

        Returns:
            The tally of the epoch; None if the replay must run it itself.
        """
        is_mine = self._child is not None and self._turns.are_second(commit)
        if not is_mine:
            return None
        data = self._receive()
        if len(data) == _PROOF.size:
            epoch, *tally = _PROOF.unpack(data)
            # Both processes divide the span by its commits alone, so the next proof is the one for
            # this epoch.
            if epoch == commit.epoch:
                return Tally(*tally)
        self.dismiss()
        return None

    def dismiss(self) -> None:
        """End the companion; the replay runs all further epochs itself."""
        if self._child is not None:
            self._child.end()
            self._child = None
            os.close(self._source)

    def _receive(self) -> bytes:
        assert self._child is not None, "the caller has looked"
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        busy_s = -1.0
        while not poll.poll(_IDLE_S * 1_000):
            now_s = self._child.busy_s()
            # A long epoch is no reason to give up; a process that uses no processor time hangs.
            if now_s == busy_s:
                return b""
            busy_s = now_s
        return os.read(self._source, _PROOF.size)


@contextmanager
def companion(
    history: HistoryReader, span: SpanReplay, first: Epoch, last: Epoch
) -> Iterator[Companion]:
    """Start a companion if it is worth it, and end it behind the block.

    Args:
        span: The replay, which has run no epoch.
    """
    handle = Companion(None, -1)
    if is_worth_sharing(history.commits(first, last)) and _has_room():
        handle = _started(history, span, first, last)
    try:
        yield handle
    finally:
        handle.dismiss()


def _has_room() -> bool:
    """Say whether a second processor may be used, and whether a copy of this process fits into memory."""
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    # The companion copies each page that it writes to, in the worst case the whole state.
    return processors > 1 and psutil.virtual_memory().available > psutil.Process().memory_info().rss


def _started(history: HistoryReader, span: SpanReplay, first: Epoch, last: Epoch) -> Companion:
    source, target = os.pipe()
    try:
        child = start(
            partial(_prove, history, span, (first, last), target), None, nullcontext(), [source]
        )
    except OSError:  # the system cannot create a process
        os.close(source)
        return Companion(None, -1)
    finally:
        os.close(target)
    return Companion(child, source)


def _prove(
    history: HistoryReader,
    span: SpanReplay,
    epochs: tuple[Epoch, Epoch],
    target: int,
    _unused: IO[bytes],
) -> NoReturn:
    """Run the turns of the companion, in its process, and write a proof for each epoch."""
    # Locks of the former streams may be held by threads that do not exist in this process.
    sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    gc.freeze()
    gc.enable()
    turns = Turns()
    try:
        for commit in history.commits(*epochs):
            if not turns.are_second(commit):
                # The replay stops at the first difference, so a reached epoch has the changes that
                # are recorded.
                span.take(history.changes(commit))
                continue
            compared, tally = span.run(history.recorded(commit))
            # No proof: the replay runs this epoch and all behind it, so each difference has the
            # text that it has without a companion.
            if not compared.is_exact:
                break
            span.finish()
            os.write(target, _PROOF.pack(commit.epoch, *tally))
    finally:
        os._exit(0)  # silently, also after an error: the replay meets it, too, and shows it


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
        spent_s, differing, divergences: See `ReplayResult`.
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
