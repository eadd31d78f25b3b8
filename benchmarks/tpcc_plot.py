"""The plot of `benchmarks.tpcc`: New-Orders in each second, and both latencies of each kind of transaction."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.plot import INK, OURS, THEIRS, drawn


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw the figures to a file, whose name says the format."""
    kinds = list(found["transactions"])
    machine = found["machine"]
    scale = "full scale" if found["full_scale"] else "NOT the full scale"
    note = (
        f"Warehouses: {found['warehouses']}, {scale}; terminals: {found['terminals']}; not audited; "
        f"{machine['cores']} cores for everything, {machine['processor']}; {machine['date']}"
    )
    with drawn(5.2, note, path) as figure:
        above, below = figure.subplots(2, 1)
        by_second = found["new_orders_by_second"]
        above.bar(range(len(by_second)), by_second, color=OURS, width=0.9)
        above.set_title("Committed New-Orders in each second", loc="left", fontweight="bold")
        width = 0.38
        for offset, name, colour in ((-0.5, "accepted", THEIRS), (0.5, "committed", OURS)):
            latencies = [found["transactions"][kind][f"{name}_ms"] for kind in kinds]
            places = [number + offset * width for number in range(len(kinds))]
            medians = [one["p50"] or 0.0 for one in latencies]
            tails = [(one["p99"] or 0.0) - (one["p50"] or 0.0) for one in latencies]
            below.bar(
                places,
                medians,
                width,
                yerr=[[0.0] * len(kinds), tails],
                color=colour,
                ecolor=INK,
                label=name,
            )
        below.set_xticks(range(len(kinds)), kinds)
        below.set_title("Latency in ms: p50, line up to p99", loc="left", fontweight="bold")
        below.legend(frameon=False)
        for axes in (above, below):
            axes.spines[["top", "right"]].set_visible(False)
