"""The independent check of a history: reads the log and the journal, and nothing of the engine.

`Watch.check` may be called after every fault. It explains an error as an argument; what it has
seen once it expects to see again, byte for byte.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, LogPartition, Lsn, RequestId
from penstock.errors import LimitExceeded
from penstock.journal.api import Commit, PartKind
from penstock.journal.atoms import decode_atom
from penstock.journal.delta import DeltaJournal
from penstock.log.api import Record
from penstock.model.application import App
from penstock.model.control import is_control
from penstock.model.streams.stream import Atom
from penstock.process.data_directory import DataDirectory
from penstock.runtime.local.runtime import LocalRuntime
from penstock.state.digest import digest_of_mapping

ONLY = LogPartition(0)
Answer = tuple[str | None, bytes]
State = dict[EntityKey, bytes]
Call = tuple[str, str | None, str, list[Any], dict[str, Any]]
"""Class, key, method, and arguments by position and by name."""


@dataclass(frozen=True)
class Row:
    """A processed request."""

    record: Record
    answer: Answer

    @cached_property
    def call(self) -> Call:
        """Decode the request, once: invariants are asked after each epoch, about all requests until then."""
        entity, key, method, positional, named = msgspec.msgpack.decode(
            self.record.body, type=tuple[str, str | None, str, msgspec.Raw, msgspec.Raw]
        )
        arguments = msgspec.msgpack.decode(positional), msgspec.msgpack.decode(named)
        return entity, key, method, *arguments


@dataclass(frozen=True)
class EpochRows:
    """The rows of the journal for one epoch."""

    epoch: Epoch
    reached: Lsn
    rows: list[Row]
    changes: list[tuple[EntityKey, bytes | None]]
    atoms: list[tuple[str, int, Atom]]  # stream, number, events
    later: list[str]  # ids of the records that its cascades append at once


Conserved = Callable[[State, dict[str, list[str]], list[Row]], None]
"""Asserts the invariant of a state, given each class's attributes and all requests until then."""


class Watch:
    """Looks at one data directory again and again."""

    def __init__(self, app: App, data: Path, conserved: Conserved) -> None:
        self._app = app
        self._data = data
        self._conserved = conserved
        self._names = {name: list(kind.attributes) for name, kind in app.entities.items()}
        self._seen: list[EpochRows] = []
        self._oracle: LocalRuntime | None = None
        self._published: dict[str, int] = {}
        self._rows: list[Row] = []
        self.state: State = {}

    @property
    def rows(self) -> list[Row]:
        """Every processed request, in order."""
        return [row for epoch in self._seen for row in epoch.rows]

    def epochs_of(self, names: Sequence[str]) -> list[EpochRows]:
        """Return the epochs that hold any of some requests."""
        wanted = set(names)
        return [
            one for one in self._seen if any(row.record.request_id in wanted for row in one.rows)
        ]

    @property
    def answers(self) -> dict[RequestId, Answer]:
        """The answer to every processed request."""
        return {row.record.request_id: row.answer for row in self.rows}

    @property
    def digest(self) -> str:
        """The digest of the state after the newest epoch."""
        return digest_of_mapping(self.state)

    def check(self, acknowledged: dict[RequestId, Lsn], *, all_answered: bool = False) -> None:
        """Assert every invariant; with `all_answered` also that nothing is left to do."""
        history = list(self._read())
        assert history[: len(self._seen)] == self._seen, "history has changed"
        newer = history[len(self._seen) :]
        self._seen += newer
        self._check_order()
        self._check_log(acknowledged, all_answered=all_answered)
        self._check_effects(newer)

    def _read(self) -> Iterator[EpochRows]:
        journal = DataDirectory(self._data).open_journal_of(self._app.name)
        self._secret = journal.secret
        try:
            yield from read_epochs(journal, BEFORE_FIRST)
        finally:
            journal.close()

    def _check_order(self) -> None:
        """Epochs have no gaps, and take up every position of the log once, in order."""
        position = 0
        for number, one in enumerate(self._seen):
            assert one.epoch == number, f"epoch {one.epoch} comes as number {number}"
            lsns = sorted(row.record.lsn for row in one.rows)
            assert lsns == list(range(position, one.reached)), (
                f"epoch {number} says that it reaches from {position} to {one.reached}; "
                f"it holds {lsns[:3]} … {lsns[-3:]}, {len(lsns)} in all"
            )
            assert lsns, f"epoch {number} is empty"
            keys = [key for key, _ in one.changes]
            assert len(set(keys)) == len(keys), f"epoch {number} changes one entity twice"
            position = one.reached
        ids = [row.record.request_id for row in self.rows]
        assert len(set(ids)) == len(ids), "a request took effect twice"

    def _check_log(self, acknowledged: dict[RequestId, Lsn], *, all_answered: bool) -> None:
        """Acknowledged requests are in the log, and processed requests are those of the log."""
        log = DataDirectory(self._data).open_log()
        try:
            records = log.read(log.start(), log.end())
        finally:
            log.close()
        assert [record.lsn for record in records] == list(range(len(records)))
        at = {record.request_id: record.lsn for record in records}
        later = {name for one in self._seen[:-1] for name in one.later}
        assert later <= at.keys(), "a later record was not appended before the next epoch"
        lost = {one: lsn for one, lsn in acknowledged.items() if at.get(one) != lsn}
        assert not lost, f"acknowledged, but not in the log: {lost}"
        processed = [row.record for row in self.rows]
        assert processed == records[: len(processed)], "the journal has other requests than the log"
        if all_answered:
            left = len(records) - len(processed)
            assert not left, f"{left} requests of the log were never processed"

    def _check_effects(self, newer: list[EpochRows]) -> None:
        """Money and stock are conserved in every epoch, and the oracle agrees on everything.

        The oracle has run the epochs of the last check, which have not changed since.
        """
        if self._oracle is None:
            self._oracle = LocalRuntime(self._app, secret=self._secret)
        oracle, published = self._oracle, self._published
        for one in newer:
            for row in one.rows:
                self._check_answer(oracle, row)
            for key, state in one.changes:
                assert oracle.state.get(key) == state, f"{key} differs after epoch {one.epoch}"
                _put(self.state, key, state)
            assert self.state == oracle.state, (
                f"epoch {one.epoch} lacks changes of {_differing(self.state, oracle.state)}"
            )
            for stream, number, atom in one.atoms:
                assert oracle.streams[stream][number] == atom, f"{stream} differs at atom {number}"
                published[stream] = published.get(stream, 0) + 1
            counted = {name: len(atoms) for name, atoms in oracle.streams.items() if atoms}
            assert published == counted, f"epoch {one.epoch} has other atoms than the oracle"
            self._rows += one.rows
            self._conserved(self.state, self._names, self._rows)

    @staticmethod
    def _check_answer(oracle: LocalRuntime, row: Row) -> None:
        if is_control(row.record.body):
            assert row.answer[0] is None, "a control record was refused"
            return
        if row.answer[0] == LimitExceeded.code:
            return  # the recorded outcome counts: to run it again might end this process
        (reply,) = oracle.replay([row.record])
        assert (reply.error, reply.data) == row.answer, (
            f"{row.record.request_id} at {row.record.lsn}: journal {row.answer}, "
            f"oracle {(reply.error, reply.data)}"
        )


