"""Measure Penstock's parts by themselves: log, journal, state.

    python -m benchmarks.parts [--update-docs]

Runs `log_append.py`, `journal_commit.py` and `state_apply.py`, one after the other on one disk, and
picks the figures that say what each part allows the whole. Prints a Markdown table, then one JSON
object as the last line; `--update-docs` writes docs/parts.json and the page. Takes a minute or two.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import page
from benchmarks.machine import figures_of, machine, module, require_idle

EPOCHS: Final = 10_000
"""Of the journal's longest history; its own program goes to 100,000."""

Lines = list[tuple[str, str]]


def log_lines(found: dict[str, Any]) -> Lines:
    """Say what the log does."""
    number = page.number
    single = [(found[f"single_{one}_per_s"], found[f"single_{one}_p99_ms"]) for one in (1, 64)]
    return [
        ("bulk append, 10,000 records a call", f"{number(found['bulk_records_per_s'])} records/s"),
        *(
            (f"append of one record, {threads}", f"{number(rate)} /s, p99 {number(p99)} ms")
            for threads, (rate, p99) in zip(("1 thread", "64 threads"), single, strict=True)
        ),
        ("read", f"{number(found['read_records_per_s'])} records/s"),
    ]


def journal_lines(found: dict[str, Any]) -> Lines:
    """Say what the journal does."""
    number = page.number
    commit, parts = found["commit_4_parts_ms"], found["parts"]
    longest = found["history"][str(EPOCHS)]
    return [
        ("commit of an epoch of four parts", f"{number(commit['median'])} ms"),
        ("write 5,000 changes", f"{number(parts['write_changes_ms'])} ms"),
        ("write 5,000 transactions", f"{number(parts['write_transactions_ms'])} ms"),
        (f"open after {EPOCHS:,} epochs", f"{number(longest['open_ms'])} ms"),
        (f"commit after {EPOCHS:,} epochs", f"{number(longest['commit_ms'])} ms"),
    ]


def state_lines(found: dict[str, Any]) -> Lines:
    """Say what local state does."""
    number = page.number
    return [
        ("apply 20,000 changes at once", f"{number(found['applied_per_s']['20000'])} /s"),
        ("get of a random entity", f"{number(found['get_us']['uniform'])} µs"),
        (
            "get through the stores of two partitions",
            f"{number(found['partitions_2']['get_uniform_us'])} µs",
        ),
        (
            "rebuild from the journal",
            f"{number(found['partitions_1']['catch_up_rows_per_s'])} changes/s",
        ),
    ]


PARTS: Final = {
    "log": ("log_append", (), log_lines),
    "journal": ("journal_commit", ("--epochs", str(EPOCHS)), journal_lines),
    "state": ("state_apply", (), state_lines),
}


def measure(directory: Path) -> dict[str, Any]:
    """Run everything; return what parts.json holds."""
    about = machine(directory)
    rows = []
    raw = {}
    for part, (program, arguments, lines) in PARTS.items():
        command = module(program, "--directory", directory, *arguments)
        print("running", *command, file=sys.stderr, flush=True)
        raw[part] = figures_of(command, directory / "messages.txt")
        rows += [{"part": part, "what": what, "value": value} for what, value in lines(raw[part])]
    return {"machine": about, "rows": rows, "figures": raw}


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"), help="on a real disk")
    parser.add_argument("--update-docs", action="store_true")
    chosen = parser.parse_args()
    if chosen.update_docs:
        require_idle()
    directory = Path(tempfile.mkdtemp(dir=chosen.directory, prefix="penstock-parts-"))
    try:
        figures = measure(directory)
    finally:
        shutil.rmtree(directory)
    if chosen.update_docs:
        page.update("parts", figures)
    print(page.parts_content(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
