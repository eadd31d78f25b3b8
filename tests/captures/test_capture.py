"""The capture of a real PostgreSQL: snapshot, changes, kills, lost slots, changed tables."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.cluster import Cluster
from penstock.orders.capture_orders import CaptureOrder
from penstock.process.capture_files import read_slot_note, write_slot_note
from penstock.process.view_files import Held, end_hold, hold
from tests.captures.office import SPEC, USERS, Office, capturing, wait_until
from tests.views.processes import driving


@contextmanager
def opened(postgres: Cluster, path: Path, name: str, *statements: str) -> Iterator[Office]:
    office = Office(postgres, path / "data", name)
    office.give(*statements)
    with driving(SPEC, office.data):
        yield office


@pytest.fixture(scope="module")
def office(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """An office whose database has two users when the capture begins."""
    path = tmp_path_factory.mktemp("office")
    rows = "INSERT INTO users (id, name, credit) VALUES (1, 'Ada', 1.50), (2, 'Bob\t\\N\n', 0)"
    publication = "CREATE PUBLICATION crm FOR TABLE users"
    with opened(postgres, path, "office", USERS, rows, publication) as office, capturing(office):
        office.await_users({1: "Ada", 2: "Bob\t\\N\n"})
        yield office


def test_rows_and_changes_become_entities(office: Office) -> None:
    """The rows that are there come first, then each transaction as one atom, with typed values."""
    office.give(
        "INSERT INTO users (id, name, email, tags) VALUES (3, 'Cy', 'cy@x', '[\"a\"]')",
        "UPDATE users SET credit = 2.25 WHERE id = 1",
        "UPDATE users SET id = 20 WHERE id = 2",
        "DELETE FROM users WHERE id = 3",
    )
    office.await_users({1: "Ada", 20: "Bob\t\\N\n"})
    (ada,) = office.users(1)
    assert ada is not None
    assert (str(ada["credit"]), ada["seen"]) == ("2.25", ["snapshot", "update"])
    events = office.changes()
    kinds = [(event.kind, event.key) for event in events]
    assert kinds[:4] == [("reset", ""), ("snapshot", "1"), ("snapshot", "2"), ("ready", "")]
    assert kinds[4:] == [
        ("insert", "3"),
        ("update", "1"),
        ("delete", "2"),
        ("insert", "20"),
        ("delete", "3"),
    ]
    last = events[-1]
    assert last.before.tags == ["a"]
    assert last.at == events[-2].at, "they are of one transaction"
    assert last.source_lsn == events[4].source_lsn
    assert events[5].before.credit.as_tuple() == (0, (1, 5, 0), -2)


def test_kills_lose_and_repeat_nothing(postgres: Cluster, tmp_path: Path) -> None:
    """The capture is killed in the middle of the reading and of transactions, and so is the server; each change is there once."""
    rng = random.Random(7)
    rows = "INSERT INTO users (id, name) SELECT n, 'n' || n FROM generate_series(1, 3000) AS n"
    publication = "CREATE PUBLICATION crm FOR TABLE users"
    with opened(postgres, tmp_path, "kills", USERS, rows, publication) as office:
        with capturing(office):
            office.await_records(1)  # in the middle of the reading
        with ThreadPoolExecutor(1) as others:
            for kills_server in (False, True, False):
                with capturing(office):
                    wait_until(office.is_read, lambda: f"{office.report()}")
                    load = others.submit(office.work, rng.randrange(1 << 30))
                    office.await_records(office.appended() + 2)
                    if kills_server:
                        load.result()
                        postgres.kill()
                        postgres.start()
                        office.give("UPDATE users SET name = name || '+' WHERE id < 900")
                        office.await_records(office.appended() + 1)
                load.result()
        with capturing(office):
            office.await_users(dict(office.ask("SELECT id, name FROM users")))
        events = office.changes()
        begin = max(place for place, event in enumerate(events) if event.kind == "reset")
        places = [(event.source_lsn, event.part) for event in events[begin:]]
        assert places == sorted(places), "in the order of the commits"
        # The names say how often a row was changed, so a change that is lost or repeated leaves another one.
        for key, told in office.told_of_each(events[begin:]).items():
            assert told == sorted(set(told)), key


def test_a_lost_slot_is_refused_and_read_again_by_an_order(
    postgres: Cluster, tmp_path: Path
) -> None:
    """What happened meanwhile comes with a reset and the rows that there are; nothing is skipped without a word."""
    rows = "INSERT INTO users (id, name) VALUES (1, 'Ada'), (2, 'Bob')"
    publication = "CREATE PUBLICATION crm FOR TABLE users"
    with opened(postgres, tmp_path, "lost", USERS, rows, publication) as office:
        with capturing(office):
            office.await_users({1: "Ada", 2: "Bob"})
        office.await_free_slot()
        office.give(
            "SELECT pg_drop_replication_slot('slot_lost')",
            "UPDATE users SET name = 'Eve' WHERE id = 2",
        )
        with capturing(office):
            told = office.await_refusal()
            assert "the database has no slot slot_lost any more" in told
            assert "penstock capture snapshot crm reads the tables again" in told
            CaptureOrder("snapshot", "crm").carry_out(office.place())
            office.await_users({1: "Ada", 2: "Eve"})
        assert [event.kind for event in office.changes()].count("reset") == 2
        # Another program takes what this directory does not have.
        office.give("UPDATE users SET name = 'Eva' WHERE id = 2")
        office.await_free_slot()
        office.give("SELECT pg_replication_slot_advance('slot_lost', pg_current_wal_lsn())")
        with capturing(office):
            assert "slot slot_lost has moved to" in office.await_refusal()
        # The server is a promoted standby that lacks changes, or a restored backup of itself.
        note = read_slot_note(office.data, "crm")
        assert note is not None
        assert note.timeline == 1
        lost = "the database has lost changes that this directory has: they go up to"
        ends = [(replace(note, confirmed=1 << 60), f"{lost} 10000000/0, and its history up to")]
        ends.append((replace(note, timeline=7), "and its history up to 0/1,"))
        for wrong, told in ends:
            write_slot_note(office.data, "crm", wrong)
            with capturing(office):
                office.await_reason(told)


def test_a_changed_table_stops_before_its_rows(postgres: Cluster, tmp_path: Path) -> None:
    """A column that nothing takes may come and go; one that a field takes may not, and its rows wait."""
    rows = "INSERT INTO users (id, name) VALUES (1, 'Ada')"
    publication = "CREATE PUBLICATION crm FOR TABLE users"
    with (
        opened(postgres, tmp_path, "altered", USERS, rows, publication) as office,
        capturing(office),
    ):
        office.await_users({1: "Ada"})
        office.give("ALTER TABLE users DROP COLUMN notes, ADD COLUMN age int")
        office.give("INSERT INTO users (id, name, age) VALUES (2, 'Bob', 7)")
        office.await_users({1: "Ada", 2: "Bob"})
        # A transaction that comes together with the refused one does not wait for the remedy.
        office.give(
            "UPDATE users SET name = 'Bea' WHERE id = 2",
            "COMMIT",
            "ALTER TABLE users RENAME COLUMN name TO full_name",
            "INSERT INTO users (id, full_name) VALUES (3, 'Cy')",
        )
        assert (
            "public.users has no column name, which the field of CrmUser takes"
            in office.await_refusal()
        )
        office.await_users({1: "Ada", 2: "Bea"})
        office.give("ALTER TABLE users RENAME COLUMN full_name TO name")
        CaptureOrder("pause", "crm", "wait").carry_out(office.place())
        wait_until(lambda: office.state() == "paused")
        CaptureOrder("resume", "crm").carry_out(office.place())
        told = office.await_refusal()
        assert "has no column name" in told, (
            "the rows that were made with the other name are still there"
        )
        CaptureOrder("snapshot", "crm").carry_out(office.place())
        office.await_users({1: "Ada", 2: "Bea", 3: "Cy"})
        hold(office.data, Held("restored", 0))
        wait_until(lambda: office.state() == "held")
        office.give("UPDATE users SET name = 'Ben' WHERE id = 2")
        end_hold(office.data)
        office.await_users({1: "Ada", 2: "Ben", 3: "Cy"})
