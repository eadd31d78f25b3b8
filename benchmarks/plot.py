"""The plots of `benchmarks.peers`: checkouts a second, in bulk and over HTTP, and transactions of TPC-C.

The same figures give the same SVG, byte for byte, so that a new plot in a diff means new figures.
`python -m benchmarks.plot` draws docs/checkouts.svg and docs/tpcc.svg from their JSON, and measures nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benchmarks.page import DOCS, measured, number

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


def draw_checkouts(figures: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw the figures of checkouts.json to files, whose names say the format."""
    bulk = [row for row in figures["rows"] if row["clients"] == 1]
    crowd = max(row["clients"] for row in figures["rows"])
    http = [row for row in figures["rows"] if row["clients"] == crowd]
    titled = [
        (bulk, "Checkouts per second, in bulk: many pre-encoded requests at once"),
        (http, f"Checkouts per second over HTTP: {crowd:,} clients, one request each"),
    ]
    _draw(figures["machine"], titled, paths)


def draw_tpcc(figures: Mapping[str, Any], paths: Sequence[Path]) -> None:
    """Draw the figures of tpcc.json to files, whose names say the format."""
    lines: dict[str, dict[int, float]] = {}
    for row in figures["rows"]:
        if "-http-" in row["id"]:
            lines.setdefault(row["system"], {})[row["clients"]] = row["per_s"]
    with drawn(4.6, _note(figures["machine"]), *paths) as figure:
        axes = figure.subplots()
        for (system, rates), style in zip(lines.items(), ("-", "-", "--", ":"), strict=True):
            is_ours = system.startswith("Penstock")
            colour = OURS if is_ours else INK
            axes.plot([*rates], [*rates.values()], style, color=colour, marker="o", lw=2 + is_ours)
            last, rate = [*rates.items()][-1]
            axes.annotate(
                system, (last, rate), (8, 0), textcoords="offset points", va="center", color=colour
            )
        terminals = [*next(iter(lines.values()))]
        axes.set_xscale("log")
        axes.set_xticks(terminals, [f"{each:,}" for each in terminals])
        axes.set_xticks([], minor=True)
        axes.set_xlim(right=terminals[-1] * 2.6)  # room for the names
        axes.set_ylim(bottom=0)
        axes.set_xlabel("terminals, one HTTP request each")
        axes.set_title(
            "TPC-C transactions per second over HTTP", loc="left", fontsize=11, fontweight="bold"
        )
        axes.spines[["top", "right"]].set_visible(False)


PLOTS: Final = {"checkouts": draw_checkouts, "tpcc": draw_tpcc}
"""The function that draws the figures of each JSON file that has a plot."""


@contextmanager
def drawn(height: float, note: str, *paths: Path) -> Iterator[Figure]:
    """Give a figure, which is written to files after the block; their names say the format.

    Args:
        height: Its height in inches.
        note: The text below it; empty for none.
    """
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15)  # inches
        figure = Figure(figsize=(9.6, height), layout=layout, facecolor="white")
        if note:
            figure.supxlabel(note, fontsize=8, x=0.01, ha="left")
        yield figure
        for path in paths:
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(path, dpi=150, metadata=metadata)


def _note(machine: Mapping[str, Any]) -> str:
    return (
        f"{machine['cores']} cores for everything, clients included; {machine['processor']}; "
        f"{machine['date']}"
    )


def _draw(
    machine: Mapping[str, Any], titled: Sequence[tuple[Rows, str]], paths: Sequence[Path]
) -> None:
    with drawn(5.2, _note(machine), *paths) as figure:
        heights = [len(rows) for rows, _ in titled]
        axes = figure.subplots(len(titled), 1, height_ratios=heights)
        for each, (rows, title) in zip(axes, titled, strict=True):
            bars(each, rows, title)


def bars(axes: Axes, rows: Rows, title: str) -> None:
    """Draw horizontal bars, the first row on top, each with its figure at its end."""
    values = [row["per_s"] for row in rows]
    labels = [row["system"].replace(", ", "\n") for row in rows]
    colours = [OURS if row["system"].startswith("Penstock") else THEIRS for row in rows]
    drawn = axes.barh(labels, values, color=colours, height=0.68)
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
    for name, figures in measured().items():
        if name in PLOTS:
            PLOTS[name](figures, [DOCS / f"{name}.svg"])


if __name__ == "__main__":
    main()
