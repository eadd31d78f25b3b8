"""The audit of a benchmark: it reads the whole journal once, in order, after all processes have stopped.

It checks that every acknowledged request has exactly one record, at the position that the log gave it,
and shows all changes to the ledger. It shares no code with the engine, the stores or the catch-up: it
applies the changes itself. The same pass collects the sample for the serial oracle: the state at its
beginning, and its records.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from benchmarks.harness.ledger import Ledger, ShopLedger, TransferLedger
from benchmarks.harness.options import Options
from benchmarks.harness.workload import application_of, loading_count
from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, LogPartition, Lsn, RequestId
from penstock.journal.api import CHANGES, Commit, Journal, PartKind
from penstock.log.api import Record
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.state.digest import digest_of_mapping

SAMPLE: Final = 50_000
ONLY: Final = LogPartition(0)
_CHANGED: Final = ["entity", "key", "state"]

_Request = tuple[str, str | None, str, msgspec.Raw, msgspec.Raw]
_REQUESTS: Final = msgspec.msgpack.Decoder(_Request)
_ARGUMENTS: Final = msgspec.msgpack.Decoder()
_LEDGERS: Final[dict[str, Callable[[App], Ledger]]] = {
    "checkout": ShopLedger,
    "transfer": TransferLedger,
}


@dataclass(slots=True)
class Findings:
    """The result of the audit.

    Attributes:
        complaints: The failed checks; empty if money and stock are conserved, every acknowledged
            request is there once, and replies and state agree.
        epochs: Committed epochs; `failures` the replies that are errors, by code.
        replies_hash, state_hash: The same for every partitioning of the same requests.
        sample: The first of the measured requests, up to 50,000, with their time.
        sample_state: The state of every entity before the sample.
        state: The state of every entity after the last epoch.
        audit_s: The duration of the audit.
    """

    complaints: list[str] = field(default_factory=list)
    epochs: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    replies_hash: str = ""
    state_hash: str = ""
    sample: list[Record] = field(default_factory=list)
    sample_state: dict[EntityKey, bytes] = field(default_factory=dict)
    state: dict[EntityKey, bytes] = field(default_factory=dict)
    audit_s: float = 0.0


Progress = Callable[[Epoch], None]
"""Takes each epoch that has been audited."""


def audit(
    options: Options, data: Path, *, acknowledged: Lsn, window_opens: Epoch, progress: Progress
) -> Findings:
    """Read the journal in a data directory.

    Args:
        options: The options of the run.
        data: Its data directory.
        acknowledged: Position after the last append that returned.
        window_opens: The last epoch before the measured ones: the sample begins after it.
        progress: Takes each audited epoch.

    Raises:
        Corrupt: A part or commit is damaged.
    """
    app, _ = application_of(options)
    began = time.perf_counter()
    journal = DataDirectory(data).open_journal_of(app.name)
    auditor = _Auditor(journal, _LEDGERS[options.kind](app), window_opens)
    gc.disable()  # millions of small values that all stay: collecting them took a third of it
    try:
        for commit in journal.commits(BEFORE_FIRST):
            auditor.take(commit)
            progress(commit.epoch)
    finally:
        gc.enable()
        journal.close()
    found = auditor.finish(options, acknowledged)
    found.audit_s = time.perf_counter() - began
    return found


class _Auditor:
    def __init__(self, journal: Journal, ledger: Ledger, window_opens: Epoch) -> None:
        self._journal = journal
        self._ledger = ledger
        self._window_opens = window_opens
        self._found = Findings()
        self._ids: list[str] = []
        self._hasher = xxhash.xxh3_128()

    def take(self, commit: Commit) -> None:
        """Check one epoch."""
        found = self._found
        found.epochs += 1
        self._take_transactions(commit)
        changes = self._changes(commit)
        rows = zip(*(changes.column(name).to_pylist() for name in _CHANGED), strict=True)
        complaint = self._ledger.changed(rows)
        if complaint is not None and not found.complaints:
            found.complaints.append(f"after epoch {commit.epoch}: {complaint}")
        joined = pc.binary_join_element_wise(changes["entity"], changes["key"], "/").to_pylist()
        if len(set(joined)) != len(joined):
            found.complaints.append(f"epoch {commit.epoch} changes one entity twice")
        states = changes.column("state").to_pylist()
        found.state.update(zip(joined, states, strict=True))
        for key in [key for key, state in zip(joined, states, strict=True) if state is None]:
            del found.state[key]  # no benchmark deletes entities; the ledger has complained
        if commit.epoch == self._window_opens:
            found.sample_state = dict(found.state)

    def finish(self, options: Options, acknowledged: Lsn) -> Findings:
        """Check the whole history, and return the result."""
        found = self._found
        found.complaints += self._ledger.complaints()
        if len(self._ids) != acknowledged:
            found.complaints.append(
                f"{acknowledged} requests were acknowledged, {len(self._ids)} have a reply"
            )
        expected = _expected_ids(options, len(self._ids))
        wrong = [lsn for lsn, id_ in enumerate(self._ids) if id_ != expected[lsn]]
        if wrong:
            found.complaints.append(
                f"{len(wrong)} requests are not where the log put them, the first at {wrong[0]}"
            )
        found.replies_hash = self._hasher.hexdigest()
        found.state_hash = digest_of_mapping(found.state)
        return found

    def _take_transactions(self, commit: Commit) -> None:
        tables = [
            self._journal.read(part, ("lsn", "request_id", "time_us", "request", "error", "reply"))
            for part in commit.parts_of(PartKind.TRANSACTIONS)
        ]
        if not tables:
            return
        rows = pa.concat_tables(tables).sort_by("lsn")
        columns: list[list[Any]] = [column.to_pylist() for column in rows.columns]
        lsns = columns[0]
        expected = range(len(self._ids), len(self._ids) + len(lsns))
        if lsns != list(expected) or commit.positions[ONLY] != expected.stop:
            self._found.complaints.append(
                f"epoch {commit.epoch} has the positions {lsns[0]} … {lsns[-1]} of the log, "
                f"not {expected.start} … {expected.stop - 1} once each"
            )
        self._ids += columns[1]
        is_sample = commit.epoch > self._window_opens
        for lsn, id_, time_us, request, error, reply in zip(*columns, strict=True):
            self._hasher.update(_reply_row(id_, error, reply))
            if error is None:
                _, key, method, positional, _ = _REQUESTS.decode(request)
                self._ledger.answered(key, method, _ARGUMENTS.decode(positional))
            else:
                self._found.failures[error] = self._found.failures.get(error, 0) + 1
            if is_sample and len(self._found.sample) < SAMPLE:
                self._found.sample.append(Record(Lsn(lsn), RequestId(id_), request, time_us))

    def _changes(self, commit: Commit) -> pa.Table:
        """Return the changes of an epoch."""
        parts = commit.parts_of(PartKind.CHANGES)
        tables = [self._journal.read(part, _CHANGED) for part in parts]
        if not tables:
            return CHANGES.empty_table().select(_CHANGED)
        return pa.concat_tables(tables)


def hash_of_replies(rows: list[tuple[str, str | None, bytes]]) -> str:
    """Return the hash of (request id, error, reply) in log order; epochs are not part of it."""
    hasher = xxhash.xxh3_128()
    for id_, error, reply in rows:
        hasher.update(_reply_row(id_, error, reply))
    return hasher.hexdigest()


def _reply_row(id_: str, error: str | None, reply: bytes) -> bytes:
    code = "" if error is None else error
    return b"%b\x00%b\x00%d:%b" % (id_.encode(), code.encode(), len(reply), reply)


def _expected_ids(options: Options, count: int) -> list[str]:
    """Return the ids that `feed` gives, by position."""
    loading = loading_count(options)
    ids = [f"load-{number}" for number in range(min(loading, count))]
    return ids + [f"request-{number}" for number in range(count - len(ids))]
