"""The measured parts of the pages, made from committed JSON: tables, and figures in sentences.

A table of docs/PERFORMANCE.md stands between two markers that name its JSON file. A figure in a
sentence of any page stands between `<!--=checkouts.rows.penstock-checkout.per_s-->` and `<!--/-->`:
the JSON file, then the way to the number, where an element of a list goes by its `id`. So two
sentences about one thing can't tell two figures.

It reads and writes text only, with the standard library, so that a test can compare the pages with
their JSON wherever the project is installed. `python -m benchmarks.page` writes all pages from that
JSON and measures nothing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

TOP: Final = Path(__file__).parent.parent
DOCS: Final = TOP / "docs"
PAGE: Final = DOCS / "PERFORMANCE.md"
PAGES: Final = (TOP / "README.md", *sorted(DOCS.rglob("*.md")))
FIGURE: Final = re.compile(r"<!--=(\S+)-->(.*?)<!--/-->")

Figures = Mapping[str, Any]


def begin_of(part: str) -> str:
    """Return the marker before a generated part."""
    return f"<!-- begin: {part} -->"


def end_of(part: str) -> str:
    """Return the marker after a generated part."""
    return f"<!-- end: {part} -->"


def filled(text: str, part: str, content: str) -> str:
    """Return the page with one generated part replaced.

    Raises:
        ValueError: The page does not have both markers once.
    """
    before, begin, rest = text.partition(begin_of(part))
    _, end, after = rest.partition(end_of(part))
    if not begin or not end or begin in after or end in after:
        raise ValueError(f"the page needs {begin_of(part)} and {end_of(part)} once each")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def quoted(text: str, measured: Figures) -> str:
    """Return a page with every figure in its sentences as it was measured."""
    return FIGURE.sub(
        lambda found: f"<!--={found[1]}-->{number(figure_of(measured, found[1]))}<!--/-->", text
    )


def figure_of(measured: Figures, path: str) -> float:
    """Return the number at the end of a path through the JSON files.

    Raises:
        ValueError: The JSON does not have it.
    """
    found: Any = measured
    for name in path.split("."):
        if isinstance(found, list):
            found = {one["id"]: one for one in found}
        if not isinstance(found, Mapping) or name not in found:
            raise ValueError(f"{path}: the JSON does not have {name}")
        found = found[name]
    if not isinstance(found, int | float):
        raise ValueError(f"{path}: that is not a number")
    return found


def measured() -> Figures:
    """Return the committed figures of the programs that have run for the docs."""
    files = {part: DOCS / f"{part}.json" for part in CONTENTS}
    return {part: json.loads(file.read_text()) for part, file in files.items() if file.exists()}


def update(part: str, figures: Figures) -> None:
    """Write figures to docs, as JSON and into the pages."""
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    (DOCS / f"{part}.json").write_text(f"{text}\n")
    PAGE.write_text(filled(PAGE.read_text(), part, CONTENTS[part](figures)))
    quote()


def quote() -> None:
    """Write the measured figures into the sentences of all pages."""
    all_of_them = measured()
    for path in PAGES:
        text = path.read_text()
        if (new := quoted(text, all_of_them)) != text:
            path.write_text(new)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; a column whose title ends with `:` is right-aligned."""
    titles = [one.removesuffix(":") for one in head]
    rule = ["---:" if one.endswith(":") else "---" for one in head]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, rule, *rows))


def number(value: float) -> str:
    """Return three significant digits, with thousands separated: 26,800; 3,210; 1.83."""
    if value == 0:
        return "0"
    digits = 3 - len(f"{abs(value):.0f}") if abs(value) >= 1 else 2
    rounded = round(value, digits)
    return f"{rounded:,.{max(digits, 0)}f}"


def machine_text(machine: Figures) -> str:
    """Return a sentence about where the figures come from."""
    busy = machine.get("busy_percent")
    return (
        f"Measured on {machine['date']} at {machine['commit']}: {machine['cores']} cores of "
        f"{machine['processor']}, {machine['memory_gb']} GB of memory, {machine['system']}, "
        f"Python {machine['python']}. One `fdatasync` of 4 KB takes "
        f"{number(machine['fdatasync_ms'])} ms (median)."
        + (f" Before, {busy:.0f} % of the processors were in use." if busy is not None else "")
    )


