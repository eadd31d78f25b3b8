"""The generated parts of docs/PERFORMANCE.md: tables between markers, made from committed JSON.

It reads and writes text only, with the standard library, so that a test can compare the page with
JSON beside it wherever the project is installed. `python -m benchmarks.page` writes the page anew
from that JSON, measuring nothing.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parent.parent / "docs"
PAGE: Final = DOCS / "PERFORMANCE.md"
BUSY: Final = 0.5
"""Load average for each core from which a machine is not one that does nothing else."""

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


def update(part: str, figures: Figures) -> None:
    """Write figures to docs, as JSON and into the page."""
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    (DOCS / f"{part}.json").write_text(f"{text}\n")
    PAGE.write_text(filled(PAGE.read_text(), part, CONTENTS[part](figures)))


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
    busy = machine["load_before"] > BUSY * machine["cores"]
    caution = " **Others used it too: do not quote these figures.**" if busy else ""
    return (
        f"Measured on {machine['date']} at {machine['commit']}: {machine['cores']} cores of "
        f"{machine['processor']}, {machine['memory_gb']} GB of memory, {machine['system']}, "
        f"Python {machine['python']}. One `fdatasync` of 4 KB takes "
        f"{number(machine['fdatasync_ms'])} ms (median). The machine's load average was "
        f"{machine['load_before']:.1f} when the run began.{caution}"
    )


def peers_content(figures: Figures) -> str:
    """Return the table of `benchmarks.peers`."""
    head = ("system", "load", "operations/s:", "keys/s:", "p50 ms:", "p99 ms:", "checked")
    rows = [
        (
            row["system"],
            row["load"],
            number(row["per_s"]),
            number(row["keys_per_s"]),
            *(_milliseconds(row["latency_ms"].get(one)) for one in ("p50", "p99")),
            "yes" if row["checked"] else "**no**",
        )
        for row in figures["rows"]
    ]
    versions = ", ".join(f"{name} {value}" for name, value in figures["versions"].items())
    return "\n\n".join(
        (
            table(head, rows),
            f"{machine_text(figures['machine'])} Versions: {versions}. "
            f"{figures['seconds']:g} measured seconds for each row.",
        )
    )


def parts_content(figures: Figures) -> str:
    """Return the table of `benchmarks.parts`."""
    rows = [(row["part"], row["what"], row["value"]) for row in figures["rows"]]
    return f"{table(('part', 'what', 'figure:'), rows)}\n\n{machine_text(figures['machine'])}"


def over_http_content(figures: Figures) -> str:
    """Return the table of `benchmarks.over_http`."""
    costs = ("gateway, µs a request:", "empty route, µs:")
    head = ("clients", "checkouts/s:", "p50 ms:", "p99 ms:", "errors:", *costs, "conserved")
    rows = [
        (
            f"{row['connections']:,}",
            number(row["requests_per_s"]),
            *(_milliseconds(row["latency_ms"][one]) for one in ("p50", "p99")),
            str(row["errors"]),
            number(row["gateway_us_per_request"]),
            number(row["empty_route_us_per_request"]),
            "yes" if row["conserved"] else "**no**",
        )
        for row in figures["rows"]
    ]
    return f"{table(head, rows)}\n\n{machine_text(figures['machine'])}"


CONTENTS: Final = {
    "peers": peers_content,
    "parts": parts_content,
    "over_http": over_http_content,
    "history": parts_content,
}
"""What makes each generated part from its figures."""


def _milliseconds(value: float | None) -> str:
    return "" if value is None else number(value)


def main() -> None:
    """Write every generated part from its committed figures."""
    for part in CONTENTS:
        update(part, json.loads((DOCS / f"{part}.json").read_text()))


if __name__ == "__main__":
    main()
