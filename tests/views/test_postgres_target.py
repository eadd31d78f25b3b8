"""The PostgreSQL target: the suite of all targets, and what only a server can do.

The cases of issues of other systems that concern targets in SQL:

1. Interleaved deletes and inserts: `test_values_move_between_owners`; no row moves from one key to another.
2. A plain INSERT after recovery: `test_killed_writer_leaves_before_or_after`; rows are written by key.
3. Updates, then deletes, in one flush: `test_random_steps_equal_the_model`; a change has the last rows of an owner.
4. Insert, delete, insert: `test_insert_delete_insert_of_one_owner`.
5. Unique indexes: `test_unique_index_is_refused`.
6. A record over the border of a batch: cannot occur, because an epoch is one call of `apply` and one transaction.
7. and 8. The position apart from the rows: `test_killed_writer_leaves_before_or_after`; they are in one transaction.
9. A commit that fails unnoticed: `test_commit_that_fails_is_a_problem`; there is no second phase.
10. Tombstones that are ignored: cannot occur; an owner without rows loses its rows (`test_random_steps_equal_the_model`).
11. A new column stops the sink: `test_column_of_a_user_is_no_problem`, `test_another_definition_in_place`.
12. NUL in jsonb: `test_values_are_those_of_the_documentation`, `test_keys_stay_different`.
13. Names over 63 bytes: `test_names_that_a_target_cannot_have_are_refused` and
    `test_longest_names_stay_different`.
14. Infinite timestamps: cannot occur, because times of Python are finite and within PostgreSQL's range; the suite has
    the first and the last.
15. A swap by drop or rename: `test_what_users_added_stays`, `test_reader_keeps_former_rows_during_a_load`.
21. A reader that stays: `test_reader_keeps_former_rows_during_a_load`; that of SQLite is in `test_sqlite_target`.
"""

import logging
import os
import sys
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
import pytest
from msgspec.structs import replace

from benchmarks.cluster import Cluster
from penstock import App, entity, key
from penstock.errors import ConfigError, DefinitionError, RequestError, ViewUnavailable
from penstock.model.target_choice import TargetChoice, sqlite
from penstock.model.target_choice import postgres as postgres_choice
from penstock.model.views.view import ViewPlan
from penstock.model.views.view import view as show
from penstock.orders.view_orders import TablesOfView
from penstock.snapshots.column import quoted
from penstock.testing.target_suite import TargetSuite, position_of
from penstock.views import postgres_target
from penstock.views.postgres_target import PostgresTarget
from penstock.views.reading import QueryBounds
from penstock.views.removal import removed
from penstock.views.target import (
    ColumnShape,
    Kind,
    Overtaken,
    Row,
    TableChange,
    TableShape,
    Target,
    TargetProblem,
)
from penstock.views.targets import open_target
from tests.postgres_server import PASSWORD
from tests.views.items_view import (
    ITEM,
    KEY,
    LARGER,
    PRICE,
    REASONS,
    STOCK,
    WITHOUT_STOCK,
    ItemsView,
    items,
)
from tests.waiting import wait_for


def schema_of(place: Path) -> str:
    return f"{place.parent.name[-40:]} {place.name[-20:]}"


def rows_in(address: str, schema: str, shape: TableShape) -> list[Row]:
    *columns, unshown = shape.columns
    names = [
        f"{quoted(column.name)}::text" if column.kind is Kind.JSON else quoted(column.name)
        for column in columns
    ]
    text = ", ".join([*names, quoted(unshown.name)])
    with psycopg.connect(address) as connection:
        rows: list[Row] = connection.execute(
            f"SELECT {text} FROM {quoted(schema)}.{quoted(shape.name)}".encode()
        ).fetchall()
    return rows


@pytest.mark.turns(4, "views", "testing", of="the suite of targets, on PostgreSQL")
class TestPostgresTarget(TargetSuite):
    kills = int(os.environ.get("PENSTOCK_KILLS", "10"))

    @pytest.fixture(autouse=True)
    def _on_a_server(self, postgres: Cluster) -> None:
        self.address = postgres.address

    def opened(self, place: Path) -> Target:
        return PostgresTarget(self.address, schema_of(place), "reporting", lock_ms=500)

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        return rows_in(self.address, schema_of(place), shape)


