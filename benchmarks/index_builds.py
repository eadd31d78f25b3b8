"""The wait of a steady caller while a deployment adds indexes to many entities.

    python -m benchmarks.index_builds [--entities 300000 1000000 …] [--in-epoch] [--directory DIR]

Runs an application of tasks for each number of entities, one after the other, and imports the tasks. A caller changes one of them every 10 ms, and
waits for each reply. Meanwhile a deployment adds a unique index and an ordered one with 500 values. The next one gives the ordered index another
definition under its name, and the last one drops both. With `--in-epoch`, the process that builds the rows is
killed as soon as it begins, so the epoch of each deployment does all its work. Prints a JSON object for each number.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.http import HOST, running
from penstock.process import presence

PAUSE_S: Final = 0.01
QUIET_S: Final = 10.0
TIMEOUT_S: Final = 1_800
_AT_ONCE: Final = 1_000_000
_LOOK_S: Final = 0.02

SOURCE: Final = """
from penstock import App, Entity, index, key, unique

class Task(Entity):
    number: str = key()
    code: str = ""
    owner: int = 0
    due: int = 0
    {indexes}

    def move(self, due: int) -> None:
        self.due = due

app = App("tasks", Task)
"""
VERSIONS: Final = {
    "added": 'by_code = unique("code"); by_owner = index("owner", order="due")',
    "changed": 'by_code = unique("code"); by_owner = index("owner", order="code")',
    "dropped": "",
}


def main() -> None:
    """Measure each number of entities."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entities", type=int, nargs="+", default=[300_000])
    parser.add_argument("--in-epoch", action="store_true")
    parser.add_argument("--directory", type=Path, default=None)
    chosen = parser.parse_args()
    for entities in chosen.entities:
        with tempfile.TemporaryDirectory(dir=chosen.directory) as folder:
            print(
                json.dumps(measured(Path(folder), entities, in_epoch=chosen.in_epoch)), flush=True
            )


def measured(folder: Path, entities: int, *, in_epoch: bool) -> dict[str, Any]:
    """Return the figures of one number of entities."""
    source, data = folder / "tasks.py", folder / "data"
    source.write_text(SOURCE.format(indexes=""))
    figures: dict[str, Any] = {"entities": entities, "in_epoch": in_epoch}
    with running(data, app=str(source)) as port:
        for first in range(0, entities, _AT_ONCE):
            rows = folder / "rows.parquet"
            pq.write_table(tasks(first, min(entities, first + _AT_ONCE)), rows)
            penstock("import", "Task", str(rows), str(source), "--data", str(data))
        with called(port, entities) as waits:
            time.sleep(QUIET_S)
            figures["before_ms"] = shown(waits)
            for name, indexes in VERSIONS.items():
                source.write_text(SOURCE.format(indexes=indexes))
                begun, begun_s = len(waits), time.monotonic()
                with killed_builders(data) if in_epoch else watched_builders(data) as seen:
                    penstock("deploy", str(source), "--data", str(data))
                took_s = time.monotonic() - begun_s
                time.sleep(QUIET_S)  # the removal of former rows follows
                figures[name] = {
                    "order_s": round(took_s, 1),
                    **shown(waits[begun - 1 :]),
                    "builder_mb": max(seen, default=0) >> 20,
                    "load": round(os.getloadavg()[0], 1),
                }
    return figures


def tasks(first: int, end: int) -> pa.Table:
    """Return tasks as columns."""
    numbers = range(first, end)
    return pa.table(
        {
            "number": [f"t{each:07}" for each in numbers],
            "code": [f"code-{each:07}" for each in numbers],
            "owner": [each % 500 for each in numbers],
            "due": [each * 7_919 % 1_000_003 for each in numbers],
        }
    )


def penstock(*words: str) -> None:
    """Run a command, which must succeed."""
    command = [sys.executable, "-P", "-m", "penstock", *words, "--timeout", str(TIMEOUT_S)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def called(port: int, entities: int) -> Iterator[list[float]]:
    """Let a caller change tasks until the block ends; yields the seconds that it has waited for each reply."""
    waits: list[float] = []
    ended = threading.Event()

    def call() -> None:
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=TIMEOUT_S) as client:
            while not ended.wait(PAUSE_S):
                task, began = len(waits) * 31 % entities, time.perf_counter()
                path = f"/call/Task/t{task:07}/move"
                client.post(path, json={"due": len(waits)}).raise_for_status()
                waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()


def shown(waits: list[float]) -> dict[str, Any]:
    """Return the median and the longest waits, in milliseconds."""
    longest = sorted(waits, reverse=True)[:3]
    return {
        "median_ms": round(median(waits) * 1e3, 1),
        "longest_ms": [round(each * 1e3) for each in longest],
    }


@contextmanager
def watched_builders(data: Path, *, kills: bool = False) -> Iterator[list[int]]:
    """Note the memory of the processes that build rows until the block ends, in bytes."""
    seen: list[int] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            for builder in presence.find(data, "builder"):
                with suppress(psutil.NoSuchProcess):
                    process = psutil.Process(builder.pid)
                    seen.append(process.memory_info().rss)
                    if kills:
                        process.kill()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def killed_builders(data: Path) -> Any:
    """Kill the processes that build rows until the block ends."""
    return watched_builders(data, kills=True)


if __name__ == "__main__":
    main()
