"""The recorded history of an application: epochs, the state before each epoch, requests by id.

The reader only reads the journal and the snapshots, also while the application runs. While it is
entered, a retention lease keeps all epochs. Parts are read as columns.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import (
    BEFORE_FIRST,
    EntityKey,
    Epoch,
    Lsn,
    RequestId,
    epochs_text,
    split_entity_key,
)
from penstock.engine.replay import RecordedEpoch, RequestRow, apply_changes
from penstock.engine.streams.cascade import LaterRecord, PublishedAtom
from penstock.engine.streams.derived_ids import MARK
from penstock.engine.streams.recorded_cascade import RecordedAtom, RecordedCascade, SentRequest
from penstock.errors import ConfigError, Diverged, RequestError
from penstock.files.roots import snapshots_root
from penstock.journal.api import CHANGES, Commit, Journal, PartKind, newest_epoch
from penstock.journal.atoms import decode_atom
from penstock.journal.delta import SmallParts
from penstock.journal.parquet import entity_keys, epoch_rows, joined
from penstock.model.application import App
from penstock.model.schema_version import Versions
from penstock.process.data_directory import DataDirectory
from penstock.retention.leases import lease
from penstock.snapshots.newest_states import all_states
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import all_states_as_of, oldest_state

_CASCADE_COLUMNS: Final = {
    PartKind.EVENTS: ("lsn", "stream", "atom", "step", "events"),
    PartKind.SENT: ("lsn", "request_id", "request", "error", "reply"),
    PartKind.APPENDS: ("lsn", "request_id", "request", "delay_us"),
}


def recorded_cascades(journal: Journal, commit: Commit) -> Mapping[Lsn, RecordedCascade]:
    """Return the cascades of an epoch, by the positions of their records in the log.

    Records that caused nothing are left out.
    """
    atoms: dict[Lsn, list[RecordedAtom]] = {}
    sent: dict[Lsn, list[SentRequest]] = {}
    later: dict[Lsn, dict[RequestId, LaterRecord]] = {}
    for lsn, stream, number, step, events in _rows(journal, commit, PartKind.EVENTS):
        atom = PublishedAtom(stream, step, decode_atom(events))
        atoms.setdefault(lsn, []).append(RecordedAtom(number, atom))
    for numbered in atoms.values():  # the requests and the workflow steps may lie in two parts
        numbered.sort(key=lambda entry: entry.atom.step)
    for lsn, *row in _rows(journal, commit, PartKind.SENT):
        sent.setdefault(lsn, []).append(SentRequest(*row))
    for lsn, *row in _rows(journal, commit, PartKind.APPENDS):
        # If two tasks have cut a cascade, the second one knows both places, and its row comes last.
        record = LaterRecord(*row)
        later.setdefault(lsn, {})[record.request_id] = record
    return {
        lsn: RecordedCascade(
            atoms.get(lsn, ()), sent.get(lsn, ()), tuple(later.get(lsn, {}).values())
        )
        for lsn in dict.fromkeys([*atoms, *sent, *later])
    }


def sender_of(
    journal: Journal, request_id: str, after: Epoch, upto: Epoch
) -> tuple[Epoch, Lsn] | None:
    """Return the epoch and the log position of the record whose cascade has sent a request.

    Args:
        after: The epoch before the first one that is searched.

    Returns:
        Those of the newest such record; None if no epoch has the request.
    """
    sender = None
    columns = ("request_id", "epoch", "lsn")
    for _, rows in journal.rows(PartKind.SENT, after, upto, columns):
        matching = rows.filter(pc.equal(rows["request_id"], request_id))
        if matching.num_rows:
            sender = Epoch(matching["epoch"][-1].as_py()), Lsn(matching["lsn"][-1].as_py())
    return sender


def _rows(journal: Journal, commit: Commit, part_kind: PartKind) -> Iterator[tuple[Any, ...]]:
    """Return rows of one kind in the order in which the cascades caused them."""
    if not commit.parts_of(part_kind):
        return iter(())
    names = _CASCADE_COLUMNS[part_kind]
    rows: pa.Table = epoch_rows(journal, commit, part_kind, names)
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


_ORDER: Final = [("lsn", "ascending"), ("partition", "ascending")]
_COLUMNS: Final = ("partition", *RequestRow._fields)
_STORED: Final = {"body": "request"}
_CHANGED: Final = ("entity", "key", "state")
_NAMED_MAX: Final = 5
_LOOKED_EPOCHS: Final = 2_000
"""How many epochs are searched for requests at once."""
_FIRST_LOOK_EPOCHS: Final = 125
"""How many of the newest epochs are searched first, if only the newest changes are wanted."""
_JOINED_ROWS: Final = 10_000
"""How many rows of epochs are filtered together."""


class HistoryReader:
    """Reads the history in a data directory.

    Attributes:
        last: The newest epoch when the reader was opened; later epochs are not read.

    Args:
        holder: The name of the retention lease; maintenance shows it.
        dropped: The stored classes that the application may lack.

    Raises:
        ConfigError: The directory has no journal, or is of another application.
        Corrupt: The journal is damaged.
    """

    def __init__(
        self,
        data: Path,
        app: App,
        holder: str = "a reader of history",
        dropped: Collection[str] = (),
    ) -> None:
        directory = DataDirectory(data)
        if directory.app_name is None:
            raise ConfigError(
                f"there is no journal in {data}: it has processed no request of {app.name}; name the "
                "application's directory with --data"
            )
        self._journal = directory.open_journal(app, dropped=dropped)
        self._journal.small_parts = SmallParts()
        self._snapshots = Snapshots(snapshots_root(data), self._journal.identity)
        self.data = data
        self._lease = lease(data, holder, Epoch(0))
        self.last = newest_epoch(self._journal)

    def __enter__(self) -> Self:
        try:
            self._lease.__enter__()
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self._journal.close()
        finally:
            self._lease.__exit__(*exception)

    @property
    def secret(self) -> bytes:
        """The secret from which `random()` and `uuid()` are derived."""
        return self._journal.secret

    def schemas(self) -> dict[str, Versions]:
        """Return the schema versions of each stored class.

        Raises:
            Corrupt: The file of shapes is damaged.
        """
        return self._journal.schemas()

    @property
    def first(self) -> Epoch:
        """The oldest epoch before which the state is held.

        Raises:
            Diverged: Old epochs were removed, and no snapshot holds the state after them.
        """
        oldest = oldest_state(self._journal, self._snapshots)
        if oldest is None:
            raise Diverged(
                f"the journal in {self.data} begins with epoch {self._journal.first()}, and no "
                "snapshot holds the state before it; restore a backup"
            )
        return Epoch(oldest + 1)

    def span(self, first: int | None, last: int | None) -> tuple[Epoch, Epoch]:
        """Check the span from `first` to `last`, both included, and return it.

        Args:
            first: The first epoch; None is the oldest that is held.
            last: The last epoch; None is the newest.
        """
        if self.last == BEFORE_FIRST:
            raise ConfigError(f"the journal in {self.data} has no epoch yet")
        oldest = self.first
        start = oldest if first is None else first
        end = int(self.last) if last is None else last
        if not oldest <= start <= end <= self.last:
            raise ConfigError(
                f"the journal does not hold {epochs_text(start, end)}; it holds "
                f"{epochs_text(oldest, self.last)}"
            )
        return Epoch(start), Epoch(end)

    def state_before(self, epoch: Epoch) -> dict[EntityKey, bytes]:
        """Return all entities as they were when an epoch began.

        Raises:
            Diverged: Neither the journal nor a snapshot holds that state.
            Corrupt: A part is damaged, or the only usable snapshot.
        """
        states = all_states_as_of(self._journal, Epoch(epoch - 1), self._snapshots)
        return dict(zip(entity_keys(states), states["state"].to_pylist(), strict=True))

    def epochs(self, first: Epoch, last: Epoch) -> Iterator[RecordedEpoch]:
        """Yield the epochs from `first` to `last`, both included.

        Raises:
            Corrupt: A part is damaged.
        """
        return map(self.recorded, self.commits(first, last))

    def commits(self, first: Epoch, last: Epoch) -> Iterator[Commit]:
        """Yield the commits of the epochs from `first` to `last`, both included.

        Raises:
            Corrupt: A commit is missing or damaged.
        """
        return self._journal.commits(Epoch(first - 1), last)

    def recorded(self, commit: Commit) -> RecordedEpoch:
        """Return the epoch of a commit."""
        rows = list(map(RequestRow._make, zip(*self._requests(commit), strict=True)))
        cascades = recorded_cascades(self._journal, commit)
        return RecordedEpoch(commit.epoch, commit.time_us, rows, self.changes(commit), cascades)

    def changes(self, commit: Commit) -> dict[EntityKey, bytes | None]:
        """Return every entity that the epoch of a commit changed, with the state afterwards (None: deleted).

        Raises:
            Corrupt: A part is damaged.
        """
        parts = commit.parts_of(PartKind.CHANGES)
        tables = self._journal.read_all(parts, _CHANGED)
        rows = pa.concat_tables(tables) if tables else CHANGES.empty_table()
        changes = dict(zip(entity_keys(rows), rows["state"].to_pylist(), strict=True))
        if len(changes) != rows.num_rows:
            raise Diverged(f"epoch {commit.epoch} of the journal changes one entity twice")
        return changes

    def epoch(self, epoch: Epoch) -> RecordedEpoch:
        """Return one epoch."""
        return next(self.epochs(epoch, epoch))

    def find(self, request_id: str) -> Epoch:
        """Return the epoch of a request.

        If an expired id was used again, this is the newest epoch. The method reads the ids of all
        later epochs.

        Raises:
            RequestError: No epoch holds the request.
        """
        return self.find_all([request_id], self._journal.first(), self.last)[request_id]

    def record_of(self, request_id: str) -> str:
        """Return the id of the record that a request belongs to: itself, unless a cascade has sent and processed it.

        The id of a workflow step, or of a question, also belongs to its record. An unknown id is returned unchanged.
        """
        # The usual id is its own record, and nothing is read.
        if MARK not in request_id:
            return request_id
        first, last = self._journal.first(), self.last
        if self.among([request_id], first, last):
            return request_id
        sender = sender_of(self._journal, request_id, Epoch(first - 1), last)
        if sender is not None:
            epoch, lsn = sender
            return next(row.request_id for row in self.epoch(epoch).rows if row.lsn == lsn)
        record = request_id.rpartition(MARK)[0]
        return record if self.among([record], first, last) else request_id

    def outcomes_among(
        self, wanted: Collection[str], after: Epoch
    ) -> dict[str, tuple[Epoch, str | None]]:
        """Return the epochs and the error codes of requests after an epoch; missing requests are left out."""
        outcomes: dict[str, tuple[Epoch, str | None]] = {}
        if not wanted or after >= self.last:
            return outcomes
        ids = pa.array(sorted(set(wanted)), pa.string())
        columns = ("request_id", "epoch", "error")
        for _, rows in self._journal.rows(PartKind.TRANSACTIONS, after, self.last, columns):
            matching = rows.filter(pc.is_in(rows["request_id"], ids))
            for request_id, epoch, error in zip(
                *(matching[name].to_pylist() for name in columns), strict=True
            ):
                outcomes[request_id] = Epoch(epoch), error
        return outcomes

    def find_all(self, wanted: Iterable[str], first: Epoch, last: Epoch) -> dict[str, Epoch]:
        """Return the epochs of requests by id, searching from `last` back to `first`."""
        ids = set(wanted)
        epochs = self.among(ids, first, last)
        if missing := ids - epochs.keys():
            names = ", ".join(sorted(missing)[:_NAMED_MAX])
            searched = epochs_text(first, last) if first <= last else "the journal, which is empty"
            raise RequestError(
                f"no request {names} in {searched}; a request that only waits in "
                'the log has no history yet; penstock sql "FROM requests" shows the ids of the others'
            )
        return epochs

    def among(self, wanted: Iterable[str], first: Epoch, last: Epoch) -> dict[str, Epoch]:
        """Return the epochs of requests by id as `find_all` does; missing requests are left out."""
        ids = pa.array(sorted(set(wanted)), pa.string())
        epochs: dict[str, Epoch] = {}
        upto = last
        while upto >= first and len(epochs) < len(ids):
            after = Epoch(max(first, upto - _LOOKED_EPOCHS + 1) - 1)
            # From the newest epochs back: an id that was used again after its retention means its
            # newest use.
            epochs = self._ids_among(ids, after, upto) | epochs
            upto = after
        return epochs

    def complete(self, text: str) -> str:
        """Return the id of the request that a text names: the id itself, or its unique beginning.

        A text with which no id begins is returned unchanged. An id takes precedence over longer ids
        that begin with it. The method reads the ids of all epochs, unless it finds the id itself.
        """
        if self.record_of(text) != text:
            return text
        fitting_ids: dict[str, None] = {}
        first, upto = self._journal.first(), self.last
        while upto >= first:
            after = Epoch(max(first, upto - _LOOKED_EPOCHS + 1) - 1)
            for _, rows in self._journal.rows(PartKind.TRANSACTIONS, after, upto, ("request_id",)):
                ids = rows["request_id"]
                if pc.any(pc.equal(ids, text)).as_py():
                    return text
                if len(fitting_ids) <= _NAMED_MAX:
                    more_ids = ids.filter(pc.starts_with(ids, text))
                    fitting_ids.update(
                        dict.fromkeys(more_ids.unique()[: _NAMED_MAX + 1].to_pylist())
                    )
            upto = after
        if len(fitting_ids) <= 1:
            return next(iter(fitting_ids), text)
        names = ", ".join(sorted(fitting_ids)[:_NAMED_MAX])
        more = ", …" if len(fitting_ids) > _NAMED_MAX else ""
        raise RequestError(
            f"several request ids begin with {text}: {names}{more}; write more of the id"
        )

    def _ids_among(self, ids: pa.Array, after: Epoch, upto: Epoch) -> dict[str, Epoch]:
        epoch_by_id: dict[str, Epoch] = {}
        columns = ("request_id", "epoch")
        for _, rows in self._journal.rows(PartKind.TRANSACTIONS, after, upto, columns):
            matching = rows.filter(pc.is_in(rows["request_id"], ids))
            epochs = map(Epoch, matching["epoch"].to_pylist())
            epoch_by_id.update(zip(matching["request_id"].to_pylist(), epochs, strict=True))
        return epoch_by_id

    def changes_of(
        self, key: EntityKey, after: Epoch, upto: Epoch, count_max: int | None = None
    ) -> list[Epoch]:
        """Return the epochs of (after, upto] that changed an entity, in order.

        Args:
            count_max: Return only so many of the newest ones, and read no older epochs than they need. None: all.
        """
        entity, text = split_entity_key(key)
        epochs: list[Epoch] = []
        columns = ("entity", "key", "epoch")
        # An entity that changes often has its newest changes in few epochs; each further look is twice as wide.
        looked = _LOOKED_EPOCHS if count_max is None else min(_FIRST_LOOK_EPOCHS, _LOOKED_EPOCHS)
        while after < upto and (count_max is None or len(epochs) < count_max):
            begin = Epoch(max(after, upto - looked))
            looked = min(2 * looked, _LOOKED_EPOCHS)
            in_range: list[Epoch] = []
            tables = (
                rows for _, rows in self._journal.rows(PartKind.CHANGES, begin, upto, columns)
            )
            for rows in joined(
                tables, _JOINED_ROWS
            ):  # a filter of a few rows takes as long as of many
                is_key = pc.and_(pc.equal(rows["key"], text), pc.equal(rows["entity"], entity))
                in_range += map(Epoch, rows.filter(is_key)["epoch"].to_pylist())
            epochs = in_range + epochs
            upto = begin
        return epochs if count_max is None else epochs[-count_max:]

    def roll(self, state: dict[EntityKey, bytes], after: Epoch, upto: Epoch) -> None:
        """Change the state after one epoch, in place, into the state after a later epoch."""
        rows = all_states(self._journal, after, upto)
        apply_changes(state, dict(zip(entity_keys(rows), rows["state"].to_pylist(), strict=True)))

    def _requests(self, commit: Commit) -> list[list[Any]]:
        """Return the columns of `RequestRow`, in the epoch's order."""
        names = [_STORED.get(name, name) for name in _COLUMNS]
        parts = commit.parts_of(PartKind.TRANSACTIONS)
        tables = self._journal.read_all(parts, names)
        if not tables:
            return [[] for _ in RequestRow._fields]
        rows = pa.concat_tables(tables).sort_by(_ORDER)
        return [rows.column(name).to_pylist() for name in names[1:]]


def position_of(recorded: RecordedEpoch, request_id: str) -> int:
    """Return the position of a request in its epoch, from 0."""
    return next(
        at for at, row in enumerate(recorded.rows) if row.request_id == RequestId(request_id)
    )
