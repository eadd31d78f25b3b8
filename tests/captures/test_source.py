"""A real PostgreSQL as the source of changes: what is refused, and the atoms that its messages become."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import psycopg
import pytest

from benchmarks.cluster import Cluster
from penstock import App, changes
from penstock.captures.atoms import PART_ROWS, AtomMaker, Ended, MadeAtom
from penstock.captures.pgoutput import message_in
from penstock.captures.postgres_source import PostgresSource, SourceRefused
from penstock.captures.table_form import TableForm
from penstock.model.request import append_events, decode_request
from penstock.model.streams.change_stream import Change, ChangeStream, SourcePosition
from penstock.model.target_choice import postgres as database


class Row(msgspec.Struct, tag=True):
    id: int
    text: str | None = None


@dataclass
class Wide:
    id: int
    name: str
    at: datetime
    day: date
    amount: Decimal
    tags: list[str]
    note: str | None


BEGINNING = SourcePosition(1, 1, 0, is_whole=True)
DESK = """
    CREATE TABLE rows (id int PRIMARY KEY, text text);
    ALTER TABLE rows REPLICA IDENTITY FULL;
    CREATE TABLE short (id int PRIMARY KEY, text text);
    CREATE TABLE keyless (id int, text text);
    CREATE TABLE wide (
        id int PRIMARY KEY, name text, at timestamp NOT NULL, day timestamptz NOT NULL, amount float8 NOT NULL,
        tags text[] NOT NULL, note text
    );
    ALTER TABLE wide REPLICA IDENTITY FULL;
    CREATE TABLE other (id int PRIMARY KEY);
    CREATE PUBLICATION desk FOR TABLE rows, short, keyless, wide;
    CREATE PUBLICATION inserts FOR TABLE rows WITH (publish = 'insert');
    CREATE PUBLICATION few FOR TABLE rows WHERE (id > 10);
