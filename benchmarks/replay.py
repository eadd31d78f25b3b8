"""Replay: requests of a journal that are run again and compared, per second.

    python -m benchmarks.replay [--orders N] [--checkouts N] [--epoch N]

The journal is the shop's: items, users and orders are created, then orders with one to three items
are checked out, in epochs of the given size. Prints one JSON object: how many requests were replayed
a second, with reading and comparing (`compared_per_s`), by `penstock what-if` without the first of
them (`what_if_per_s`), the same with a journal of what came out (`kept_per_s`), and by the local
runtime alone, from memory (`run_per_s`). Writes to a temporary directory.
"""

import argparse
import json
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from benchmarks.harness.options import Options
from benchmarks.harness.workload import Workload, workload_of
from penstock.base.ids import Epoch, LogPartition, Lsn, RequestId, split_entity_key
from penstock.engine.execute import Executor, Limits
from penstock.history.code_versions import CodeVersions
from penstock.history.edits import ParsedEdits, drop_edits, resolve_edits
from penstock.history.reader import HistoryReader
from penstock.history.replay import replay
from penstock.history.what_if import Scenario, what_if
from penstock.journal.api import CHANGES, TRANSACTIONS, Commit, PartKind
from penstock.log.api import Record
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.runtime.local.runtime import LocalRuntime


def main() -> None:
    """Write a journal, replay it and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--checkouts", type=int, default=100_000)
    parser.add_argument("--epoch", type=int, default=5_000)
    chosen = parser.parse_args()
    work = workload_of(options_of(chosen.orders))
    bodies = [body for body, _ in work.loading]
    loading = len(bodies)
    bodies += [work.pool[index][0] for index in work.draw(chosen.checkouts).tolist()]
    records = [
        Record(Lsn(lsn), RequestId(f"request-{lsn}"), body, 1_000_000 + lsn)
        for lsn, body in enumerate(bodies)
    ]
    with tempfile.TemporaryDirectory() as directory:
        first = write_journal(Path(directory), work, records, loading, chosen.epoch)
        with (
            HistoryReader(Path(directory), work.app) as past,
            CodeVersions(past, work.app, work.spec) as versions,
        ):
            span = past.span(first, None)
            found = replay(past, versions, Limits(), span, lambda *_: None)
            rates = what_if_rates(past, work.app, span, Path(directory) / "scratch")
            alone = LocalRuntime(work.app)
            alone.state.update(past.state_before(first))
    assert found.divergence is None, found.divergence
    began = time.perf_counter()
    alone.replay(records[loading:])
    spent_s = time.perf_counter() - began
    print(
        json.dumps(
            {
                "requests": found.requests,
                "epochs": found.last - found.first + 1,
                "compared_per_s": round(found.requests / found.spent_s),
                **rates,
                "run_per_s": round(found.requests / spent_s),
            }
        )
    )


def what_if_rates(
    past: HistoryReader, app: App, span: tuple[Epoch, Epoch], scratch: Path
) -> dict[str, int]:
    """Leave out the first request of a span, and return how many others ran a second."""
    edits = ParsedEdits(drop_edits([past.epoch(span[0]).rows[0].request_id]), [])
    alternative = Scenario(app, app, resolve_edits(edits, past, lambda _: app, span))
    rates: dict[str, int] = {}
    for name, kept in (("what_if_per_s", None), ("kept_per_s", scratch)):
        found = what_if(past, alternative, Limits(), span, lambda *_: None, kept)
        assert found.replies.left_out.count == 1, found.replies
        rates[name] = round(found.requests / found.spent_s)
    return rates


def options_of(orders: int) -> Options:
    """Return the options of `penstock bench checkout` for so many orders."""
    return Options(kind="checkout", items=orders, users=orders, orders=orders)


def write_journal(
    data: Path, work: Workload, records: list[Record], loading: int, size: int
) -> Epoch:
    """Journal the loading as one epoch and the rest in epochs of a size; return the first of them."""
    state: dict[str, bytes] = {}
    executor = Executor(work.app, state.get, Limits())
    journal = DataDirectory(data).open_journal_of(work.app.name)
    starts = [0, *range(loading, len(records), size), len(records)]
    for epoch, (start, end) in enumerate(pairwise(starts)):
        rows, changes = [], {}
        for one in records[start:end]:
            outcome = executor.run(one.request_id, one.body, one.time_us)
            assert outcome.error is None, outcome.reply
            state.update(outcome.writes)  # type: ignore[arg-type]  # nothing is deleted
            changes.update(outcome.writes)
            row = (epoch, 0, one.lsn, one.request_id, one.time_us, one.body, None, outcome.reply)
            rows.append(dict(zip(TRANSACTIONS.names, row, strict=True)))
        changed = [
            dict(zip(CHANGES.names, (epoch, *split_entity_key(key), data), strict=True))
            for key, data in changes.items()
        ]
        parts = (
            journal.write(
                PartKind.TRANSACTIONS, pa.Table.from_pylist(rows, TRANSACTIONS), "replay"
            ),
            journal.write(PartKind.CHANGES, pa.Table.from_pylist(changed, CHANGES), "replay"),
        )
        journal.commit(Commit(Epoch(epoch), {LogPartition(0): Lsn(end)}, parts, epoch))
    journal.close()
    return Epoch(1)


if __name__ == "__main__":
    main()
