"""The companion of a replay: a second process that runs every second turn of a span at the same time.

A replay stops at the first difference, so the journal has the state before each epoch that a replay reaches. The
companion is a fork of the process that replays. It adds the recorded changes of the other turns to its state, runs the
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
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from struct import Struct
from typing import IO, Final, NoReturn

import psutil

from penstock.base.ids import Epoch
from penstock.history.reader import HistoryReader
from penstock.history.span_replay import SpanReplay, Tally
from penstock.history.turns import Turns, is_worth_sharing
from penstock.journal.api import Commit
from penstock.process.child_process import ChildProcess, start

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
        first: The first epoch of the span.
        last: Its last epoch.
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
