"""Readings: reads of a view at one point, the position of which is read together with the rows.

A reading is a transaction of the store that sees one state: a read transaction of SQLite, a repeatable read of PostgreSQL, a
searcher of tantivy. So its epoch is proven, whatever the applier does meanwhile.
"""

import sqlite3
import time
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from penstock.client.results import SearchAnswer
from penstock.errors import QueryError, RequestError
from penstock.views.target import Position

LENGTH_MAX: Final = 16 << 20
"""The most bytes of one value that a query of SQLite may make."""

_STEPS: Final = 10_000
"""Instructions of SQLite between two looks at the clock."""
_FETCHED: Final = 500
_READS_ALONE: Final = "a view is read with SELECT; nothing else is allowed"


class QueryBounds(NamedTuple):
    """The limits of one query.

    Attributes:
        deadline: When it must have ended, in seconds of `time.monotonic`.
        bytes_max: The most bytes of its rows, about.
    """

    deadline: float
    rows_max: int
    bytes_max: int = 64 << 20

    @property
    def left_ms(self) -> int:
        """The time that is left, at least 1 ms."""
        return max(1, int((self.deadline - time.monotonic()) * 1_000))


class TableAnswer(NamedTuple):
    """The rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Reading(Protocol):
    """An open read of one view at one point; one thread at a time may use it."""

    @property
    def position(self) -> Position | None:
        """The position, read in the same state as all rows; None if the view has never been filled."""

    def sql(self, query: str, parameters: list[Any], bounds: QueryBounds) -> TableAnswer:
        """Execute a query.

        Raises:
            QueryError: It is wrong, or takes too much.
            ViewUnavailable: The store does not answer any more.
        """

    def search(self, question: dict[str, Any]) -> SearchAnswer:
        """Search; `question` has the fields of a `SearchQuery`.

        Raises:
            RequestError: The question is wrong.
        """

    def close(self) -> None:
        """End the read."""


class Readable(Protocol):
    """A target that can be read at one point; each reading is independent of its writer."""

    def reading(self) -> Reading:
        """Open a reading.

        Raises:
            TargetProblem: The store does not answer.
        """


def collected(fetch: Any, columns: tuple[str, ...], bounds: QueryBounds) -> TableAnswer:
    """Fetch the rows of a query within its bounds; `fetch` returns the next rows, at most so many."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    while part := fetch(_FETCHED):
        rows += part
        size += sum(
            len(value) if isinstance(value, str | bytes) else 16 for row in part for value in row
        )
        if len(rows) > bounds.rows_max:
            raise QueryError(
                f"the query has more than {bounds.rows_max} rows; view.rows_max is the limit"
            )
        if size > bounds.bytes_max:
            raise QueryError(f"the rows take more than {bounds.bytes_max >> 20} MB; ask for fewer")
        if time.monotonic() > bounds.deadline:
            raise QueryError("the query took too long")
    return TableAnswer(columns, rows)


class SqliteReading:
    """A read transaction of an SQLite file, which sees one state although another process writes."""

    def __init__(self, connection: sqlite3.Connection, position: Position | None) -> None:
        """Take a connection inside of a read transaction that has read the position."""
        self.position = position
        self._connection = connection
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH_MAX)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(_only_reads)

    def sql(self, query: str, parameters: list[Any], bounds: QueryBounds) -> TableAnswer:
        """Execute a query in the state of the position."""
        connection = self._connection
        connection.set_progress_handler(lambda: time.monotonic() > bounds.deadline, _STEPS)
        try:
            cursor = connection.execute(query, parameters)
            columns = tuple(each[0] for each in cursor.description or ())
            return collected(cursor.fetchmany, columns, bounds)
        except sqlite3.Error as error:
            if time.monotonic() > bounds.deadline:
                raise QueryError("the query took too long") from error
            said = _READS_ALONE if "not authorized" in str(error) else str(error)
            raise QueryError(f"SQLite: {said}") from error
        finally:
            connection.set_progress_handler(None, 0)

    def search(self, question: dict[str, Any]) -> SearchAnswer:
        """Refuse: the view is a database."""
        raise RequestError("this view is a database; ask it with sql")

    def close(self) -> None:
        """End the transaction."""
        self._connection.set_authorizer(None)
        with suppress(sqlite3.Error):
            self._connection.close()


_READ_ACTIONS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


def _only_reads(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READ_ACTIONS else sqlite3.SQLITE_DENY
