"""The query guard of the SQL view: which queries are answered, and which are refused."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import QueryError
from penstock.process.config import ViewConfig
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.sql_view.gallery_app import Written, app

ANSWERED = {
    "SELECT 1": [(1,)],
    "SELECT name FROM Painter ORDER BY number": [("Ada",), ("Bob",)],
    "FROM Painter SELECT count(*)": [(2,)],
    "VALUES (1), (2)": [(1,), (2,)],
    "WITH one AS (SELECT 1 AS n) SELECT n FROM one": [(1,)],
    "WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 3) "
    "SELECT max(n) FROM up": [(3,)],
    "SELECT count(*) FROM range(5)": [(5,)],
    "SELECT count(*) FROM generate_series(1, 5)": [(5,)],
    "SELECT unnest([1, 2])": [(1,), (2,)],
    "SELECT count(*) FROM penstock.epochs": [(1,)],
    "SELECT count(*) FROM main.Painter": [(2,)],
    "SELECT count(*) FROM (SUMMARIZE Painter)": [(2,)],
    "SELECT 1 -- ; DROP TABLE Painter": [(1,)],
    "SELECT 'DROP TABLE Painter; COPY Painter TO ''x'''": [
        ("DROP TABLE Painter; COPY Painter TO 'x'",)
    ],
    "SELECT 1;": [(1,)],
    "SELECT a.name FROM Painter a JOIN Painter b USING (number) WHERE a.number = 1": [("Ada",)],
    "SELECT count(*) FROM information_schema.tables WHERE table_name = 'Painter'": [(1,)],
    "PIVOT Painter ON number IN (1, 2) USING first(name)": None,
    "DESCRIBE Painter": None,
    "DESCRIBE SELECT 1": None,
    "SHOW TABLES": None,
    "SUMMARIZE Painter": None,
    "EXPLAIN SELECT 1": None,
    "explain analyze SELECT count(*) FROM Painter": None,
}

ATTACKS = [
    # files
    "SELECT * FROM 'secret.csv'",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_parquet('x.parquet')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT * FROM read_json_auto('x.json')",
    "SELECT * FROM read_duckdb('x.duckdb')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "COPY Painter TO 'stolen.csv'",
    "COPY (SELECT 1) TO '/tmp/stolen.parquet'",
    "COPY Painter FROM 'x.csv'",
    "EXPORT DATABASE 'stolen'",
    "IMPORT DATABASE 'x'",
    # network and extensions
    "SELECT * FROM 'https://example.org/x.csv'",
    "SELECT * FROM read_csv('s3://bucket/x.csv')",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE SECRET s (TYPE s3)",
    # other databases
    "ATTACH 'other.duckdb'",
    "ATTACH ':memory:' AS m",
    "DETACH view",
    "USE memory",
    "SELECT * FROM other.main.Painter",
    # settings
    "SET threads = 1",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "SELECT current_setting('threads')",
    "SELECT * FROM duckdb_settings()",
    "SET VARIABLE x = 1",
    # writes
    "INSERT INTO Painter VALUES (9, 'Eve')",
    "UPDATE Painter SET name = 'Eve'",
    "DELETE FROM Painter",
    "TRUNCATE Painter",
    "MERGE INTO Painter USING (SELECT 1 n) s ON number = n WHEN MATCHED THEN DELETE",
    "WITH gone AS (DELETE FROM Painter RETURNING *) SELECT * FROM gone",
    "WITH new AS (INSERT INTO Painter VALUES (9, 'Eve') RETURNING *) SELECT * FROM new",
    "WITH new AS (UPDATE Painter SET name = 'Eve' RETURNING *) SELECT * FROM new",
    "DROP TABLE Painter",
    "ALTER TABLE Painter ADD COLUMN x INT",
    "CREATE TABLE x (n INT)",
    "CREATE TEMP TABLE x (n INT)",
    "CREATE TEMP VIEW x AS SELECT 1",
    "CREATE MACRO f(x) AS x",
    "CREATE SEQUENCE s",
    "CREATE TYPE t AS ENUM ('a')",
    "CREATE INDEX i ON Painter (number)",
    # transactions and maintenance
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "CHECKPOINT",
    "FORCE CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM force_checkpoint()",
    "SELECT nextval('s')",
    # more than one, or none
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE Painter",
    "COMMIT; DROP TABLE Painter; BEGIN",
    "",
    "-- nothing",
    # prepared, called, explained
    "PREPARE p AS DELETE FROM Painter",
    "EXECUTE p",
    "DEALLOCATE p",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE DELETE FROM Painter",
    "EXPLAIN ANALYZE INSERT INTO Painter VALUES (9, 'Eve')",
    "EXPLAIN /* */ ANALYZE COPY Painter TO 'x.csv'",
    # memory, process, and queries inside of text
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM python_map_function(1)",
    "SELECT * FROM seq_scan()",
    'SELECT * FROM "arrow_scan"(1, 2, 3)',
    "SELECT * FROM query('SELECT * FROM arrow_scan(1, 2, 3)')",
    "SELECT * FROM query_table('Painter')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT getenv('HOME')",
    "SELECT * FROM (SELECT (SELECT getenv('HOME')))",
    "SELECT * FROM Painter WHERE name = current_setting('temp_directory')",
    "SELECT * FROM duckdb_databases()",
    "SELECT * FROM duckdb_databases",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM enable_logging(storage => 'file')",
    "SELECT * FROM duckdb_logs()",
    "SELECT write_log('x')",
    "SELECT sleep_ms(100000)",
    "SELECT current_query()",
    "SHOW DATABASES",
    "SELECT * FROM register_external_resource('a', 'b')",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT 1" + " " * 100_000,
]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """Give a view of two painters, in a directory with a file to steal."""
    folder = tmp_path_factory.mktemp("seal")
    journal = MemoryJournal()
    Written(journal).painters({1: "Ada", 2: "Bob"})
    with closing(View(folder, app, journal, ViewConfig(memory_mb=256))) as view:
        view.start()
        yield view
        # Once, after all attacks: each runs in a process of its own, and has been refused.
        painters = "SELECT number, name FROM Painter ORDER BY number"
        assert rows(view, painters) == [(1, "Ada"), (2, "Bob")]


def rows(view: View, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in view.ask(Query(query)).table.to_pylist()]


@pytest.mark.parametrize("query", ANSWERED)
def test_question_is_answered(view: View, query: str) -> None:
    """Queries that read the tables run."""
    expected = ANSWERED[query]
    found = rows(view, query)
    assert found if expected is None else found == expected


@pytest.mark.parametrize("query", ATTACKS, ids=lambda query: query[:60])
def test_attack_is_refused(
    view: View, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries that read or change anything else are refused, and have no effect."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError):
        view.ask(Query(query))
    assert list(tmp_path.iterdir()) == []


def test_python_variables_are_no_tables(view: View) -> None:
    """Nothing of the process's own can be read by its name."""
    treasure = view.ask(Query("SELECT 42")).table
    assert treasure.num_rows == 1
    with pytest.raises(QueryError, match="treasure does not exist"):
        view.ask(Query("SELECT * FROM treasure"))


