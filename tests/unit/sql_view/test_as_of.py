"""AS OF in a query: which clauses are found, and which words are left alone."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import QueryError
from penstock.journal.as_of import PointInTime
from penstock.sql_view.as_of_clause import AsOfStatement, parse_statement
from penstock.sql_view.query import Query
from penstock.sql_view.query_body import AsOf

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TEXT = st.text(max_size=20)
CLAUSE = st.sampled_from(
    ["AS OF EPOCH 3", "as of timestamp '2026-01-01'", "changes('Item', 1, 2)", "AS OF EPOCH ?"]
)


def found(query: str, *parameters: object) -> AsOfStatement:
    statement = parse_statement(query, list(parameters))
    assert statement is not None
    return statement


@pytest.mark.parametrize(
    ("query", "rest", "moment"),
    [
        ("FROM Item AS OF EPOCH 3", "FROM Item ", 3),
        ("FROM Item as\n of /* the */ Epoch 1_000 ; -- end", "FROM Item  ; -- end", 1_000),
        ("FROM Item AS OF TIMESTAMP '2026-11-21 12:00'", "FROM Item ", NOON),
        ("FROM Item AS OF TIMESTAMP '2026-11-21T13:00:00+01:00'", "FROM Item ", NOON),
        ("FROM Item AS OF TIMESTAMP '2026-11-21 12:00:00Z';", "FROM Item ;", NOON),
        ("FROM a JOIN b USING (id) AS OF EPOCH 0", "FROM a JOIN b USING (id) ", 0),
    ],
)
def test_clause_at_the_end_is_for_all(query: str, rest: str, moment: PointInTime) -> None:
    """At the end of a statement the clause is cut off, and is for the whole of it."""
    assert found(query) == AsOfStatement(rest, [], moment, [], [])


@pytest.mark.parametrize(
    ("query", "rest"),
    [
        ("FROM Item AS OF EPOCH 3 AS b", 'FROM "past 0"."Item" AS b'),
        ("FROM (FROM Item AS OF EPOCH 3)", 'FROM (FROM "past 0"."Item")'),
        ('FROM main."Item" AS OF EPOCH 3, b', 'FROM "past 0"."Item", b'),
        ("FROM Ä AS OF EPOCH 3 é", 'FROM "past 0"."Ä" é'),
    ],
)
def test_clause_behind_a_table_is_for_that_table(query: str, rest: str) -> None:
    """Behind a table's name elsewhere it is for that table, which gets a schema of its own."""
    statement = found(query)
    assert (statement.query, statement.moment) == (rest, None)
    [reference] = statement.references
    assert (reference.schema, reference.moment) == ("past 0", 3)


def test_clauses_take_their_parameters() -> None:
    """Parameters of clauses are used up; the others keep their order and their names."""
    query = "FROM Item AS OF EPOCH ? i JOIN changes(?, 1, ?) c ON i.x = ? AND c.y = ?"
    statement = found(query, 7, "Item", 9, "x", "y")
    assert statement.parameters == ["x", "y"]
    assert statement.references[0].moment == 7
    assert (statement.feeds[0].entity, statement.feeds[0].last) == ("Item", 9)
    named = parse_statement("SELECT $a AS OF EPOCH $b", {"$a": 1, "b": 2})
    assert named is not None
    assert (named.parameters, named.moment) == ({"a": 1}, 2)
    numbered = found("SELECT $1, $2 AS OF EPOCH $2", 1, 2)
    assert (numbered.parameters, numbered.moment) == ({"1": 1, "2": 2}, 2)


@pytest.mark.parametrize(
    "query",
    [
        "FROM Item AS OF EPOCH",
        "FROM Item AS OF EPOCH -1",
        "FROM Item AS OF EPOCH 1.5",
        "FROM Item AS OF EPOCH '3'",
        "FROM Item AS OF EPOCH ?",
        "FROM Item AS OF TIMESTAMP 3",
        "FROM Item AS OF TIMESTAMP 'yesterday'",
        "FROM Item AS OF TIMESTAMP '2026-13-01'",
        "FROM Item AS OF 3 -- epoch",
        "FROM Item AS OF '2026-01-01' -- timestamp",
        "SELECT (1) AS OF EPOCH 3, 2",
        "FROM changes('Item')",
        "FROM changes('Item', 1)",
        "FROM changes('Item', 1, 2, 3)",
        "FROM changes(Item, 1, 2)",
        "FROM changes('Item', 1, x)",
        "FROM changes('Item', 1, 2 + 3)",
        "FROM changes(",
    ],
)
def test_incomplete_clause_is_refused(query: str) -> None:
    """A clause that begins well and ends wrongly is named, and never passed on."""
    with pytest.raises(QueryError):
        parse_statement(query, [])


