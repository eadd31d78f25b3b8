"""Mistakes in the declarations of SQL tables are found when the application is built, or when it is deployed."""

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from penstock import App, Entity, key, postgres, search, sql, sqlite, view
from penstock.errors import DefinitionError, QueryError
from penstock.model.views.view import QueryTable
from penstock.sql_view.table_query import TableQuery, check_table_query
from penstock.views.deployment_check import query_findings
from tests.views.totals_app import app as totals_app


class Item(Entity):
    name: str = key()
    stock: int = 0


QUERY = "SELECT name, stock FROM Item"


@pytest.mark.parametrize(
    ("query", "arguments", "said"),
    [
        ("  ", {"key": "name"}, "its query is '  '; write a SELECT"),
        (7, {"key": "name"}, "its query is 7"),
        (QUERY, {"key": ""}, "name the column, or the columns"),
        (QUERY, {"key": ()}, "name the column, or the columns"),
        (QUERY, {"key": ["name", "name"]}, "names a column twice"),
        (QUERY, {"key": "name", "every": 2}, "every=2: write it as timedelta(seconds=2)"),
        (QUERY, {"key": "name", "every": timedelta(milliseconds=99)}, "it is at least 0.1 s"),
        (QUERY, {"key": "name", "name": 3}, "name=3: write the name of the table as text"),
        (QUERY, {"key": "name", "name": "a/b"}, "has no /"),
        (QUERY, {"key": "name", "name": "_own"}, "begins with _"),
        (QUERY, {"key": "name", "name": "x" * 64}, "takes more than 63 bytes"),
        (QUERY, {"key": "name", "name": "item"}, "differ only in case"),
    ],
)
def test_wrong_declaration_is_refused(query: Any, arguments: dict[str, Any], said: str) -> None:
    """The message names the argument, and the line of the declaration."""
    with pytest.raises(DefinitionError) as refused:
        App("shop", Item, view("shown", postgres(), Item, sql(query, **arguments)))
    assert said in str(refused.value)
    assert __file__ in str(refused.value)


def test_table_has_the_name_of_its_view() -> None:
    """A variable has no name; so a second query needs one."""
    named = sql(QUERY, key="name", name="other")
    shown = App("shop", Item, view("shown", sqlite(), sql(QUERY, key="name"), named)).views["shown"]
    assert [table.name for table in shown.tables] == ["shown", "other"]
    with pytest.raises(DefinitionError, match="two tables with the name shown; name one with sql"):
        App("shop", Item, view("shown", sqlite(), *[sql(QUERY, key="name") for _ in range(2)]))


def test_name_is_public_beside_the_room_of_the_sql_view() -> None:
    """`penstock.sql` is the function, in whatever order modules are imported; an application loads no DuckDB."""
    lines = [
        "import sys, penstock.sql_view.query_body",
        "from penstock import App, Entity, key, sql, sqlite, view",
        "import penstock.sql_view, penstock",
        "assert penstock.sql is sql and callable(sql)",
        "class Item(Entity):",
        "    name: str = key()",
        "App('shop', Item, view('shown', sqlite(), Item, sql('SELECT name FROM Item', key='name', name='n')))",
        "assert 'duckdb' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", 'line 1, column 1: syntax error at or near "SELEC"'),
        ("SELECT name FROM Itm", "Itm does not exist"),
        ("SELECT nam FROM Customer", 'Referenced column "nam" not found'),
        ("SELECT name FROM Customer AS OF EPOCH 3", "remove AS OF"),
        ("SELECT key FROM changes('Customer', 0, 3)", "remove AS OF and changes"),
        ("SELECT now()", "now has another value each time"),
        ("SELECT name FROM Customer ORDER BY random()", "random has another value"),
        ("SELECT uuid() AS id", "uuid has another value"),
        ("SELECT current_timestamp AS at", "current_timestamp has another value"),
        ("SELECT current_localtimestamp() AS at", "current_localtimestamp has another value"),
        ("SELECT age(TIMESTAMP '2026-01-01') AS old", "current_date has another value"),
        ("SELECT name FROM Customer USING SAMPLE 10%", "a sample is another one each time"),
        ("SELECT name FROM Customer TABLESAMPLE 1 ROWS", "a sample is another one each time"),
        ("SELECT lsn FROM requests", "the table requests has the newest requests only"),
        ("SELECT lsn FROM penstock.replies", "the table replies has the newest requests only"),
        (
            "SELECT number FROM streams.shipments",
            "the table streams.shipments has the newest events",
        ),
        ("SELECT table_name FROM information_schema.tables", "shows entities, and not the schema"),
        ("SHOW TABLES", "is a SELECT"),
        ("DELETE FROM Customer", "only SELECT is allowed"),
        ("SELECT 1; SELECT 2", "a query is one statement"),
        ("SELECT '1'::BIT AS b", "the column b has the type BIT"),
        ("SELECT [TIMETZ '01:00:00+01'] AS b", "no target holds TIME WITH TIME ZONE; cast it"),
        ("SELECT {'a': TIMESTAMP_NS '2026-01-01'} AS b", "no target holds TIMESTAMP_NS"),
        ("SELECT NULL AS b", "cast it"),
        ("SELECT $1 AS b", ""),
    ],
)
def test_query_that_cannot_be_a_table(query: str, said: str) -> None:
    """The reason has the function, the table or the type."""
    with pytest.raises(QueryError) as refused:
        check_table_query(totals_app, query)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM Customer ORDER BY credit LIMIT 3",
        "WITH rich AS (FROM Customer WHERE credit > 9) SELECT name FROM rich",
        "SELECT age(TIMESTAMP '2026-01-02', TIMESTAMP '2026-01-01') AS name FROM Customer",
        "SELECT c.current_date AS name FROM (SELECT name AS current_date FROM Customer) AS c",
    ],
)
def test_query_reads_classes(query: str) -> None:
    """What a query reads is found in it, also behind other names."""
    assert check_table_query(totals_app, query) == TableQuery(frozenset({"Customer"}), ("name",))


def test_deployment_check_names_view_and_table() -> None:
    """`penstock deploy --check` refuses queries that cannot be tables, and accepts others."""
    assert list(query_findings(totals_app)) == []
    wrong = sql("SELECT now() AS name", key="name", name="late")
    unkeyed = sql(QUERY, key="id", name="unkeyed")
    found = query_findings(App("shop", Item, view("shown", sqlite(), Item, wrong, unkeyed)))
    assert [(each.level.value, each.kind, each.what.partition(": ")[0]) for each in found] == [
        ("refused", "view", "view shown, table late"),
        ("refused", "view", "view shown, table unkeyed"),
    ]


def test_columns_of_a_search_are_compared_with_the_query() -> None:
    """A column of `search()` that no query has is found when the queries are known."""
    table = sql(QUERY, key="name")
    target = search(text=["name"], facets=["colour"])
    (found,) = query_findings(App("shop", Item, view("shown", target, table)))
    assert found.what == "view shown, search() names the column colour, which no table of it has"


def test_columns_of_a_query_are_not_known_before() -> None:
    """A table of a query has no columns that could be checked when the application is built."""
    (table,) = totals_app.views["reporting"].tables[-1:]
    assert isinstance(table, QueryTable)
    assert table.key == ("number", "item")
