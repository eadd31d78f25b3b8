"""Imports through the driver of epochs, without Spark: all rows of an order, or none, at one place in the order."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.base.file_formats import FileFormat
from penstock.base.ids import EntityKey, Lsn, RequestId
from penstock.deployment.deployment_start import deploy
from penstock.deployment.loading import load_app
from penstock.engine.imported import Existing
from penstock.engine.limits import Limits
from penstock.errors import JournalUnavailable, RequestConflict, RequestError
from penstock.exchange import import_order
from penstock.exchange.export import Export, export
from penstock.exchange.import_order import ImportOrder, ImportReport
from penstock.files.local_root import LocalRoot
from penstock.history.backup import Backups
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.replay import replay
from penstock.history.restore import restore
from penstock.journal.staged import StagedRows
from penstock.log.api import Entry
from penstock.model.call import Call, encoded
from penstock.orders.order import Place
from penstock.process.config import Config, ViewConfig
from penstock.process.epoch_report import EpochReport
from penstock.runtime.local.runtime import LocalRuntime
from penstock.sql_view.failed_requests import QUERY as FAILED
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.checkout import TOP
from tests.differential.committed import answers_of, state_of
from tests.differential.inline import Inline
from tests.differential.killed_driver import PROGRAM

SPEC = str(TOP / "tests/differential/bulk_app.py")


class Bulk:
    """A data directory with an application that takes imports."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.app = load_app(SPEC)
        self.inline = self.open()
        deploy(data, SPEC, self.app, self.inline.journal)
        self._number = 0

    def open(self) -> Inline:
        return Inline(self.data, 2, SPEC, "bulk", small_epoch=3)

    def order(self, source: Path | str, entity: str = "Item", **options: Any) -> ImportReport:
        place = Place(Config(self.data), told=lambda _done, _all: None)
        return ImportOrder(entity, str(source), **options).carry_out(place, 0.0)

    def call(self, entity: str, key: Any, method: str, **named: Any) -> None:
        self._number += 1
        body, hint = encoded(self.app, Call(entity, key, method, (), named))
        self.inline.log.append([Entry(RequestId(f"r{self._number}"), body, hint, self._number)])

    def advance(self) -> None:
        self.inline.advance(int(self.inline.log.end()))

    def state(self) -> dict[EntityKey, bytes]:
        return state_of(self.inline.journal)

    def answer(self) -> Any:
        """Return the code and the reply of the newest record."""
        last = answers_of(self.inline.journal)[-1]
        return last.error, last.data


@pytest.fixture
def bulk(tmp_path: Path) -> Iterator[Bulk]:
    """Return an application without entities."""
    data = tmp_path / "data"
    data.mkdir()
    bulk = Bulk(data)
    yield bulk
    bulk.inline.close()


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


ROWS: list[dict[str, Any]] = [
    {"item_id": f"i{n}", "price": f"{n}.50", "stock": n, "maker": n % 3, "tags": ["a", str(n)]}
    for n in range(20)
]


def test_an_import_is_what_requests_would_create(bulk: Bulk, tmp_path: Path) -> None:
    """The state is that of one creation after the other in one thread, byte for byte; requests before and after keep their places."""
    bulk.call("Item", "before", "create", price="1", stock=1)
    report = bulk.order(lines(tmp_path / "items.jsonl", *ROWS), id="first")
    assert report == ImportReport("waits", "first", 20)
    bulk.call("Item", "i7", "add", amount=3)
    bulk.advance()
    serial = LocalRuntime(bulk.app, secret=bulk.inline.journal.secret)
    serial.submit(Call("Item", "before", "create", (), {"price": "1", "stock": 1}))
    for row in ROWS:
        maker = bulk.app.entities["Maker"].of_text(str(row["maker"]))
        named = {"price": row["price"], "stock": row["stock"], "maker": maker, "tags": row["tags"]}
        serial.submit(Call("Item", row["item_id"], "create", (), named))
    serial.submit(Call("Item", "i7", "add", (3,)))
    assert bulk.state() == serial.state
    assert [each.error for each in answers_of(bulk.inline.journal)] == [None] * 3


