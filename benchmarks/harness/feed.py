"""The feeding process: appends the workload to the log, as clients would.

It fills the application. Then it sends requests as fast as replies come, with a bounded backlog, or on
a fixed schedule that does not depend on replies. Every append is durable when it returns. The time of
a request is taken before its append; on a schedule it is the time at which the request was due, so that
a stalled system does not hide its own latency ("coordinated omission").
"""

import signal
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.board import Board
from benchmarks.harness.options import Options
from benchmarks.harness.workload import Encoded, Workload, workload_of
from penstock.base.ids import Lsn, RequestId
from penstock.errors import Diverged
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog
from penstock.process.data_directory import DataDirectory

CHUNK: Final = 2_500
LOADING_BACKLOG: Final = 60
LOADING_CHUNK: Final = 10
TICK_S: Final = 0.005
POLL_S: Final = 0.001


def feed(options: Options, data: Path, board: Board, outcome: Path) -> None:
    """Run the whole process; the times of all requests are left in `outcome`, an npz file.

    Args:
        options: The options of the run.
        data: Its data directory.
        board: The numbers that the processes share.
        outcome: The file for `times_ns` and `accepted_ns`: int64 arrays with a time for each request, in log order.
            A request is accepted when its append has returned, so that it is durable.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    workload = workload_of(options)
    board["loading"] = len(workload.loading)
    board["prepared"] = 1
    if not _wait(board, "go", 1):
        return
    log = DataDirectory(data).open_log()
    try:
        feeder = _Feeder(options, workload, log, board)
        feeder.load()
        if options.rate:
            feeder.on_schedule()
        else:
            feeder.with_backlog()
    finally:
        log.close()
    times_ns, accepted_ns = feeder.times_ns()
    np.savez(outcome, times_ns=times_ns, accepted_ns=accepted_ns)
    board["fed"] = 1


class _Feeder:
    """Appends requests, and remembers their times."""

    def __init__(self, options: Options, workload: Workload, log: SqliteLog, board: Board) -> None:
        self._options = options
        self._workload = workload
        self._log = log
        self._board = board
        self._sent = 0
        self._end = 0
        self._times: list[tuple[int, int, int]] = []  # sent, accepted, how many requests

    def load(self) -> None:
        """Fill the application and wait until all of it is committed."""
        requests = self._workload.loading
        for first in range(0, len(requests), LOADING_CHUNK):
            self._wait_for_backlog(LOADING_BACKLOG)
            some = requests[first : first + LOADING_CHUNK]
            self._append([f"load-{first + index}" for index in range(len(some))], some)
        _wait(self._board, "committed", self._end)

    def with_backlog(self) -> None:
        """Send as fast as replies come."""
        while (size := self._left(CHUNK)) and not self._stopped:
            self._wait_for_backlog(self._options.backlog)
            self._send(size)

    def on_schedule(self) -> None:
        """Send the requests that are due, every few milliseconds."""
        rate = self._options.rate
        began_ns = time.monotonic_ns()
        while self._left(1) and not self._stopped:
            due = (time.monotonic_ns() - began_ns) * rate // 1_000_000_000
            while (size := self._left(min(due - self._sent, CHUNK))) > 0:
                first = self._sent
                self._send(size)
                _, accepted_ns, _ = self._times.pop()
                self._times += [
                    (began_ns + number * 1_000_000_000 // rate, accepted_ns, 1)
                    for number in range(first, first + size)
                ]
            time.sleep(TICK_S)

    def times_ns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return when each request after loading was sent and accepted, in order: int64, in nanoseconds."""
        sent, accepted, counts = np.array(self._times, np.int64).reshape(-1, 3).T
        return np.repeat(sent, counts), np.repeat(accepted, counts)

    @property
    def _stopped(self) -> bool:
        return self._board["ended_ns"] > 0 or self._board.orphaned

    def _left(self, wanted: int) -> int:
        """Return how many of `wanted` requests may still be sent."""
        if not self._options.requests:
            return wanted
        return min(wanted, self._options.warm_up + self._options.requests - self._sent)

    def _wait_for_backlog(self, most: int) -> None:
        while self._end - self._board["committed"] >= most and not self._stopped:
            time.sleep(POLL_S)

    def _send(self, size: int) -> None:
        pool = self._workload.pool
        picked = [pool[index] for index in self._workload.draw(size).tolist()]
        ids = [f"request-{number}" for number in range(self._sent, self._sent + size)]
        sent_ns = time.monotonic_ns()
        self._append(ids, picked)
        self._times.append((sent_ns, time.monotonic_ns(), size))
        self._sent += size

    def _append(self, ids: list[str], requests: list[Encoded]) -> None:
        now_us = time.time_ns() // 1_000
        lsns = self._log.append(
            [
                Entry(RequestId(id_), body, hint, now_us)
                for id_, (body, hint) in zip(ids, requests, strict=True)
            ]
        )
        if lsns != list(range(self._end, self._end + len(ids))):
            raise Diverged(f"the log gave positions {lsns[0]} … {lsns[-1]} after {self._end}")
        self._end = Lsn(lsns[-1] + 1)
        self._board["appended"] = self._end


def _wait(board: Board, name: str, least: int) -> bool:
    """Wait until a number of the board is at least `least`; False if the parent is gone."""
    while board[name] < least:
        if board.orphaned:
            return False
        time.sleep(POLL_S)
    return True
