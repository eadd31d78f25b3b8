"""The plot of `benchmarks.scale`: checkouts a second over hosts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from benchmarks.plot import INK, OURS, THEIRS, drawn

COLOURS = (OURS, "#5fa8bd", THEIRS, INK, "#c2703d")


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw the curves to a file, whose name says the format; a hollow point is not limited by the processors of the hosts."""
    with drawn(4.6, "", path) as figure:
        axes: Axes = figure.subplots()
        hosts = [point["hosts"] for point in next(iter(found["curves"].values()))]
        for colour, (name, points) in zip(COLOURS, found["curves"].items(), strict=True):
            rates = [point["per_s"] for point in points]
            axes.plot(hosts, rates, color=colour, label=name, zorder=1)
            for point in points:
                is_free = point["limit"] == "processors"
                face = colour if is_free else "white"
                axes.scatter(point["hosts"], point["per_s"], color=face, edgecolor=colour, zorder=2)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(hosts, map(str, hosts))
        axes.set_xlabel("hosts")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_title(
            "Checkouts per second: the model (hollow: the driver or the largest component limits)",
            loc="left", fontweight="bold",
        )  # fmt: skip
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