@given(TEXT, CLAUSE)
def test_quoted_clause_is_no_clause(text: str, clause: str) -> None:
    """Inside strings, quoted identifiers and comments nothing is a clause."""
    inside = text + clause + text
    single, double = inside.replace("'", "''"), inside.replace('"', '""')
    comment = inside.replace("*/", "").replace("/*", "")
    line = inside.replace("\n", " ").replace("\r", " ")
    for query in (
        f"SELECT '{single}' FROM Item",
        f'SELECT 1 AS "{double}" FROM Item',
        f"SELECT 1 /* {comment} */ FROM Item",
        f"SELECT 1 -- {line}\nFROM Item",
    ):
        if "\0" not in query:
            assert parse_statement(query, []) is None, query


@given(TEXT, st.integers(0, 10**18))
def test_rest_of_the_query_is_untouched(text: str, epoch: int) -> None:
    """The rest of the query stays as it was, byte for byte."""
    single = text.replace("'", "''").replace("\0", "")
    before = f"SELECT '{single}' AS \"as of epoch 9\" FROM Item "
    statement = parse_statement(f"{before}AS OF EPOCH {epoch}", [])
    assert statement == AsOfStatement(before, [], epoch, [], [])


@pytest.mark.parametrize(
    "query",
    ["SELECT 1 AS of", "SELECT epoch AS of FROM epochs", "FROM changes", "SELECT a AS epoch", ""],
)
def test_words_alone_are_no_clause(query: str) -> None:
    """`of`, `epoch`, `timestamp` and `changes` remain names that anybody may use."""
    assert parse_statement(query, []) is None


def test_moment_may_stand_beside_the_query() -> None:
    """`as_of` means the same as the clause at the end, and both together are refused."""
    query = "FROM Item"
    assert Query(query).as_of_statement() is None
    beside = Query(query, as_of=AsOf(3)).as_of_statement()
    assert beside is not None
    assert beside.moment == 3
    timed = Query(query, as_of=AsOf(timestamp="2026-11-21T12:00")).as_of_statement()
    assert timed is not None
    assert timed.moment == NOON
    for wrong in (AsOf(), AsOf(3, "2026-11-21")):
        with pytest.raises(QueryError, match="an epoch or a timestamp"):
            Query(query, as_of=wrong).as_of_statement()
    with pytest.raises(QueryError, match="once more"):
        Query(f"{query} AS OF EPOCH 3", as_of=AsOf(3)).as_of_statement()
    own = Query("FROM Item AS OF EPOCH 1 AS x JOIN Item", as_of=AsOf(3)).as_of_statement()
    assert own is not None
    assert (own.moment, own.references[0].moment) == (3, 1)


PIECES = st.sampled_from(
    [
        "AS",
        "OF",
        "EPOCH",
        "TIMESTAMP",
        "'2026-01-01'",
        "3",
        "?",
        "$a",
        "$",
        "changes",
        "(",
        ")",
        ",",
        ";",
        ".",
        '"',
        "'",
        "--",
        "/*",
        "*/",
        "\n",
        "Item",
        "é",
        "$$",
        "1.",
        "main.",
    ]
)


@given(st.lists(st.one_of(PIECES, TEXT), max_size=12), st.lists(st.integers(), max_size=3))
def test_any_text_is_read_or_refused(pieces: list[str], parameters: list[object]) -> None:
    """Any text is read as it stands or refused as a query; nothing breaks."""
    try:
        statement = parse_statement(" ".join(pieces), parameters)
    except QueryError:
        return
    if statement is not None and statement.moment is None:
        assert statement.schemas
        assert all(f'"{one}"' in statement.query for one in statement.schemas)