class View(ItemsView[PostgresTarget]):
    """A view with a table of items, and another connection to its database."""

    def __init__(self, address: str, schema: str) -> None:
        self.schema = schema
        self.address = address
        super().__init__(PostgresTarget(address, schema, "reporting", lock_ms=300))
        self.user = psycopg.connect(address, autocommit=True)
        self.run(f"SET search_path = {schema}")

    def run(self, text: str) -> None:
        self.user.execute(text.encode())

    def all(self, query: str) -> list[Any]:
        rows: list[Any] = self.user.execute(query.encode()).fetchall()
        return rows


@pytest.fixture
def view(postgres: Cluster, request: pytest.FixtureRequest) -> Iterator[View]:
    view = View(postgres.address, f"v{zlib.crc32(request.node.name.encode())}")
    yield view
    view.user.close()
    view.target.close()


@pytest.mark.parametrize("is_of_the_server", [False, True])
def test_purge_waits_for_the_server_and_names_others(
    view: View,
    monkeypatch: pytest.MonkeyPatch,
    is_of_the_server: bool,  # noqa: FBT001 -- pytest gives it by name
) -> None:
    """Autovacuum ends its snapshot soon; the transaction of a user is named, by its kind of process without a name."""
    if is_of_the_server:  # nobody can start one, so a client takes its part
        looks = postgres_target._HOLDERS.replace(b"autovacuum %%", b"client %%")
        monkeypatch.setattr(postgres_target, "_HOLDERS", looks)
    with psycopg.connect(view.address) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        end = threading.Timer(0.1, reader.rollback)
        if is_of_the_server:
            end.start()
            target = PostgresTarget(view.address, view.schema, "reporting", lock_ms=60_000)
            target.purge()
            target.close()
            end.join()
        else:
            problem = view.rejected(view.target.purge)
            assert (
                f"process {reader.info.backend_pid} (client backend) still sees" in problem.reason
            )
            reader.rollback()
            view.target.purge()


def test_what_users_added_stays(view: View) -> None:
    """Case 15: grants, indexes, views and rules of users are there after a load, also with another definition."""
    view.run('CREATE INDEX by_price ON "Item" (price)')
    view.run('CREATE VIEW dear AS SELECT _key, price FROM "Item" WHERE price > 4')
    view.run('GRANT SELECT ON "Item" TO PUBLIC')
    view.run("COMMENT ON COLUMN \"Item\".price IS 'in cents'")
    oid = view.all("SELECT '\"Item\"'::regclass::oid")
    view.load(ITEM, items(2))
    view.load(LARGER, [("i9", 9, 1, "nine", None)])
    assert view.all("SELECT * FROM dear") == [("i9", 9)]
    assert view.all("SELECT '\"Item\"'::regclass::oid") == oid
    assert view.all("SELECT has_table_privilege('public', '\"Item\"', 'SELECT')") == [(True,)]
    assert view.all(
        f"SELECT count(*) FROM pg_indexes WHERE schemaname = '{view.schema}' AND indexname = 'by_price'"
    ) == [(1,)]
    assert view.all("SELECT col_description('\"Item\"'::regclass, 2)") == [("in cents",)]


def test_reader_keeps_former_rows_during_a_load(view: View) -> None:
    """Cases 15, 21: a repeatable read sees the former rows to its end, and keeps neither a load nor a change waiting."""
    with view.user.transaction():
        view.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert view.all('SELECT count(*) FROM "Item"') == [(3,)]
        view.load(ITEM, items(7))
        view.apply(("i0", 1, 1, None))
        assert view.all('SELECT count(*), sum(stock) FROM "Item"') == [(3, 3)]
    assert view.all('SELECT count(*) FROM "Item"') == [(7,)]


def test_reader_keeps_another_definition_waiting(view: View) -> None:
    """A transaction that has read a table keeps its columns: a load that changes them says so, and works afterwards."""
    with view.user.transaction():
        assert view.all('SELECT count(*) FROM "Item"') == [(3,)]
        problem = view.rejected(lambda: view.load(LARGER, []))
        assert "lock" in problem.reason
        assert "end the transaction" in problem.remedy
    view.load(LARGER, [("i9", 9, 1, "nine", None)])
    assert view.all('SELECT name FROM "Item"') == [("nine",)]


