"""The plot of `benchmarks.hours`: latency, memory, files and disk by minute, with their trends."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.hours import WARM
from benchmarks.plot import INK, OURS, STYLE

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
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15)  # inches
        figure = Figure(figsize=(9.6, 6.0), layout=layout, facecolor="white")
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
        machine = found["machine"]
        figure.supxlabel(
            f"minutes; {found['rate']:,} transfers a second; {machine['cores']} cores for everything, clients included; "
            f"{machine['processor']}; {machine['date']}",
            fontsize=8,
            x=0.01,
            ha="left",
        )
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=150, metadata=metadata)
