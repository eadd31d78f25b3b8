"""Measure the Delta journal; print one JSON object.

    python benchmarks/journal_commit.py [--epochs 100000] [--directory DIRECTORY]

Rows are those of a shop checkout. History is synthesised: the commits of most epochs are written
in the very form that the journal writes, but without fsync and without their part files, because
100,000 real epochs take minutes and differ in nothing that is measured here.

Milliseconds are medians. `open_ms` is a new `DeltaJournal` and its first `last()`, which lists
and checks all names; `last_ms` a further `last()`. `checkpoint_ms` condenses 1,000 epochs more
than the checkpoint before, `checkpoint_first_ms` all epochs with no checkpoint before.
`memory_mb` is the peak of this process's resident memory so far. `delta_rs` is what delta-rs takes
to open the longest table right after its checkpoint, and for one commit.
"""

import argparse
import json
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch, LogPartition, Lsn
from penstock.journal import action
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, Part, PartKind
from penstock.journal.delta import DeltaJournal

ROWS = 5_000
REPEATS = 40
STEP = 1_000
PARTS = 4


def changes(epoch: int, dice: random.Random) -> pa.Table:
    """Return what checkouts change: items, users and orders with small states."""
    keys = [f"{dice.randrange(100_000):06}" for _ in range(ROWS)]
    states = [
        msgspec.msgpack.encode({"price": dice.randrange(1_000), "stock": dice.randrange(10_000)})
        for _ in range(ROWS)
    ]
    names = [dice.choice(["Item", "User", "Order"]) for _ in range(ROWS)]
    return pa.table([pa.array([epoch] * ROWS), names, keys, states], schema=CHANGES)


def transactions(epoch: int, dice: random.Random) -> pa.Table:
    """Return checkouts with their replies."""
    rows = [
        {
            "epoch": epoch,
            "partition": 0,
            "lsn": epoch * ROWS + number,
            "request_id": f"{dice.getrandbits(128):032x}",
            "time_us": 1_800_000_000_000_000 + number,
            "request": msgspec.json.encode(["Order", f"o{number}", "checkout", ["u1", "i2"]]),
            "error": None,
            "reply": msgspec.msgpack.encode(dice.randrange(100_000)),
        }
        for number in range(ROWS)
    ]
    return pa.Table.from_pylist(rows, TRANSACTIONS)


def timed(use: Callable[[], object]) -> float:
    """Return how many milliseconds a call takes."""
    start = time.perf_counter()
    use()
    return (time.perf_counter() - start) * 1_000


def commit_of(epoch: int, parts: tuple[Part, ...]) -> Commit:
    """Return a commit that has read as many records as it has rows."""
    positions = {LogPartition(0): Lsn((epoch + 1) * ROWS)}
    return Commit(Epoch(epoch), positions, parts, 1_800_000_000_000_000 + epoch)


def commit_ms(path: Path, parts: int, dice: random.Random) -> dict[str, float]:
    """Commit epochs with few rows each, and return what the commits alone take."""
    journal = DeltaJournal(path, "bench")
    taken = []
    for epoch in range(REPEATS):
        rows = changes(epoch, dice).slice(0, 100)
        written = tuple(journal.write(PartKind.CHANGES, rows, f"{one}-0") for one in range(parts))
        commit = commit_of(epoch, written)
        start = time.perf_counter()
        journal.commit(commit)
        taken.append((time.perf_counter() - start) * 1_000)
    return {"median": statistics.median(taken), "longest": max(taken)}


def throughput(path: Path, dice: random.Random) -> dict[str, float]:
    """Write and read parts of 5,000 rows; megabytes are those of the rows in memory."""
    journal = DeltaJournal(path, "bench")
    return kind_throughput(journal, PartKind.CHANGES, changes(0, dice)) | kind_throughput(
        journal, PartKind.TRANSACTIONS, transactions(0, dice)
    )


