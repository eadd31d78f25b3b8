"""Late subscribers on the driver: workflows that begin with earlier atoms of their source.

A control record subscribes such a workflow, at its place in the order. It fixes the atoms that the workflow has missed,
and writes the row of the workflow's progress. Then catch-up records give it these atoms, a piece at a time; each piece
causes the next one. The driver fills a piece with atoms from the journal when it appends the record.

The scans for published tables (`model.table_scan`) begin and go on in the same way, and are filled with keys.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from penstock.base.ids import Epoch, RequestId
from penstock.engine.streams.late_flows import (
    decode_progress,
    late_key,
    next_piece,
    subscription,
)
from penstock.engine.streams.published_rows import lacking_piece, progress_key
from penstock.errors import Gone, RequestConflict
from penstock.journal.api import Journal
from penstock.journal.atoms import AtomReader, decode_atom
from penstock.log.api import Entry, Log
from penstock.log.clock import wall_clock_us
from penstock.model.catch_up import Numbered, encode_catch_up, filled
from penstock.model.control import Subscribe, encode_control
from penstock.model.table_scan import (
    KeysAfter,
    ScannedKey,
    TableScan,
    encode_scan,
    is_scan,
    with_keys,
)
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.control import ControlEffect
from penstock.state.newest import at_newest, read_newest
from penstock.state.stores import PartitionedReader


class LateSubscribers:
    """Subscribes late workflows, and gives them the atoms that they have missed."""

    def __init__(self, config: Config, log: Log, journal: Journal) -> None:
        self._config = config
        self._log = log
        self._journal = journal
        self._atoms = AtomReader(journal)
        self._pending: list[Subscribe] = []
        self._scans: list[TableScan] = []

    def watch(self, workflows: Sequence[Subscribe], scans: Sequence[TableScan] = ()) -> None:
        """Take the late workflows and the scans of the code that runs from now on; `append` begins those that are new."""
        self._pending = list(workflows)
        self._scans = list(scans)

    def append(self) -> None:
        """Append the record that each workflow lacks: its subscription, or its next piece.

        The log drops a record that it has.

        Raises:
            OperationalError: Log, journal or state fails; the next call tries again.
        """
        if not (self._pending or self._scans):
            return
        entries = list(self._lacking())
        for entry in entries:
            with suppress(RequestConflict):  # an earlier version has declared it otherwise
                self._log.append([entry], limited=False)
        self._pending, self._scans = [], []

    def _lacking(self) -> Iterator[Entry]:
        directory = DataDirectory(self._config.data)
        keys = [late_key(workflow.flow) for workflow in self._pending]
        keys += [progress_key(scan.subject) for scan in self._scans]
        with closing(directory.open_stores(self._journal)) as stores:
            _, rows = read_newest(self._journal, stores, keys)
        now_us = wall_clock_us()
        for scan, row in zip(self._scans, rows[len(self._pending) :], strict=True):
            if (lacking := lacking_piece(scan, row)) is not None:
                yield Entry(lacking.record, self.fill(encode_scan(lacking)), b"", now_us)
        for workflow, row in zip(self._pending, rows, strict=False):
            if row is None:
                request_id = RequestId(f"subscribe~~{workflow.flow}")
                yield Entry(request_id, encode_control(workflow), b"", now_us, is_control=True)
            elif not (state := decode_progress(row)).is_live:
                piece = next_piece(workflow.flow, workflow.stream, state)
                yield Entry(piece.record, self.fill(encode_catch_up(piece)), b"", now_us)

    def executor(
        self, published: Callable[[], Mapping[str, int]]
    ) -> Callable[[Subscribe, Epoch], ControlEffect]:
        """Return the executor of `Subscribe`; `published` returns the number of atoms of each stream."""

        def execute(control: Subscribe, _epoch: Epoch) -> ControlEffect:
            row = subscription(control, published().get(control.stream, 0))
            return ControlEffect(
                decode_progress(row).first,
                {late_key(control.flow): row},
                switch=lambda: self.watch([*self._pending, control], self._scans),
            )

        return execute

    def fill(self, body: bytes) -> bytes:
        """Return the body of a later record; that of a catch-up record gets its atoms, and that of a scan its keys."""
        if not is_scan(body):
            return filled(body, self._read)
        with closing(DataDirectory(self._config.data).open_stores(self._journal)) as stores:
            whole = at_newest(
                self._journal, stores, lambda reader: with_keys(body, _keys_after(reader))
            )
        return with_keys(body, _no_keys) if whole is None else whole

    def _read(self, stream: str, first: int) -> Numbered:
        """Yield the atoms of a stream from a number on, or from the oldest one that retention has left."""
        try:
            for atom in self._atoms.atoms(stream, first):
                yield atom.number, decode_atom(atom.events)
                first = atom.number + 1
        except Gone as error:
            if error.oldest <= first:
                raise
            yield from self._read(stream, error.oldest)


def _keys_after(reader: PartitionedReader) -> KeysAfter:
    def keys_after(prefix: str, after: str) -> Iterator[ScannedKey]:
        for key, state in reader.items_of(prefix, after):
            yield ScannedKey(key.removeprefix(prefix), len(state))

    return keys_after


def _no_keys(_prefix: str, _after: str) -> tuple[ScannedKey, ...]:
    return ()
