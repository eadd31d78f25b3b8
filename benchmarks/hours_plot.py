"""The plot of `benchmarks.hours`: latency, and by process and by name memory, processor time and disk, minute by minute."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes

from benchmarks.hours import SHARES
from benchmarks.plot import INK, OURS, THEIRS, drawn

PANELS: Final = {
    "p50_ms": "Latency in ms: p50",
    "p99_ms": "Latency in ms: p99",
    "memory_mb": "Memory in MB, by process",
    "disk_mb": "Disk in MB, by name",
    "cores": "Cores in use, by process",
    "files": "Files",
}
STACKED: Final = dict(zip(("memory_mb", "cores", "disk_mb"), SHARES, strict=True))
_COLOURS: Final = (
    OURS,
    "#c2703d",
    "#7a9e3f",
    "#8a6fb0",
    "#c9a227",
    "#5f7f99",
    "#b5536c",
    "#4fa39a",
    INK,
)


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw the figures to a file, whose name says the format."""
    rows = found["minutes"]
    machine = found["machine"]
    note = (
        f"minutes; {found['rate']:,} transfers a second; {machine['cores']} cores for everything, clients included; "
        f"{machine['processor']}; {machine['date']}; lines: trends from the dotted minute on"
    )
    with drawn(8.4, note, path) as figure:
        for axes, (name, title) in zip(figure.subplots(3, 2).flat, PANELS.items(), strict=True):
            if name in STACKED:
                _stack(axes, [row[STACKED[name]] for row in rows])
            else:
                minutes = range(1, len(rows) + 1)
                axes.plot(minutes, [row[name] for row in rows], color=OURS, linewidth=1.2)
            _trend(axes, title, name, found["trends"]["full"], len(rows))
            axes.set_ylim(0, 1.25 * max(row[name] for row in rows))
            axes.spines[["top", "right"]].set_visible(False)


def _stack(axes: Axes, rows: Sequence[Mapping[str, float]]) -> None:
    """Draw the shares of each minute on top of each other, the largest at the bottom; the smallest ones as one."""
    sums = {
        name: sum(row.get(name, 0.0) for row in rows)
        for name in dict.fromkeys(n for row in rows for n in row)
    }
    names = sorted(sums, key=lambda name: -sums[name])
    own, rest = names[: len(_COLOURS) - 1], names[len(_COLOURS) - 1 :]
    shares = {name: [row.get(name, 0.0) for row in rows] for name in own}
    if rest:
        shares["others"] = [sum(row.get(name, 0.0) for name in rest) for row in rows]
    axes.stackplot(
        range(1, len(rows) + 1),
        list(shares.values()),
        labels=list(shares),
        colors=_COLOURS,
        alpha=0.85,
    )
    axes.legend(frameon=False, fontsize=7, ncols=4, loc="upper left")


def _trend(axes: Axes, title: str, name: str, trends: Mapping[str, Any] | None, count: int) -> None:
    """Draw the line of a trend, and write it into the title."""
    if trends is not None:
        line = trends[name]
        minutes = np.arange(trends["from"], count + 1)
        fit = line["mean"] + line["per_hour"] / 60 * (minutes - minutes.mean())
        axes.plot(minutes, fit, color=INK, linewidth=0.9)
        axes.axvline(trends["from"], color=THEIRS, linewidth=0.8, linestyle=":")
        change, error = (100 * line[each] / line["mean"] for each in ("per_hour", "error"))
        title += f": {change:+.1f} % in an hour (± {2 * error:.1f})"
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold")
