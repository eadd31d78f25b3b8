"""The plot of `benchmarks.peers`: checkouts a second, and keys updated a second.

The same figures give the same SVG, byte for byte, so that a new plot in a diff means new figures.
`python -m benchmarks.plot` draws docs/peers.svg anew from docs/peers.json, measuring nothing.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.page import DOCS, number

OURS: Final = "#0b6e8a"
THEIRS: Final = "#a9b4bb"
INK: Final = "#22313a"
STYLE: Final[Any] = {  # matplotlib types its keys by name
    "svg.hashsalt": "penstock",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

Rows = Sequence[Mapping[str, Any]]


def draw(figures: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw the figures of peers.json to files, whose names say the format."""
    rows = [row for row in figures["rows"] if not row["load"].endswith("a second")]
    checkouts = [row for row in rows if is_checkout(row)]
    keys = [row for row in rows if not row["system"].startswith("PostgreSQL")]
    keys.append(max((row for row in checkouts if row not in keys), key=lambda row: row["per_s"]))
    keys.sort(key=lambda row: -row["keys_per_s"])
    machine = figures["machine"]
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15)  # inches
        figure = Figure(figsize=(9.6, 6.8), layout=layout, facecolor="white")
        heights = [len(checkouts), len(keys)]
        above, below = figure.subplots(2, 1, height_ratios=heights)
        bars(above, checkouts, "per_s", "Shop checkouts per second (4 keys in one transaction)")
        bars(below, keys, "keys_per_s", "Keys updated per second")
        figure.supxlabel(
            f"{machine['cores']} cores for everything, clients included; {machine['processor']}; "
            f"{machine['date']}",
            fontsize=8,
            x=0.01,
            ha="left",
        )
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)


def is_checkout(row: Mapping[str, Any]) -> bool:
    """Say whether an operation of a row is a checkout of the shop."""
    system: str = row["system"]
    return system.startswith("PostgreSQL") or system.endswith("checkout")


def label_of(row: Mapping[str, Any]) -> str:
    """Return what a bar is."""
    if row["system"].startswith("PostgreSQL"):
        return f"{row['system']}\n{row['load']}"
    return str(row["system"]).replace(", ", "\n")


def bars(axes: Axes, rows: Rows, column: str, title: str) -> None:
    """Draw horizontal bars, the first row on top, each with its figure at its end."""
    values = [row[column] for row in rows]
    colours = [OURS if row["system"].startswith("Penstock") else THEIRS for row in rows]
    drawn = axes.barh([label_of(row) for row in rows], values, color=colours, height=0.68)
    axes.bar_label(drawn, [number(value) for value in values], padding=4)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.invert_yaxis()
    axes.set_xlim(0, max(values) * 1.12)
    axes.xaxis.set_visible(False)
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.spines["left"].set_color(THEIRS)


def main() -> None:
    """Draw the committed figures."""
    draw(json.loads((DOCS / "peers.json").read_text()), [DOCS / "peers.svg"])


if __name__ == "__main__":
    main()
