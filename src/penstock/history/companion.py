"""The companion of a replay: a second process that runs every second turn of a span at the same time.

A replay stops at the first difference, so the journal has the state before each epoch that a replay reaches. The
companion is a fork of the process that replays. The division of the span depends on the commits alone (`Turns`), so both
processes find the same one. The companion adds the recorded changes of the other turns to its state, runs the
epochs of its own turns, and sends a proof for each of them that is byte for byte as recorded. It ends at the first
epoch without a proof: one that differs or is damaged, or whose handler has ended the process. The replay runs such an
epoch itself, and all epochs behind it. So each difference and each error comes from the process that replays, with the
same text as without a companion.

A companion needs a second processor, and memory for another copy of the state. If it does not work, the replay goes
on without it.
"""

import gc
import os
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from struct import Struct
from typing import IO, Final, NamedTuple, NoReturn

import psutil

from penstock.base.ids import EntityKey, Epoch
from penstock.engine.execute import Limits
from penstock.engine.replay import RecordedEpoch, apply_changes
from penstock.history.reader import HistoryReader
from penstock.history.rerun import ComparedEpoch, Rerun
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
    """The replay's handle of its companion, which may not exist."""

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
                span.take(history.changes(commit))
                continue
            compared, tally = span.run(history.recorded(commit))
            if not compared.is_exact:
                break
            span.finish()
            os.write(target, _PROOF.pack(commit.epoch, *tally))
    finally:
        os._exit(0)  # silently, also after an error: the replay meets it, too, and shows it
