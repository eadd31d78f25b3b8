"""Exports: the entities of a class, or the atoms of a stream, at an epoch, as Parquet, CSV or JSON lines.

The file of a class can be imported again (`exchange.states`), and gives the same entities. Rows are written as they are
read, so memory is bounded. Entities have the form of the code in force, also those of an earlier epoch.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.file_formats import FileFormat
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.base.instants import instant_of
from penstock.base.json_keys import as_text, json_bytes
from penstock.base.lowering import lower_reply
from penstock.base.schema import ENCODER
from penstock.deployment.code_in_force import code_in_force, load_deployed
from penstock.errors import ConfigError, PenstockError, RequestError
from penstock.exchange.cells import Cells, needs_wide
from penstock.files.roots import snapshots_root
from penstock.journal.api import Journal, newest_epoch
from penstock.journal.as_of import epoch_as_of, parse_point_in_time
from penstock.journal.atoms import AtomReader, opened_atom
from penstock.model.application import App, unknown
from penstock.model.entity_type import EntityType
from penstock.process.data_directory import DataDirectory
from penstock.process.question import MARK, envelope_of_failure, receive_question
from penstock.retention.leases import lease
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.states_in_parts import StatesInParts, base_of

_STEP: Final = 20_000
_GROUP: Final = 100_000
"""The rows of a row group of Parquet."""

_QUOTED: Final = re.compile(r'[",\r\n]|^$|^\s|\s$')
EPOCH_BYTES: Final = 8
_encode: Final = msgspec.json.Encoder(enc_hook=as_text).encode
_plain: Final = msgspec.msgpack.decode

Told = Callable[[int, int], None]
"""Takes how many rows are done, and how many there are at most."""


class Export(msgspec.Struct, frozen=True):
    """An export of a class or of a stream.

    Attributes:
        name: The class, or the stream.
        format: The format of the file.
        as_of: The epoch, or a time; empty for the newest epoch.
        is_stream: Whether it is a stream, also if a class has the name, as with a published table.
    """

    name: str
    format: FileFormat
    as_of: str = ""
    is_stream: bool = False


class ExportQuestion(msgspec.Struct, frozen=True):
    """The question to a child process that writes an export to its standard output, behind a `MARK`."""

    data: Path
    export: Export


class Exported(msgspec.Struct, frozen=True):
    """The result of an export.

    Attributes:
        rows: The number of entities, or of events.
    """

    name: str
    rows: int
    epoch: int


class Rows(Protocol):
    """Rows to be written.

    Attributes:
        columns: The columns, in order.
        most: The number of rows, or more; 0 if it is not known.
    """

    columns: Sequence[Cells]
    most: int

    def __iter__(self) -> Iterator[dict[str, list[Any]]]:
        """Yield the values of some rows, by column, as MessagePack has them. It can be called again."""


def export(data: Path, order: Export, out: Callable[[Epoch], BinaryIO], told: Told) -> Exported:
    """Write an export.

    Args:
        out: Returns the file, when the rows are found; takes the epoch.

    Raises:
        RequestError: The application has neither a class nor a stream with the name.
        QueryError: The journal does not hold the point in time.
        Gone: Retention has removed the first atoms of the stream.
        OSError: The file cannot be written.
    """
    code = code_in_force(data)
    if code is None:
        raise ConfigError("no application is deployed there; start it first: penstock run")
    app = load_deployed(data, code[0])
    with ExitStack() as stack:
        journal = stack.enter_context(closing(DataDirectory(data).open_journal(app)))
        # The lease comes before the look at the epochs: maintenance may remove epochs meanwhile.
        stack.enter_context(lease(data, f"export of {order.name}", journal.first()))
        epoch = _epoch_of(journal, order.as_of)
        rows = _rows_of(app, data, journal, order, epoch)
        count = _WRITERS[order.format](rows, out(epoch), told)
    return Exported(order.name, count, int(epoch))


def _epoch_of(journal: Journal, as_of: str) -> Epoch:
    if as_of:
        return epoch_as_of(journal, parse_point_in_time(as_of))
    epoch = newest_epoch(journal)
    if epoch == BEFORE_FIRST:
        raise ConfigError("the application has no epoch yet, so there is nothing to export")
    return epoch


def _rows_of(app: App, data: Path, journal: Journal, order: Export, epoch: Epoch) -> Rows:
    name = order.name
    if name in app.entities and not order.is_stream:
        snapshots = Snapshots(snapshots_root(data), journal.identity)
        entity_type: EntityType = app.entities[name]
        base = base_of(journal, snapshots, epoch)
        return _Entities(
            entity_type, StatesInParts(journal, snapshots, entity_type.stored_name, base, epoch)
        )
    if name in app.topology.streams:
        return _Events(app, journal, name, epoch)
    known = [*([] if order.is_stream else app.entities), *app.topology.streams]
    raise RequestError(unknown("stream" if order.is_stream else "class or stream", name, known))


class _Entities:
    """The entities of a class as rows; erased persons have none."""

    def __init__(self, entity_type: EntityType, parts: StatesInParts) -> None:
        self._type = entity_type
        self._parts = parts
        annotations = {entity_type.key_name: entity_type.key_annotation, **entity_type.attributes}
        self.columns: Sequence[Cells] = [Cells(*each) for each in annotations.items()]
        self.most = len(parts)

    def __iter__(self) -> Iterator[dict[str, list[Any]]]:
        for table in self._parts:
            for start in range(0, table.num_rows, _STEP):
                step = table.slice(start, _STEP)
                yield self._values(step["key"].to_pylist(), step["state"].to_pylist())

    def _values(self, texts: Sequence[str], states: Sequence[bytes]) -> dict[str, list[Any]]:
        entity_type = self._type
        values: dict[str, list[Any]] = {cells.name: [] for cells in self.columns}
        for text, state in zip(texts, states, strict=True):
            key = entity_type.key_at(text)
            if entity_type.is_erased(key, state):
                continue
            values[entity_type.key_name].append(_wire(key))
            for name, value in entity_type.plain(key, state).items():
                values[name].append(value)
        return values


class _Events:
    """The events of a stream as rows, each with its atom."""

    def __init__(self, app: App, journal: Journal, name: str, epoch: Epoch) -> None:
        self._events = app.topology.streams[name].events
        self._reader = AtomReader(journal)
        self._name = name
        self._end = self._reader.published_at(name, epoch)
        named = {"atom": int, "index": int, "epoch": int, "time": datetime, "event": Any}
        self.columns: Sequence[Cells] = [Cells(*each) for each in named.items()]
        self.most = 0

    def __iter__(self) -> Iterator[dict[str, list[Any]]]:
        rows: list[tuple[Any, ...]] = []
        names = [cells.name for cells in self.columns]
        for atom in self._reader.atoms(self._name, self._reader.oldest(self._name)):
            if atom.number >= self._end:
                break
            events = _plain(opened_atom(self._events, atom.events))
            place = atom.number, int(atom.epoch), instant_of(atom.time_us)
            rows += [
                (place[0], index, place[1], place[2], event) for index, event in enumerate(events)
            ]
            if len(rows) >= _STEP:
                yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
                rows = []
        if rows:
            yield dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _wire(key: Any) -> Any:
    return key if type(key) in (str, int) else _plain(ENCODER.encode(lower_reply(key)))


def _write_lines(rows: Rows, out: BinaryIO, told: Told) -> int:
    names = [cells.name for cells in rows.columns]
    done = 0
    for values in rows:
        every = zip(*(values[name] for name in names), strict=True)
        lines = [json_bytes(_encode, dict(zip(names, row, strict=True))) for row in every]
        if lines:
            out.write(b"\n".join(lines) + b"\n")
        done += len(lines)
        told(done, rows.most)
    return done


def _write_csv(rows: Rows, out: BinaryIO, told: Told) -> int:
    out.write((",".join(_cell(cells.name) for cells in rows.columns) + "\n").encode())
    done = 0
    for values in rows:
        columns = [map(_cell, cells.texts(values[cells.name])) for cells in rows.columns]
        lines = [",".join(row) for row in zip(*columns, strict=True)]
        if lines:
            out.write(("\n".join(lines) + "\n").encode())
        done += len(lines)
        told(done, rows.most)
    return done


def _cell(text: str | None) -> str:
    """Return a cell of CSV: None is empty, and an empty text has quotes."""
    if text is None:
        return ""
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _write_parquet(rows: Rows, out: BinaryIO, told: Told) -> int:
    # The types of all columns come before the first row, so the numbers are looked at before.
    numbers = [cells.name for cells in rows.columns if cells.arrow == pa.int64()]
    wide = {
        name for values in (rows if numbers else ()) for name in numbers if needs_wide(values[name])
    }
    schema = pa.schema([cells.field(wide=cells.name in wide) for cells in rows.columns])
    done = 0
    pending: list[pa.Table] = []
    counted = pa.PythonFile(_Counted(out), mode="w")
    with pq.ParquetWriter(counted, schema, compression="zstd") as writer:
        for values in rows:
            arrays = [
                cells.array(values[cells.name], wide=cells.name in wide) for cells in rows.columns
            ]
            pending.append(pa.Table.from_arrays(arrays, schema=schema))
            done += pending[-1].num_rows
            told(done, rows.most)
            if sum(each.num_rows for each in pending) >= _GROUP:
                writer.write_table(pa.concat_tables(pending))
                pending = []
        if pending:
            writer.write_table(pa.concat_tables(pending))
    return done


class _Counted:
    """A file whose position is known, also that of a pipe: Parquet needs it."""

    closed = False

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._at = 0

    def write(self, data: bytes) -> int:
        self._out.write(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._out.flush()

    def close(self) -> None:
        self._out.flush()


_WRITERS: Final[dict[FileFormat, Callable[[Rows, BinaryIO, Told], int]]] = {
    FileFormat.PARQUET: _write_parquet,
    FileFormat.CSV: _write_csv,
    FileFormat.LINES: _write_lines,
}


def main() -> None:
    """Write the export of the question to standard output: a `MARK` and the epoch, and then the file; or an error alone."""
    question, answer_file = receive_question(ExportQuestion)
    has_begun = False

    def begin(epoch: Epoch) -> BinaryIO:
        nonlocal has_begun
        answer_file.write(MARK + int(epoch).to_bytes(EPOCH_BYTES, "big"))
        has_begun = True
        return answer_file

    with answer_file:
        try:
            export(question.data, question.export, begin, lambda _done, _most: None)
        except PenstockError as error:
            if has_begun:  # the exit code tells the gateway that the file is not whole
                raise
            answer_file.write(envelope_of_failure(error))


if __name__ == "__main__":
    main()
