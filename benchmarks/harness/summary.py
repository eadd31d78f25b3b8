"""The figures of a run: as one JSON object, and as a table for people."""

from collections.abc import Mapping
from statistics import median
from typing import Any, Final

from rich.table import Table

from benchmarks.harness.latencies import percentiles_ms
from benchmarks.harness.measure import Measured
from benchmarks.harness.options import Options
from penstock.process.config import Config
from penstock.process.epoch_report import EpochReport

_CALLS: Final = {"checkout": "checkouts (Order.reorder)", "transfer": "transfers"}


def figures_of(options: Options, config: Config, measured: Measured) -> dict[str, Any]:
    """Return what `--json` prints. Keys are stable.

    `latency_ms` is the time until the reply of a committed epoch was decoded, `accepted_ms` the time until the
    request was durable in the log. `ratio_to_serial` compares with the serial oracle on the first 50,000 measured requests; where
    the rate was fixed it says nothing about what would be possible.
    """
    window_s = measured.window_s
    per_s = measured.succeeded / window_s if window_s > 0 else 0.0
    reports = measured.epochs
    findings = measured.findings
    return {
        f"{options.unit}_per_s": round(per_s, 1),
        "latency_ms": percentiles_ms(measured.latencies_ms / 1e3),
        "accepted_ms": percentiles_ms(measured.accepted_ms / 1e3),
        "epochs": measured.closes - measured.opens,
        "rounds_per_epoch": _mean([one.rounds for one in reports]),
        "aborts": measured.aborted,
        "conserved": not findings.complaints,
        "complaints": findings.complaints,
        "ratio_to_serial": round(per_s / measured.serial_per_s, 3)
        if measured.serial_per_s
        else None,
        "phases_ms": _phases(measured.epochs),
        "partitions": config.partitions,
        "cores": config.cores,
        options.unit: measured.succeeded,
        "seconds": round(window_s, 3),
        "serial_per_s": round(measured.serial_per_s, 1),
        "records_per_epoch": _mean([one.records for one in reports]),
        "reran_per_epoch": _mean([one.reran for one in reports]),
        "aborts_by_code": findings.failures,
        "requests": int(measured.rows[-1, 2]),
        "counting_us_per_reply": round(measured.counting_us, 2),
        "audit_seconds": round(findings.audit_s, 2),
        "replies_hash": findings.replies_hash,
        "state_hash": findings.state_hash,
        "oracle_checked": options.check_oracle,
        "rate": options.rate or None,
        "in_flight": None if options.rate else options.backlog,
        "zipf": options.zipf,
        "users": options.users,
        **({"items": options.items, "orders": options.orders} if _is_shop(options) else {}),
        "seed": options.seed,
    }


def table_of(options: Options, figures: Mapping[str, Any]) -> Table:
    """Return the figures as a person wants them."""
    title = f"Penstock: {_CALLS[options.kind]}, bulk appends of pre-encoded requests"
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    rows = {
        f"{options.unit} per second": f"[bold]{figures[f'{options.unit}_per_s']:,.0f}[/]",
        "measured": f"{figures[options.unit]:,} in {figures['seconds']:.1f} s",
        "accepted (durable) p50 / p90 / p99": _percentiles(figures["accepted_ms"]),
        "committed (replied) p50 / p90 / p99": _percentiles(figures["latency_ms"]),
        "epochs (records, rounds each)": f"{figures['epochs']} "
        f"({figures['records_per_epoch']:,.0f}, {figures['rounds_per_epoch']:.2f})",
        "aborts": f"{figures['aborts']:,}",
        "beside one thread in memory": f"{figures['ratio_to_serial'] or 0:.2f} times",
        "partitions, cores": f"{figures['partitions']}, {figures['cores']}",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    for name, ms in figures["phases_ms"].items():
        table.add_row(f"  an epoch's {name}", _milliseconds(ms))
    table.add_section()
    verdict = "[green]conserved[/]" if figures["conserved"] else "[bold red]NOT conserved[/]"
    what = "money and stock" if _is_shop(options) else "money"
    table.add_row(f"{what}, every epoch of the journal", verdict)
    if options.check_oracle and figures["conserved"]:
        table.add_row("replies and state of the serial oracle", "[green]equal[/]")
    return table


def _is_shop(options: Options) -> bool:
    return options.kind == "checkout"


def _percentiles(latency: Mapping[str, float | None]) -> str:
    return " / ".join(map(_milliseconds, latency.values()))


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _mean(values: list[int]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0


def _phases(epochs: list[EpochReport]) -> dict[str, float]:
    """Return the median of each phase over the epochs that had it; `rest` comes last."""
    found: dict[str, list[float]] = {}
    for epoch in epochs:
        for name, ms in epoch.phases_ms.items():
            found.setdefault(name, []).append(ms)
    ordered = sorted(found, key=lambda name: name == "rest")
    return {name: round(median(found[name]), 2) for name in ordered}
