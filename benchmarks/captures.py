"""Changes of a database: rows in a second, and the time from a commit there to the entity here.

    python -m benchmarks.captures [--rows 100000] [--delays 300]

It starts a PostgreSQL server and an application with `penstock run`. `delay` gives one row at a time, and takes the time from its
commit to the commit of the epoch that has its entity. `throughput` gives transactions of 100 rows as fast as the server takes
them, each of which is one request, and counts the rows that are on the stream, and those that are entities, in a second. Prints one JSON object.
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

import psutil
import psycopg

from benchmarks.cluster import SETTINGS, Cluster, running_cluster
from benchmarks.harness.ports import free_port
from benchmarks.machine import machine
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.deployment.loading import load_app
from penstock.journal.api import PartKind
from penstock.process.capture_files import read_capture_report
from penstock.process.data_directory import DataDirectory

APP: Final = Path(__file__).with_name("capture_app.py")
TIMEOUT_S: Final = 600.0
IN_ONE: Final = 100
TABLE: Final = """
    CREATE TABLE users (id int PRIMARY KEY, name text NOT NULL, city text NOT NULL, credit int NOT NULL, active bool NOT NULL);
    ALTER TABLE users REPLICA IDENTITY FULL;
    CREATE PUBLICATION bench FOR TABLE users;
"""
ROWS: Final = "INSERT INTO users SELECT n, 'user ' || n, 'city ' || n %% 100, n, true FROM generate_series(%s::int, %s::int) AS n"


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--delays", type=int, default=300)
    chosen = parser.parse_args()
    figures: dict[str, Any] = {"machine": machine(Path(tempfile.gettempdir()))}
    settings = {**SETTINGS, "wal_level": "logical", "port": str(free_port("127.0.0.1"))}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-captures-") as folder,
        running_cluster(Path("/var/tmp"), settings) as cluster,
    ):
        data = Path(folder) / "data"
        with psycopg.connect(cluster.address) as connection:
            connection.execute(TABLE.encode())
        with running(data, cluster) as process, psycopg.connect(cluster.address) as connection:
            figures["delay_ms"] = delays(data, connection, chosen.delays)
            figures["throughput"] = throughput(data, connection, process, chosen.rows)
    print(json.dumps(figures, indent=1))


@contextmanager
def running(data: Path, cluster: Cluster) -> Iterator[psutil.Process]:
    """Run the application until the block ends, and wait until it follows the database."""
    settings = data.with_suffix(".toml")
    settings.write_text(f'[captures.crm]\nurl = "{cluster.address}"\npublication = "bench"\n')
    command = [sys.executable, "-m", "penstock", "run", str(APP), "--data", str(data)]
    command += ["--config", str(settings), "--port", str(free_port("127.0.0.1"))]
    command += ["--set", "class_archive=0"]  # the first start would make it meanwhile, for a minute
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        await_true(lambda: getattr(read_capture_report(data, "crm"), "state", "") == "following")
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def delays(data: Path, connection: Any, count: int) -> dict[str, float]:
    """Return the time from the commit of single rows to the commit of their entities, in milliseconds."""
    for number in range(count):
        connection.execute(ROWS, (number, number))
        connection.commit()
        time.sleep(0.03)
    found: list[float] = []
    await_true(lambda: len(entities(data, found)) >= count)
    cuts = quantiles(found, n=100)
    return {"p50": round(cuts[49], 1), "p90": round(cuts[89], 1), "p99": round(cuts[98], 1)}


def throughput(
    data: Path, connection: Any, process: psutil.Process, count: int
) -> dict[str, float]:
    """Return the rows in a second on the stream and as entities, and the processor time of a row."""
    first = 1_000_000
    known = len(entities(data, []))
    before = processor_s(process)
    began = time.time()
    for start in range(first, first + count, IN_ONE):
        connection.execute(ROWS, (start, start + IN_ONE - 1))
        connection.commit()
    given = time.time()
    await_true(lambda: len(entities(data, [])) >= known + count, 0.5)
    spent = {role: each - before.get(role, 0.0) for role, each in processor_s(process).items()}
    streamed, made = ends(data)
    return {
        "rows": count,
        "source_rows_s": round(count / (given - began)),
        "stream_rows_s": round(count / (streamed - began)),
        "entity_rows_s": round(count / (made - began)),
        **{f"{role}_us_per_row": round(1e6 * each / count, 1) for role, each in spent.items()},
    }


def processor_s(process: psutil.Process) -> dict[str, float]:
    """Return the processor time of the capture, and of all processes of the application together."""
    spent = {"capture": 0.0, "all": 0.0}
    for each in (process, *process.children(recursive=True)):
        times = each.cpu_times()
        own = times.user + times.system
        spent["all"] += own
        if "capture" in each.cmdline():
            spent["capture"] += own
    return spent


_seen: dict[str, Any] = {}


def entities(data: Path, delays_ms: list[float]) -> set[int]:
    """Return the users that are entities; note the delays of those that were not seen before."""
    app = _seen.setdefault("app", load_app(str(APP)))
    known: set[int] = _seen.setdefault("known", set())
    after = _seen.get("epoch", BEFORE_FIRST)
    user = app.entity("User")
    with closing(DataDirectory(data).open_journal(app)) as journal:
        for commit in journal.commits(Epoch(after)):
            for part in commit.parts_of(PartKind.CHANGES):
                for row in journal.read(part).to_pylist():
                    if row["entity"] == "User":
                        known.add(int(row["key"]))
                        at = user.decode(int(row["key"]), row["state"])["at"]
                        delays_ms.append(commit.time_us / 1_000 - at.timestamp() * 1_000)
                        _seen["made"] = commit.time_us / 1e6
            if commit.parts_of(PartKind.EVENTS):
                _seen["streamed"] = commit.time_us / 1e6
            _seen["epoch"] = commit.epoch
    return known


def ends(data: Path) -> tuple[float, float]:
    """Return the times of the last epoch with events, and of the last one with entities."""
    entities(data, [])
    return _seen["streamed"], _seen["made"]


def await_true(condition: Any, look_s: float = 0.2) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(look_s)


if __name__ == "__main__":
    main()
