"""Questions: one query with its limits, run at exactly one epoch.

Promises that epoch and rows are of one transaction, and that a query ends: by its time, its rows,
or its memory. Leaves to `seal` what may be asked.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.errors import QueryError
from penstock.runtime.config import ViewConfig
from penstock.views import seal
from penstock.views.store import Damaged, Store, is_damage, names_of

_BATCH_ROWS: Final = 2_048
"""How many rows come at once; small, because their size is known only when they are there."""

_AGAIN_S: Final = 0.02
"""How soon a query that goes on is interrupted again."""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked, as the body of `POST /sql`.

    Attributes:
        query: One SELECT.
        parameters: For `?` and `$1` a list, for `$name` an object.
        min_epoch: The answer is of this epoch or a later one; None: the newest one committed when
            the question arrives.
        timeout_ms: Less time than the view's own limit.
        rows_max: Fewer rows than the view's own limit.
    """

    query: str
    parameters: list[Any] | dict[str, Any] = []
    min_epoch: int | None = None
    timeout_ms: int | None = None
    rows_max: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows at one epoch.

    Attributes:
        epoch: The epoch.
        table: The rows.
        types: The SQL type of each column.
    """

    epoch: Epoch
    table: pa.Table
    types: Sequence[str]


def run(store: Store, question: Question, settings: ViewConfig, left_ms: int) -> Answer:
    """Run a query.

    Raises:
        QueryError: It may not be run, is wrong, or exceeds a limit; names it.
        Damaged: The file cannot be trusted.
    """
    time_ms = max(1, left_ms)
    rows_max = min(question.rows_max or settings.rows_max, settings.rows_max)
    with store.cursor() as cursor:
        seal.check(question.query, names_of(store.tables.values()), cursor)
        try:
            with _interrupted_after(cursor, time_ms):
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                [(epoch,)] = cursor.execute("SELECT epoch FROM penstock.view").fetchall()
                relation = _related(cursor, question)
                types = [str(one) for one in relation.types]
                table = _read(relation, rows_max, settings)
        except (duckdb.Error, OSError) as error:  # OSError: what comes while rows flow
            raise _meaning(error, time_ms, settings) from error
        except MemoryError as error:
            raise too_large(settings) from error
    return Answer(Epoch(epoch), table, types)


def _meaning(error: Exception, time_ms: int, settings: ViewConfig) -> Exception:
    """Return what an error of DuckDB says about the question, or about the file."""
    text = str(error)
    if text.startswith("INTERRUPT"):
        return QueryError(
            f"the query took longer than {time_ms} ms; view.time_ms is {settings.time_ms}"
        )
    if text.startswith("Out of Memory"):
        return too_large(settings)
    if is_damage(error):
        return Damaged(text)
    return QueryError(seal.said(error))


def too_large(settings: ViewConfig) -> QueryError:
    """Return the error of a query that needs more memory than there is."""
    return QueryError(f"the query needs more than {settings.memory_mb} MB (view.memory_mb)")


def _related(cursor: duckdb.DuckDBPyConnection, question: Question) -> duckdb.DuckDBPyRelation:
    """Return the query, ready to give rows; names of parameters may be written with their `$`."""
    parameters = question.parameters
    if isinstance(parameters, dict):
        parameters = {name.removeprefix("$"): value for name, value in parameters.items()}
    if parameters:
        return cursor.sql(question.query, params=parameters)
    return cursor.sql(question.query)


def _read(relation: duckdb.DuckDBPyRelation, rows_max: int, settings: ViewConfig) -> pa.Table:
    reader = relation.to_arrow_reader(_BATCH_ROWS)
    bytes_max = settings.memory_mb << 20
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in reader:
        rows += batch.num_rows
        size += batch.nbytes
        if rows > rows_max:
            raise QueryError(
                f"the answer has more than {rows_max:,} rows (rows_max, view.rows_max)"
            )
        if size > bytes_max:
            raise QueryError(f"the answer exceeds {settings.memory_mb} MB (view.memory_mb)")
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


@contextmanager
def _interrupted_after(cursor: duckdb.DuckDBPyConnection, time_ms: int) -> Iterator[None]:
    """Interrupt what a cursor runs once the time is up, until the block ends.

    Once is not enough: DuckDB forgets an interruption when the next statement begins.
    """
    done = threading.Event()

    def watch() -> None:
        pause_s = time_ms / 1_000
        while not done.wait(pause_s):
            cursor.interrupt()
            pause_s = _AGAIN_S

    watcher = threading.Thread(target=watch, name="penstock-query-limit", daemon=True)
    try:
        watcher.start()
    except RuntimeError as error:  # no memory is left for a stack
        raise MemoryError from error
    try:
        yield
    finally:
        done.set()
        watcher.join()
