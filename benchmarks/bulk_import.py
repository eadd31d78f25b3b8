"""Imports and exports: how long a class of many entities takes, from the command to the committed epoch.

    python -m benchmarks.bulk_import [--entities 1000000] [--formats parquet csv jsonl]

It starts an application on two cores, imports a file of each format with five attributes, and exports them again. The
processor time of the command and that of all processes of the application are apart.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.process import presence

APP: Final = """
from penstock import App, entity, key

@entity
class Item:
    item_id: str = key()
    name: str
    price: int
    stock: int
    weight: float
    active: bool

app = App("bulk", Item)
"""
_START_S: Final = 120.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--formats", nargs="+", default=["parquet", "csv", "jsonl"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "bulk.py").write_text(APP)
        source = place / "items.parquet"
        pq.write_table(items(options.entities), source)
        for number, name in enumerate(options.formats):
            with running(place, place / f"data{number}") as driver:
                measure("import", source.with_suffix(f".{name}"), driver)
                for target in options.formats if not number else []:
                    measure("export", place / f"items.{target}", driver)


def items(count: int) -> pa.Table:
    """Return the rows."""
    numbers = range(count)
    return pa.table(
        {
            "item_id": [f"item-{number}" for number in numbers],
            "name": [f"Name of {number}" for number in numbers],
            "price": [number % 1_000 for number in numbers],
            "stock": [number % 77 for number in numbers],
            "weight": [number / 3 for number in numbers],
            "active": [number % 2 == 0 for number in numbers],
        }
    )


@contextmanager
def running(place: Path, data: Path) -> Iterator[tuple[Path, psutil.Process]]:
    """Run the application while the block runs; yield its data directory and its supervisor."""
    command = ["run", str(place / "bulk.py"), "--data", str(data), "--cores", "2", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *command], stdout=subprocess.DEVNULL
    ) as child:
        try:
            deadline = time.monotonic() + _START_S
            while not presence.find(data, "gateway"):
                if time.monotonic() > deadline:
                    raise TimeoutError("the application does not start")
                time.sleep(0.2)
            yield data, psutil.Process(child.pid)
        finally:
            child.send_signal(signal.SIGINT)


def measure(verb: str, file: Path, driver: tuple[Path, psutil.Process]) -> None:
    """Run a command, and print its times."""
    data, supervisor = driver
    before, began, others = os.times(), time.perf_counter(), _spent_s(supervisor)
    words = [verb, "Item", str(file), "--data", str(data)]
    words += ["--timeout", "300"] if verb == "import" else []
    subprocess.run(
        [sys.executable, "-m", "penstock", *words], check=True, stdout=subprocess.DEVNULL
    )
    after, took_s = os.times(), time.perf_counter() - began
    own_s = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    rest_s = _spent_s(supervisor) - others
    print(
        f"{verb} {file.suffix[1:]:8}{took_s:6.1f} s   command {own_s:5.1f} CPU-s   application {rest_s:5.1f} CPU-s"
    )


def _spent_s(process: psutil.Process) -> float:
    every = [process, *process.children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every if each.is_running())


if __name__ == "__main__":
    main()
