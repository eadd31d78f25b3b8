"""Erasures reach the views that show personal data: no row and no byte of a person is left when a view has passed one."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from benchmarks.cluster import Cluster
from penstock.base.ids import EntityKey, Epoch
from penstock.files.layout import SUBJECT_KEYS
from penstock.history.restore import fork
from penstock.history.verification import check_certificates
from penstock.journal.deployments import Deployments
from penstock.model.control import DeployedCode
from penstock.orders.erasure_order import ErasureOrder
from penstock.orders.order import Place
from penstock.orders.view_orders import views_state
from penstock.process.erasures import Certificate, ViewPassage
from penstock.process.view_files import (
    Held,
    ViewState,
    change_orders,
    end_hold,
    folder_of,
    hold,
    read_report,
)
from penstock.process.view_standing import ViewStanding, view_standings
from tests.differential.persons import Persons
from tests.kafka_server import Broker
from tests.views.appliers import appliers
from tests.views.change_log import told_in
from tests.views.persons_app import Note, Person, app
from tests.waiting import wait_for

SPEC = "tests.views.persons_app:app"
SECRET = b"enchantress of numbers"
FILES = ("files", "index", "public")


@pytest.fixture
def persons(tmp_path: Path) -> Iterator[Persons]:
    """Ada, Bob and Cyd, with a note about each, in a directory whose deployment declares the views."""
    persons = Persons(tmp_path / "data", SPEC)
    declare(persons, *FILES)
    for name in ("ada", "bob", "cyd"):
        persons.append("Person", name, "create", motto=f"{name} is the {SECRET.decode()}")
        persons.publish("notes", Note(Person(name), f"{SECRET.decode()} {name}"))
    persons.run()
    yield persons
    persons.runtime.close()


def declare(persons: Persons, *views: str, archive: str = "a") -> None:
    code = DeployedCode(archive * 64, "people", "app", "3", {})
    Deployments(persons.folder / "journal").record(Epoch(0), 1, code, {}, views=views)


def views(persons: Persons) -> dict[str, ViewStanding]:
    return {each.name: each for each in views_state(Place(persons.runtime.config)).views}


def await_epoch(persons: Persons, *names: str) -> None:
    """Wait until views show the newest epoch."""
    wait_for(lambda: all(views(persons)[name].lag == 0 for name in names), "the newest epoch")


def erase(
    persons: Persons,
    *names: str,
    timeout_s: float = 60.0,
    told: Callable[[int, int], None] | None = None,
) -> list[Certificate]:
    """Erase persons one after the other, while the driver runs; return their certificates."""
    place = Place(persons.runtime.config, persons.app, told=told)

    def order() -> list[Certificate]:
        return [ErasureOrder(f"Person/{name}").carry_out(place, timeout_s) for name in names]

    with ThreadPoolExecutor(1) as threads:
        ordered: Future[list[Certificate]] = threads.submit(order)
        wait_for(lambda: persons.run().lsn >= 0 and ordered.done(), "the erasures")
        return ordered.result()


def findings(persons: Persons) -> list[str]:
    """Return what `penstock verify` says about the certificates."""
    return [each.what for each in check_certificates(persons.folder, persons.runtime.journal)]


def names_in_file(data: Path) -> set[str]:
    with closing(sqlite3.connect(folder_of(data, "files") / "view.sqlite")) as connection:
        people = connection.execute("SELECT name FROM Person").fetchall()
        return {
            name for (name,) in people + connection.execute("SELECT about FROM notes").fetchall()
        }


def bytes_about(folder: Path, name: str) -> list[str]:
    """Return the files of a folder that have a text about a person."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    texts = (SECRET + f" {name}".encode(), f"{name} is the ".encode() + SECRET)
    return [str(path) for path in found if any(text in path.read_bytes() for text in texts)]


def test_erasure_waits_for_the_views(persons: Persons) -> None:
    """The certificate names the views that have passed; then no file of theirs has a byte of the person."""
    told: list[tuple[int, int]] = []
    with appliers(app, persons.folder, *FILES):
        await_epoch(persons, *FILES)
        assert bytes_about(folder_of(persons.folder, "files"), "ada")
        (made,) = erase(persons, "ada", told=lambda *done: told.append(done))
        assert names_in_file(persons.folder) == {"bob", "cyd"}
        assert bytes_about(persons.folder / "views", "ada") == []
        assert bytes_about(folder_of(persons.folder, "files"), "bob")
        passed = [(each.view, each.target, each.state) for each in made.views]
        assert passed == [("files", "sqlite", "passed"), ("index", "search", "passed")]
        assert all(each.epoch >= made.epoch for each in made.views)
        assert made == made.sealed()
        assert told[-1] == (200, 200)
    assert persons.certificates() == [made]
    assert findings(persons) == []


