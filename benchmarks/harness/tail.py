"""The tailing process: follows the journal as any other process would, and takes the time.

A reply counts from the time at which this process has read and decoded it as a success. The process
shares the machine with Spark, so it reads only three columns of each epoch; the figures include the
processor time for this.
"""

import signal
import time
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.harness.answers import count
from benchmarks.harness.board import Board
from benchmarks.harness.options import Kind, Options
from benchmarks.harness.workload import application_of
from penstock.base.ids import BEFORE_FIRST, LogPartition
from penstock.journal.api import Commit, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.process.data_directory import DataDirectory

POLL_S: Final = 0.02
WAIT_MS: Final = 200
ONLY: Final = LogPartition(0)

Row = tuple[int, int, int, int, int, int]


def tail(options: Options, data: Path, board: Board, outcome: Path) -> None:
    """Run the whole process; leaves a row for each epoch in `outcome` (an npz file).

    A row: epoch, when its replies were decoded in monotonic nanoseconds, the log position after it,
    how many replies it had, how many of them were errors, and how many were wrong. `cpu_s` is the
    processor time that this took in all.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while not board["go"] and not board.orphaned:
        time.sleep(POLL_S)
    app, _ = application_of(options)
    journal = DataDirectory(data).open_journal_of(app.name)
    rows: list[Row] = []
    spent_s = 0.0
    epoch = BEFORE_FIRST
    window = _Window(options, board)
    while not board.orphaned:
        commit = journal.wait(epoch, WAIT_MS)
        if commit is None:
            if board["drained"]:
                break
            continue
        epoch = commit.epoch
        began_s = time.thread_time()
        row = _look(journal, commit, options.kind, board["loading"])
        spent_s += time.thread_time() - began_s
        rows.append(row)
        window.pass_by(row)
    journal.close()
    np.savez(outcome, rows=np.array(rows, np.int64).reshape(-1, 6), cpu_s=spent_s)


def _look(journal: DeltaJournal, commit: Commit, kind: Kind, loading: int) -> Row:
    replies = failures = wrong = 0
    for part in commit.parts_of(PartKind.TRANSACTIONS):
        found = count(journal.read(part, ("lsn", "error", "reply")), kind, loading)
        replies += found.replies
        failures += found.failures
        wrong += found.wrong
    decoded_ns = time.monotonic_ns()
    return commit.epoch, decoded_ns, commit.positions[ONLY], replies, failures, wrong


class _Window:
    """Opens and closes the measured window, always at the end of an epoch."""

    def __init__(self, options: Options, board: Board) -> None:
        self._options = options
        self._board = board

    def pass_by(self, row: Row) -> None:
        """Look at an epoch and tell the others."""
        _, now_ns, end, _, failures, _ = row
        board, options = self._board, self._options
        board["failed"] = board["failed"] + failures
        if board["began_ns"] == 0:
            if end >= board["loading"] + options.warm_up:
                board["began_ns"] = now_ns
        elif board["ended_ns"] == 0 and self._is_over(now_ns, end):
            board["ended_ns"] = now_ns
        board["committed"] = end

    def _is_over(self, now_ns: int, end: int) -> bool:
        options, board = self._options, self._board
        if options.requests:
            return end >= board["loading"] + options.warm_up + options.requests
        return now_ns - board["began_ns"] >= options.seconds * 1_000_000_000