"""


@pytest.fixture(scope="module")
def address(postgres: Cluster) -> str:
    """Return the address of a database with tables of all sorts."""
    with psycopg.connect(postgres.address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE desk")
    address = postgres.address.replace("dbname=postgres", "dbname=desk")
    with psycopg.connect(address) as connection:
        connection.execute(DESK.encode())
    return address


@pytest.fixture
def source(address: str, large_numbers: None) -> Iterator[PostgresSource]:
    source = PostgresSource(address, lambda: False)
    yield source
    source.close()


@pytest.mark.parametrize(
    ("table", "record", "publication", "told"),
    [
        (
            "public.nothing",
            Row,
            "desk",
            "the database has no table public.nothing; correct the name",
        ),
        ("public.keyless", Row, "desk", "ALTER TABLE public.keyless ADD PRIMARY KEY (…)"),
        (
            "public.short",
            Row,
            "desk",
            "public.short can hold long values in text, which an update that does not touch them does not send; ALTER TABLE "
            "public.short REPLICA IDENTITY FULL",
        ),
        (
            "public.wide",
            Wide,
            "desk",
            "column name of public.wide may be NULL, and Wide.name is str; declare str | None, or ALTER TABLE public.wide "
            "ALTER COLUMN name SET NOT NULL",
        ),
        ("public.wide", Wide, "desk", "a time needs a zone to be an instant: declare str"),
        (
            "public.wide",
            Wide,
            "desk",
            "column day of public.wide is timestamp with time zone, and Wide.day is date; declare the type of the column",
        ),
        ("public.wide", Wide, "desk", "column amount of public.wide is double precision"),
        (
            "public.rows",
            Wide,
            "desk",
            "public.rows has no column name, which the field of Wide takes",
        ),
        ("public.other", Row, "desk", 'ALTER PUBLICATION "desk" ADD TABLE public.other'),
        ("public.rows", Row, "none", 'CREATE PUBLICATION "none" FOR TABLE public.rows'),
        ("public.rows", Row, "inserts", "SET (publish = 'insert, update, delete, truncate')"),
        ("public.rows", Row, "few", "publication few leaves out rows of public.rows"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_its_remedy(
    source: PostgresSource, table: str, record: type, publication: str, told: str
) -> None:
    """The message names the table, the column and the statement that helps; the database stays as it is."""
    _, complaints = source.forms({table: record}, publication)
    assert any(told in complaint for complaint in complaints), complaints


def test_an_address_that_is_none_is_refused_without_it() -> None:
    """No message shows what may be a password."""
    with pytest.raises(SourceRefused) as refused:
        PostgresSource("postgresql://ada:se:cr%zz@", lambda: False)
    assert "se:cr" not in str(refused.value)


class Desk:
    """A slot, and the atoms behind it."""

    def __init__(self, source: PostgresSource, address: str, slot: str) -> None:
        self.source, self.address, self.slot = source, address, slot
        crm: ChangeStream[Any] = changes("desk", database(), {"public.rows": Row})
        self.stream = App("desk", crm).topology.captures["desk"]
        (self.form,), complaints = source.forms(self.stream.tables, "desk")
        assert complaints == []
        source.create_slot(slot)

    def give(self, *statements: str) -> None:
        with psycopg.connect(self.address) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def maker(self, position: SourcePosition = BEGINNING) -> AtomMaker:
        def reform(form: TableForm, _: object) -> TableForm:
            raise AssertionError(form.table)

        return AtomMaker(self.stream, {"public.rows": self.form}, position, reform, 1 << 20)

    def messages(self, transactions: int) -> list[bytes]:
        """Return the messages of so many transactions."""
        self.source.follow(self.slot, "desk")
        found: list[bytes] = []
        while sum(data[:1] == b"C" for data in found) < transactions:
            found += [payload.data for payload in self.source.received(1.0) if payload.data]
        return found

    def changes(self, made: MadeAtom) -> list[Change[Row]]:
        decode = self.stream.events.decode
        return [*map(decode, append_events(decode_request(made.body)))]


def atoms_of(maker: AtomMaker, messages: list[bytes]) -> list[MadeAtom]:
    made = itertools.chain.from_iterable(
        maker.take(message) for data in messages if (message := message_in(data)) is not None
    )
    return [each for each in made if not isinstance(each, Ended)]


def test_each_sort_of_change_is_told(source: PostgresSource, address: str) -> None:
    """An update keeps a long value that it does not touch; a key that changes is another row; a truncation is told."""
    desk = Desk(source, address, "sorts")
    long = "repeat(md5('1'), 4000)"
    desk.give(f"INSERT INTO rows VALUES (1, {long}), (2, NULL)")
    desk.give("UPDATE rows SET id = 3 WHERE id = 1")
    desk.give("UPDATE rows SET text = 'x' WHERE id = 2", "DELETE FROM rows WHERE id = 2")
    desk.give("TRUNCATE rows, short")
    made = atoms_of(desk.maker(), desk.messages(4))
    shown = [
        [
            (each.kind, each.key, each.row and len(each.row.text or ""), each.before is not None)
            for each in desk.changes(atom)
        ]
        for atom in made
    ]
    assert shown == [
        [("insert", "1", 128_000, False), ("insert", "2", 0, False)],
        [("delete", "1", None, True), ("insert", "3", 128_000, False)],
        [("update", "2", 1, True), ("delete", "2", None, True)],
        [("truncate", "", None, False)],
    ]
    lsns = [atom.position.source_lsn for atom in made]
    assert lsns == sorted(set(lsns))


def test_a_long_transaction_is_parts_that_go_on_after_a_kill(
    source: PostgresSource, address: str
) -> None:
    """Sent again from its beginning, it goes on behind each part with the same bytes."""
    desk = Desk(source, address, "long")
    rows = 2 * PART_ROWS + 7
    desk.give(f"INSERT INTO rows SELECT n, n::text FROM generate_series(1, {rows}) AS n")
    messages = desk.messages(1)
    made = atoms_of(desk.maker(), messages)
    assert [atom.rows for atom in made] == [PART_ROWS, PART_ROWS, 7]
    assert [atom.position.is_whole for atom in made] == [False, False, True]
    assert [desk.changes(atom)[0].part for atom in made] == [0, PART_ROWS, 2 * PART_ROWS]
    for place, atom in enumerate(made):
        assert atoms_of(desk.maker(atom.position), messages) == made[place + 1 :]


def test_a_row_that_does_not_fit_is_told(source: PostgresSource, address: str) -> None:
    """Its change names the reason and keeps its place, and the row behind it is whole."""
    desk = Desk(source, address, "unfit")
    desk.give("TRUNCATE rows")
    desk.give(
        "INSERT INTO rows VALUES (1, repeat('x', 2000000)), (2, 'y')",
        "UPDATE rows SET text = 'z' WHERE id = 1",
    )
    last = atoms_of(desk.maker(), desk.messages(2))[-1]
    assert [(each.kind, each.key, each.reason) for each in desk.changes(last)] == [
        ("unfit", "1", "the row has 2,000,001 bytes, and 1,048,576 are possible"),
        ("insert", "2", ""),
        ("unfit", "1", "the row has 2,000,003 bytes, and 1,048,576 are possible"),
    ]
    assert last.unfit == 2


def test_an_idle_slot_moves_on(source: PostgresSource, address: str) -> None:
    """A table that is not taken fills the log of the server, and the slot keeps none of it."""
    desk = Desk(source, address, "idle")
    before = source.slot("idle")
    assert before is not None
    source.follow("idle", "desk")
    desk.give("INSERT INTO other SELECT generate_series(1, 1000)")
    newest = source.lag("idle")[0]
    reached = 0
    while reached < newest:
        source.confirm(reached, 0, is_new=True)
        reached = max([reached, *(each.end_lsn for each in source.received(1.0) if not each.data)])
    source.confirm(reached, 0, is_new=True)
    while (now := source.slot("idle")) is not None and now.confirmed < newest:
        list(source.received(0.05))
    assert now is not None
    assert now.confirmed > before.confirmed