def state_of(data: Path) -> ViewState | None:
    report = read_report(data, "files")
    return None if report is None else report.state


def test_view_that_is_paused_passes_later(persons: Persons) -> None:
    """The certificate has its reason and its remedy, `penstock view list` the epoch; when it is resumed, both change."""
    with appliers(app, persons.folder, *FILES):
        await_epoch(persons, *FILES)
        change_orders(
            persons.folder,
            "files",
            lambda orders: replace(orders, paused=True, by="bob", reason="lunch"),
        )
        wait_for(lambda: state_of(persons.folder) is ViewState.PAUSED, "the pause")
        (made,) = erase(persons, "ada")
        late = made.views[0]
        assert (late.view, late.state, late.remedy) == (
            "files",
            "paused",
            "penstock view resume files",
        )
        assert late.reason == f"by bob: lunch; it has not passed the erasure of epoch {made.epoch}"
        assert made.views[1].passed
        assert views(persons)["files"].unerased == [made.epoch]
        assert views(persons)["public"].unerased == []
        assert "ada" in names_in_file(persons.folder)
        texts = findings(persons)
        assert any(
            text.startswith("view files had not passed the erasure of Person/ada") for text in texts
        )
        change_orders(persons.folder, "files", lambda orders: replace(orders, paused=False))
        wait_for(lambda: not views(persons)["files"].unerased, "the passage")
        (known,) = persons.certificates()
        assert [each.state for each in known.views] == ["passed", "passed"]
        assert bytes_about(persons.folder / "views", "ada") == []


def test_erasure_names_views_without_an_applier(persons: Persons) -> None:
    """Stopped, held and undeclared views are named at once; an applier that starts later passes all erasures at once."""
    with appliers(app, persons.folder, *FILES):
        await_epoch(persons, *FILES)
    (first,) = erase(persons, "ada")
    assert {(each.view, each.state) for each in first.views} == {
        ("files", "stopped"),
        ("index", "stopped"),
    }
    hold(persons.folder, Held("restored from a test", 0))
    (second,) = erase(persons, "bob")
    assert {each.state for each in second.views} == {"held"}
    assert views(persons)["files"].unerased == [first.epoch, second.epoch]
    end_hold(persons.folder)
    with appliers(app, persons.folder, "files"):
        wait_for(lambda: not views(persons)["files"].unerased, "the passage")
    assert names_in_file(persons.folder) == {"cyd"}
    assert bytes_about(folder_of(persons.folder, "files"), "ada") == []
    for certificate in persons.certificates():
        assert certificate.views[0].passed
        assert not certificate.views[1].passed


def test_view_that_has_never_run_is_named(persons: Persons) -> None:
    """Its target may have rows of another time; its first fill has none of the person, and changes its entry."""
    (made,) = erase(persons, "ada")
    assert [(each.view, each.state) for each in made.views] == [
        ("files", "stopped"),
        ("index", "stopped"),
    ]
    with appliers(app, persons.folder, *FILES):
        wait_for(lambda: all(each.passed for each in persons.certificates()[0].views), "the fill")
        assert names_in_file(persons.folder) == {"bob", "cyd"}


def test_two_erasures_while_a_view_is_filled(persons: Persons) -> None:
    """The view starts with the erasures: each certificate waits for it, and its tables never show a person again."""
    with appliers(app, persons.folder, *FILES):
        made = erase(persons, "ada", "bob")
        assert all(each.passed for certificate in made for each in certificate.views)
        await_epoch(persons, *FILES)
        assert names_in_file(persons.folder) == {"cyd"}
        assert [each.hash for each in persons.certificates()] == [each.hash for each in made]


def test_reader_of_former_rows_is_named(persons: Persons) -> None:
    """A read transaction keeps the erased rows in the log of SQLite: the view goes on, and says who keeps them."""
    path = folder_of(persons.folder, "files") / "view.sqlite"
    seen: list[ViewStanding] = []

    def end_reader(_done: int, _all: int) -> None:
        view = views(persons)["files"]
        if "rows of erased persons are still in its files: a program reads" in view.reason:
            seen.append(view)
            reader.close()

    with (
        appliers(app, persons.folder, *FILES),
        closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None)) as reader,
    ):
        await_epoch(persons, *FILES)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM notes").fetchall()
        (made,) = erase(persons, "ada", told=end_reader)
        assert (seen[0].state, seen[0].lag) == ("following", 0)
        assert seen[0].remedy == "end the transaction of that reader"
        assert all(each.passed for each in made.views)
        assert bytes_about(persons.folder / "views", "ada") == []