def test_one_thread_and_a_replay_give_the_same(bulk: Bulk, tmp_path: Path) -> None:
    """The serial runtime answers the log with the same bytes, and a replay takes the recorded rows."""
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS[:12]))
    bulk.order(lines(tmp_path / "more.jsonl", *ROWS[8:]))
    bulk.order(lines(tmp_path / "more.jsonl", *ROWS[8:]), existing="skip")
    changed = [{**row, "stock": 99} for row in ROWS[:3]]
    bulk.order(lines(tmp_path / "changed.jsonl", *changed, *ROWS[3:5]), existing="replace")
    bulk.call("Item", "i1", "add", amount=1)
    staged = StagedRows(bulk.data)
    rows = {
        name: (staged.rows(name)["key"].to_pylist(), staged.rows(name)["state"].to_pylist())
        for name in staged.names()
    }
    records = bulk.inline.log.read(Lsn(0), bulk.inline.log.end())
    bulk.advance()
    serial = LocalRuntime(bulk.app, secret=bulk.inline.journal.secret)
    replies = serial.replay(records, staged=rows)
    assert bulk.state() == serial.state
    answers = answers_of(bulk.inline.journal)
    assert [each.error for each in answers] == [None, "request", None, None, None]
    assert [(each.error, each.data) for each in replies] == [
        (each.error, each.data) for each in answers
    ]
    assert staged.names() == []
    with (
        HistoryReader(bulk.data, bulk.app) as past,
        CodeVersions(past, bulk.app, SPEC, present_only=True) as versions,
    ):
        replayed = replay(past, versions, Limits(), past.span(None, None), lambda *_: None)
    assert replayed.divergence is None


def test_an_entity_that_exists_refuses_the_whole_import(bulk: Bulk, tmp_path: Path) -> None:
    """Not a single row is imported, and the message names the entities and the ways out."""
    bulk.call("Item", "i5", "create", price="1")
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS))
    reports: list[EpochReport] = []
    bulk.inline.driver.on_epoch.append(reports.append)
    bulk.advance()
    error, reply = bulk.answer()
    assert error == "request"
    assert b"1 of the entities exist in Item: i5; nothing is imported" in reply
    assert list(bulk.state()) == ["Item/i5"]
    # Who has ordered it has the answer: no request of the background waits for an operator.
    assert [report.failed for report in reports] == [0, 0]
    with closing(View(bulk.data, bulk.app, bulk.inline.journal, ViewConfig(memory_mb=256))) as view:
        view.start()
        assert view.await_epoch(bulk.inline.driver.epoch, 60.0)
        assert view.ask(Query(FAILED)).table.num_rows == 0


def test_an_id_takes_effect_once(bulk: Bulk, tmp_path: Path) -> None:
    """The same order again changes nothing, and another order with its id is refused."""
    source = lines(tmp_path / "items.jsonl", *ROWS)
    bulk.order(source, id="x", existing="replace")
    bulk.advance()
    bulk.call("Item", "i3", "add", amount=7)
    bulk.order(source, id="x", existing="replace")
    bulk.advance()
    item = bulk.app.entities["Item"].decode("i3", bulk.state()[EntityKey("Item/i3")])
    assert item["stock"] == 10
    with pytest.raises(RequestConflict):
        bulk.order(lines(tmp_path / "other.jsonl", *ROWS[:2]), id="x")


def test_rows_that_do_not_fit_are_listed_before_anything_is_written(
    bulk: Bulk, tmp_path: Path
) -> None:
    """The report has row, column, value and reason; the log gets no record."""
    bad: list[dict[str, Any]] = [
        ROWS[0],
        {**ROWS[1], "stock": -1},
        {**ROWS[2], "price": "cheap"},
        {**ROWS[3], "colour": "red"},
        {"item_id": "i4"},
        {**ROWS[5], "tags": "a"},
        {**ROWS[6], "maker": "x"},
    ]
    report = bulk.order(lines(tmp_path / "items.jsonl", *bad))
    assert (report.outcome, report.rows, report.unfit) == ("refused", 7, 6)
    assert [(each.row, each.column) for each in report.misfits] == [
        (2, "stock"),
        (3, "price"),
        (4, "colour"),
        (5, "price"),
        (6, "tags"),
        (7, "maker"),
    ]
    assert report.misfits[0].value == "-1"
    assert report.misfits[3].reason == "it is missing, and has no default"
    assert bulk.inline.log.end() == 0


