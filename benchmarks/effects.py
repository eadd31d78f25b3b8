"""Effects: no-op effects in a second, their delay behind the commit, and a million of them that wait.

    python -m benchmarks.effects [--count N] [--waiting N] [--part throughput|delay|waiting]

`throughput` and `delay` start an application with `penstock run`. `throughput` sends effects that do nothing, first `def` and
then `async def`, and counts the outcomes in the journal in a second. `delay` sends 500 requests in a second, each with an effect, and
takes the time from the commit of the request to the commit of the outcome. `waiting` fills the queue of the effect process with
effects that wait for a dead host, and takes the time of the fill, of the next start, and the memory. Prints one JSON object.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import httpx
import msgspec
import psutil

from benchmarks.harness.ports import free_port
from benchmarks.machine import machine
from penstock.base.ids import BEFORE_FIRST, Epoch, RequestId
from penstock.effects.queue import Queue, Status
from penstock.journal.api import PartKind
from penstock.model.request import Request
from penstock.model.waiting_effect import waiting_row
from penstock.process.data_directory import DataDirectory

APP: Final = Path(__file__).with_name("effect_app.py")
HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 300.0
IN_ONE_REQUEST: Final = 200
RATE: Final = 500
_EMPTY: Final = msgspec.Raw(b"\x90"), msgspec.Raw(b"\x80")


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--part", choices=["throughput", "delay", "waiting"])
    chosen = parser.parse_args()
    figures: dict[str, Any] = {"machine": machine(Path(tempfile.gettempdir()))}
    if chosen.part in (None, "waiting"):
        figures["waiting"] = waiting(chosen.waiting)
    if chosen.part in (None, "throughput", "delay"):
        with tempfile.TemporaryDirectory(prefix="penstock-effects-") as folder:
            data = Path(folder) / "data"
            with running(data) as client:
                if chosen.part != "delay":
                    for on_loop in (False, True):
                        name = "async_per_s" if on_loop else "def_per_s"
                        figures[name] = throughput(client, data, chosen.count, on_loop=on_loop)
                if chosen.part != "throughput":
                    for on_loop in (False, True):
                        name = "async_delay_ms" if on_loop else "def_delay_ms"
                        figures[name] = delay(client, data, on_loop=on_loop)
    print(json.dumps(figures))


@contextmanager
def running(data: Path) -> Iterator[httpx.Client]:
    """Run the application; yields a client of its gateway."""
    port = free_port(HOST)
    command = [sys.executable, "-P", "-m", "penstock", "run", str(APP), "--data", str(data)]
    process = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=TIMEOUT_S) as client:
            deadline = time.monotonic() + TIMEOUT_S
            while True:
                try:
                    client.post("/call/Sender/s/create").raise_for_status()
                    break
                except httpx.HTTPError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def throughput(client: httpx.Client, data: Path, count: int, *, on_loop: bool) -> float:
    """Return the outcomes in a second."""
    before = outcomes_since(data, BEFORE_FIRST)[0]
    began = time.perf_counter()
    for _ in range(count // IN_ONE_REQUEST):
        call(client, "send", {"count": IN_ONE_REQUEST, "on_loop": on_loop})
    wanted = before + count // IN_ONE_REQUEST * IN_ONE_REQUEST
    while outcomes_since(data, BEFORE_FIRST)[0] < wanted:
        time.sleep(0.05)
    return round(count / (time.perf_counter() - began))


def outcomes_since(data: Path, after: Epoch) -> tuple[int, dict[str, int]]:
    """Return the number of outcomes, and the commit times of all requests by their ids."""
    times: dict[str, int] = {}
    directory = DataDirectory(data)
    with closing(directory.open_journal_of("senders")) as journal:
        last = journal.last()
        assert last is not None
        commits = {commit.epoch: commit.time_us for commit in journal.commits(after)}
        for _, rows in journal.rows(
            PartKind.TRANSACTIONS, after, last.epoch, ("epoch", "request_id")
        ):
            for epoch, name in zip(
                rows["epoch"].to_pylist(), rows["request_id"].to_pylist(), strict=True
            ):
                times[name] = commits.get(epoch, 0)
    return sum(name.endswith("~~o1") for name in times), times


def delay(client: httpx.Client, data: Path, *, on_loop: bool) -> dict[str, float]:
    """Return the delays of outcomes behind the commits of their requests, in milliseconds."""
    prefix = f"delay-{on_loop}"
    began = time.perf_counter()
    count = RATE * 10
    for number in range(count):
        due = began + number / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        body = msgspec.json.encode({"on_loop": on_loop})
        headers = {"Idempotency-Key": f"{prefix}-{number}", "Content-Type": "application/json"}
        client.post("/send/Sender/s/send_told", content=body, headers=headers).raise_for_status()
    while True:
        _, times = outcomes_since(data, BEFORE_FIRST)
        ended = {name: at for name, at in times.items() if name.startswith(prefix)}
        outcomes = [name for name in ended if name.endswith("~~o1")]
        if len(outcomes) == count:
            break
        time.sleep(0.2)
    delays = sorted((ended[name] - ended[name.partition("~~")[0]]) / 1_000 for name in outcomes)
    cuts = quantiles(delays, n=100)
    return {
        "p50": round(cuts[49], 1),
        "p99": round(cuts[98], 1),
        "sent_per_s": round(count / (time.perf_counter() - began)),
    }


def call(client: httpx.Client, method: str, arguments: dict[str, Any]) -> None:
    """Call a method of the sender, and do not wait for its epoch."""
    client.post(f"/send/Sender/s/{method}", json=arguments).raise_for_status()


def waiting(count: int) -> dict[str, float]:
    """Return the time and the memory that effects take which wait for a dead host."""
    with tempfile.TemporaryDirectory(prefix="penstock-effects-") as folder:
        path = Path(folder) / "queue.sqlite"
        before = psutil.Process().memory_info().rss
        queue = Queue(path, "benchmark")
        began = time.process_time()
        for first in range(0, count, 20_000):
            queue.take((f"order-{n}~~1", row(n)) for n in range(first, first + 20_000))
            queue.commit()
        queue.reach("journal", Epoch(1))
        fill_s = time.process_time() - began
        queue.close()
        began = time.process_time()
        queue = Queue(path, "benchmark")
        start_s = time.process_time() - began
        began, turns = time.process_time(), 10_000
        for _ in range(turns):
            queued = queue.next(Status.READY, "charge")
            assert queued is not None
            queue.call(queued)
            queue.put_later(queued.key, 2**60, 0, "cut")
        queue.commit()
        turn_us = (time.process_time() - began) / turns * 1e6
        grown = psutil.Process().memory_info().rss - before
        queue.close()
        return {
            "rows": count,
            "fill_cpu_s": round(fill_s, 1),
            "start_cpu_s": round(start_s, 3),
            "turn_cpu_us": round(turn_us, 1),
            "memory_mb": round(grown / 1e6),
            "file_mb": round(path.stat().st_size / 1e6),
        }


def row(number: int) -> bytes:
    """Return the row of an effect."""
    return waiting_row(RequestId(f"order-{number}~~1"), Request("", None, "charge", *_EMPTY), 0)


if __name__ == "__main__":
    main()
