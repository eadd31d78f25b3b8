"""The tailing process: follows the journal as any other process would, and takes the time.

A reply counts from when this process has read its row. Reading two columns of each epoch is cheap
on purpose: the process shares the machine with what it measures.
"""

import signal
import time
from pathlib import Path
from typing import Final

import numpy as np

from penstock.base.ids import BEFORE_FIRST, LogPartition
from penstock.cli.bench.board import Board
from penstock.cli.bench.options import Options
from penstock.cli.bench.workload import application_of
from penstock.journal.api import Commit, PartKind
from penstock.journal.delta import DeltaJournal

POLL_S: Final = 0.02
WAIT_MS: Final = 200
ONLY: Final = LogPartition(0)


def tail(options: Options, data: Path, board: Board, outcome: Path) -> None:
    """Run the whole process; leaves a row for each epoch in `outcome` (an npz file).

    A row: epoch, when it was readable in monotonic nanoseconds, the log position after it, how
    many replies it had and how many of them were errors.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while not board["go"] and not board.orphaned:
        time.sleep(POLL_S)
    app, _ = application_of(options)
    journal = DeltaJournal(data / "journal", app.name)
    rows: list[tuple[int, int, int, int, int]] = []
    epoch = BEFORE_FIRST
    window = _Window(options, board)
    while not board.orphaned:
        commit = journal.wait(epoch, WAIT_MS)
        if commit is None:
            if board["drained"]:
                break
            continue
        epoch = commit.epoch
        row = _look(journal, commit)
        rows.append(row)
        window.pass_by(row)
    journal.close()
    np.savez(outcome, rows=np.array(rows, np.int64).reshape(-1, 5))


def _look(journal: DeltaJournal, commit: Commit) -> tuple[int, int, int, int, int]:
    replies = failures = 0
    for part in commit.parts_of(PartKind.TRANSACTIONS):
        rows = journal.read(part, ("lsn", "error"))
        replies += rows.num_rows
        failures += rows.num_rows - rows.column("error").null_count
    readable_ns = time.monotonic_ns()
    return commit.epoch, readable_ns, commit.positions[ONLY], replies, failures


class _Window:
    """Opens and closes the measured window, always at the end of an epoch."""

    def __init__(self, options: Options, board: Board) -> None:
        self._options = options
        self._board = board

    def pass_by(self, row: tuple[int, int, int, int, int]) -> None:
        """Look at an epoch and tell the others."""
        _, now_ns, end, _, failures = row
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