@pytest.mark.parametrize("dependent", ["VIEW low AS", "MATERIALIZED VIEW low AS"])
def test_column_of_a_dependent_view_is_not_dropped(view: View, dependent: str) -> None:
    """A column that a view reads is not dropped: the problem names both, before rows are sent; without it, the load works."""
    view.run(f'CREATE {dependent} SELECT stock FROM "Item"')
    parts = iter([TableChange(WITHOUT_STOCK, (), [])])
    problem = view.rejected(
        lambda: view.target.load(position_of(1), position_of(2), [WITHOUT_STOCK], parts)
    )
    assert next(parts)  # nothing was asked for
    assert "low depends on column stock" in problem.reason
    assert problem.remedy == "change or drop what depends on it"
    view.run(f"DROP {dependent.removesuffix(' low AS')} low")
    view.load(WITHOUT_STOCK, [])


def test_table_of_a_dependent_view_is_not_dropped(view: View) -> None:
    """A table that the view has no more stays if a view of a user reads it, and the problem names that."""
    view.run('CREATE VIEW number AS SELECT count(*) FROM "Item"')
    other = TableShape("Other", 1, (KEY, REASONS))
    assert ".number depends on table" in view.rejected(lambda: view.load(other, [])).reason


def test_key_of_a_foreign_key_is_not_changed(view: View) -> None:
    """A primary key to which a table of a user refers is not changed, and the problem names the constraint."""
    view.run('CREATE TABLE note (item text CONSTRAINT of_item REFERENCES "Item")')
    place = ColumnShape("_place", Kind.INTEGER)
    other = TableShape("Item", 2, (KEY, place, PRICE, STOCK, REASONS))
    assert "of_item" in view.rejected(lambda: view.load(other, [])).reason


def test_table_of_a_user_is_never_overwritten(view: View) -> None:
    """A table or a view of a user with the name of a table is refused, and stays."""
    view.run('CREATE TABLE "Other" (mine text)')
    other = TableShape("Other", 1, (KEY, REASONS))
    assert "Other exists" in view.rejected(lambda: view.load(other, [])).reason
    view.run('DROP TABLE "Other"; CREATE VIEW "Other" AS SELECT 1 AS mine')
    assert "Other exists" in view.rejected(lambda: view.load(other, [])).reason
    assert view.all('SELECT * FROM "Other"') == [(1,)]


@pytest.mark.parametrize("index", ["UNIQUE INDEX one_stock ON", "UNIQUE INDEX one_stock ON ONLY"])
def test_unique_index_is_refused(view: View, index: str) -> None:
    """Case 5: a unique index on another column is refused by its name, by a change and a load; then all goes on."""
    view.run(f'CREATE {index} "Item" (stock)')
    assert "unique index one_stock" in view.rejected(lambda: view.apply(*items(1))).reason
    assert "unique index one_stock" in view.rejected(lambda: view.load(ITEM, [])).reason
    view.run("DROP INDEX one_stock")
    view.apply(*items(1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DROP COLUMN stock", "the column stock of the table Item is gone"),
        ("RENAME COLUMN stock TO stocks", "the column stock of the table Item is gone"),
        ("ALTER COLUMN stock TYPE numeric(3,1)", "has the type numeric(3,1) and not bigint"),
        ('DROP CONSTRAINT "Item_pkey"', "another primary key"),
        ("RENAME TO stolen", "the table Item is gone"),
    ],
)
def test_schema_altered_by_hand_is_found_and_mended(view: View, change: str, reason: str) -> None:
    """Case 11: after a change of the schema by hand the problem says what is different, and a rebuild mends the table."""
    view.run(f'ALTER TABLE "Item" {change}')
    problem = view.rejected(lambda: view.apply(*items(1)))
    assert reason in problem.reason
    assert "penstock view rebuild reporting" in problem.remedy
    view.load(ITEM, items(4))
    assert view.all('SELECT count(*), sum(stock) FROM "Item"') == [(4, 6)]


