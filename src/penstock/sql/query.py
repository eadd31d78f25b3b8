"""Questions: one query with its limits, run at exactly one epoch.

Promises that epoch and rows are of one transaction, and that the answer has no more rows and bytes
than it may. Leaves to `seal` what may be asked, and to `pool` that a query ends by its time.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import duckdb
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.process.config import ViewConfig
from penstock.sql import query_guard as seal
from penstock.sql.as_of_clause import AsOfStatement, parse_statement
from penstock.sql.damage import ViewDamaged, is_damage
from penstock.sql.query_body import QueryBody
from penstock.sql.view_store import ViewStore, names_of

_BATCH_ROWS: Final = 2_048
"""How many rows come at once; small, because their size is known only when they are there."""


class Query(QueryBody, frozen=True):
    """A query, as the body of `POST /sql` describes it."""

    def past(self) -> AsOfStatement | None:
        """Return what is asked of the past; None where it is the present alone.

        Raises:
            QueryError: It says so wrongly, or twice.
        """
        seal.check_length(self.query)
        found = parse_statement(self.query, self.parameters)
        if self.as_of is None:
            return found
        moment = self.as_of.moment()
        if found is None:
            return AsOfStatement(self.query, self.parameters, moment)
        if found.moment is not None:
            raise QueryError("AS OF is said in the query, and once more beside it (as_of)")
        return replace(found, moment=moment)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows at one epoch.

    Attributes:
        epoch: The epoch.
        table: The rows.
        types: The SQL type of each column.
    """

    epoch: Epoch
    table: pa.Table
    types: Sequence[str]


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may take.

    Attributes:
        deadline: When it must have ended, as `time.monotonic` counts.
        time_ms: How long that was when it began.
        rows_max: Rows of its answer.
        settings: The view's own limits.
    """

    deadline: float
    time_ms: int
    rows_max: int
    settings: ViewConfig

    def check(self) -> None:
        """Go on, if there is time left.

        Raises:
            QueryError: There is none.
        """
        if time.monotonic() > self.deadline:
            raise self.too_late()

    def too_late(self) -> QueryError:
        """Return the error of a query that took too long."""
        return QueryError(
            f"the query took longer than {self.time_ms} ms; view.time_ms is {self.settings.time_ms}"
        )


def limits_of(question: Query, settings: ViewConfig, deadline: float) -> QueryLimits:
    """Return the limits of a question, which are none above the view's own."""
    rows_max = min(question.rows_max or settings.rows_max, settings.rows_max)
    left_ms = max(1, round((deadline - time.monotonic()) * 1_000))
    return QueryLimits(deadline, left_ms, rows_max, settings)


def run(store: ViewStore, question: Query, limits: QueryLimits) -> QueryResult:
    """Run a query of the present; in a process of its own, because nothing else can end it.

    Raises:
        QueryError: It may not be run, is wrong, or exceeds a limit; names it.
        Damaged: The file cannot be trusted.
    """
    with limited(limits):
        cursor = store.sealed()
        seal.check_query(question.query, names_of(store.tables.values()), cursor)
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        [(epoch,)] = cursor.execute("SELECT epoch FROM penstock.view").fetchall()
        return read(cursor, question.query, question.parameters, limits, Epoch(epoch))


@contextmanager
def limited(limits: QueryLimits) -> Iterator[None]:
    """Say of every error of DuckDB what it means.

    Raises:
        QueryError: It is wrong, or exceeds a limit.
        Damaged: DuckDB broke down.
    """
    try:
        yield
    except (duckdb.Error, OSError) as error:  # OSError: what comes while rows flow
        raise _meaning(error, limits) from error
    except MemoryError as error:
        raise too_large(limits.settings) from error


def read(
    cursor: duckdb.DuckDBPyConnection,
    query: str,
    parameters: list[Any] | dict[str, Any],
    limits: QueryLimits,
    epoch: Epoch,
) -> QueryResult:
    """Return what a query finds, within its limits; names of parameters may have their `$`."""
    if isinstance(parameters, dict):
        parameters = {name.removeprefix("$"): value for name, value in parameters.items()}
    relation = cursor.sql(query, params=parameters) if parameters else cursor.sql(query)
    types = [str(one) for one in relation.types]
    return QueryResult(epoch, _rows(relation, limits), types)


def _meaning(error: Exception, limits: QueryLimits) -> Exception:
    """Return what an error of DuckDB says about the question, or about the file."""
    text = str(error)
    if text.startswith("Out of Memory"):
        return too_large(limits.settings)
    if is_damage(error):
        return ViewDamaged(text)
    return QueryError(seal.error_text(error))


def too_large(settings: ViewConfig) -> QueryError:
    """Return the error of a query that needs more memory than there is."""
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
                f"the answer has more than {limits.rows_max:,} rows (rows_max, view.rows_max)"
            )
        if size > memory_mb << 20:
            raise QueryError(f"the answer exceeds {memory_mb} MB (view.memory_mb)")
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)