def test_a_key_that_stands_twice_is_listed(bulk: Bulk, tmp_path: Path) -> None:
    """The second row is named, also where other rows are between them, and in a trial."""
    source = lines(tmp_path / "items.jsonl", *ROWS, ROWS[4])
    for dry_run in (False, True):
        report = bulk.order(source, dry_run=dry_run)
        assert [(each.row, each.column) for each in report.misfits] == [(21, "item_id")]
    assert bulk.inline.log.end() == 0


def test_a_trial_writes_nothing(bulk: Bulk, tmp_path: Path) -> None:
    """It says what the order would do now."""
    bulk.call("Item", "i5", "create", price="1")
    bulk.advance()
    source = lines(tmp_path / "items.jsonl", *ROWS)
    report = bulk.order(source, dry_run=True, existing="replace")
    assert (report.outcome, report.created, report.replaced) == ("fits", 19, 1)
    with pytest.raises(RequestError, match="1 of the entities exist"):
        bulk.order(source, dry_run=True)
    assert (bulk.inline.log.end(), StagedRows(bulk.data).names()) == (1, [])


def test_the_init_of_a_class_runs_for_each_row(bulk: Bulk, tmp_path: Path) -> None:
    """Columns are its arguments; what it refuses is a row that does not fit."""
    source = tmp_path / "boxes.csv"
    source.write_text("box_id,width,height\na,2,3\nb,4,\n")
    report = bulk.order(source, "Box")
    assert report.misfits[0].column == "height"
    source.write_text("box_id,width\na,2\nb,-4\n")
    report = bulk.order(source, "Box")
    assert [(each.row, each.reason) for each in report.misfits] == [
        (2, "ValueError: a box has no negative width")
    ]
    source.write_text("box_id,width,height\na,2,3\n")
    bulk.order(source, "Box")
    bulk.advance()
    box = bulk.app.entities["Box"].decode("a", bulk.state()[EntityKey("Box/a")])
    assert box["volume"] == 6


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        ("Person", "personal class"),
        ("Strict", r"reference\(exists=True\)"),
        ("Itm", "did you mean Item"),
    ],
)
def test_a_class_that_takes_no_import_is_refused(
    bulk: Bulk, tmp_path: Path, entity: str, text: str
) -> None:
    """The message names the class and the reason."""
    with pytest.raises(RequestError, match=text):
        bulk.order(lines(tmp_path / "x.jsonl", ROWS[0]), entity)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.csv", b"item_id,prise\na,1\n", "there is no attribute of Item 'prise'; did you mean"),
        ("a.csv", b"item_id;price\na;1\n", "'item_id;price' is a single column; .* commas between"),
        ("a.csv", b"item_id,stock\na,1\n", "no column 'price'"),
        ("a.csv", b"item_id,price,price\na,1,2\n", "several columns"),
        ("a.csv", b"item_id,price\na,1,2\n", "Expected 2 columns"),
        ("a.csv", b"item_id,price\n\xff,1\n", "save the file as text in UTF-8"),
        ("a.csv", b"", "has no header"),
        ("a.jsonl", b"", "no rows"),
        ("a.parquet", b"item", "Parquet"),
        ("a.txt", b"", "name the format"),
        ("none.csv", None, "does not exist"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(
    bulk: Bulk, tmp_path: Path, name: str, content: bytes | None, text: str
) -> None:
    """The message says what is wrong with it, and the log gets no record."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=text):
        bulk.order(tmp_path / name)
    assert bulk.inline.log.end() == 0


def test_parquet_has_values_of_its_own_types(bulk: Bulk, tmp_path: Path) -> None:
    """Decimals, lists and dates of Arrow are taken as they are, and a wrong type is no text of it."""
    table = pa.table(
        {
            "item_id": ["a"],
            "price": pa.array([Decimal(1)], pa.decimal128(20, 2)),
            "tags": [["x"]],
            "since": pa.array([0], pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    bulk.order(tmp_path / "a.parquet")
    bulk.advance()
    item = bulk.app.entities["Item"].decode("a", bulk.state()[EntityKey("Item/a")])
    assert (str(item["price"]), item["tags"], str(item["since"])) == ("1.00", ["x"], "1970-01-01")
    pq.write_table(table.set_column(2, "tags", [[1.5]]), tmp_path / "b.parquet")
    assert bulk.order(tmp_path / "b.parquet").misfits[0].column == "tags"


def test_a_full_disk_leaves_no_record(
    bulk: Bulk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order fails with the reason, and can be given again."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    source = lines(tmp_path / "items.jsonl", *ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(LocalRoot, "replace", full)
        with pytest.raises(JournalUnavailable, match="No space"):
            bulk.order(source)
    assert bulk.inline.log.end() == 0
    bulk.order(source)
    bulk.advance()
    assert len(bulk.state()) == 20


def test_lost_rows_refuse_the_import(bulk: Bulk, tmp_path: Path) -> None:
    """The driver goes on, and answers the order with what is missing."""
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS))
    staged = StagedRows(bulk.data)
    staged.remove(staged.names())
    bulk.call("Item", "a", "create", price="1")
    bulk.advance()
    first, second = answers_of(bulk.inline.journal)
    assert (first.error, second.error) == ("request", None)
    assert b"is missing" in first.data
    assert list(bulk.state()) == ["Item/a"]


@pytest.mark.parametrize("step", ["between-parts", "control-prepared", "after-commit"])
def test_a_driver_that_dies_in_an_import_does_it_whole(
    bulk: Bulk, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next driver takes the same rows, and none twice; stores and journal agree."""
    monkeypatch.setattr(import_order, "_PIECE_ROWS", 5)
    monkeypatch.setattr("penstock.exchange.source.BATCH_ROWS", 5)
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS))
    bulk.inline.close()
    words = [str(bulk.data), SPEC, "2", "10", "1", f"{step}", "bulk"]
    child = subprocess.run([sys.executable, "-c", PROGRAM, *words], check=False, cwd=TOP)
    assert child.returncode in (-signal.SIGKILL, os.EX_SOFTWARE)
    bulk.inline = bulk.open()
    bulk.advance()
    assert len(bulk.state()) == 20
    assert [each.error for each in answers_of(bulk.inline.journal)] == [None]