def test_column_of_a_user_is_no_problem(view: View) -> None:
    """Case 11: a column that a user has added stays, and keeps no change from being written."""
    view.run("ALTER TABLE \"Item\" ADD COLUMN remark text DEFAULT 'none'")
    view.apply(*items(5))
    view.load(LARGER, [("i9", 9, 1, "nine", None)])
    assert view.all('SELECT _key, remark FROM "Item"') == [("i9", "none")]


def test_refused_row_is_told_without_its_values(view: View) -> None:
    """A constraint of a user that refuses a row is named; the values of the row are in no message."""
    view.run('ALTER TABLE "Item" ADD CONSTRAINT cheap CHECK (price < 1000)')
    problem = view.rejected(lambda: view.apply(("i0", 123_456, 0, None)))
    assert "constraint cheap" in problem.reason
    assert "123456" not in str(problem)


def test_commit_that_fails_is_a_problem(view: View) -> None:
    """Case 9: a transaction that fails at its commit is a problem, and nothing has changed."""
    view.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;"
        'CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON "Item" DEFERRABLE INITIALLY DEFERRED '
        "FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    assert view.rejected(lambda: view.apply(*items(3, price=6))).reason == "PostgreSQL: no"
    assert view.all('SELECT sum(price) FROM "Item"') == [(15,)]
    view.run('DROP TRIGGER late ON "Item"')
    view.apply(*items(3, price=6))
    assert view.all('SELECT sum(price) FROM "Item"') == [(18,)]


def test_full_disk_is_a_problem(view: View) -> None:
    """When the disk of the server is full, the remedy says so; with room again the view goes on."""
    view.run(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;"
        'CREATE TRIGGER full_disk BEFORE INSERT ON "Item" EXECUTE FUNCTION full_disk()'
    )
    problem = view.rejected(lambda: view.apply(*items(3)))
    assert problem.remedy == "make room on the disk of the server"
    view.run('DROP TRIGGER full_disk ON "Item"')
    view.apply(*items(3))


def test_equal_rows_are_not_written(view: View) -> None:
    """A change and a load write only the rows that differ, though it be by the places of a decimal."""
    shape = TableShape("Exact", 1, (KEY, ColumnShape("amount", Kind.DECIMAL), REASONS))
    rows: list[Row] = [("a", Decimal("1.0"), None), ("b", Decimal("2.0"), None)]
    view.load(shape, rows)
    written = dict(view.all('SELECT _key, xmin::text FROM "Exact"'))
    view.load(shape, [("a", Decimal("1.00"), None), rows[1]])
    after = dict(view.all('SELECT _key, xmin::text FROM "Exact"'))
    assert (after["a"] != written["a"], after["b"] == written["b"]) == (True, True)
    assert str(view.all("SELECT amount FROM \"Exact\" WHERE _key = 'a'")[0][0]) == "1.00"


def test_locked_position_is_a_problem_that_passes(view: View) -> None:
    """Another writer that holds the position is waited for, with a bound."""
    with view.user.transaction():
        view.run("SELECT * FROM _penstock_view FOR UPDATE")
        assert "lock" in view.rejected(lambda: view.apply(*items(1))).reason
    view.apply(*items(1))


def interrupted(view: View, pid: int, at: int) -> Iterator[TableChange]:
    """Yield rows; before one of them, end the connection of the view."""
    for part in range(10):
        if part == at:
            view.run(f"SELECT pg_terminate_backend({pid})")
        yield TableChange(ITEM, (), [(f"{part}", at, part, None)])


def test_backend_that_is_terminated_leaves_before_or_after(view: View) -> None:
    """When the server ends the connection at any moment, the next call connects again and finds all or nothing."""
    for at in range(15):
        (pid,) = view.all(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock view reporting' ORDER BY backend_start DESC"
        )[0]
        before, after = position_of(view.epoch), position_of(view.epoch + 1)
        with pytest.raises(TargetProblem) as caught:
            view.target.load(before, after, [ITEM], interrupted(view, pid, at % 10))
        assert caught.value.remedy == ""
        assert view.target.position().position == before
        view.apply(*items(3, price=at))
    assert view.all('SELECT count(*), sum(price) FROM "Item"') == [(3, 3 * 14)]


