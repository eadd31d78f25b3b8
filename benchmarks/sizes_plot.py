"""The plot of `benchmarks.sizes`: throughput, memory, disk and times over the number of entities."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from benchmarks.plot import INK, OURS, THEIRS, drawn

RATE: Final = "Transfers a second"
PANELS: Final = {
    RATE: {"transfers_per_s": "two entities each"},
    "Megabytes": {"memory_mb": "memory of all processes", "disk_mb": "disk"},
    "Seconds": {
        "fill_s": "import",
        "recovery_s": "start without local state",
        "view_s": "SQL view from a snapshot",
    },
    "Seconds of a snapshot": {
        "snapshot_s": "the first one",
        "snapshot_of_1000_changes_s": "after 1,000 changes",
        "snapshot_of_100000_changes_s": "after 100,000 changes",
    },
}
_COLOURS: Final = (OURS, "#c2703d", INK)


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw the figures to a file, whose name says the format."""
    rows = found["rows"]
    counts = [row["entities"] for row in rows]
    machine = found["machine"]
    note = f"entities; {machine['cores']} cores for everything, {machine['processor']}; {machine['date']}"
    with drawn(6.4, note, path) as figure:
        for axes, (title, lines) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
            _panel(axes, title)
            for colour, (name, label) in zip(_COLOURS, lines.items(), strict=False):
                values = [row[name] for row in rows]
                axes.plot(counts, values, color=colour, marker="o", markersize=4, label=label)
            if title == RATE:
                axes.set_ylim(0, 1.15 * max(row["transfers_per_s"] for row in rows))
            else:  # a straight line is in proportion to the entities
                axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
            axes.legend(frameon=False, fontsize=8)


def _panel(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xscale("log")
    axes.grid(axis="y", color=THEIRS, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