def peers_text(figures: Figures) -> str:
    """Return the sentences below a table of `benchmarks.peers`."""
    versions = ", ".join(f"{name} {value}" for name, value in figures["versions"].items())
    seconds = f"{figures['seconds']:g} measured seconds for each row."
    return f"{machine_text(figures['machine'])} Versions: {versions}. {seconds}"


def checkouts_content(figures: Figures) -> str:
    """Return the table of `benchmarks.peers checkouts`."""
    latencies = [
        f"{which} {one} ms:" for which in ("accepted", "committed") for one in ("p50", "p99")
    ]
    numbers = ("clients:", "in flight:", "checkouts/s:", *latencies)
    rows = [
        (
            row["what"],
            row["system"],
            f"{row['clients']:,}",
            f"{row['in_flight']:,}",
            number(row["per_s"]),
            *_latencies(row.get("accepted_ms", {})),
            *_latencies(row["latency_ms"]),
            row["durable"],
            _verdict(row),
        )
        for row in figures["rows"]
    ]
    head = ("one checkout is asked for", "system", *numbers, "durable", "checked")
    return f"{table(head, rows)}\n\n{peers_text(figures)}"


def tpcc_content(figures: Figures) -> str:
    """Return the tables of `benchmarks.peers tpcc`."""
    rows = [
        (
            row["what"],
            row["system"],
            f"{row['clients']:,}",
            number(row["per_s"]),
            number(row["figures"]["new_orders_per_minute"]),
            *_latencies(row["latency_ms"]),
            row["durable"],
            _verdict(row),
        )
        for row in figures["rows"]
    ]
    numbers = ("clients:", "transactions/s:", "New-Orders/min:", "p50 ms:", "p99 ms:")
    head = ("one transaction is asked for", "system", *numbers, "durable", "checked")
    (ours,) = (row for row in figures["rows"] if row["system"] == "Penstock")
    costs = [(role, number(cost)) for role, cost in ours["figures"]["cpu_ms"].items()]
    of_process = table(("process", "ms of processor time for a transaction:"), costs)
    return f"{table(head, rows)}\n\n{of_process}\n\n{peers_text(figures)}"


def keys_content(figures: Figures) -> str:
    """Return the table of `benchmarks.peers keys`."""
    rows = [
        (
            row["what"],
            row["system"],
            f"{row['in_flight']:,}",
            number(row["per_s"]),
            number(row["figures"]["keys_per_s"]),
            row["durable"],
            _verdict(row),
        )
        for row in figures["rows"]
    ]
    numbers = ("in flight:", "operations/s:", "keys/s:")
    head = ("one operation", "system", *numbers, "durable", "checked")
    return f"{table(head, rows)}\n\n{peers_text(figures)}"


def parts_content(figures: Figures) -> str:
    """Return the table of `benchmarks.parts` or `benchmarks.history`."""
    rows = [(row["part"], row["what"], row["value"]) for row in figures["rows"]]
    return (
        f"{table(('part', 'measurement', 'figure:'), rows)}\n\n{machine_text(figures['machine'])}"
    )


def types_content(figures: Figures) -> str:
    """Return the table of `benchmarks.value_types`."""
    names = [name for name in ("before", "compiled", "Python") if name in figures["rows"][0]]
    rows = [(row["id"], *(number(row[name]) for name in names)) for row in figures["rows"]]
    head = ("µs of processor time", *(f"{name}:" for name in names))
    return f"{table(head, rows)}\n\n{machine_text(figures['machine'])}"


CONTENTS: Final = {
    "checkouts": checkouts_content,
    "keys": keys_content,
    "tpcc": tpcc_content,
    "parts": parts_content,
    "history": parts_content,
    "types": types_content,
}
"""The function that makes each generated part from its figures."""


def _latencies(latency_ms: Figures) -> list[str]:
    """Return p50 and p99 as text; dashes without figures."""
    return [number(latency_ms[one]) if latency_ms else "-" for one in ("p50", "p99")]


def _verdict(row: Figures) -> str:
    return "yes" if row["checked"] else "**no**"


def main() -> None:
    """Write every generated part from its committed figures."""
    for part, figures in measured().items():
        update(part, figures)


if __name__ == "__main__":
    main()
