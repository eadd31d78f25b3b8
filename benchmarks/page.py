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
from statistics import median
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
    ours = [row for row in figures["rows"] if row["system"] == "Penstock"]
    spent = [row["figures"]["cpu_ms"] for row in ours]
    costs = [(role, *(number(each.get(role, 0)) for each in spent)) for role in spent[0]]
    crowds = (f"{row['clients']:,} terminals:" for row in ours)
    of_process = table(("ms of processor time for a transaction", *crowds), costs)
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


SCALE_COSTS: Final = {
    "wait_s": ("W", "an epoch waits for driver, store and broker"),
    "wait_record_s": ("w", "the same for each record"),
    "tasks_s": ("t", "the tasks of an epoch, together"),
    "task_record_s": ("p", "a record in its task"),
    "host_s": ("a", "each host for an epoch: stores, gateway, Java"),
    "host_record_s": ("r", "each host for a record"),
    "request_s": ("g", "a gateway for a call over HTTP"),
    "idle": ("o", "a host at rest, of one core"),
}
"""The letter of each cost of `benchmarks.scale`, and its meaning."""


def scale_content(figures: Figures) -> str:
    """Return the tables of `scripts/cluster --parts scaling` and `benchmarks.scale`: costs, and figures beside the model."""
    loads = [(costs, tasks) for costs in ("calls", "http") for tasks in figures[costs]]
    columns = [figures[costs][tasks] for costs, tasks in loads] + [figures["checkout"]]
    rows = []
    for name, (letter, text) in SCALE_COSTS.items():
        unit, times = ("%", 100) if name == "idle" else ("µs", 1e6) if "re" in name else ("ms", 1e3)
        values = [each.get(name, 0.0) * times for each in columns]
        if any(values):
            cells = [number(value) if value else "-" for value in values]
            rows.append((letter, f"{text}, {unit}", *cells))
    titles = [f"{'HTTP' if costs == 'http' else costs}, tasks {tasks}:" for costs, tasks in loads]
    costs = table(("", "cost", *titles, "checkout:"), rows)
    compared = [
        (
            row["what"],
            str(row["hosts"]),
            number(row["per_s"]),
            number(row["model"]) if "model" in row else "-",
            f"{_of_model(row) - 1:+.0%}" if "model" in row else "-",
            _spread(row),
            number(row["records"]) if "model" in row else "-",
            row.get("limit", "-"),
        )
        for row in figures["rows"]
    ]
    numbers = (
        "hosts:",
        "measured a second:",
        "model:",
        "difference:",
        "in each run:",
        "in an epoch:",
    )
    told = ""
    if ratios := figures.get("ratios"):
        parts = [
            f"{kind} {ratio['measured']:.2f} ({ratio['least']:g}{_rounds(ratio)})"
            for kind, ratio in ratios.items()
        ]
        modelled = [row for row in figures["rows"] if "model" in row]
        share = figures["model_share"]
        near = sum(abs(_of_model(row) - 1) <= share for row in modelled)
        told = (
            f"The most hosts over one host, in brackets the aim and each round: {'; '.join(parts)}. "
            f"{near} of {len(modelled)} figures are within {share:.0%} of the model.\n\n"
        )
    # Busy processors were looked for after the runs, so the loads say more.
    about = machine_text({**figures["machine"], "busy_percent": None})
    loads = figures.get("loads") or [row["load"] for row in figures["rows"] if "load" in row]
    load = f"The load average was {min(loads):g} to {max(loads):g}."
    rates = table(("work", *numbers, "most of its time"), compared)
    return f"{costs}\n\n{rates}\n\n{told}{about} {load}"


def _of_model(row: Figures) -> float:
    """Return how much of the model a figure is: the median of its runs."""
    return float(row.get("ratio", row["per_s"] / row["model"]))


def _spread(row: Figures) -> str:
    """Return how far the runs of a figure are from the model."""
    each = row.get("ratios")
    return f"{min(each) - 1:+.0%} to {max(each) - 1:+.0%}" if each else "-"


def _rounds(ratio: Figures) -> str:
    """Return the ratios of all rounds, for a text in brackets."""
    each = ratio.get("rounds")
    return f"; {', '.join(f'{one:.2f}' for one in each)}" if each else ""


HOURS_FIGURES: Final = {
    "p50_ms": "p50 of a minute, ms",
    "p99_ms": "p99 of a minute, ms",
    "memory_mb": "memory of all processes, MB",
    "files": "files",
    "disk_mb": "disk, MB",
    "cores": "cores in use",
}
HOURS_SHARES: Final = {
    "memory": "memory, MB",
    "cpu": "cores in use",
    "disk": "disk, MB",
}


