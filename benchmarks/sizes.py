"""How an application does with more and more entities: throughput, memory, disk, snapshots, recovery, the SQL view.

    python -m benchmarks.sizes [--entities 10000 100000 …] [--seconds 15] [--update-docs]

Runs an application of accounts on two cores for each number of entities, one after the other, and imports the accounts. Then it
appends transfers between two of them, drawn uniformly, as fast as they are processed. It takes a first snapshot, and one after each
of several numbers of changed entities. Then it stops everything, and measures the SQL view without a file twice: from all epochs, and
from a snapshot after the first epochs were forgotten. At last it measures a start without local state, up to its first answer. Prints
a line for each number, and one JSON object at the end.

30,000,000 entities need 25 GB on the disk of --directory, and 15 minutes. `--update-docs` writes docs/sizes.json, docs/sizes.svg
and the page after each number, so that a run that ends early leaves the numbers before it.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import page
from benchmarks.harness import transfer
from benchmarks.harness.http import running
from benchmarks.machine import machine, require_idle
from benchmarks.watch import Watch, sizes_of
from penstock.base.ids import ONLY_PARTITION, RequestId
from penstock.exchange.import_order import ROWS_MAX
from penstock.files.layout import STATE
from penstock.files.roots import snapshots_root
from penstock.journal.api import CompactionPolicy
from penstock.log.api import Entry
from penstock.process.config import Config, HistoryConfig
from penstock.process.data_directory import DataDirectory
from penstock.retention.maintenance import maintain
from penstock.retention.retention import VIEW
from penstock.snapshots.snapshot import Snapshots
from penstock.sql_view.view_client import view_epoch

APP: Final = f"{transfer.__file__}:app"
SIZES: Final = (10_000, 300_000, 3_000_000, 30_000_000)
CHANGED: Final = (1_000, 10_000, 100_000)
CORES: Final = 2
BACKLOG: Final = 30_000
CHUNK: Final = 2_500
WARM: Final = 30_000
LONG_S: Final = 1_800.0

# Snapshots are taken where they are measured, and not by time.
SETTINGS: Final = (f"cores={CORES}", "history.snapshot_epochs=0", "history.snapshot_s=0", "history.snapshot_requests=0")  # fmt: skip


class Transfers:
    """Appends transfers to the log of a running application, and waits until they are processed."""

    def __init__(self, data: Path, count: int) -> None:
        directory = DataDirectory(data)
        self._log = directory.open_log()
        self._journal = directory.open_journal_of(transfer.app.name)
        self._count = count
        self._draw = np.random.default_rng(count)
        self._sent = 0

    def close(self) -> None:
        """Close log and journal."""
        self._log.close()
        self._journal.close()

    @property
    def _processed(self) -> int:
        last = self._journal.last()
        return 0 if last is None else int(last.positions.get(ONLY_PARTITION, 0))

    def entries(self, count: int) -> list[Entry]:
        """Return so many new requests."""
        pairs = self._draw.integers(self._count, size=(count, 2)).tolist()
        account = transfer.app.entities["Account"].cls
        made = []
        for source, target in pairs:
            self._sent += 1
            other = target if target != source else (target + 1) % self._count
            request = transfer.app.request(
                "Account", str(source), "transfer", (account(str(other)), 1)
            )
            made.append(Entry(RequestId(f"t{self._sent}"), *request, 0))
        return made

    def rate(self, seconds: float) -> float:
        """Return the transfers a second, while at most `BACKLOG` of them wait; the first ones are not counted."""
        began = time.perf_counter()
        self.run(WARM)
        expected = WARM / (time.perf_counter() - began)
        # Encoded beforehand: the load generator has the same cores as the application.
        entries = self.entries(int(expected * seconds))
        first = end = int(self._log.end())
        began = time.perf_counter()
        for place in range(0, len(entries), CHUNK):
            end = int(self._log.append(entries[place : place + CHUNK])[-1]) + 1
            while end - self._processed > BACKLOG:
                time.sleep(0.002)
        self._await(end)
        return (end - first) / (time.perf_counter() - began)

    def run(self, count: int) -> None:
        """Append so many, and wait until they are processed."""
        self._log.append(self.entries(count))
        self._await(int(self._log.end()))

    def _await(self, end: int) -> None:
        while self._processed < end:
            time.sleep(0.002)


def measured(data: Path, count: int, seconds: float) -> dict[str, Any]:
    """Return the figures of an application with so many entities."""
    config = Config(data, app=APP, cores=CORES, history=HistoryConfig())
    figures: dict[str, Any] = {"entities": count}
    with running(data, 1, *SETTINGS, app=APP), Watch(data) as watch:
        figures["fill_s"] = timed(lambda: fill(data, count))
        figures["view_filled_s"] = timed(lambda: await_view(data))
        with closing(Transfers(data, count)) as transfers:
            figures["transfers_per_s"] = round(transfers.rate(seconds))
            figures["snapshot_s"] = timed(lambda: maintain(transfer.app, config, snapshot=True))
            for changed in CHANGED:
                transfers.run(changed // 2)
                took_s = timed(lambda: maintain(transfer.app, config, snapshot=True))
                figures[f"snapshot_of_{changed}_changes_s"] = took_s
        await_view(data)
        watch.look()
        figures["memory_mb"] = round(watch.memory_mb)
        figures["memory_after_mb"] = round(watch.looks[-1].memory_mb)
    sizes = {name: round(size / 1e6, 1) for name, (_, size) in sizes_of(data).items()}
    figures["disk_mb"] = round(sum(sizes.values()), 1)
    figures["disk_mb_by_name"] = {name: size for name, size in sorted(sizes.items()) if size >= 1}
    figures["view_from_journal_s"] = view_s(data)
    forget(data)
    figures["view_s"] = view_s(data)
    figures["view_rows_per_s"] = round(count / figures["view_s"])
    figures["recovery_s"] = recovery_s(data)
    return figures


def timed(run: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    run()
    return round(time.perf_counter() - began, 3)


def fill(data: Path, count: int) -> None:
    """Import the accounts, in parts that are an epoch each."""
    source = data / "accounts.parquet"
    words = ["import", "Account", str(source), APP, "--data", str(data), "--timeout", str(LONG_S)]
    for first in range(0, count, ROWS_MAX):
        numbers = np.arange(first, min(first + ROWS_MAX, count)).astype(str)
        balances = np.full(len(numbers), transfer.BALANCE)
        pq.write_table(pa.table({"number": numbers.astype(object), "balance": balances}), source)
        subprocess.run([*PENSTOCK, *words], check=True, stdout=subprocess.DEVNULL)
    source.unlink()


PENSTOCK: Final = (sys.executable, "-P", "-m", "penstock")


def await_view(data: Path) -> None:
    """Wait until the SQL view has the newest epoch."""
    with closing(DataDirectory(data).open_journal_of(transfer.app.name)) as journal:
        last = journal.last()
    assert last is not None, "the application is filled"
    deadline = time.monotonic() + LONG_S
    while (shown := view_epoch(data)) is None or shown < last.epoch:
        if time.monotonic() > deadline:
            raise TimeoutError("the SQL view does not come to the newest epoch")
        time.sleep(0.02)


def forget(data: Path) -> None:
    """Remove the first epochs, all of which are in snapshots."""
    with closing(DataDirectory(data).open_journal_of(transfer.app.name)) as journal:
        newest = Snapshots(snapshots_root(data), journal.identity).epochs()[-1]
        journal.compact(CompactionPolicy(newest=0, epochs=2, grace_s=0))
        journal.forget(newest)
        assert journal.first() > 0, "the view needs a snapshot from now on"


def view_s(data: Path) -> float:
    """Return the seconds from the start of a view without a file until it has the newest epoch."""
    for file in (data / VIEW).glob("view.duckdb*"):
        file.unlink()
    began = time.perf_counter()
    command = [*PENSTOCK, "view", "serve", APP, "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as view:
        try:
            await_view(data)
            return round(time.perf_counter() - began, 3)
        finally:
            view.terminate()


def recovery_s(data: Path) -> float:
    """Return the seconds from a start without local state, as after the loss of its disk, to the first answer."""
    shutil.rmtree(data / STATE)
    began = time.perf_counter()
    with running(data, 1, *SETTINGS, app=APP) as port:
        url = f"http://127.0.0.1:{port}/call/Account/0/transfer"
        answer = httpx.post(url, json={"to": "1", "amount": 1}, timeout=LONG_S)
        answer.raise_for_status()
        return round(time.perf_counter() - began, 3)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entities", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=15.0, help="how long transfers run")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--update-docs", action="store_true", help="write docs/")
    parser.add_argument("--plot", type=Path, help="file for the plot, without --update-docs")
    options = parser.parse_args()
    plot = page.DOCS / "sizes.svg" if options.update_docs else options.plot
    if plot:
        from benchmarks.sizes_plot import draw  # noqa: PLC0415 -- the figures need no matplotlib
    if options.update_docs:
        require_idle()
    found = {"machine": machine(options.directory), "rows": list[dict[str, Any]]()}
    for count in options.entities:
        with tempfile.TemporaryDirectory(dir=options.directory, prefix="penstock-sizes-") as folder:
            found["rows"].append(measured(Path(folder), count, options.seconds))
        sys.stdout.write(f"{json.dumps(found['rows'][-1])}\n")
        sys.stdout.flush()
        if options.update_docs:
            page.update("sizes", found)
        if plot:
            draw(found, plot)
    sys.stdout.write(f"{page.sizes_content(found)}\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