def test_rows_in_postgresql_are_purged(persons: Persons, postgres: Cluster) -> None:
    """Dead rows leave the files of the tables; a snapshot that may see them is named, and awaited."""
    declare(persons, "base", archive="b")
    reasons: list[str] = []

    def end_reader(_done: int, _all: int) -> None:
        if "still sees the removed rows" in (reason := views(persons)["base"].reason):
            reasons.append(reason)
            reader.close()

    with (
        psycopg.connect(postgres.address, autocommit=True) as user,
        psycopg.connect(postgres.address) as reader,
        appliers(app, persons.folder, "base", urls={"base": postgres.address}),
    ):
        await_epoch(persons, "base")
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM base.notes")
        (made,) = erase(persons, "ada", told=end_reader)
        assert reasons
        assert [each.state for each in made.views] == ["passed"]
        about = user.execute("SELECT about FROM base.notes ORDER BY about").fetchall()
        assert about == [("bob",), ("cyd",)]
        pages = user.execute("SELECT pg_read_binary_file(pg_relation_filepath('base.notes'))")
        (data,) = pages.fetchone() or (b"",)
        assert SECRET + b" ada" not in bytes(data)
        assert SECRET + b" bob" in bytes(data)
        user.execute("DROP SCHEMA base CASCADE")


@pytest.mark.long
def test_messages_in_kafka_are_deleted(persons: Persons, kafka_server: Broker) -> None:
    """No message and no file of the view has a byte of the person; the tombstone has the key."""
    declare(persons, "log", archive="b")
    prefix = persons.folder.parent.name
    url = f"kafka://{kafka_server.servers}/{prefix}"
    with appliers(app, persons.folder, "log", urls={"log": url}):
        await_epoch(persons, "log")
        (made,) = erase(persons, "ada")
        assert [(each.target, each.state) for each in made.views] == [("kafka", "passed")]
        for table in ("Person", "notes"):
            told = told_in(kafka_server.servers, f"{prefix}.{table}")
            text = json.dumps([each.value for each in told])
            assert SECRET.decode() in text
            assert "ada" not in text.replace('"before": {"_key": "ada"}', "")
    assert bytes_about(folder_of(persons.folder, "log"), "ada") == []


def test_copy_of_a_time_before_an_erasure(persons: Persons, tmp_path: Path) -> None:
    """A fork that begins before the erasure is held, and its views never show the person."""
    with appliers(app, persons.folder, "files"):
        await_epoch(persons, "files")
        (made,) = erase(persons, "ada")
    copy = tmp_path / "copy"
    fork(persons.folder, app.name, copy, Epoch(made.epoch - 1))
    shutil.copy(persons.folder / SUBJECT_KEYS, copy / SUBJECT_KEYS)
    folder = folder_of(copy, "files")
    with appliers(app, copy, "files"):
        wait_for(lambda: state_of(copy) is ViewState.HELD, "the hold")
        assert not (folder / "view.sqlite").exists()
        end_hold(copy)
        wait_for(lambda: state_of(copy) is ViewState.FOLLOWING, "the fill")
        assert names_in_file(copy) == {"bob", "cyd"}
        assert bytes_about(copy / "views", "ada") == []

        def unerased() -> list[Epoch]:
            known = {each.name: each for each in view_standings(copy, Epoch(made.epoch))}
            return known["files"].unerased

        # It follows before it has passed the epoch of the erasure.
        wait_for(lambda: unerased() == [], "the passage")


def test_certificate_of_earlier_versions_stays_valid() -> None:
    """A certificate without views has the hash that it had; what a view has passed, it has passed."""
    old = Certificate("Person/ada", 0, 7, 1, "j").sealed()
    assert (old.views_hash, old.recorded) == ("", old)
    late = ViewPassage("files", "sqlite", "paused", Epoch(3), 1, "lunch", "resume it")
    noted = old.noting([late])
    assert (noted.hash, noted.recorded) == (old.hash, old)
    assert noted.views_hash
    passed = noted.noting([ViewPassage("files", "sqlite", "passed", Epoch(8), 2)])
    assert passed.noting([late]) == passed
    assert EntityKey(passed.subject) == "Person/ada"
