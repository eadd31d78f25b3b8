"""`penstock demo`: a benchmark of checkouts of fixed size."""

from typing import Final

from benchmarks.harness.command import RunPlace, Seconds
from benchmarks.harness.options import Options

HELP: Final = """Run the shop on Spark for some seconds, and prove that nothing was lost.

The demo starts Spark, loads 100,000 users, items and orders, and appends checkouts (Order.reorder,
encoded beforehand) to the durable log in bulk. It prints the checkouts a second, their latency, and
whether the journal conserves money and stock. The exit code is 1 if a check fails.

\b
Examples:
  penstock demo
  penstock demo --seconds 30
"""


def command(place: RunPlace, seconds: Seconds = 10.0) -> None:
    """Run the demo; see `HELP`."""
    from benchmarks.harness.bench_run import bench_run  # noqa: PLC0415 -- help needs no packages

    with place.opened() as settings:
        bench_run(Options(seconds=seconds), settings, as_json=place.as_json)
