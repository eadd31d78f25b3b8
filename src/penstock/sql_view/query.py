"""Queries with their limits; each is executed at exactly one epoch.

Epoch and rows of a result are read in one transaction. A result has at most the allowed rows and
bytes. `query_guard` decides which queries are allowed, and `query_pool` ends them in time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.process.config import ViewConfig
from penstock.sql_view import query_guard
from penstock.sql_view.as_of_clause import AsOfStatement, parse_statement
from penstock.sql_view.connection import ViewDamaged, is_damage
from penstock.sql_view.error_place import error_place
from penstock.sql_view.query_body import QueryBody
from penstock.sql_view.view_store import ViewStore

_WIDE: Final = frozenset({"uhugeint", "bignum"})
_NESTED: Final = frozenset({"list", "array", "struct", "map", "union"})
_BATCH_ROWS: Final = 2_048
"""How many rows are fetched at once; few, because their size is known only afterwards."""


class Query(QueryBody, frozen=True):
    """A query; `QueryBody` describes its fields."""

    def as_of_statement(self) -> AsOfStatement | None:
        """Return the query with its points in time; None if it reads the newest epoch alone."""
        query_guard.check_length(self.query)
        statement = parse_statement(self.query, self.parameters)
        if self.as_of is None:
            return statement
        moment = self.as_of.moment()
        if statement is None:
            return AsOfStatement(self.query, self.parameters, moment)
        if statement.moment is not None:
            raise QueryError("AS OF is in the query and once more in as_of; give only one of them")
        return replace(statement, moment=moment)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query.

    Attributes:
        types: The SQL type of each column.
    """

    epoch: Epoch
    table: pa.Table
    types: Sequence[str]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The limits of one query.

    Attributes:
        deadline: When the query must have ended, in seconds of `time.monotonic`.
        time_ms: The time that the query may take.
        rows_max: The number of rows in its result.
    """

    deadline: float
    time_ms: int
    rows_max: int
    settings: ViewConfig

    def check(self) -> None:
        """Check the deadline."""
        if time.monotonic() > self.deadline:
            raise self.too_late()

    def too_late(self) -> QueryError:
        """Return the error of a query that took too long."""
        return QueryError(
            f"the query took longer than {self.time_ms} ms; view.time_ms is {self.settings.time_ms}"
        )


def limits_of(query: Query, settings: ViewConfig, deadline: float) -> QueryLimits:
    """Return the limits of a query, which are at most the view's own."""
    rows_max = (
        settings.rows_max if query.rows_max is None else min(query.rows_max, settings.rows_max)
    )
    return QueryLimits(deadline, time_ms_of(query, settings), rows_max, settings)


def time_ms_of(query: Query, settings: ViewConfig) -> int:
    """Return how long a query may take, which is at most the view's own limit."""
    return settings.time_ms if query.timeout_ms is None else min(query.timeout_ms, settings.time_ms)


def run(store: ViewStore, query: Query, limits: QueryLimits) -> QueryResult:
    """Execute a query of the newest epoch, in a child, because only the end of a process ends it.

    Raises:
        ViewDamaged: DuckDB or its file is damaged.
    """
    with translating_errors(
        limits, lambda: error_place(store.sealed(), query.query, query.parameters)
    ):
        cursor = store.sealed()
        query_guard.check_query(query.query, store.names, cursor)
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        [(epoch,)] = cursor.execute("SELECT epoch FROM penstock.view").fetchall()
        return read(cursor, query.query, query.parameters, limits, Epoch(epoch))


@contextmanager
def translating_errors(
    limits: QueryLimits, place: Callable[[], str] | None = None
) -> Iterator[None]:
    """Translate errors of DuckDB.

    Args:
        place: Returns the place of an error, for the beginning of its message.

    Raises:
        ViewDamaged: DuckDB or its file is damaged.
    """
    try:
        yield
    except (duckdb.Error, OSError) as error:  # OSError: an error while rows are fetched
        raise _translated(error, limits, place) from error
    except MemoryError as error:
        raise too_large(limits.settings) from error


def read(
    cursor: duckdb.DuckDBPyConnection,
    query: str,
    parameters: list[Any] | dict[str, Any],
    limits: QueryLimits,
    epoch: Epoch,
) -> QueryResult:
    """Execute a query and return its rows.

    Args:
        parameters: Its parameters; their names may begin with `$`.
    """
    if isinstance(parameters, dict):
        parameters = {name.removeprefix("$"): value for name, value in parameters.items()}
    relation = cursor.sql(query, params=parameters) if parameters else cursor.sql(query)
    for name, sql_type in zip(relation.columns, relation.types, strict=True):
        if _is_wide(sql_type):
            raise QueryError(
                f"the column {name} has the type {sql_type}, whose values no format of an answer can hold; cast it to "
                "HUGEINT, DECIMAL or VARCHAR"
            )
    types = [str(sql_type) for sql_type in relation.types]
    return QueryResult(epoch, _rows(relation, limits), types)


def _is_wide(sql_type: DuckDBPyType) -> bool:
    """Say whether a type holds integers that DuckDB hands on with another value: Arrow has no such type."""
    if sql_type.id in _WIDE:
        return True
    inner = sql_type.children if sql_type.id in _NESTED else ()
    return any(isinstance(each, DuckDBPyType) and _is_wide(each) for _, each in inner)


def _translated(
    error: Exception, limits: QueryLimits, place: Callable[[], str] | None
) -> Exception:
    text = str(error)
    if text.startswith("Out of Memory"):
        return too_large(limits.settings)
    if is_damage(error):
        return ViewDamaged(text)
    return QueryError(f"{place() if place else ''}{query_guard.error_text(error)}")


def too_large(settings: ViewConfig) -> QueryError:
    """Return the error of a query that needs too much memory."""
    return QueryError(f"the query needs more than {settings.memory_mb} MB (view.memory_mb)")


def _rows(relation: duckdb.DuckDBPyRelation, limits: QueryLimits) -> pa.Table:
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    memory_mb = limits.settings.memory_mb
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > limits.rows_max:
            raise QueryError(
                f"the result has more than {limits.rows_max:,} rows (rows_max, view.rows_max)"
            )
        if size > memory_mb << 20:
            raise QueryError(f"the result is larger than {memory_mb} MB (view.memory_mb)")
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)
