"""The entities of a class after an epoch, in parts, so that memory is bounded however many there are."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Diverged
from penstock.journal.api import Journal
from penstock.snapshots.newest_states import CLASS_STATES, LastChanges
from penstock.snapshots.snapshot import Manifest, Snapshots

_STEP: Final = 20_000
"""Small tables are joined up to this number of rows: an epoch may have a few rows."""


def base_of(journal: Journal, snapshots: Snapshots, epoch: Epoch) -> Manifest | None:
    """Return the newest snapshot from which the journal leads to an epoch; None if it leads there from the empty state.

    Raises:
        Diverged: Neither the journal nor a snapshot leads to the epoch.
    """
    first = journal.first()
    manifests = snapshots.every(epoch)
    base = next((each for each in manifests if each.epoch + 1 >= first), None)
    if base is None and first > 0:
        raise Diverged(
            f"the journal begins with epoch {first}, and no snapshot holds the state before it; restore a backup"
        )
    return base


class StatesInParts:
    """The states of a class after an epoch: those of a snapshot that have not changed since, and the changed ones.

    It keeps 24 bytes of each changed entity. `len` is the most rows of all parts.
    """

    def __init__(
        self,
        journal: Journal,
        snapshots: Snapshots,
        name: str,
        base: Manifest | None,
        epoch: Epoch,
    ) -> None:
        """Read the keys of the changes.

        Args:
            name: The stored name of the class.
            base: As `base_of` returns it.
        """
        after = BEFORE_FIRST if base is None else base.epoch
        self._snapshots = snapshots
        self._changed = LastChanges(journal, name, after, epoch)
        self._class_files = None if base is None else base.classes.get(name)

    def __len__(self) -> int:
        files = [] if self._class_files is None else self._class_files.files
        return sum(file.rows for file in files) + len(self._changed)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield tables as `CLASS_STATES`, without deleted entities."""
        files = [] if self._class_files is None else self._class_files.files
        for file in files:
            assert self._class_files is not None, "it has the file"
            rows = self._snapshots.states(self._class_files, file)
            kept = rows.filter(pc.invert(self._changed.has(rows["key"])))
            yield kept.select(CLASS_STATES.names)
        for rows in _joined(self._changed.states()):
            yield rows.filter(pc.is_valid(rows["state"]))


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    pending: list[pa.Table] = []
    count = 0
    for table in tables:
        pending.append(table)
        count += table.num_rows
        if count >= _STEP:
            yield pa.concat_tables(pending)
            pending, count = [], 0
    if count:
        yield pa.concat_tables(pending)
