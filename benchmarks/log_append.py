"""Measure the embedded log: bulk appends, single appends with 1, 8 and 64 threads, reads.

Prints one JSON object. Every figure is the median of `--repeat` runs; each run has a new file in
`--directory`, which should lie on the disk that matters.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.log.sqlite import SqliteLog

TOUCHES = bytes(24)
CALL_RECORDS = 10_000


def entries_of(first: int, count: int, body_bytes: int) -> list[Entry]:
    """Make entries with ids as a gateway makes them: 32 characters, all different."""
    body = bytes(body_bytes)
    return [
        Entry(RequestId(f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}"), body, TOUCHES, number)
        for number in range(first, first + count)
    ]


def bulk(path: Path, records: int, body_bytes: int) -> dict[str, float]:
    """Append in calls of 10,000 and read the last ones back."""
    log = SqliteLog(path)
    calls_ms = []
    total_s = 0.0
    for first in range(0, records, CALL_RECORDS):
        entries = entries_of(first, CALL_RECORDS, body_bytes)
        began = time.perf_counter()
        log.append(entries)
        spent = time.perf_counter() - began
        total_s += spent
        calls_ms.append(spent * 1000)
    end = log.end()
    start = Lsn(end - CALL_RECORDS)
    result = {
        "bulk_records_per_s": records / total_s,
        "bulk_call_p50_ms": median(calls_ms),
        "bulk_call_max_ms": max(calls_ms),
        "read_ms": milliseconds(lambda: log.read(start, end)),
        "touches_ms": milliseconds(lambda: log.hints(start, end)),
        "limit_ms": milliseconds(lambda: log.limit(start, CALL_RECORDS, 1 << 30)),
    }
    result["read_records_per_s"] = CALL_RECORDS / result["read_ms"] * 1000
    log.close()
    return result


def milliseconds(action: Callable[[], object]) -> float:
    """Return the median time of an action."""
    times = []
    for _ in range(15):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return median(times) * 1000


def single(path: Path, threads: int, seconds: float, body_bytes: int) -> dict[str, float]:
    """Append one record a call from several threads for some seconds."""
    log = SqliteLog(path)
    latencies: list[list[float]] = [[] for _ in range(threads)]
    stop = threading.Event()

    def work(worker: int) -> None:
        number = worker << 32
        while not stop.is_set():
            [entry] = entries_of(number, 1, body_bytes)
            began = time.perf_counter()
            log.append([entry])
            latencies[worker].append(time.perf_counter() - began)
            number += 1

    workers = [threading.Thread(target=work, args=(one,)) for one in range(threads)]
    began = time.perf_counter()
    for one in workers:
        one.start()
    stop.wait(seconds)
    stop.set()
    for one in workers:
        one.join()
    spent = time.perf_counter() - began
    log.close()
    every = sorted(one for some in latencies for one in some)
    return {
        f"single_{threads}_per_s": len(every) / spent,
        f"single_{threads}_p50_ms": every[len(every) // 2] * 1000,
        f"single_{threads}_p99_ms": every[len(every) * 99 // 100] * 1000,
    }


def main() -> None:
    """Run everything and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    runs: dict[str, list[float]] = {}
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory(dir=options.directory) as name:
            figures = bulk(Path(name, "bulk.log"), options.records, options.body_bytes)
            for threads in (1, 8, 64):
                path = Path(name, f"single{threads}.log")
                figures |= single(path, threads, options.seconds, options.body_bytes)
        for key, value in figures.items():
            runs.setdefault(key, []).append(value)
    json.dump({key: round(median(values), 3) for key, values in runs.items()}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
