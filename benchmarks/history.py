"""Measure what is done with the past: recovery, time travel, replay, maintenance.

    python -m benchmarks.history [--update-docs]

Runs `recovery.py`, `as_of.py`, `replay.py`, `long_run.py` and `maintenance.py`, one after the other, and
picks the figures that say what a user can expect. Prints a Markdown table; `--update-docs` writes
docs/history.json and the page. Takes about ten minutes.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import page
from benchmarks.machine import figures_of, machine, module, require_idle

Lines = list[tuple[str, str]]


def recovery_lines(found: dict[str, Any]) -> Lines:
    """Say how soon state is ready."""
    number = page.number
    return [
        (
            f"state ready: {found['entities']:,} entities, {found['epochs']:,} epochs with "
            f"{found['changes']:,} changes since the snapshot",
            f"{number(found['recovery_s'])} s",
        ),
        (f"snapshot of {found['entities']:,} entities", f"{number(found['snapshot_s'])} s"),
        (f"merging {found['epochs']:,} small epochs", f"{number(found['merge_s'])} s"),
    ]


def as_of_lines(found: dict[str, Any]) -> Lines:
    """Say how long SQL over the past takes."""
    number = page.number
    return [
        ("join of three classes of 100,000, 10,000 epochs back, cold", f"{number(found['join_cold_ms'])} ms"),
        ("the same, asked again", f"{number(found['join_warm_ms'])} ms"),
    ]  # fmt: skip


def replay_lines(found: dict[str, Any]) -> Lines:
    """Say how fast requests are replayed."""
    number = page.number
    return [
        ("checkouts replayed and compared", f"{number(found['compared_per_s'])} /s"),
        ("what-if, compared with the record", f"{number(found['what_if_per_s'])} /s"),
    ]


def long_run_lines(found: dict[str, Any]) -> Lines:
    """Say whether disk stays bounded."""
    number = page.number
    epochs = f"{found['epochs']:,} epochs, the newest 10,000 kept"
    return [
        (
            f"files after {epochs} (a quarter in)",
            f"{found['files_late']} ({found['files_early']})",
        ),
        (
            f"megabytes after {epochs} (a quarter in)",
            f"{number(found['megabytes_late'])} ({number(found['megabytes_early'])})",
        ),
        ("opening the journal then", f"{number(found['open_ms'])} ms"),
    ]


def maintenance_lines(found: dict[str, Any]) -> Lines:
    """Say what it costs those who are served meanwhile."""
    number = page.number
    fast, steady = found["max"], found["rate"]
    return [
        (
            "checkouts/s while snapshots and merging run, of those while not",
            f"{number(fast['throughput_ratio'])} times",
        ),
        ("p99 of the same, with a full backlog", f"{number(fast['p99_ratio'])} times"),
        (
            f"p99 of {found['offered_per_s']:,} checkouts/s on a schedule, the same",
            f"{number(steady['p99_ratio'])} times",
        ),
    ]


PROGRAMS: Final = {
    "recovery": recovery_lines,
    "as_of": as_of_lines,
    "replay": replay_lines,
    "long_run": long_run_lines,
    "maintenance": maintenance_lines,
}


def measure(directory: Path) -> dict[str, Any]:
    """Run all programs; return what docs/history.json holds."""
    where = machine(directory)
    rows, details = [], {}
    for name, lines in PROGRAMS.items():
        found = figures_of(module(name), directory / f"{name}.log")
        details[name] = found
        rows += [{"part": name, "what": what, "value": value} for what, value in lines(found)]
    return {"machine": where, "rows": rows, "details": details}


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--update-docs", action="store_true")
    chosen = parser.parse_args()
    if chosen.update_docs:
        require_idle()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="penstock-history-") as folder:
        figures = measure(Path(folder))
    if chosen.update_docs:
        page.update("history", figures)
    print(page.parts_content(figures))


if __name__ == "__main__":
    main()
