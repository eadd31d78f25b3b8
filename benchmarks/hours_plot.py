"""The plot of `benchmarks.hours`: latency, memory, files and disk by minute, with their trends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.hours import WARM
from benchmarks.plot import INK, OURS, drawn

PANELS: Final = {
    "p99_ms": "Latency in ms: p99",
    "memory_mb": "Memory of all processes in MB",
    "files": "Files of the data directory",
    "disk_mb": "Disk in MB",
}


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw the figures to a file, whose name says the format."""
    rows = found["minutes"]
    minutes = [row["minute"] for row in rows]
    machine = found["machine"]
    note = (
        f"minutes; {found['rate']:,} transfers a second; {machine['cores']} cores for everything, clients included; "
        f"{machine['processor']}; {machine['date']}"
    )
    with drawn(6.0, note, path) as figure:
        for axes, (name, title) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
            values = [row[name] for row in rows]
            axes.plot(minutes, values, color=OURS, marker="o", markersize=3)
            text, line = title, found["trends"][name]
            if line is not None:
                text = f"{title}\n{100 * line['per_hour']:+.1f} % in an hour (± {200 * line['error']:.1f})"
                fit = np.polyfit(minutes[WARM:], values[WARM:], 1)
                axes.plot(minutes[WARM:], np.polyval(fit, minutes[WARM:]), color=INK, linewidth=0.8)
            axes.set_title(text, loc="left", fontsize=10, fontweight="bold")
            axes.set_ylim(0, 1.15 * max(values))
            axes.spines[["top", "right"]].set_visible(False)