def test_an_export_of_an_earlier_epoch_has_its_entities(bulk: Bulk, tmp_path: Path) -> None:
    """A class is exported as it was, and the file is imported into another application with the same outcome."""
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS))
    bulk.advance()
    before = bulk.state()
    bulk.call("Item", "i3", "add", amount=7)
    bulk.call("Item", "i4", "delete")
    bulk.advance()
    target = tmp_path / "items.csv"
    with target.open("wb") as out:
        order = Export("Item", FileFormat.CSV, "0")
        made = export(bulk.data, order, lambda _: out, lambda _done, _most: None)
    assert (made.rows, made.epoch) == (20, 0)
    (tmp_path / "again").mkdir()
    again = Bulk(tmp_path / "again")
    again.order(target)
    again.advance()
    assert again.state() == before
    again.inline.close()


@pytest.mark.parametrize("commits", [False, True])
def test_an_import_during_a_backup_is_whole_in_it(
    bulk: Bulk, tmp_path: Path, *, commits: bool
) -> None:
    """Ordered when the files of the backup are listed, its rows are there, whether its epoch was committed meanwhile or not."""
    bulk.call("Item", "before", "create", price="1", stock=1)
    bulk.advance()
    source = lines(tmp_path / "items.jsonl", *ROWS)
    ordered: list[ImportReport] = []

    def reached(step: str) -> None:
        if step == "backup-file-copied" and not ordered:
            ordered.append(bulk.order(source, id="meanwhile"))
            if commits:
                bulk.advance()

    Backups(tmp_path / "backups").make(bulk.data, "bulk", reached)
    assert ordered
    copy = tmp_path / "copy"
    restore(tmp_path / "backups", copy, None)
    driver = Inline(copy, 2, SPEC, "bulk", small_epoch=3)
    driver.advance(int(driver.log.end()))
    assert len(state_of(driver.journal)) == 1 + len(ROWS)
    driver.close()


