"""The queries of tables that are written in SQL (`penstock.sql`): their check, the classes that they read, and their columns.

The answer of such a query must be a function of the state at an epoch. So it reads classes and tasks, and no table whose
older rows are removed; and it calls no function of time or chance.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

import duckdb
from duckdb.sqltypes import DuckDBPyType

from penstock.errors import QueryError
from penstock.model.application import App
from penstock.snapshots.table import MAIN, TASKS, EntityTable, tables_of
from penstock.sql_view import query_guard
from penstock.sql_view.as_of_clause import parse_statement
from penstock.sql_view.connection import close_to_outside, open_isolated
from penstock.sql_view.system_tables import STREAMS, SYSTEM, SYSTEM_TABLES, names_of

_MEMORY_MB: Final = 64
"""The memory for parsing a query, and for binding it to empty tables."""

_WORDS_OF_TIME: Final = frozenset(
    {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
)
"""Functions that are written without brackets, as a column is."""

_UNSTABLE: Final = frozenset({"current_localtime", "current_localtimestamp", *_WORDS_OF_TIME})
"""Functions of time that DuckDB's catalogue does not mark."""

_HARMLESS: Final = frozenset({"error"})
"""Functions that DuckDB marks because they must not be folded; they give no value."""

_UNFIT: Final = frozenset(
    {
        *("bignum", "bit", "null", "time with time zone", "timestamp_ns", "uhugeint", "union"),
        *("variant", "geometry", "lambda", "unknown", "any", "type"),
    }
)
"""Types whose values no target, or no answer, holds unchanged."""


class TableQuery(NamedTuple):
    """A query that may be a table.

    Attributes:
        classes: The stored names of the classes and tasks that it reads.
        columns: The names of its columns.
    """

    classes: frozenset[str]
    columns: tuple[str, ...]


def check_table_query(app: App, query: str) -> TableQuery:
    """Check a query of a table against the classes of an application, without rows.

    Raises:
        QueryError: It cannot be the query of a table; the message says why.
    """
    query_guard.check_length(query)
    if parse_statement(query, []) is not None:
        raise QueryError("a table shows each epoch of its view; remove AS OF and changes(…)")
    tables = tables_of(app)
    with closing(open_isolated(_MEMORY_MB)) as connection:
        named = query_guard.check_query(query, names_of(app, tables.values()), connection)
        _refuse_unstable(query, connection)
        classes = frozenset(_classes_of(named, tables))
        connection.execute(f"CREATE SCHEMA {TASKS}")
        for table in tables.values():
            connection.execute(f"CREATE TABLE {table.written}({table.definition})")
        close_to_outside(connection)
        try:
            relation = connection.sql(query)
        except duckdb.Error as error:
            raise QueryError(query_guard.error_text(error)) from error
        if relation is None:
            raise QueryError("a table of a view is a SELECT")
        for name, sql_type in zip(relation.columns, relation.types, strict=True):
            check_type(name, sql_type)
        return TableQuery(classes, tuple(relation.columns))


def check_type(name: str, sql_type: DuckDBPyType) -> None:
    """Check the type of a column.

    Raises:
        QueryError: No target holds its values.
    """
    if (unfit := _unfit_in(sql_type)) is not None:
        raise QueryError(
            f"the column {name} has the type {sql_type}, and no target holds {unfit}; cast it"
        )


def _unfit_in(sql_type: DuckDBPyType) -> str | None:
    if sql_type.id in _UNFIT:
        return str(sql_type)
    if sql_type.id not in ("list", "array", "struct", "map"):
        return None
    inner = (each for _, each in sql_type.children if isinstance(each, DuckDBPyType))
    return next((unfit for each in inner if (unfit := _unfit_in(each)) is not None), None)


def _classes_of(named: set[query_guard.TableName], tables: dict[str, EntityTable]) -> Iterator[str]:
    """Yield the stored names of the classes that a query names; refuse tables that lose their older rows."""
    own = {(table.schema, table.name.casefold()): name for name, table in tables.items()}
    for schema, name in sorted(named):
        if (stored := own.get((schema or MAIN, name))) is not None:
            yield stored
        elif schema == STREAMS:
            raise QueryError(
                f"the table {STREAMS}.{name} has the newest events only; show the stream itself as a table of the view"
            )
        elif schema == SYSTEM or name in SYSTEM_TABLES:
            raise QueryError(f"the table {name} has the newest requests only, and cannot be shown")
        elif schema == "information_schema":
            raise QueryError("a table of a view shows entities, and not the schema")


def _refuse_unstable(query: str, connection: duckdb.DuckDBPyConnection) -> None:
    marked = connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() "
        "WHERE stability IN ('VOLATILE', 'CONSISTENT_WITHIN_QUERY')"
    ).fetchall()
    unstable = _UNSTABLE | {name for (name,) in marked} - _HARMLESS
    for node in query_guard.nodes_of(query, connection):
        called = _called(node)
        if called in unstable:
            raise QueryError(
                f"{called} has another value each time, and the table must follow from the state; store the value in an entity"
            )
        if node.get("sample"):
            raise QueryError("a sample is another one each time; choose rows by their values")
        if node.get("type") == "SHOW_REF":
            raise QueryError("a table of a view is a SELECT")


def _called(node: dict[str, Any]) -> str:
    """Return the name of the function that a node calls, in lower case; empty if it calls none."""
    function = node.get("function_name")
    if isinstance(function, str):
        name = function.casefold()
        # `age` of one time counts from today.
        return "current_date" if name == "age" and len(node.get("arguments", ())) == 1 else name
    match node.get("column_names"):
        case [str(name)] if name.casefold() in _WORDS_OF_TIME:
            return name.casefold()
        case _:
            return ""
