"""The past of an application, as its journal has it: epochs, the state before each, requests by id.

It only reads, also while the application runs: what is asked of a directory without a journal is
refused. As long as it is entered nothing is forgotten. Parts are read column by column.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, RequestId, split_entity_key
from penstock.engine.replay import RecordedEpoch, RequestRow, apply_changes
from penstock.errors import ConfigError, Diverged, RequestError
from penstock.journal.api import CHANGES, Commit, PartKind
from penstock.journal.rows import entity_keys
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.retention.leases import holding
from penstock.snapshots.newest_states import all_states
from penstock.snapshots.snapshot import FOLDER as SNAPSHOTS
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import all_states_as_of, oldest_state

_ORDER: Final = [("lsn", "ascending"), ("partition", "ascending")]
_COLUMNS: Final = ("partition", *RequestRow._fields)
_STORED: Final = {"body": "request"}
_CHANGED: Final = ("entity", "key", "state")
_NAMED_MAX: Final = 5
_LOOKED_EPOCHS: Final = 2_000
"""Epochs in which requests are looked for at once."""


class HistoryReader:
    """The journal of a data directory, read as history.

    Attributes:
        last: The newest epoch when it was opened; what comes later is not part of it.
    """

    def __init__(self, data: Path, app: App, who: str = "a reader of history") -> None:
        """Open the journal of an application; retention tells people `who` is in its way.

        Raises:
            ConfigError: There is none in this directory, or it is of another application.
            Corrupt: The journal is damaged.
        """
        directory = DataDirectory(data)
        if directory.app_name is None:
            raise ConfigError(
                f"there is no journal in {data}: nothing of {app.name} was ever processed there; "
                "name its directory with --data"
            )
        self._journal = directory.open_journal(app)
        self._snapshots = Snapshots(data / SNAPSHOTS, self._journal.identity)
        self._data = data
        self._hold = holding(data, who, Epoch(0))
        newest = self._journal.last()
        self.last = BEFORE_FIRST if newest is None else newest.epoch

    def __enter__(self) -> Self:
        try:
            self._hold.__enter__()
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._journal.close()
        finally:
            self._hold.__exit__(kind, error, trace)

    @property
    def secret(self) -> bytes:
        """What `random()` and `uuid()` mix in."""
        return self._journal.secret

    @property
    def first(self) -> Epoch:
        """The oldest epoch before which the state is known.

        Raises:
            Diverged: There is none: old epochs were forgotten, and no snapshot is left.
        """
        state = oldest_state(self._journal, self._snapshots)
        if state is None:
            raise Diverged(
                f"the journal in {self._data} begins with epoch {self._journal.first()}, and no "
                "snapshot holds the state before it; restore a backup"
            )
        return Epoch(state + 1)

    def span(self, first: int | None, last: int | None) -> tuple[Epoch, Epoch]:
        """Return the epochs from `first` to `last`, both included; None is the journal's own.

        Raises:
            ConfigError: The journal is empty, or does not hold all of them.
        """
        if self.last == BEFORE_FIRST:
            raise ConfigError(f"the journal in {self._data} has no epoch yet")
        held = self.first
        start = held if first is None else first
        end = int(self.last) if last is None else last
        if not held <= start <= end <= self.last:
            raise ConfigError(
                f"there are no epochs {start} to {end}; the journal has {held} to {self.last}"
            )
        return Epoch(start), Epoch(end)

    def state_before(self, epoch: Epoch) -> dict[EntityKey, bytes]:
        """Return every entity as it was when an epoch began.

        Raises:
            Diverged: Neither snapshots nor the journal reach so far back.
            Corrupt: A part is damaged, or the only snapshot that could help.
        """
        found = all_states_as_of(self._journal, Epoch(epoch - 1), self._snapshots)
        return dict(zip(entity_keys(found), found["state"].to_pylist(), strict=True))

    def epochs(self, first: Epoch, last: Epoch) -> Iterator[RecordedEpoch]:
        """Yield the epochs from `first` to `last`, both included.

        Raises:
            Corrupt: A part is damaged.
        """
        for commit in self._journal.commits(Epoch(first - 1), last):
            rows = list(map(RequestRow._make, zip(*self._requests(commit), strict=True)))
            yield RecordedEpoch(commit.epoch, commit.time_us, rows, self._changes(commit))

    def epoch(self, epoch: Epoch) -> RecordedEpoch:
        """Return one epoch."""
        return next(self.epochs(epoch, epoch))

    def find(self, request_id: str) -> Epoch:
        """Return the epoch of a request; of several with its id (one expired) the newest.

        Reads the ids of all epochs after it.

        Raises:
            RequestError: No epoch holds it.
        """
        found = self.find_all([request_id], self._journal.first(), self.last)
        return found[request_id]

    def find_all(self, wanted: Iterable[str], first: Epoch, last: Epoch) -> dict[str, Epoch]:
        """Return the epochs of requests, looking from `last` back to `first`.

        Raises:
            RequestError: Some are not there; names them.
        """
        asked = set(wanted)
        found = self.among(asked, first, last)
        if missing := asked - found.keys():
            named = ", ".join(sorted(missing)[:_NAMED_MAX])
            raise RequestError(
                f"no request {named} in the epochs {first} to {last}; a request that is in the "
                "log only has no history yet"
            )
        return found

    def among(self, wanted: Iterable[str], first: Epoch, last: Epoch) -> dict[str, Epoch]:
        """Return the epochs of those requests that are there, looking from `last` back to `first`."""
        values = pa.array(sorted(set(wanted)), pa.string())
        found: dict[str, Epoch] = {}
        end = last
        while end >= first and len(found) < len(values):
            after = Epoch(max(first, end - _LOOKED_EPOCHS + 1) - 1)
            newer = self._ids_among(values, after, end)
            found = {**newer, **found}
            end = after
        return found

    def _ids_among(self, values: pa.Array, after: Epoch, upto: Epoch) -> dict[str, Epoch]:
        found: dict[str, Epoch] = {}
        columns = ("request_id", "epoch")
        for _, rows in self._journal.rows(PartKind.TRANSACTIONS, after, upto, columns):
            here = rows.filter(pc.is_in(rows["request_id"], values))
            ids, epochs = here["request_id"].to_pylist(), here["epoch"].to_pylist()
            found.update(zip(ids, map(Epoch, epochs), strict=True))
        return found

    def changes_of(self, key: EntityKey, after: Epoch, upto: Epoch) -> list[Epoch]:
        """Return the epochs of (after, upto] that changed an entity, in order."""
        entity, text = split_entity_key(key)
        found: list[Epoch] = []
        columns = ("entity", "key", "epoch")
        for _, rows in self._journal.rows(PartKind.CHANGES, after, upto, columns):
            its = pc.and_(pc.equal(rows["key"], text), pc.equal(rows["entity"], entity))
            found += map(Epoch, rows.filter(its)["epoch"].to_pylist())
        return found

    def roll(self, state: dict[EntityKey, bytes], after: Epoch, upto: Epoch) -> None:
        """Bring a state that is the one after an epoch to a later one.

        Raises:
            Corrupt: A part is damaged.
        """
        rows = all_states(self._journal, after, upto)
        apply_changes(state, dict(zip(entity_keys(rows), rows["state"].to_pylist(), strict=True)))

    def _requests(self, commit: Commit) -> list[list[Any]]:
        """Return the columns of `RequestRow`, in the epoch's order."""
        names = [_STORED.get(name, name) for name in _COLUMNS]
        parts = commit.parts_of(PartKind.TRANSACTIONS)
        tables = [self._journal.read(part, names) for part in parts]
        if not tables:
            return [[] for _ in RequestRow._fields]
        rows = pa.concat_tables(tables).sort_by(_ORDER)
        return [rows.column(name).to_pylist() for name in names[1:]]

    def _changes(self, commit: Commit) -> dict[EntityKey, bytes | None]:
        parts = commit.parts_of(PartKind.CHANGES)
        tables = [self._journal.read(part, _CHANGED) for part in parts]
        rows = pa.concat_tables(tables) if tables else CHANGES.empty_table()
        changes = dict(zip(entity_keys(rows), rows["state"].to_pylist(), strict=True))
        if len(changes) != rows.num_rows:
            raise Diverged(f"epoch {commit.epoch} of the journal changes one entity twice")
        return changes


def position_of(recorded: RecordedEpoch, request_id: str) -> int:
    """Return the position of a request in its epoch, from 0."""
    return next(
        at for at, row in enumerate(recorded.rows) if row.request_id == RequestId(request_id)
    )
