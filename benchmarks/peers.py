"""Measure Penstock and its peers, one after the other, in one run on one disk.

    python -m benchmarks.peers [--seconds 20] [--update-docs]

Ours: `penstock bench checkout` as fast as possible and at 1,000 a second, and `penstock bench
transfer`. Peers: the same checkout on PostgreSQL (`benchmarks.postgres`), and counters on Spark's
own `transformWithState` (`benchmarks.transform_with_state`). Every program runs by itself: nothing
else of this run is alive while it measures.

Prints a Markdown table, then one JSON object as the last line. `--output DIR` also gets peers.json,
peers.svg and peers.png; `--update-docs` writes peers.json, peers.svg and the page of docs. The exit
code is 1 when any system's own check of its results failed.
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks import page, plot
from benchmarks.machine import figures_of, machine, module

RATE: Final = 1_000
KEYS_OF_CHECKOUT: Final = 4
"""An order, one to three items (two on average), a user; all of them change."""

KEYS_OF_TRANSFER: Final = 2
CONNECTIONS: Final = "8,16"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        system: What ran; `load` says how it was driven.
        per_s: Operations a second; `keys_per_s` the keys that they changed.
        latency_ms: Of an operation, `p50` and `p99`; empty where operations have none of their own.
        checked: Whether the system's own check of its results held.
        figures: All that its program printed.
    """

    system: str
    load: str
    per_s: float
    keys_per_s: float
    latency_ms: dict[str, float]
    checked: bool
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Setup:
    """How everything is measured: so many seconds and cores, in one directory."""

    seconds: float
    cores: int
    directory: Path

    def figures(self, command: list[str | Path]) -> dict[str, Any]:
        """Run a program and return what it printed.

        Raises:
            RuntimeError: It printed no figures.
        """
        print("running", *command, file=sys.stderr, flush=True)
        return figures_of(command, self.directory / "messages.txt")

    def module(self, name: str, *arguments: str) -> list[str | Path]:
        """Return the command of a program of this directory."""
        shared = ("--seconds", str(self.seconds), "--directory", self.directory)
        return module(name, *shared, *arguments)


def ours(setup: Setup, kind: str, keys: int, load: str, *flags: str) -> Row:
    """Run `penstock bench`."""
    program = Path(sys.executable).with_name("penstock")
    cores = str(setup.cores)
    data = Path(tempfile.mkdtemp(dir=setup.directory, prefix="penstock-"))
    command: list[str | Path] = [
        program,
        "bench",
        kind,
        *flags,
        "--seconds",
        str(setup.seconds),
        "--json",
    ]
    command += ["--cores", cores, "--partitions", cores, "--data", data]
    try:
        found = setup.figures(command)
    finally:
        shutil.rmtree(data)
    return Row(
        system=f"Penstock, {kind}",
        load=load,
        per_s=found[f"{kind}s_per_s"],
        keys_per_s=round(found[f"{kind}s_per_s"] * keys, 1),
        latency_ms=found["latency_ms"],
        checked=found["conserved"],
        figures=found,
    )


def postgres(setup: Setup) -> tuple[str, list[Row]]:
    """Run the checkout on PostgreSQL, every way; return its version and the rows."""
    found = setup.figures(setup.module("postgres", "--connections", CONNECTIONS))
    rows = [
        Row(
            system=f"PostgreSQL, {one['way']}",
            load=f"{one['connections']} connections",
            per_s=one["checkouts_per_s"],
            keys_per_s=round(one["checkouts_per_s"] * KEYS_OF_CHECKOUT, 1),
            latency_ms=one["latency_ms"],
            checked=one["checked"],
            figures=one,
        )
        for one in found["runs"]
    ]
    return found["version"].split()[2], rows


def transform_with_state(setup: Setup) -> Row:
    """Run counters on Spark's own stateful operator."""
    found = setup.figures(setup.module("transform_with_state", "--cores", str(setup.cores)))
    return Row(
        system="Spark transformWithState, counter",
        load=f"batches of {found['records']:,}",
        per_s=found["records_per_s"],
        keys_per_s=found["keys_per_s"],
        latency_ms={},
        checked=found["checked"],
        figures=found,
    )


def measure(setup: Setup) -> dict[str, Any]:
    """Run everything; return what peers.json holds."""
    about = machine(setup.directory)
    fast, steady = "as fast as possible", f"{RATE:,} a second"
    rows = [
        ours(setup, "checkout", KEYS_OF_CHECKOUT, fast, "--max"),
        ours(setup, "checkout", KEYS_OF_CHECKOUT, steady, "--rate", str(RATE)),
        ours(setup, "transfer", KEYS_OF_TRANSFER, fast, "--max"),
    ]
    server, checkouts = postgres(setup)
    rows += [*checkouts, transform_with_state(setup)]
    packages = {one: version(one) for one in ("penstock", "pyspark", "psycopg")}
    return {
        "machine": about,
        "versions": {**packages, "postgresql": server},
        "seconds": setup.seconds,
        "rows": [asdict(row) for row in rows],
    }


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="to measure each row")
    parser.add_argument("--cores", type=int, default=2, help="of Spark; its partitions are as many")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--output", type=Path, help="an existing directory")
    parser.add_argument("--update-docs", action="store_true")
    chosen = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=chosen.directory, prefix="penstock-peers-"))
    directory.chmod(0o755)  # PostgreSQL runs as a user of its own when root runs this
    try:
        figures = measure(Setup(chosen.seconds, chosen.cores, directory))
    finally:
        shutil.rmtree(directory)
    if chosen.output is not None:
        (chosen.output / "peers.json").write_text(json.dumps(figures, indent=2))
        plot.draw(figures, [chosen.output / "peers.svg", chosen.output / "peers.png"])
    if chosen.update_docs:
        plot.draw(figures, [page.DOCS / "peers.svg"])
        page.update("peers", figures)
    print(page.peers_content(figures))
    print(json.dumps(figures))
    sys.exit(not all(row["checked"] for row in figures["rows"]))


if __name__ == "__main__":
    main()
