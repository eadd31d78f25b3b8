"""Two answers to one query, and how their rows differ.

Rows are compared as what JSON says of them, and counted: a row that is there three times on one side
and once on the other differs twice. Their order does not matter.
"""

from collections import Counter
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import QueryError
from penstock.model.application import App
from penstock.snapshots.table import tables_of
from penstock.snapshots.text import json_text
from penstock.sql import query_guard as seal
from penstock.sql.as_of_clause import AsOfStatement
from penstock.sql.connection import open_isolated
from penstock.sql.query import Query, QueryResult
from penstock.sql.result_format import json_rows
from penstock.sql.system_tables import SYSTEM, SYSTEM_TABLES

Row = tuple[Any, ...]

_MEMORY_MB: Final = 64
"""Enough to parse a query."""


@dataclass(frozen=True, slots=True)
class ResultDiff:
    """How two answers differ.

    Attributes:
        columns: Of the first and of the second one.
        same: Rows that both have.
        only_first, only_second: The others, in order of their first columns.
    """

    columns: tuple[list[str], list[str]]
    same: int
    only_first: list[Row]
    only_second: list[Row]

    @property
    def count(self) -> int:
        """Rows that differ, one that stands for another one counted once."""
        return max(len(self.only_first), len(self.only_second))


def diff_results(first: QueryResult, second: QueryResult) -> ResultDiff:
    """Compare two answers; where their columns differ, so do all rows."""
    columns = first.table.column_names, second.table.column_names
    rows = [(json_text(row), row) for row in json_rows(first.table)]
    others = [(json_text(row), row) for row in json_rows(second.table)]
    if columns[0] != columns[1]:
        return ResultDiff(columns, 0, _ordered(rows), _ordered(others))
    left, right = Counter(text for text, _ in rows), Counter(text for text, _ in others)
    known = dict(rows) | dict(others)
    only_first = [(text, known[text]) for text in (left - right).elements()]
    only_second = [(text, known[text]) for text in (right - left).elements()]
    same = len(rows) - len(only_first)
    return ResultDiff(columns, same, _ordered(only_first), _ordered(only_second))


def pair_rows(found: ResultDiff) -> list[tuple[Row | None, Row | None]]:
    """Put rows side by side: those with equal first columns, else each alone.

    A single row on either side is the same thing on both.
    """
    if len(found.only_first) == len(found.only_second) == 1:
        return [(found.only_first[0], found.only_second[0])]
    waiting: dict[str, list[Row]] = {}
    for row in found.only_second:
        waiting.setdefault(json_text(row[:1]), []).append(row)
    pairs: list[tuple[Row | None, Row | None]] = []
    for row in found.only_first:
        partners = waiting.get(json_text(row[:1]))
        pairs.append((row, partners.pop(0) if partners else None))
    pairs += [(None, row) for rows in waiting.values() for row in rows]
    return pairs


def entity_query(query: str, app: App) -> AsOfStatement:
    """Return a query that can be asked of any state; AS OF is what the caller will say.

    Raises:
        QueryError: It may not be run, says AS OF itself, or asks for more than entities.
    """
    past = Query(query).past()
    if past is not None:
        raise QueryError("both states are those after the last epoch; leave AS OF and changes out")
    tables = {table.name.casefold() for table in tables_of(app).values()}
    with closing(open_isolated(_MEMORY_MB)) as connection:
        named = seal.check_query(query, tables | SYSTEM_TABLES.keys(), connection)
    _check_entities(named, tables)
    return AsOfStatement(query, [], None)


def _check_entities(named: Collection[seal.TableName], tables: Collection[str]) -> None:
    for schema, name in named:
        if schema == SYSTEM or (name in SYSTEM_TABLES and name not in tables):
            raise QueryError(
                f"{name} cannot be compared: only entities have a state; the replies that differ "
                "are listed anyway"
            )


def _ordered(rows: list[tuple[str, Row]]) -> list[Row]:
    return [row for _, row in sorted(rows, key=lambda one: one[0])]