def hours_content(figures: Figures) -> str:
    """Return the tables of `benchmarks.hours`: all figures with their trends, and those of each process and of each name on the disk."""
    found = {name: trends for name, trends in figures["trends"].items() if trends}
    titles = [f"change in an hour, from minute {trends['from']} on:" for trends in found.values()]
    whole = found.get("started", {"from": 1})
    rows = []
    for name, text in HOURS_FIGURES.items():
        values = [row[name] for row in figures["minutes"][whole["from"] - 1 :] if name in row]
        if values:
            ends = f"{number(min(values))} to {number(max(values))}"
            changes = [_change(trends[name]) for trends in found.values()]
            noise = number(whole[name]["noise"]) if name in whole else "-"
            rows.append((text, ends, number(median(values)), *changes, noise))
    head = ("figure", "least and most:", "median:", *titles, "noise:")
    tables = [table(head, rows)]
    full = figures["trends"]["full"] or figures["trends"]["started"] or {}
    for share, text in HOURS_SHARES.items():
        lines = sorted(full.get(share, {}).items(), key=lambda line: -line[1]["mean"])
        if lines:
            of = "name" if share == "disk" else "process"
            title = f"change in an hour, from minute {full['from']} on:"
            rows = [(name, number(line["mean"]), _amount(line)) for name, line in lines]
            tables.append(table((of, f"{text}, mean:", title), rows))
    requests = figures["rate"] * 60 * len(figures["minutes"])
    failed = sum(figures["failures"].values())
    about = (
        f"{machine_text(figures['machine'])} {figures['rate']:,} transfers a second for {len(figures['minutes'])} minutes; "
        f"{failed:,} of {requests:,} requests failed. Behind ± are two standard errors; the noise is the standard deviation "
        f"of a minute from the line. History is kept for {figures['keep_s']} s."
    )
    return "\n\n".join([*tables, about])


def _change(line: Figures) -> str:
    """Return a change in an hour as a part of the mean, and two errors of it."""
    if not line["mean"]:
        return "0"
    change, error = (100 * value / line["mean"] for value in (line["per_hour"], line["error"]))
    return f"{change:+.1f} % ± {2 * error:.1f}"


def _amount(line: Figures) -> str:
    """Return a change in an hour in the unit of the figure, and two errors of it."""
    return f"{line['per_hour']:+.2f} ± {2 * line['error']:.2f}"


SIZES_ROWS: Final = {
    "fill_s": ("import", "s"),
    "transfers_per_s": ("transfers a second, between two accounts of all", ""),
    "snapshot_s": ("first snapshot", "s"),
    "snapshot_of_1000_changes_s": ("snapshot after 1,000 changes", "s"),
    "snapshot_of_100000_changes_s": ("snapshot after 100,000 changes", "s"),
    "recovery_s": ("start without local state, to the first answer", "s"),
    "view_s": ("SQL view from a snapshot", "s"),
    "view_from_journal_s": ("SQL view from all epochs", "s"),
    "memory_mb": ("memory of all processes, the most", "MB"),
    "disk_mb": ("disk", "MB"),
}
"""The rows of the table of `benchmarks.sizes`: the text and the unit of each figure."""


def sizes_content(figures: Figures) -> str:
    """Return the table of `benchmarks.sizes`."""
    columns = figures["rows"]
    rows = [
        (text, *(f"{number(each[name])} {unit}".rstrip() for each in columns))
        for name, (text, unit) in SIZES_ROWS.items()
    ]
    head = ("accounts", *(f"{each['entities']:,}:" for each in columns))
    about = [machine_text(figures["machine"]), "Each number of accounts was measured once."]
    fastest = max(columns, key=lambda each: each["transfers_per_s"])
    about += [
        f"{each['entities']:,} accounts have {each['transfers_per_s'] / fastest['transfers_per_s']:.2f} times the transfers of "
        f"{fastest['entities']:,}, and the SQL view began from a snapshot with {number(each['view_rows_per_s'])} rows a second."
        for each in columns
        if each["entities"] > fastest["entities"]
    ]
    return f"{table(head, rows)}\n\n{' '.join(about)}"


CONTENTS: Final = {
    "checkouts": checkouts_content,
    "keys": keys_content,
    "tpcc": tpcc_content,
    "parts": parts_content,
    "history": parts_content,
    "types": types_content,
    "scale": scale_content,
    "hours": hours_content,
    "sizes": sizes_content,
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
