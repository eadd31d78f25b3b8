"""One benchmark run: Spark's driver in this process, clients in two others, then the audit.

Promises that what it returns was measured between the ends of two epochs, both readable by another
process, and that children and driver are gone when it returns or raises. The runtime is given, so
that tests run the same code without Spark.
"""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.audit import Findings, audit
from benchmarks.harness.board import Board
from benchmarks.harness.feed import feed
from benchmarks.harness.options import Options
from benchmarks.harness.serial import differences, serial_rate
from benchmarks.harness.tail import tail
from benchmarks.harness.workload import application_of, loading_count
from penstock.base.ids import Epoch, Lsn
from penstock.errors import EpochFailed, TimedOut
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport

LOOK_S: Final = 0.1
SILENCE_MAX_S: Final = 120
RECENT: Final = 20
DRAIN_MS: Final = 120_000


class Driver(Protocol):
    """What the measurement needs of a runtime; `SparkRuntime` is one."""

    @property
    def on_epoch(self) -> list[Callable[[EpochReport], None]]:
        """Called with the report of each committed epoch."""

    def start(self) -> None:
        """Return when requests are processed."""

    def wait_until(self, lsn: Lsn, timeout_ms: int) -> bool:
        """Wait until everything below a position is committed; False when time is up."""

    def check(self) -> None:
        """Raise what made it give up, if it did."""

    def stop(self) -> None:
        """Commit what runs, and end."""


Start = Callable[[str, Config], Driver]
"""Makes a driver of an application's spec."""


class Watcher(Protocol):
    """Is told how a run goes; see `progress`."""

    def stage(self, text: str, total: int) -> None:
        """A stage begins, of so many steps."""

    def at(self, done: int, text: str = "") -> None:
        """So much of the stage is done."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that a run has found.

    Attributes:
        rows: For each epoch: number, decoded at (ns), log position after it, replies, errors, and
            replies that are neither an error nor the success of their request.
        opens, closes: Index into `rows` of the epochs at whose ends the window begins and ends.
        latencies_ms: The time until the reply of every request of the window was decoded, in log order.
        accepted_ms: The time until the append of every request of the window had returned, in log order.
        epochs: The driver's reports of the window's epochs.
        findings: Of the audit, with the oracle's differences where those were asked for.
        serial_per_s: Requests a second of the serial oracle.
        counting_us: Processor time for each reply that reading and decoding it took.
    """

    rows: NDArray[np.int64]
    opens: int
    closes: int
    latencies_ms: NDArray[np.float64]
    accepted_ms: NDArray[np.float64]
    epochs: list[EpochReport]
    findings: Findings
    serial_per_s: float
    counting_us: float

    @property
    def window_s(self) -> float:
        """Length of the measured window."""
        return float(self.rows[self.closes, 1] - self.rows[self.opens, 1]) / 1e9

    @property
    def succeeded(self) -> int:
        """Requests of the window whose reply was decoded and is their success."""
        inside = self.rows[self.opens + 1 : self.closes + 1]
        return int((inside[:, 3] - inside[:, 4] - inside[:, 5]).sum())

    @property
    def aborted(self) -> int:
        """Requests of the window whose reply is an error."""
        return int(self.rows[self.opens + 1 : self.closes + 1, 4].sum())


@dataclass(frozen=True, slots=True)
class _Clocked:
    """What the three processes have clocked: see `Measured.rows` and `feed`."""

    rows: NDArray[np.int64]
    counting_s: float
    sent_ns: NDArray[np.int64]
    accepted_ns: NDArray[np.int64]
    reports: list[EpochReport]


def measure(options: Options, config: Config, start: Start, watcher: Watcher) -> Measured:
    """Run a benchmark in the empty data directory that `config` names.

    Raises:
        EpochFailed: A process of the benchmark died, or the driver gave up.
        TimedOut: Nothing was committed for two minutes.
    """
    reports: list[EpochReport] = []
    context = multiprocessing.get_context("spawn")
    board = Board(context)
    times, rows = config.data / "times.npz", config.data / "rows.npz"
    arguments = (options, config.data, board)
    with (
        _child(context.Process(target=feed, args=(*arguments, times))) as feeding,
        _child(context.Process(target=tail, args=(*arguments, rows))) as tailing,
    ):
        watcher.stage("starting Spark", 0)
        driver = start(application_of(options)[1], config)
        driver.on_epoch.append(reports.append)
        driver.start()
        try:
            board["go"] = 1
            _Follower(options, board, [feeding, tailing], watcher, driver.check).follow()
            if not driver.wait_until(Lsn(board["appended"]), DRAIN_MS):
                raise TimedOut(f"what was sent is not committed after {DRAIN_MS} ms")
            board["drained"] = 1
            feeding.join()
            tailing.join()
        finally:
            driver.stop()
    with np.load(rows) as counted, np.load(times) as sent:
        clocked = _Clocked(
            counted["rows"],
            float(counted["cpu_s"]),
            sent["times_ns"],
            sent["accepted_ns"],
            reports,
        )
    return _conclude(options, config.data, clocked, watcher)


@contextmanager
def _child(process: SpawnProcess) -> Iterator[SpawnProcess]:
    process.daemon = True
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join()
        process.close()