def named_updates(bulk: Bulk) -> list[dict[str, Any]]:
    """Return rows of JSON lines that change some attributes each: of entities that exist, and of new ones."""
    return [
        {"item_id": "i1", "stock": 70},
        {"item_id": "i2", "tags": ["new"], "maker": None},
        {"item_id": "i3", "price": "3.50"},  # as it is
        {"item_id": "i4"},
        {"item_id": "new", "price": "9.00", "since": "2026-01-02"},
    ]


def test_an_update_is_what_requests_would_change(bulk: Bulk, tmp_path: Path) -> None:
    """Attributes without a value stay; the state is that of `update_or_create` for each row, byte for byte, in one thread and in a replay."""
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS))
    updates = named_updates(bulk)
    bulk.order(lines(tmp_path / "updates.jsonl", *updates), existing="update")
    staged = StagedRows(bulk.data)
    rows = {
        name: (staged.rows(name)["key"].to_pylist(), staged.rows(name)["state"].to_pylist())
        for name in staged.names()
    }
    records = bulk.inline.log.read(Lsn(0), bulk.inline.log.end())
    bulk.advance()
    called = LocalRuntime(bulk.app, secret=bulk.inline.journal.secret)
    maker = bulk.app.entities["Maker"]
    for row in ROWS:
        named = {**row, "maker": maker.of_text(str(row["maker"]))}
        called.submit(Call("Item", named.pop("item_id"), "create", (), named))
    for row in updates:
        named = dict(row)
        called.submit(Call("Item", named.pop("item_id"), "update_or_create", (), named))
    serial = LocalRuntime(bulk.app, secret=bulk.inline.journal.secret)
    replies = serial.replay(records, staged=rows)
    assert bulk.state() == called.state == serial.state
    answers = answers_of(bulk.inline.journal)
    assert [(each.error, each.data) for each in replies] == [
        (each.error, each.data) for each in answers
    ]
    made = msgspec.msgpack.decode(answers[-1].data)
    assert (made["created"], made["replaced"], made["unchanged"]) == (1, 2, 2)
    with (
        HistoryReader(bulk.data, bulk.app) as past,
        CodeVersions(past, bulk.app, SPEC, present_only=True) as versions,
    ):
        replayed = replay(past, versions, Limits(), past.span(None, None), lambda *_: None)
    assert replayed.divergence is None


def test_the_columns_of_a_file_are_its_update(bulk: Bulk, tmp_path: Path) -> None:
    """A file of CSV needs no column but the key; an empty cell is None where the attribute may be None."""
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS[:2]))
    source = tmp_path / "makers.csv"
    source.write_text("item_id,maker\ni0,7\ni1,\n")
    bulk.order(source, existing="update")
    bulk.advance()
    item = bulk.app.entities["Item"]
    first, second = (
        item.plain(name, bulk.state()[EntityKey(f"Item/{name}")]) for name in ("i0", "i1")
    )
    assert (first["maker"], first["price"], first["tags"]) == ("7", "0.50", ["a", "0"])
    assert (second["maker"], second["stock"]) == (None, 1)
    source.write_text("maker\n7\n")
    with pytest.raises(RequestError, match="no column 'item_id', which is the key"):
        bulk.order(source, existing="update")
    source.write_text("item_id,stock\ni0,-1\n")
    refused = bulk.order(source, existing="update")
    assert [(each.row, each.column) for each in refused.misfits] == [(1, "stock")]


