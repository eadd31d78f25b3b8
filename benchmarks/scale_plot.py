"""The plot of `benchmarks.scale`: on the left the model and measured figures of small hosts, on the right the model for checkouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from benchmarks.plot import INK, OURS, THEIRS, drawn
from benchmarks.scale import CORES

COLOURS = (OURS, "#c2703d", INK, THEIRS)


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw both to a file, whose name says the format."""
    with drawn(4.6, "", path) as figure:
        compared, curves = figure.subplots(1, 2, width_ratios=(2, 3))
        _draw_measured(compared, found)
        _draw_curves(curves, found)


def _draw_measured(axes: Axes, found: Mapping[str, Any]) -> None:
    """Draw a line for the model of each kind of work, and a point for each measured figure."""
    rows = [row for row in found["rows"] if "model" in row]
    for colour, name in zip(COLOURS, dict.fromkeys(row["what"] for row in rows), strict=False):
        of_kind = [row for row in rows if row["what"] == name]
        hosts = [row["hosts"] for row in of_kind]
        axes.plot(hosts, [row["model"] for row in of_kind], color=colour, label=f"{name}: model")
        measured = [row["per_s"] for row in of_kind]
        axes.scatter(hosts, measured, color=colour, zorder=2, label=f"{name}: measured")
    _finish(axes, sorted({row["hosts"] for row in rows}), "Work per second, small hosts")


def _draw_curves(axes: Axes, found: Mapping[str, Any]) -> None:
    """Draw the model for each kind of checkouts; a hollow point has another limit than its tasks."""
    hosts: list[int] = []
    for colour, (name, points) in zip(COLOURS, found["curves"].items(), strict=True):
        hosts = [point["hosts"] for point in points]
        axes.plot(hosts, [point["per_s"] for point in points], color=colour, label=name, zorder=1)
        for point in points:
            face = colour if point["limit"] == "tasks" else "white"
            axes.scatter(point["hosts"], point["per_s"], color=face, edgecolor=colour, zorder=2)
    title = f"Checkouts per second, {CORES} cores a host (model)"
    _finish(axes, hosts, title)
    axes.set_xlabel("hosts (hollow: the tasks do not have most of an epoch's time)")


def _finish(axes: Axes, hosts: list[int], title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(hosts, map(str, hosts))
    axes.set_xlabel("hosts")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
