"""Start on a backlog: how much memory the processes take, and how fast it is worked off.

The log is filled before Spark starts; then everything that the runtime consists of is looked at ten
times a second until the last request is committed. Prints one JSON object: the highest resident
memory of the driver, of all its Python workers together and of the JVM, in megabytes, and the
requests a second.
"""

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

import psutil

from penstock.base.ids import Lsn, RequestId
from penstock.log.api import Entry
from penstock.process.config import Config
from penstock.runtime.spark.runtime import SparkRuntime

SPEC = str(Path(__file__).parents[1] / "examples" / "shop")
ITEMS = 100_000
CHUNK = 10_000
LOOK_S = 0.1
DEADLINE_MS = 900_000


class Peaks:
    """The highest resident memory of this process and those below it, by what they are."""

    def __init__(self) -> None:
        self.bytes = {"driver": 0, "workers": 0, "jvm": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, int]:
        """Return the peaks in megabytes."""
        self._stop.set()
        self._thread.join()
        return {f"{name}_mb": size >> 20 for name, size in self.bytes.items()}

    def _watch(self) -> None:
        this = psutil.Process()
        while not self._stop.wait(LOOK_S):
            now = {"driver": this.memory_info().rss, "workers": 0, "jvm": 0}
            for process in this.children(recursive=True):
                try:
                    kind = "jvm" if process.name() == "java" else "workers"
                    # Mapped stores are shared and can be dropped at any time; they do not count.
                    memory = process.memory_info()
                    now[kind] += memory.rss - memory.shared
                except psutil.NoSuchProcess:
                    continue
            self.bytes = {name: max(size, now[name]) for name, size in self.bytes.items()}


def fill(runtime: SparkRuntime, requests: int) -> Lsn:
    """Append the backlog; return the position after it."""
    app, now_us = runtime.app, time.time_ns() // 1_000
    end = Lsn(0)
    for first in range(0, ITEMS, 1_000):
        body, touches = app.request("", None, "init_items", [first, 1_000, 0, 1])
        (end,) = runtime.log.append([Entry(RequestId(f"init-{first}"), body, touches, now_us)])
    for first in range(0, requests, CHUNK):
        entries = []
        for number in range(first, min(first + CHUNK, requests)):
            body, touches = app.request("Item", str(number % ITEMS), "add", [1])
            entries.append(Entry(RequestId(f"add-{number}"), body, touches, now_us))
        end = runtime.log.append(entries)[-1]
    return Lsn(end + 1)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        runtime = SparkRuntime(SPEC, Config(data=Path(folder) / "data", cores=arguments.cores))
        end = fill(runtime, arguments.requests)
        peaks = Peaks()
        runtime.start()
        began = time.perf_counter()
        done = runtime.wait_until(end, DEADLINE_MS)
        spent_s = time.perf_counter() - began
        runtime.stop()
    figures = {
        "requests": arguments.requests,
        "done": done,
        "requests_per_s": round(arguments.requests / spent_s),
        **peaks.stop(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