@pytest.mark.parametrize(
    ("query", "named"),
    [("SELECT * FROM Paintr", "Painter"), ("SELECT nane FROM Painter", '"name"')],
)
def test_near_miss_is_named(view: View, query: str, named: str) -> None:
    """The error for a misspelt name lists the similar tables or columns."""
    with pytest.raises(QueryError, match=named):
        view.ask(Query(query))


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT nane FROM Painter", "line 1, column 8: Referenced"),
        ("SELECT *\n  FORM Painter", "line 2, column 8: syntax error"),
        ("\n -- who\n\n SELECT name,\n nane FROM Painter", "line 5, column 2: Referenced"),
        ("SELECT '日本', nane FROM Painter", "line 1, column 14: Referenced"),
        ("EXPLAIN SELECT nane FROM Painter", "line 1, column 16: Referenced"),
        (f"SELECT {'number, ' * 60}nane FROM Painter", "line 1, column 488: Referenced"),
        ("SELECT ?, nane FROM Painter", "line 1, column 11: Referenced"),
        ("SELECT nane FROM Painter AS OF EPOCH 0", "line 1, column 8: Referenced"),
        (
            "SELECT nane FROM Painter AS OF EPOCH 0 AS a, Painter AS b",
            "line 1, column 8: Referenced",
        ),
        ("FROM Painter AS OF EPOCH 0 é WHERE nane = 1", "line 1, column 36: Referenced"),
        (
            "SELECT * FROM changes('Painter', 0, 0) c, Painter AS OF EPOCH 0 p WHERE nane = 1 AS OF EPOCH 0",
            "line 1, column 73: Referenced",
        ),
        ("FROM Painter AS OF EPOCH 0 p\nWERE name = 1", "line 2, column 1: syntax error"),
        ("SELECT p.nane FROM main.Painter AS OF EPOCH 0 p", "line 1, column 8: Table"),
        ("SELECT CAST(name AS INT) FROM Painter", "Could not convert"),
    ],
)
def test_error_begins_with_its_place(view: View, query: str, place: str) -> None:
    """The message names line and column in the query as it was given, where DuckDB knows them."""
    with pytest.raises(QueryError) as raised:
        view.ask(Query(query, [1] if "?" in query else []))
    assert str(raised.value).startswith(place)
    assert "keyword" not in str(raised.value)  # Painter is none
    assert view.ask(Query("SELECT 1")).table.num_rows == 1
