"""Reads the events of a file: JSON lines, CSV or Parquet.

Each row becomes a value of the stream's type. A row that does not fit is an error that names the file, the line and
the field. A line of a CSV file is the line at which the row ends.
"""

import csv
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from penstock.base.given_type import GivenType, without_mark
from penstock.base.lowering import place_in
from penstock.base.misfit import misfit_of
from penstock.base.near_names import did_you_mean
from penstock.base.record import is_record, members_of
from penstock.base.schema import reason_of
from penstock.errors import ConfigError, RequestError, Unencodable, UserError
from penstock.model.streams.event_type import EventType
from penstock.model.streams.generator import FileSource


class EventFile(ABC):
    """A file of events, read from its beginning.

    Attributes:
        line: The number of the last line, or row, that was read.
    """

    unit = "line"

    def __init__(self, path: str, events: EventType[Any]) -> None:
        self.path = path
        self.line = 0
        self._annotation = events.annotation
        self._given: GivenType = events.given
        self._encode = events.encode_readable

    def __iter__(self) -> Iterator[Any]:
        try:
            for event in self._events():
                self._check_storable(event)
                yield event
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise RequestError(f"{self.place}: the file cannot be read: {error}") from error

    @property
    def place(self) -> str:
        """The path, with the last line that was read."""
        return f"{self.path}, {self.unit} {self.line}" if self.line else self.path

    @property
    @abstractmethod
    def share(self) -> float | None:
        """The part of the file that was read, from 0 to 1; None if it is not known."""

    @abstractmethod
    def _events(self) -> Iterator[Any]:
        """Yield the events."""

    def _check_storable(self, event: Any) -> None:
        """Refuse an event that fits and cannot be stored, such as an integer of over 64 bits, while its line is known."""
        try:
            self._encode(event)
        except Unencodable as error:
            place = place_in(event).removeprefix(".")
            place = f"{self.place}, field {place}" if place else self.place
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            raise RequestError(f"{place}: {reason_of(cause)}") from error

    def _fit(self, error: Exception) -> RequestError:
        """Return the error of a row that does not fit."""
        misfit = misfit_of(reason_of(error)).explained(self._annotation)
        field = misfit.path.removeprefix(".")
        place = f"{self.place}, field {field}" if field else self.place
        return RequestError(f"{place}: {misfit.mistake}")


class _TextFile(EventFile):
    """A file of text, whose size is known when it is opened."""

    def __init__(self, path: str, events: EventType[Any]) -> None:
        super().__init__(path, events)
        self._size = 0
        self._read = 0

    @property
    def share(self) -> float | None:
        """The part of the bytes that was read."""
        return min(1.0, self._read / self._size) if self._size else None

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        self._size = os.fstat(file.fileno()).st_size
        for line in file:
            self._read += len(line)
            yield line


class JsonLinesFile(_TextFile):
    """A file with a JSON value in each line; empty lines are passed over."""

    def _events(self) -> Iterator[Any]:
        decode = self._given.of_json
        with open(self.path, "rb") as file:  # noqa: PTH123 -- a path of the user, as it is
            for line in self._lines(file):
                self.line += 1
                if self.line == 1:
                    line = without_mark(line)
                if not line.strip():
                    continue
                try:
                    event = decode(line)
                except (msgspec.MsgspecError, RecursionError, ValueError) as error:
                    raise self._fit(error) from error
                yield event


class CsvFile(_TextFile):
    """A file of comma-separated values with a header.

    A record takes the columns by name; an empty cell is left out if its field has a default. An event of another
    type is the only column.
    """

    def _events(self) -> Iterator[Any]:
        with open(self.path, "rb") as file:  # noqa: PTH123 -- a path of the user, as it is
            reader = csv.reader(line.decode() for line in self._lines(file))
            header = next(reader, [])
            self.line = reader.line_num
            if header:
                header[0] = header[0].removeprefix("\ufeff")
            self._check(header)
            optional = self._optional()
            for cells in reader:
                self.line = reader.line_num
                if cells:
                    yield self._event(header, cells, optional)

    def _check(self, header: list[str]) -> None:
        """Refuse a header with a column that is no field."""
        if not is_record(self._annotation):
            if len(header) != 1:
                raise RequestError(
                    f"{self.path}: the file has {len(header)} columns, and an event that is no record has one"
                )
            return
        _check_columns(self.place, header)
        names = [member.wire for member in members_of(self._annotation)]
        for column in header:
            if column not in names:
                hint = did_you_mean(column, names) or f"; the fields are {', '.join(names)}"
                raise RequestError(
                    f"{self.place}: column {column!r} is no field of the events{hint}"
                )

    def _optional(self) -> frozenset[str]:
        if not is_record(self._annotation):
            return frozenset()
        return frozenset(
            member.wire for member in members_of(self._annotation) if member.has_default
        )

    def _event(self, header: list[str], cells: list[str], optional: frozenset[str]) -> Any:
        if len(cells) != len(header):
            raise RequestError(
                f"{self.place}: the row has {len(cells)} cells, and the header has {len(header)}"
            )
        row: Any = cells[0]
        if is_record(self._annotation):
            named = zip(header, cells, strict=True)
            row = {name: cell for name, cell in named if cell or name not in optional}
        return self._converted(row)

    def _converted(self, row: Any) -> Any:
        try:
            return self._given.converted(row, strict=False)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise self._fit(error) from error


def _check_columns(place: str, columns: list[str]) -> None:
    """Refuse two columns of one name, of which only the last one would be read."""
    for column in columns:
        if columns.count(column) > 1:
            raise RequestError(
                f"{place}: {columns.count(column)} columns are named {column!r}; rename or remove all but one"
            )


class ParquetFile(EventFile):
    """A Parquet file: a record takes the columns by name, and an event of another type is the only column."""

    unit = "row"

    def __init__(self, path: str, events: EventType[Any]) -> None:
        super().__init__(path, events)
        self._rows = 0

    @property
    def share(self) -> float | None:
        """The part of the rows that was read."""
        return self.line / self._rows if self._rows else None

    def _events(self) -> Iterator[Any]:
        try:
            import pyarrow as arrow  # noqa: PLC0415 -- only Parquet needs it
            from pyarrow import parquet  # noqa: PLC0415 -- only Parquet needs it
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{self.path}: a Parquet file needs pyarrow; install it: pip install 'penstock[server]'"
            ) from error
        try:
            with parquet.ParquetFile(self.path) as file:
                self._rows = file.metadata.num_rows
                _check_columns(self.path, file.schema_arrow.names)
                for batch in file.iter_batches(batch_size=4_096):
                    for row in batch.to_pylist():
                        self.line += 1
                        yield self._event(row)
        except arrow.ArrowException as error:
            raise RequestError(f"{self.place}: the file cannot be read: {error}") from error

    def _event(self, row: dict[str, Any]) -> Any:
        value: Any = row
        if not is_record(self._annotation) and len(row) == 1:
            (value,) = row.values()
        try:
            return self._given.converted(value)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise self._fit(error) from error


def open_events(source: FileSource, events: EventType[Any]) -> EventFile:
    """Return the reader of a file."""
    match source.form:
        case "json lines":
            return JsonLinesFile(source.path, events)
        case "csv":
            return CsvFile(source.path, events)
        case "parquet":
            return ParquetFile(source.path, events)
        case _:
            raise UserError(f"{source!r}: the end of the name says no form that is known")