class _Follower:
    """Shows how it goes until everything was sent, and notices when it does not go."""

    def __init__(
        self,
        options: Options,
        board: Board,
        children: list[SpawnProcess],
        watcher: Watcher,
        check_driver: Callable[[], None],
    ) -> None:
        self._check_driver = check_driver
        self._options = options
        self._board = board
        self._children = children
        self._watcher = watcher
        self._committed = -1
        self._changed_ns = time.monotonic_ns()
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT)
        self._entities_each = (
            0.0  # the mean number of entities that a request of the loading creates
        )

    def follow(self) -> None:
        """Return when the feeding process has sent everything."""
        options, board = self._options, self._board
        loading = loading_count(options)
        text = f"loading {options.entities:,} entities"
        self._entities_each = options.entities / loading
        self._stage(text, loading, lambda: board["committed"], lambda: board["committed"])
        self._entities_each = 0.0
        warm_up = options.warm_up
        self._stage(
            "warming up",
            warm_up,
            lambda: board["committed"] - loading,
            lambda: warm_up if board["began_ns"] or board["fed"] else 0,
        )
        total = options.requests or int(options.seconds * 10)
        self._stage("measuring", total, self._measured, lambda: total if board["fed"] else 0)

    def _measured(self) -> int:
        options, board = self._options, self._board
        if options.requests:
            return board["committed"] - loading_count(options) - options.warm_up
        return (time.monotonic_ns() - board["began_ns"]) // 100_000_000

    def _stage(
        self, text: str, total: int, done: Callable[[], int], reached: Callable[[], int]
    ) -> None:
        self._watcher.stage(text, total)
        while reached() < total:
            self._check()
            self._watcher.at(max(0, min(done(), total)), self._text())
            time.sleep(LOOK_S)
        self._watcher.at(total, self._text())

    def _check(self) -> None:
        self._check_driver()
        for child in self._children:
            if child.exitcode not in (None, 0):
                raise EpochFailed(f"a process of the benchmark ended with {child.exitcode}")
        now_ns, board = time.monotonic_ns(), self._board
        committed = board["committed"]
        if committed != self._committed or board["appended"] == committed:
            self._committed, self._changed_ns = committed, now_ns
        elif now_ns - self._changed_ns > SILENCE_MAX_S * 1_000_000_000:
            raise TimedOut(f"nothing was committed for {SILENCE_MAX_S} s")

    def _text(self) -> str:
        board = self._board
        self._recent.append((time.monotonic_ns(), board["committed"]))
        (before_ns, before), (now_ns, now) = self._recent[0], self._recent[-1]
        rate = (now - before) * 1e9 / max(now_ns - before_ns, 1)
        if self._entities_each:
            loaded = round(now * self._entities_each)
            return f"{rate * self._entities_each:,.0f} entities/s, {loaded:,} loaded"
        waiting = max(board["appended"] - now, 0)
        return f"{rate:,.0f} requests/s, {waiting:,} waiting, {board['failed']:,} aborted"


def _conclude(options: Options, data: Path, clocked: _Clocked, watcher: Watcher) -> Measured:
    """Cut the window, audit the journal, and run the oracle."""
    rows = clocked.rows
    loading = loading_count(options)
    opens, closes = _window(options, rows)
    watcher.stage("reading the journal: is everything conserved?", len(rows))
    findings = audit(
        options,
        data,
        acknowledged=Lsn(loading + len(clocked.sent_ns)),
        window_opens=Epoch(int(rows[opens, 0])),
        progress=watcher.at,
    )
    if wrong := int(rows[:, 5].sum()):
        findings.complaints.append(
            f"{wrong} replies are no success of a {options.kind}, nor errors"
        )
    watcher.stage("the same requests, one by one in memory", 0)
    serial_per_s = serial_rate(options, findings)
    if options.check_oracle:
        watcher.stage("comparing everything with the serial oracle", 0)
        findings.complaints += differences(options, data, findings)
    first, last = int(rows[opens, 2]), int(rows[closes, 2])
    answered_ns = np.repeat(rows[opens + 1 : closes + 1, 1], np.diff(rows[opens : closes + 1, 2]))
    window = slice(first - loading, last - loading)
    sent_ns = clocked.sent_ns[window]
    inside = range(int(rows[opens, 0]) + 1, int(rows[closes, 0]) + 1)
    return Measured(
        rows=rows,
        opens=opens,
        closes=closes,
        latencies_ms=(answered_ns - sent_ns) / 1e6,
        accepted_ms=(clocked.accepted_ns[window] - sent_ns) / 1e6,
        epochs=[one for one in clocked.reports if one.epoch in inside],
        findings=findings,
        serial_per_s=serial_per_s,
        counting_us=clocked.counting_s / max(int(rows[:, 3].sum()), 1) * 1e6,
    )


def _window(options: Options, rows: NDArray[np.int64]) -> tuple[int, int]:
    """Return the epochs at whose ends the window begins and ends, as `tail` saw them.

    It begins when the warm-up is committed; too short a run is measured from the end of loading.
    """
    ends, last = rows[:, 2], len(rows) - 1
    loading = loading_count(options)
    opens = int(np.searchsorted(ends, loading + options.warm_up))
    if opens >= last:
        opens = int(np.searchsorted(ends, loading))
    if options.requests:
        return opens, last
    over = np.flatnonzero(rows[:, 1] - rows[opens, 1] >= options.seconds * 1e9)
    return opens, int(over[0]) if len(over) else last