def kind_throughput(journal: DeltaJournal, kind: PartKind, rows: pa.Table) -> dict[str, float]:
    """Write and read parts of one kind."""
    parts: list[Part] = []
    write = [timed(lambda: parts.append(journal.write(kind, rows, "0-0"))) for _ in range(REPEATS)]
    read = [timed(partial(journal.read, part)) for part in parts]
    write_ms, read_ms = statistics.median(write), statistics.median(read)
    return {
        f"write_{kind}_ms": write_ms,
        f"read_{kind}_ms": read_ms,
        f"write_{kind}_mb_per_s": rows.nbytes / 1_000 / write_ms,
        f"read_{kind}_mb_per_s": rows.nbytes / 1_000 / read_ms,
        f"{kind}_bytes_per_row": parts[0].size / ROWS,
    }


def synthesise(path: Path, start: int, end: int, dice: random.Random) -> None:
    """Write the commits of [start, end) as the journal would."""
    for epoch in range(start, end):
        parts = tuple(
            Part(
                kind,
                f"kind={kind}/{epoch:012}-{number}-0-{dice.getrandbits(32):08x}.parquet",
                ROWS,
                100_000,
                f"{dice.getrandbits(128):032x}",
            )
            for kind in PartKind
            for number in range(PARTS // 2)
        )
        text = action.commit_text(commit_of(epoch, parts), "bench")
        name = f"{action.version_of(Epoch(epoch)):020}.json"
        (path / "_delta_log" / name).write_bytes(text)


def with_history(path: Path, epochs: int, dice: random.Random) -> dict[str, float]:
    """Grow a journal to `epochs` and measure what could depend on them."""
    last = DeltaJournal(path, "bench").last()
    there = 0 if last is None else last.epoch + 1
    synthesise(path, there, epochs - STEP, dice)
    hint = path / "_delta_log" / "_last_checkpoint"
    hint.unlink(missing_ok=True)
    first = timed(DeltaJournal(path, "bench").checkpoint)
    synthesise(path, epochs - STEP, epochs, dice)
    journal = DeltaJournal(path, "bench")
    journal.last()
    renewed = timed(journal.checkpoint)
    opened = [timed(lambda: DeltaJournal(path, "bench").last()) for _ in range(5)]
    further = [commit_of(epochs + number, ()) for number in range(20)]
    commits = [timed(partial(journal.commit, one)) for one in further]
    return {
        "open_ms": statistics.median(opened),
        "last_ms": statistics.median(timed(journal.last) for _ in range(REPEATS)),
        "commit_ms": statistics.median(commits),
        "checkpoint_ms": renewed,
        "checkpoint_first_ms": first,
        "checkpoint_mb": json.loads(hint.read_bytes())["sizeInBytes"] / 1e6,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000,
    }


def other_engine(path: Path) -> dict[str, float]:
    """Let delta-rs open the table, and commit one file to it as the journal could have done."""
    from deltalake import (  # noqa: PLC0415 - its memory must not count as ours
        CommitProperties,
        DeltaTable,
        PostCommitHookProperties,
        Schema,
        Transaction,
    )
    from deltalake.transaction import AddAction  # noqa: PLC0415

    tables: list[DeltaTable] = []
    opened = timed(lambda: tables.append(DeltaTable(path)))
    table = tables[0]
    add = AddAction(
        path="kind=changes/last.parquet",
        size=1,
        partition_values={"kind": "changes"},
        modification_time=0,
        data_change=True,
        stats='{"numRecords":1}',
    )
    committed = timed(
        lambda: table.create_write_transaction(
            [add],
            "append",
            Schema.from_arrow(table.schema()),
            "kind",
            commit_properties=CommitProperties(app_transactions=[Transaction("other", 1)]),
            post_commithook_properties=PostCommitHookProperties(
                create_checkpoint=False, cleanup_expired_logs=False
            ),
        )
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000
    return {"open_ms": opened, "commit_ms": committed, "memory_mb": memory}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    dice = random.Random(1)
    root = Path(tempfile.mkdtemp(dir=arguments.directory))
    try:
        result: dict[str, object] = {
            "commit_2_parts_ms": commit_ms(root / "two", 2, dice),
            "commit_4_parts_ms": commit_ms(root / "four", 4, dice),
            "parts": throughput(root / "parts", dice),
        }
        sizes = [size for size in (1_000, 10_000, 100_000) if size <= arguments.epochs]
        result["history"] = {str(size): with_history(root / "long", size, dice) for size in sizes}
        result["delta_rs"] = other_engine(root / "long")
    finally:
        shutil.rmtree(root)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
