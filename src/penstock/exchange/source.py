"""Sources of an import: a file of Parquet, CSV or JSON lines, or a table of PostgreSQL, read a batch of rows at a time.

A source has the names of its columns before its rows. It never has more than a batch, and a row group of Parquet, in
memory. A file that cannot be read as its format says is refused with its place in the file.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from penstock.base.file_formats import FileFormat, format_of
from penstock.base.given_type import RepeatedNames, without_mark
from penstock.errors import OperationalError, RequestError

BATCH_ROWS: Final = 20_000
"""Rows that are read and converted together."""

_BLOCK: Final = 4 << 20
_LINE_MAX: Final = 64 << 20
"""The most bytes of a line of JSON; a file without line ends must not fill the memory."""

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TABLE: Final = re.compile(r"\w+(\.\w+)?")


class Column(NamedTuple):
    """The cells of a column in a batch.

    Attributes:
        cells: The values; of JSON lines each is a `msgspec.Raw`, or `msgspec.UNSET` if an object lacks the name.
        is_text: Whether all are texts, or None.
    """

    cells: Sequence[Any]
    is_text: bool


class Batch(NamedTuple):
    """Some rows.

    Attributes:
        first: The number of the first row, from 1; of a CSV file without its header.
        rows: How many rows they are.
        columns: The columns by name.
        broken: The rows that are no rows: their places in the batch, and why. Their cells are to be ignored.
    """

    first: int
    rows: int
    columns: dict[str, Column]
    broken: dict[int, str]


class Source(Protocol):
    """Rows to be imported.

    Attributes:
        names: The names of the columns, in order; None if each row has its own, as in JSON lines.
        has_json: Whether the cells are pieces of JSON.
        is_csv: Whether the source is CSV.
    """

    names: list[str] | None
    has_json: bool
    is_csv: bool

    def batches(self) -> Iterator[Batch]:
        """Yield all rows, in order.

        Raises:
            RequestError: The source cannot be read in its format.
            OperationalError: The disk or the network fails.
        """

    def done(self) -> tuple[int, int]:
        """Return how much was read, and how much there is; 0 and 0 if that is not known."""


def open_source(
    source: str, names: Sequence[str], given: FileFormat | None = None, table: str = ""
) -> Source:
    """Open a source.

    Args:
        names: The names of the columns that it may have.
        source: The path of a file, or the URL of a database of PostgreSQL.
        given: The format of the file; None: as its suffix says.
        table: The table of the database: `items` or `public.items`.

    Raises:
        RequestError: The file or the table does not exist, or cannot be read in its format.
    """
    if source.startswith(("postgresql://", "postgres://")):
        return _PostgresTable(source, table)
    if table:
        raise RequestError("a file has no tables; the table belongs to the URL of a database")
    if not Path(source).is_file():
        raise RequestError(f"the file {source} does not exist")
    match format_of(source, given):
        case FileFormat.PARQUET:
            return _ParquetFile(source)
        case FileFormat.CSV:
            return _CsvFile(source)
        case FileFormat.LINES:
            return _JsonLines(source, names)


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Translate the errors of a file."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError, csv.Error) as error:
        why = str(error).partition("\n")[0]
        is_encoding = isinstance(error, UnicodeDecodeError) or "invalid UTF8" in why
        remedy = "; save the file as text in UTF-8" if is_encoding else ""
        raise RequestError(f"{source}: {why}{remedy}") from error
    except OSError as error:
        why = error.strerror or str(error).partition("\n")[0]
        raise OperationalError(f"cannot read {source}: {why}") from error


def _refuse_twins(source: str, names: Sequence[str]) -> list[str]:
    twins = [name for name, count in Counter(names).items() if count > 1]
    if twins:
        raise RequestError(f"{source} has several columns with the name {twins[0]!r}")
    return list(names)


class _ParquetFile:
    has_json = False
    is_csv = False

    def __init__(self, path: str) -> None:
        self._path = path
        with _reading(path):
            self._file = pq.ParquetFile(path)
            schema = self._file.schema_arrow
        self.names: list[str] | None = _refuse_twins(path, schema.names)
        self._rows: int = self._file.metadata.num_rows
        self._done = 0

    def batches(self) -> Iterator[Batch]:
        with _reading(self._path):
            for record in self._file.iter_batches(BATCH_ROWS, use_threads=False):
                yield _batch(self._done + 1, record)
                self._done += record.num_rows

    def done(self) -> tuple[int, int]:
        return self._done, self._rows


def _batch(first: int, record: pa.RecordBatch) -> Batch:
    columns = {
        name: Column(_values(column), _is_text(column.type))
        for name, column in zip(record.schema.names, record.columns, strict=True)
    }
    return Batch(first, record.num_rows, columns, {})


def _is_text(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _values(column: pa.Array) -> list[Any]:
    data_type = column.type
    if pa.types.is_timestamp(data_type) and data_type.unit == "ns":
        # A nanosecond that Python's instants do not have would be lost; the cast refuses it.
        column = column.cast(pa.timestamp("us", data_type.tz))
    elif (
        pa.types.is_time64(data_type) or pa.types.is_duration(data_type)
    ) and data_type.unit == "ns":
        column = column.cast(
            pa.time64("us") if pa.types.is_time64(data_type) else pa.duration("us")
        )
    elif pa.types.is_map(data_type):
        return [None if each is None else dict(each) for each in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


class _CsvFile:
    has_json = False
    is_csv = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._size = Path(path).stat().st_size
        with _reading(path), Path(path).open("rb") as file:
            line = without_mark(file.readline(_LINE_MAX)).decode()
        header = next(csv.reader([line]), [])
        if not header:
            raise RequestError(f"{path} has no header: its first line has the names of the columns")
        self.names: list[str] | None = _refuse_twins(path, header)

    def batches(self) -> Iterator[Batch]:
        assert self.names is not None, "a file has a header"
        options = {
            "read_options": pacsv.ReadOptions(use_threads=False, block_size=_BLOCK),
            "parse_options": pacsv.ParseOptions(newlines_in_values=True),
            "convert_options": pacsv.ConvertOptions(
                column_types=dict.fromkeys(self.names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        }
        first = 1
        with (
            _reading(self._path),
            Path(self._path).open("rb") as self._file,
            pacsv.open_csv(self._file, **options) as reader,
        ):
            for block in reader:
                for start in range(0, block.num_rows, BATCH_ROWS):
                    piece = block.slice(start, BATCH_ROWS)
                    yield _batch(first, piece)
                    first += piece.num_rows

    def done(self) -> tuple[int, int]:
        is_open = self._file is not None and not self._file.closed
        return (self._file.tell() if self._file is not None and is_open else 0), self._size


class _JsonLines:
    names: list[str] | None = None
    has_json = True
    is_csv = False

    def __init__(self, path: str, names: Sequence[str]) -> None:
        self._path = path
        self._repeated = RepeatedNames(type(None), names)
        self._size = Path(path).stat().st_size
        self._done = 0

    def batches(self) -> Iterator[Batch]:
        first, lines = 1, 0
        rows: list[dict[str, msgspec.Raw]] = []
        broken: dict[int, str] = {}
        with _reading(self._path), Path(self._path).open("rb") as file:
            while line := file.readline(_LINE_MAX):
                self._done += len(line)
                if not lines:
                    line = without_mark(line)
                lines += 1
                if not line.strip():
                    continue
                try:
                    row = _OBJECT.decode(line)
                    self._repeated.refuse(line)
                    rows.append(row)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    broken[len(rows)] = f"line {lines} is not a JSON object: {error}"
                    rows.append({})
                if len(rows) == BATCH_ROWS:
                    yield self._batch(first, rows, broken)
                    first, rows, broken = first + len(rows), [], {}
            if rows:
                yield self._batch(first, rows, broken)

    @staticmethod
    def _batch(first: int, rows: list[dict[str, msgspec.Raw]], broken: dict[int, str]) -> Batch:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {
            name: Column([row.get(name, msgspec.UNSET) for row in rows], is_text=False)
            for name in names
        }
        return Batch(first, len(rows), columns, broken)

    def done(self) -> tuple[int, int]:
        return self._done, self._size


class _PostgresTable:
    has_json = False
    is_csv = False

    def __init__(self, url: str, table: str) -> None:
        if not _TABLE.fullmatch(table):
            raise RequestError(
                "name the table of the database: items, or public.items"
                if not table
                else f"{table!r} cannot name a table; write items, or public.items"
            )
        if urlsplit(url).password:
            # A command line, the log output of a gateway and its traces would show it.
            raise RequestError(
                "the URL has a password; leave it out, and set PGPASSWORD in the environment or write the file .pgpass"
            )
        try:
            import psycopg
            from psycopg import sql
        except ModuleNotFoundError as error:
            raise RequestError(
                "to read a table of PostgreSQL needs psycopg: install penstock[postgres]"
            ) from error
        self._error = psycopg.Error
        self._where = f"{url}, table {table}"
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table.split(".")))
        try:
            self._connection = psycopg.connect(url, connect_timeout=10)
        except psycopg.Error as error:
            raise self._failure(error) from error
        self._connection.read_only = True
        self._cursor = self._connection.cursor(name="penstock_import")
        self._cursor.itersize = BATCH_ROWS
        try:
            self._cursor.execute(query)
            self._rows = self._cursor.fetchmany(BATCH_ROWS)
            described = self._cursor.description or ()
        except psycopg.Error as error:
            self._close()
            raise self._failure(error) from error
        self.names: list[str] | None = [column.name for column in described]
        self._texts = [column.type_display in _TEXTS for column in described]
        self._done = 0

    def _failure(self, error: Exception) -> RequestError:
        return RequestError(f"{self._where}: {str(error).partition(chr(10))[0]}")

    def batches(self) -> Iterator[Batch]:
        assert self.names is not None, "a table has columns"
        rows = self._rows
        try:
            while rows:
                columns = {
                    name: Column(list(cells), is_text)
                    for name, is_text, cells in zip(
                        self.names, self._texts, zip(*rows, strict=True), strict=True
                    )
                }
                yield Batch(self._done + 1, len(rows), columns, {})
                self._done += len(rows)
                rows = self._cursor.fetchmany(BATCH_ROWS)
        except self._error as error:
            raise self._failure(error) from error
        finally:
            self._close()

    def _close(self) -> None:
        with suppress(self._error):  # a cursor of a transaction that has failed
            self._cursor.close()
        self._connection.close()

    def done(self) -> tuple[int, int]:
        return 0, 0


_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "char", "name", "citext"})
