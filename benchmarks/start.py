"""The start: how long from `penstock run` to the first reply, and which step takes how long.

    python -m benchmarks.start [--runs N] [--other CHECKOUT]

Starts an application with an empty data directory, sends it a request as soon as its gateway accepts
connections, and stops it; once without a class archive and once with it, in turns, after a start that
is not counted. With `--other`, the turns are between this checkout and another one, both with an
archive. Prints one JSON object: for each of the two the median seconds until the gateway accepts
connections (`gateway_s`) and until the first reply (`reply_s`), the processor time of all processes
until then (`cpu_s`), and the seconds of each step of the driver; and the median of the ratios of
`reply_s`, first to second.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import psutil

from benchmarks.harness.ports import free_port
from benchmarks.machine import TOP, machine
from penstock.process.startup import step_of

HOST: Final = "127.0.0.1"
LOOK_S: Final = 0.02
TIMEOUT_S: Final = 300.0

Run = dict[str, float]


def main() -> None:
    """Start the application in turns, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--other", type=Path)
    chosen = parser.parse_args()
    if chosen.other is None:
        turns = {"without_archive": (TOP, 0), "with_archive": (TOP, 1)}
    else:
        turns = {"other": (chosen.other.resolve(), 1), "this": (TOP, 1)}
    runs: dict[str, list[Run]] = {name: [] for name in turns}
    for number in range(chosen.runs + 1):
        for name, (checkout, archive) in turns.items():
            run = measured(checkout, archive)
            if number:
                runs[name].append(run)
    first, second = runs.values()
    ratios = [a["reply_s"] / b["reply_s"] for a, b in zip(first, second, strict=True)]
    figures = {name: summary(found) for name, found in runs.items()}
    where = machine(Path(tempfile.gettempdir()))
    print(json.dumps({"machine": where, **figures, "ratio": round(median(ratios), 2)}))


def measured(checkout: Path, archive: int) -> Run:
    """Start the application once; return its figures."""
    with tempfile.TemporaryDirectory(prefix="penstock-start-") as folder:
        data, port = Path(folder) / "data", free_port(HOST)
        began = time.perf_counter()
        with (
            running(checkout, data, port, archive) as process,
            ThreadPoolExecutor(1) as thread,
        ):
            reply = thread.submit(first_reply, port, began)
            steps = Steps(data)
            while not reply.done():
                if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                    raise SystemExit(f"penstock run in {checkout} has ended")
                steps.look()
                time.sleep(LOOK_S)
            gateway_s, reply_s = reply.result()
            cpu_s = processor_s(process)
        figures = {"gateway_s": gateway_s, "reply_s": reply_s, "cpu_s": cpu_s}
        return figures | {f"step_s: {name}": spent for name, spent in steps.spent_s.items()}


class Steps:
    """The seconds that the driver spends in each step of its start."""

    def __init__(self, data: Path) -> None:
        """Follow the driver of a data directory."""
        self.spent_s: dict[str, float] = {}
        self._data = data
        self._at = time.perf_counter()

    def look(self) -> None:
        """Count the time since the last look for the present step."""
        now = time.perf_counter()
        if step := step_of(self._data, "driver"):
            self.spent_s[step] = self.spent_s.get(step, 0.0) + now - self._at
        self._at = now


def first_reply(port: int, began: float) -> tuple[float, float]:
    """Return the seconds until the gateway accepts connections, and until the first reply."""
    while time.perf_counter() - began < TIMEOUT_S:
        with suppress(OSError), socket.create_connection((HOST, port)):
            break
        time.sleep(LOOK_S)
    gateway_s = time.perf_counter() - began
    answer = httpx.post(
        f"http://{HOST}:{port}/call/Item/i1/create", json={"price": 3}, timeout=TIMEOUT_S
    )
    answer.raise_for_status()
    return gateway_s, time.perf_counter() - began


def processor_s(process: psutil.Process) -> float:
    """Return the processor time of a process and of those below it, also of those that ended."""
    spent = 0.0
    for one in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            times = one.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def summary(runs: list[Run]) -> Run:
    """Return the median of each figure."""
    names = {name: None for run in runs for name in run}
    return {name: round(median(run.get(name, 0.0) for run in runs), 2) for name in names}


@contextmanager
def running(
    checkout: Path, data: Path, port: int, archive: int, *options: str
) -> Iterator[psutil.Process]:
    """Run the application, with further options, while the block runs."""
    words = ["run", "examples/shop", "--port", str(port), "--data", str(data), *options]
    if not archive:
        words += ["--set", "class_archive=0"]
    with in_foreground(checkout, *words) as process:
        yield process


@contextmanager
def in_foreground(checkout: Path, *words: str) -> Iterator[psutil.Process]:
    """Run a command of `penstock` of a checkout while the block runs; then end it as Ctrl-C does."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "penstock", *words],
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        cwd=checkout,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


if __name__ == "__main__":
    main()