def test_a_row_that_makes_no_entity_refuses_the_update(bulk: Bulk, tmp_path: Path) -> None:
    """The message names rows, entities, the lacking columns and the remedy, in a trial, too; nothing changes."""
    bulk.order(lines(tmp_path / "items.jsonl", *ROWS[:3]))
    bulk.advance()
    before = bulk.state()
    updates = [{"item_id": f"i{number}", "stock": 1} for number in range(5)]
    source = lines(tmp_path / "updates.jsonl", *updates)
    bulk.order(source, existing="update")
    bulk.advance()
    error, reply = bulk.answer()
    text = (
        "2 of the rows cannot update Item: row 4: Item 'i3' does not exist, and a new one needs price; row 5: Item 'i4' does not "
        "exist, and a new one needs price; nothing is imported. Give the columns that a new entity needs, or leave the rows out"
    )
    assert (error, text.encode() in reply, bulk.state() == before) == ("request", True, True)
    with pytest.raises(RequestError, match="row 5: Item 'i4' does not exist"):
        bulk.order(source, existing="update", dry_run=True)
    trial = bulk.order(lines(tmp_path / "fit.jsonl", *updates[:3]), existing="update", dry_run=True)
    assert (trial.outcome, trial.created, trial.replaced, trial.unchanged) == ("fits", 0, 2, 1)


def test_an_update_of_a_class_with_an_init_has_attributes(bulk: Bulk, tmp_path: Path) -> None:
    """A column is an attribute, and not an argument; `__init__` makes no entity without its argument."""
    source = tmp_path / "boxes.csv"
    source.write_text("box_id,width,height\na,2,3\n")
    bulk.order(source, "Box")
    source.write_text("box_id,volume\na,40\n")
    bulk.order(source, "Box", existing="update")
    bulk.advance()
    box = bulk.app.entities["Box"]
    assert box.decode("a", bulk.state()[EntityKey("Box/a")]) == {"box_id": "a", "volume": 40}
    source.write_text("box_id,volume\na,41\nb,1\n")
    bulk.order(source, "Box", existing="update")
    bulk.advance()
    assert b"row 2: Box 'b' does not exist, and a new one needs width" in bulk.answer()[1]
    source.write_text("box_id,width\na,2\n")
    with pytest.raises(RequestError, match="no attribute of Box 'width'"):
        bulk.order(source, "Box", existing="update")


def test_a_class_with_an_init_and_indexes_is_imported(bulk: Bulk, tmp_path: Path) -> None:
    """The driver makes the rows of indexes, as one thread does; an `__init__` has no other entities, and no index."""
    source = tmp_path / "crates.csv"
    serial = LocalRuntime(bulk.app, secret=bulk.inline.journal.secret)

    def ordered(text: str, existing: Existing = "refuse") -> None:
        source.write_text(f"crate_id,place,code\n{text}")
        bulk.order(source, "Crate", existing=existing)
        bulk.advance()
        assert bulk.answer()[0] is None

    ordered("a,north,1\nb,south,2\n")
    ordered("b,north,3\nc,north,2\n", existing="update")
    for key, place, code in (("a", "north", 1), ("b", "south", 2)):
        serial.submit(Call("Crate", None, "create", (key, place, code)))
    serial.submit(Call("Crate", None, "update_or_create", ("b",), {"place": "north", "code": 3}))
    serial.submit(Call("Crate", None, "update_or_create", ("c",), {"place": "north", "code": 2}))
    assert bulk.state() == serial.state
    source.write_text("crate_id,place,code\nd,north,2\n")
    bulk.order(source, "Crate")
    bulk.advance()
    assert b"Crate 'c' has it, and code is unique; nothing is imported" in bulk.answer()[1]
    source.write_text("crate_id,place,code\nd,crowded,7\ne,unknown,8\n")
    refused = bulk.order(source, "Crate")
    assert [each.reason.partition(",")[0] for each in refused.misfits] == [
        "its __init__ uses Crate.by_place",
        "its __init__ uses Maker/1",
    ]
