"""The shop over HTTP: checkouts by crowds of several sizes, and what the gateway costs.

One run of `penstock bench http` for each crowd: client, gateway, SQL view and Spark share the
machine. The empty route beside is served by the same server to the same load.

    python -m benchmarks.over_http --seconds 20 --update-docs
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import page
from benchmarks.machine import figures_of, machine

CROWDS: Final = (100, 500, 1_000)


def measure(seconds: float, directory: Path) -> dict[str, Any]:
    """Return the figures of all crowds, measured one after the other."""
    where = machine(directory)
    rows = []
    for crowd in CROWDS:
        command = [sys.executable, "-m", "penstock", "bench", "http", "--json"]
        command += ["--connections", str(crowd), "--seconds", str(seconds)]
        found = figures_of(command, directory / f"{crowd}.log")
        rows.append({"connections": crowd, **found})
        print(json.dumps(rows[-1]), file=sys.stderr)
    return {"machine": where, "seconds": seconds, "rows": rows}


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="measured, for each crowd")
    parser.add_argument("--update-docs", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-http-") as folder:
        figures = measure(chosen.seconds, Path(folder))
    if chosen.update_docs:
        page.update("over_http", figures)
    print(page.over_http_content(figures))


if __name__ == "__main__":
    main()
