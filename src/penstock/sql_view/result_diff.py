"""The difference of two results of one query.

`differing_rows` compares two tables by key, in DuckDB and in slices, so that its memory is bounded. For a reader of a
report, `diff_results` compares rows by their JSON, and counts them: a row that occurs three times in one result and once
in the other differs twice. The order of rows does not matter. If the results have different columns, as two schema versions
of a class have, the columns that both have are compared.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from penstock.errors import QueryError
from penstock.model.application import App
from penstock.snapshots.column import quoted
from penstock.snapshots.table import tables_of
from penstock.snapshots.text import json_text
from penstock.sql_view import query_guard
from penstock.sql_view.as_of_clause import AsOfStatement
from penstock.sql_view.connection import open_isolated
from penstock.sql_view.query import Query, QueryResult
from penstock.sql_view.result_format import json_rows
from penstock.sql_view.system_tables import SYSTEM, SYSTEM_TABLES

Row = tuple[Any, ...]

_MEMORY_MB: Final = 256
"""The memory for parsing a query, and for a slice of two results."""

SLICE: Final = 250_000
"""Rows of both tables that are compared at once."""


@dataclass(frozen=True, slots=True)
class ResultDiff:
    """The difference of two results.

    Attributes:
        columns: The column names of the first and of the second result.
        same: The number of rows that both have.
        only_first, only_second: The other rows, ordered by their JSON.
    """

    columns: tuple[list[str], list[str]]
    same: int
    only_first: list[Row]
    only_second: list[Row]

    @property
    def count(self) -> int:
        """The number of differing rows; a changed row counts once."""
        return max(len(self.only_first), len(self.only_second))


def diff_results(first: QueryResult, second: QueryResult) -> ResultDiff:
    """Compare two results by the columns that both have; without such columns all rows differ."""
    columns = first.table.column_names, second.table.column_names
    shared = [name for name in columns[0] if name in columns[1]]
    rows = _texts(first, shared if columns[0] != columns[1] else columns[0])
    others = _texts(second, shared if columns[0] != columns[1] else columns[1])
    if not shared:
        return ResultDiff(columns, 0, _ordered(rows), _ordered(others))
    with closing(open_isolated(_MEMORY_MB)) as connection:
        connection.register("first_rows", _counted(rows))
        connection.register("second_rows", _counted(others))
        only_first, only_second = [], []
        for gone, added in differing_rows(
            connection, "first_rows", "second_rows", ("text", "nth"), rows=len(rows) + len(others)
        ):
            only_first += [rows[place] for place in gone["place"].to_pylist()]
            only_second += [others[place] for place in added["place"].to_pylist()]
    same = len(rows) - len(only_first)
    return ResultDiff(columns, same, _ordered(only_first), _ordered(only_second))


def differing_rows(
    connection: duckdb.DuckDBPyConnection,
    first: str,
    second: str,
    key: Sequence[str],
    differs: Sequence[str] = (),
    *,
    rows: int,
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the differing rows of two tables in slices: those of `first` that are gone, and the new or changed of `second`.

    Args:
        first: A name, or a query in brackets, of a table. A key is never NULL, and no key comes twice.
        second: The other table.
        key: The columns that tell which rows are compared.
        differs: Conditions, one of which is true if a row `present` of the second table is not the row `former`.
        rows: About the number of rows, which tells how many slices there are.
    """
    names = [quoted(name) for name in key]
    same_key = " AND ".join(f"former.{name} = present.{name}" for name in names)
    slices = max(1, -(-rows // SLICE))
    for at in range(slices):
        within = f"WHERE hash({', '.join(names)}) % {slices} = {at}" if slices > 1 else ""
        before = f"(SELECT * FROM {first} {within}) AS former"
        after = f"(SELECT * FROM {second} {within}) AS present"
        gone = f"SELECT * FROM {before} ANTI JOIN {after} ON {same_key}"
        changed = " OR ".join((f"former.{names[0]} IS NULL", *differs))
        added = f"SELECT present.* FROM {after} LEFT JOIN {before} ON {same_key} WHERE {changed}"
        yield (
            connection.sql(gone).to_arrow_table(),
            connection.sql(added).to_arrow_table(),
        )


def _counted(rows: list[tuple[str, Row]]) -> pa.Table:
    """Return the text of each row, how often it has come already, and its place."""
    seen: Counter[str] = Counter()
    counts = []
    for text, _ in rows:
        counts.append(seen[text])
        seen[text] += 1
    texts = pa.array([text for text, _ in rows], pa.string())
    return pa.table({"text": texts, "nth": counts, "place": range(len(rows))})


def _texts(result: QueryResult, names: list[str]) -> list[tuple[str, Row]]:
    """Return each row with the JSON of its values in the named columns."""
    columns = result.table.column_names
    if names == columns:
        return [(json_text(row), row) for row in json_rows(result.table)]
    places = [columns.index(name) for name in names]
    return [
        (json_text(tuple(row[place] for place in places)), row) for row in json_rows(result.table)
    ]


def pair_rows(diff: ResultDiff) -> list[tuple[Row | None, Row | None]]:
    """Pair rows with equal first columns; other rows are paired with None.

    If both sides have a single row, these two are a pair.
    """
    if len(diff.only_first) == len(diff.only_second) == 1:
        return [(diff.only_first[0], diff.only_second[0])]
    waiting: dict[str, list[Row]] = {}
    for row in diff.only_second:
        waiting.setdefault(json_text(row[:1]), []).append(row)
    pairs: list[tuple[Row | None, Row | None]] = []
    for row in diff.only_first:
        partners = waiting.get(json_text(row[:1]))
        pairs.append((row, partners.pop(0) if partners else None))
    pairs += [(None, row) for rows in waiting.values() for row in rows]
    return pairs


def entity_query(query: str, app: App) -> AsOfStatement:
    """Return a query of entities, for execution at any epoch."""
    if Query(query).as_of_statement() is not None:
        raise QueryError("both states are after the last epoch; remove AS OF and changes(…)")
    tables = {table.query_name.casefold() for table in tables_of(app).values()}
    with closing(open_isolated(_MEMORY_MB)) as connection:
        named = query_guard.check_query(query, tables | SYSTEM_TABLES.keys(), connection)
    _check_entities(named, tables)
    return AsOfStatement(query, [], None)


def _check_entities(named: Collection[query_guard.TableName], tables: Collection[str]) -> None:
    for schema, name in named:
        if schema == SYSTEM or (name in SYSTEM_TABLES and name not in tables):
            raise QueryError(
                f"{name} cannot be compared, because only entities have a state; differing replies are "
                "listed without a query"
            )


def _ordered(rows: list[tuple[str, Row]]) -> list[Row]:
    return [row for _, row in sorted(rows, key=lambda row: row[0])]