def read_epochs(journal: DeltaJournal, after: Epoch) -> Iterator[EpochRows]:
    """Yield the journal's rows of every epoch after the given epoch."""
    for commit in journal.commits(after):
        yield EpochRows(
            commit.epoch,
            commit.positions[ONLY],
            [_row(one) for one in _table(journal, commit, PartKind.TRANSACTIONS)],
            [
                (EntityKey(f"{one['entity']}/{one['key']}"), one["state"])
                for one in _table(journal, commit, PartKind.CHANGES)
            ],
            [
                (one["stream"], one["atom"], decode_atom(one["events"]))
                for one in _table(journal, commit, PartKind.EVENTS)
            ],
            [
                one["request_id"]
                for one in _table(journal, commit, PartKind.APPENDS)
                if not one["delay_us"]
            ],
        )


def _put(state: State, key: EntityKey, data: bytes | None) -> None:
    if data is None:
        state.pop(key, None)
    else:
        state[key] = data


def _differing(left: State, right: State) -> list[EntityKey]:
    return [key for key in sorted({*left, *right}) if left.get(key) != right.get(key)][:5]


def _table(journal: DeltaJournal, commit: Commit, kind: PartKind) -> list[dict[str, Any]]:
    tables = [journal.read(part) for part in commit.parts_of(kind)]
    if not tables:
        return []
    table = pa.concat_tables(tables)
    if kind is PartKind.TRANSACTIONS:
        table = table.sort_by("lsn")
    assert set(table["epoch"].to_pylist()) <= {commit.epoch}, "a part is of another epoch"
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def _row(one: dict[str, Any]) -> Row:
    record = Record(Lsn(one["lsn"]), RequestId(one["request_id"]), one["request"], one["time_us"])
    return Row(record, (one["error"], one["reply"]))


def values_of(state: State, names: dict[str, list[str]], entity: str) -> dict[str, dict[str, Any]]:
    """Decode the states of one class: key to attributes by name."""
    prefix = f"{entity}/"
    return {
        key.removeprefix(prefix): dict(
            zip(names[entity], msgspec.msgpack.decode(data)[1:], strict=True)  # the tag comes first
        )
        for key, data in state.items()
        if key.startswith(prefix)
    }


def calls_of(rows: list[Row]) -> Iterator[Call]:
    """Yield the requests that took effect."""
    return (row.call for row in rows if row.answer[0] is None)