def test_server_that_is_down_is_a_problem_that_passes(postgres: Cluster) -> None:
    """While the server is down each call is a problem that needs no remedy but time; afterwards the view goes on."""
    view = View(postgres.address, "down")
    view.user.close()
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(TargetProblem, match="PostgreSQL") as caught:
                view.target.apply(position_of(1), position_of(2), [])
            assert caught.value.remedy == ""
    finally:
        postgres.start()
    wait_for(lambda: view.target.position().position == position_of(1), "the server answers")
    view.apply(*items(4))
    view.target.close()


def test_server_that_is_frozen_is_noticed(
    postgres: Cluster, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that keeps its connections open and says nothing costs a writer and a reader a bounded time each."""
    reading = view.target.reading()
    with postgres.frozen(), monkeypatch.context() as hasty:
        hasty.setattr("penstock.views.postgres_target.PROBE_S", 0.2)
        hasty.setattr("penstock.views.postgres_target.PROBE_TIMEOUT_S", 1)
        hasty.setattr("penstock.views.postgres_target.READ_S", 0.2)
        with pytest.raises(TargetProblem, match="PostgreSQL") as caught:
            view.target.apply(position_of(1), position_of(2), [])
        assert caught.value.remedy == ""
        bounds = QueryBounds(monotonic() + 0.2, 10)
        with pytest.raises(ViewUnavailable, match="has not answered"):
            reading.sql("SELECT 1", [], bounds)
        reading.close()
    view.apply(*items(4))
    reading = view.target.reading()
    assert reading.sql("SELECT 1", [], QueryBounds(monotonic() + 60, 10)).rows == [(1,)]
    reading.close()


def test_long_statement_of_a_living_server_goes_on(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that takes longer than the look at the server is not ended."""
    monkeypatch.setattr("penstock.views.postgres_target.PROBE_S", 0.05)
    with view.target._opened() as connection:
        connection.execute("SELECT pg_sleep(0.5)")
    view.apply(*items(4))


def test_stopped_writer_is_ended_by_the_server(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is stopped in its transaction holds the position only for a bounded time."""
    monkeypatch.setattr("penstock.views.postgres_target.IDLE_MS", 100)
    stopped = PostgresTarget(view.address, view.schema, "reporting")
    with pytest.raises((TargetProblem, psycopg.Error)), stopped._opened() as connection:  # noqa: SIM117
        with stopped._writing(connection, position_of(1), position_of(9)):
            wait_for(lambda: _succeeds(lambda: view.apply(*items(1))), "the lock is free")
    assert view.target.position().position == position_of(2)
    with pytest.raises(Overtaken):
        stopped.apply(position_of(1), position_of(9), [])
    stopped.close()


def _succeeds(work: Callable[[], object]) -> bool:
    try:
        work()
    except TargetProblem:
        return False
    return True


@pytest.mark.parametrize(
    ("choice", "name", "complaint"),
    [
        (postgres_choice(), "n" * 64, "takes more than 63 bytes"),
        (postgres_choice(), "é" * 32, "takes more than 63 bytes"),
        (postgres_choice(), "xmin", "system column"),
        (sqlite(), "SQLite_stat", "reserved in sqlite"),
        (sqlite(), "a\0", "NUL character"),
    ],
)
def test_names_that_a_target_cannot_have_are_refused(
    choice: TargetChoice, name: str, complaint: str
) -> None:
    """Case 13: a name that a target would cut, or has taken, is a mistake when the application is built."""
    item = entity_with(name) if name.isidentifier() else None
    if item is not None:
        with pytest.raises(DefinitionError, match=complaint):
            App("shop", item, show("reporting", choice, item))
    assert complaint in "".join(choice.name_complaints([name]))
    assert [*choice.name_complaints(["n" * 63, "Order", "select", "xmin_"])] == []


def entity_with(attribute: str) -> type:
    """Return an entity class with an attribute of a name."""
    fields = {"item_id": key(), attribute: 0, "__module__": __name__}
    return entity(type("Item", (), {"__annotations__": {"item_id": str, attribute: int}, **fields}))


def test_longest_names_stay_different(view: View) -> None:
    """Case 13: tables and columns whose names have 63 bytes and differ in the last one stay different."""
    base = "n" * 62
    shapes = [
        TableShape(base + end, 1, (ColumnShape(base + "k", Kind.TEXT), REASONS)) for end in "ab"
    ]
    view.target.load(
        position_of(1), position_of(2), shapes, [TableChange(shapes[0], (), [("x", None)])]
    )
    view.target.apply(
        position_of(2), position_of(3), [TableChange(shapes[1], ["y"], [("y", None)])]
    )
    for shape, owner in zip(shapes, "xy", strict=True):
        assert rows_in(view.address, view.schema, shape) == [(owner, None)]


def test_values_are_those_of_the_documentation(view: View) -> None:
    """Each kind of value has the type that docs/VIEWS.md says; a value without a form is NULL, and its reason is there."""
    shape = TableShape(
        "Kinds", 1, (KEY, *(ColumnShape(member.value, member) for member in Kind), REASONS)
    )
    values = [
        *("text", 1, float("inf"), True, Decimal("1.50"), b"\0", date(2026, 1, 2), time(3, 4, 5)),
        *(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), timedelta(days=-1, seconds=1)),
        *(UUID(int=1), '{"a": [1, [2]]}'),
    ]
    hard = [
        *("\0", None, float("nan"), None, Decimal("1E+200000"), None, None, time(3, tzinfo=UTC)),
        *(None, timedelta.max, None, '{"a": ["\\\\u0000", "\\u0000"]}'),
    ]
    fine = [*[None] * 4, Decimal("-Infinity"), *[None] * 6, '["\\\\u0000"]']
    rows = [("a", *values, None), ("b", *hard, {"bytes": "old"}), ("c", *fine, None)]
    view.load(shape, rows)
    names = ", ".join(f'pg_typeof("{member.value}")::text' for member in Kind)
    assert view.all(f'SELECT {names} FROM "Kinds" LIMIT 1') == [
        (
            *("text", "bigint", "double precision", "boolean", "numeric", "bytea", "date"),
            *("time without time zone", "timestamp with time zone", "interval", "uuid", "jsonb"),
        )
    ]
    first, second, third = view.all('SELECT * FROM "Kinds" ORDER BY _key')
    assert first[1:] == (*values[:-1], {"a": [1, [2]]}, None)
    assert (str(second[3]), second[10]) == ("nan", timedelta.max)
    assert second[-1] == {
        "bytes": "old",
        "decimal": "PostgreSQL has 131072 digits before the point and 16383 behind it",
        "json": "a text in it contains a NUL character",
        "text": "it contains a NUL character",
        "time": "it has a zone, and a time of PostgreSQL has none",
    }
    assert (third[5], third[12]) == (Decimal("-Infinity"), ["\\u0000"])


def told(caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Return all that a log could have of an error."""
    return "".join(traceback.format_exception(caught.value)) + repr(caught.value)


def test_password_is_in_no_message(
    postgres: Cluster, login: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong credentials, a wrong database, a missing grant and a URL that cannot be read never show the password."""
    caplog.set_level(logging.DEBUG)
    texts = []
    wrong = login.replace("clerk:", "clerk:x")
    nowhere = login.replace("/postgres", "/nowhere")
    for url, reason, remedy in (
        (
            wrong,
            "password authentication failed",
            "set the right user and password in views.reporting.url",
        ),
        (nowhere, "does not exist", "create the database, or name another in views.reporting.url"),
    ):
        with pytest.raises(TargetProblem, match=reason) as caught:
            PostgresTarget(url, "desk", "reporting").position()
        assert caught.value.remedy == remedy
        texts.append(told(caught))
    target = PostgresTarget(login, "forbidden", "reporting")
    with pytest.raises(TargetProblem, match="permission denied for database") as caught:
        target.load(None, position_of(1), [ITEM], [])
    target.close()
    assert caught.value.remedy == "grant it to the user of views.reporting.url"
    texts.append(told(caught))
    for url in (f"clerk {PASSWORD}", f"postgresql://clerk:{PASSWORD}@h/d?{PASSWORD}=1"):
        with pytest.raises(ConfigError, match=r"views\.reporting\.url cannot be read") as refused:
            PostgresTarget(url, "desk", "reporting")
        texts.append(told(refused))
    for text in (*texts, caplog.text):
        for secret in (PASSWORD, "se%3Acr%25t", "se:cr"):
            assert secret not in text


def test_revoked_grant_is_a_problem_that_passes(postgres: Cluster, login: str) -> None:
    """A grant that is taken from the user is named with its remedy; when it is given back, the view goes on."""
    target = PostgresTarget(login, "desk", "reporting")
    target.load(None, position_of(1), [ITEM], [TableChange(ITEM, (), items(3))])
    with psycopg.connect(postgres.address, autocommit=True) as admin:
        admin.execute('ALTER TABLE desk."Item" OWNER TO benchmark')
        change = [TableChange(ITEM, ["i0"], [])]
        with pytest.raises(TargetProblem, match="permission denied for table Item") as caught:
            target.apply(position_of(1), position_of(2), change)
        assert caught.value.remedy == "grant it to the user of views.reporting.url"
        admin.execute('GRANT ALL ON desk."Item" TO clerk')
    target.apply(position_of(1), position_of(2), change)
    assert target.position().position == position_of(2)
    target.close()


def test_killed_server_leaves_before_or_after(postgres: Cluster) -> None:
    """After a crash of all processes of the server the target has the state of a commit, and goes on."""
    view = View(postgres.address, "crashed")
    view.user.close()
    postgres.kill()
    postgres.start()
    wait_for(lambda: _succeeds(lambda: [view.target.position()]), "the server answers")
    assert view.target.position().position == position_of(1)
    view.apply(*items(9))
    assert len(rows_in(postgres.address, "crashed", ITEM)) == 9
    view.target.close()


def test_setting_is_required() -> None:
    """A view in PostgreSQL without a URL is a mistake in the settings; the schema is that of the choice, or the view's name."""
    plan = ViewPlan("reporting", postgres_choice(), (), "app.py:1")
    with pytest.raises(ConfigError, match=r"set views\.reporting\.url"):
        open_target(plan, "", Path("/data"))
    target = open_target(plan, "postgresql://nowhere/d", Path("/data"))
    assert isinstance(target, PostgresTarget)
    assert target._schema == "reporting"
    chosen = ViewPlan("reporting", postgres_choice(schema="mine"), (), "app.py:1")
    assert vars(open_target(chosen, "postgresql://nowhere/d", Path("/data")))["_schema"] == "mine"


def test_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver, a view in PostgreSQL says what to install; others do without."""
    monkeypatch.setitem(sys.modules, "penstock.views.postgres_target", None)
    plan = ViewPlan("reporting", postgres_choice(), (), "app.py:1")
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[postgres\]'"):
        open_target(plan, "postgresql://h/d", Path("/data"))


def test_drop_leaves_what_users_have_made(view: View) -> None:
    """A table on which something depends is not dropped, and named; tables of users are there afterwards."""
    view.run("CREATE TABLE prices (price bigint)")
    view.run('CREATE VIEW low AS SELECT price FROM "Item"')
    problem = view.rejected(lambda: view.target.drop(position_of(1)))
    assert ".low depends on table" in problem.reason
    assert view.all('SELECT count(*) FROM "Item"') == [(3,)]
    view.run("DROP VIEW low")
    view.target.drop(position_of(1))
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{view.schema}'"
    assert view.all(tables) == [("prices",)]


def test_view_is_removed_with_its_address(view: View) -> None:
    """The order to remove a view needs its kind, schema and address; those of another journal are refused."""
    journal = position_of(1).journal
    tables = TablesOfView("reporting", "postgres", view.schema, view.address, "", journal)
    with pytest.raises(RequestError, match="filled from another data directory"):
        removed(replace(tables, journal="another"))
    with pytest.raises(ConfigError, match=r"set views.reporting.url"):
        removed(replace(tables, address=""))
    with pytest.raises(RequestError, match="leads to a place without its tables"):
        removed(replace(tables, schema="elsewhere"))
    assert removed(tables) == ""
    assert view.all(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{view.schema}'") == [(0,)]
