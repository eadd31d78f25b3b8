"""Changes of the view's tables: of rows, of a class whose values need wide columns, and of all classes by a deployment."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import duckdb
import pyarrow as pa

from penstock.snapshots.column import quoted
from penstock.snapshots.state_as_of import TypedStates
from penstock.snapshots.table import TASKS, EntityTable, written_name
from penstock.sql_view.connection import registered
from penstock.sql_view.system_tables import (
    SYSTEM,
    SYSTEM_TABLES,
    TypedTable,
    effect_rows,
    select_list,
    versions_text,
    widening_select_list,
    without_large,
)


def put_rows(connection: duckdb.DuckDBPyConnection, table: EntityTable, rows: pa.Table) -> int:
    """Insert entities, or replace those that exist; return the number of rows that were removed for that."""
    # Registered once, which takes half as long as a statement for a few rows.
    with registered(connection, rows) as source:
        removed = _remove(connection, table, source)
        _insert(connection, table, source)
    return removed


def insert_rows(connection: duckdb.DuckDBPyConnection, table: EntityTable, rows: pa.Table) -> None:
    """Insert entities that do not exist; unlike `put_rows`, it does not read the table."""
    with registered(connection, rows) as source:
        _insert(connection, table, source)


def remove_rows(connection: duckdb.DuckDBPyConnection, table: EntityTable, keys: pa.Table) -> int:
    """Remove entities by their keys; return the number of those that were there."""
    with registered(connection, keys) as source:
        return _remove(connection, table, source)


def _insert(connection: duckdb.DuckDBPyConnection, table: EntityTable, source: str) -> None:
    connection.execute(f"INSERT INTO {table.written} SELECT {select_list(table)} FROM {source}")


def _remove(connection: duckdb.DuckDBPyConnection, table: EntityTable, source: str) -> int:
    chosen = f"SELECT {select_list(table, 1)} FROM {source}"
    gone = f"DELETE FROM {table.written} WHERE {quoted(table.key)} IN ({chosen})"
    [(count,)] = connection.execute(gone).fetchall()
    return int(count)


def forget_oldest(connection: duckdb.DuckDBPyConnection, excess: int) -> None:
    """Remove the oldest requests and their replies."""
    for name in ("requests", "replies"):
        table = f"{SYSTEM}.{name}"
        connection.execute(
            f"DELETE FROM {table} WHERE rowid IN "
            f"(SELECT rowid FROM {table} ORDER BY epoch, lsn LIMIT {excess})"
        )


def forget_oldest_epochs(connection: duckdb.DuckDBPyConnection, excess: int) -> None:
    """Remove the oldest epochs, which follow each other without a gap."""
    table = f"{SYSTEM}.epochs"
    connection.execute(
        f"DELETE FROM {table} WHERE epoch < (SELECT min(epoch) + {excess} FROM {table})"
    )


class ShownTable(TypedTable, Protocol):
    """A typed table of the view."""

    @property
    def definition(self) -> str:
        """The columns in the syntax of CREATE TABLE."""


def retype_table(
    connection: duckdb.DuckDBPyConnection,
    names: tuple[str, str],
    former: TypedTable,
    present: ShownTable,
) -> None:
    """Give a table the wide types, or the narrow types again, and copy its rows."""
    schema, name = names
    target, temporary = written_name(schema, name), f"{name} former"
    run = connection.execute
    run(f"ALTER TABLE {target} RENAME TO {quoted(temporary)}")
    run(f"CREATE TABLE {target}({present.definition})")
    chosen = widening_select_list(former, present)
    run(f"INSERT INTO {target} SELECT {chosen} FROM {written_name(schema, temporary)}")
    run(f"DROP TABLE {written_name(schema, temporary)}")


def fits_narrow(
    connection: duckdb.DuckDBPyConnection, target: str, wide: TypedTable, narrow: TypedTable
) -> bool:
    """Say whether all rows of a wide table fit the narrow types, so that no value needs the wide ones any more."""
    types = {name: column.sql for name, column in narrow.columns}
    conditions = []
    for name, column in wide.columns:
        if name not in types:
            conditions.append(f"{quoted(name)} IS NOT NULL")
        elif types[name] != column.sql:
            there_and_back = f"CAST(TRY_CAST({quoted(name)} AS {types[name]}) AS {column.sql})"
            conditions.append(f"{there_and_back} IS DISTINCT FROM {quoted(name)}")
    query = f"SELECT 1 FROM {target} WHERE {' OR '.join(conditions)} LIMIT 1"
    return not connection.execute(query).fetchall()


def exchange_tables(
    connection: duckdb.DuckDBPyConnection,
    former: Mapping[str, EntityTable],
    present: Mapping[str, EntityTable],
    states: Callable[[str], TypedStates],
) -> dict[str, EntityTable]:
    """Give all classes the tables of another version of the application.

    A class that has not changed keeps its table. The table of a changed class is filled again.

    Args:
        former: The tables that exist, by the name of their class.
        states: Returns the entities of a class at the epoch of the view, with the columns of the other version.

    Returns:
        The tables that exist now; wide if a value needs that.
    """
    kept = {name for name, table in present.items() if _is_same(former.get(name), table)}
    for name, table in former.items():
        if name not in kept:
            connection.execute(f"DROP TABLE {table.written}")
    if any(table.schema == TASKS for table in present.values()):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {TASKS}")
    after: dict[str, EntityTable] = {}
    for name, table in present.items():
        after[name] = table if name in kept else _filled(connection, states(name))
    return after


def hides_system_table(former: Iterable[EntityTable], present: Iterable[EntityTable]) -> bool:
    """Say whether a class with the name of a system table comes or goes; such a class hides that table."""
    was, now = ({table.written.casefold() for table in tables} for tables in (former, present))
    return not (was ^ now).isdisjoint(quoted(name) for name in SYSTEM_TABLES)


def _is_same(former: EntityTable | None, present: EntityTable) -> bool:
    return former is not None and _description(former) == _description(present)


def _description(table: EntityTable) -> tuple[str, str, str]:
    return table.written, table.definition, versions_text(table.entity_type)


def _filled(connection: duckdb.DuckDBPyConnection, states: TypedStates) -> EntityTable:
    """Create the table of a class with its entities."""
    table = states.table
    connection.execute(f"CREATE TABLE {table.written}({table.definition})")
    insert_rows(connection, table, states.rows)
    return table


def change_effect_rows(
    connection: "duckdb.DuckDBPyConnection", changes: Mapping[str, bytes | None], most: int | None
) -> None:
    """Take changes of the rows of effects; None for one that has ended.

    Args:
        most: The most bytes of one value; None for no limit.
    """
    table = f"{SYSTEM}.effect_rows"
    with registered(connection, pa.table({"row": pa.array(changes, pa.string())})) as gone:
        connection.execute(f"DELETE FROM {table} WHERE row IN (SELECT row FROM {gone})")
    kept = {key: state for key, state in changes.items() if state is not None}
    with registered(connection, without_large(effect_rows(kept), most)) as source:
        connection.execute(f"INSERT INTO {table} SELECT * FROM {source}")
