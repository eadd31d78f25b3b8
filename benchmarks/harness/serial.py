"""The serial oracle: the same requests in one thread, over dictionaries.

`serial_rate` is the rate of a single core without log, journal and Spark; `differences` runs all requests of the
journal and compares every reply and the state.
"""

import gc
import time
from pathlib import Path

from benchmarks.harness.audit import Findings, hash_of_replies
from benchmarks.harness.options import Options
from benchmarks.harness.workload import application_of
from penstock.base.ids import BEFORE_FIRST, Lsn, RequestId
from penstock.journal.api import PartKind
from penstock.log.api import Record
from penstock.process.data_directory import DataDirectory
from penstock.runtime.local.runtime import LocalRuntime
from penstock.state.digest import digest_of_mapping


def serial_rate(options: Options, found: Findings) -> float:
    """Return the requests a second of the oracle, on the sample, from the state before it."""
    if not found.sample:
        return 0.0
    app, _ = application_of(options)
    oracle = LocalRuntime(app)
    oracle.state.update(found.sample_state)
    gc.collect()
    gc.freeze()  # the audit's values must not slow the oracle down
    began = time.perf_counter()
    replies = oracle.replay(found.sample)
    spent = time.perf_counter() - began
    gc.unfreeze()
    return len(replies) / spent


def differences(options: Options, data: Path, found: Findings) -> list[str]:
    """Return how the journal differs from the oracle that replays all of it."""
    app, _ = application_of(options)
    rows: list[tuple[str, str | None, bytes]] = []
    journal = DataDirectory(data).open_journal_of(app.name)
    oracle = LocalRuntime(app, secret=journal.secret)
    for commit in journal.commits(BEFORE_FIRST):
        records = [
            Record(Lsn(row["lsn"]), RequestId(row["request_id"]), row["request"], row["time_us"])
            for part in commit.parts_of(PartKind.TRANSACTIONS)
            for row in journal.read(part).to_pylist()
        ]
        records.sort(key=lambda record: record.lsn)
        rows += [(one.request_id, one.error, one.data) for one in oracle.replay(records)]
    journal.close()
    complaints = []
    if hash_of_replies(rows) != found.replies_hash:
        complaints.append("the replies differ from the serial oracle's")
    if digest_of_mapping(oracle.state) != found.state_hash:
        complaints.append("the state differs from the serial oracle's")
    return complaints
