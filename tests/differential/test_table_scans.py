"""Tables that are published over entities that exist, through the driver of epochs: a scan makes their rows in bounded pieces."""

from pathlib import Path

import msgspec
import pytest

from penstock import Put
from penstock.base.ids import Epoch, RequestId, entity_key
from penstock.deployment.loading import load_app
from penstock.engine.limits import Limits
from penstock.history.code_versions import CodeVersions
from penstock.history.reader import HistoryReader
from penstock.history.replay import replay
from penstock.history.trace import entity_history
from penstock.journal.staged import StagedRows
from penstock.log.api import Entry
from penstock.model.application import App
from penstock.model.call import Call, encoded
from penstock.model.control import Import, encode_control
from penstock.model.table_scan import decode_scan, is_scan
from penstock.runtime.local.runtime import LocalRuntime
from penstock.runtime.spark.quarantine import PART_OF, STEPS_OF
from tests.differential.committed import state_of, streams_of
from tests.differential.inline import Inline
from tests.streams.table_app import OpenOrder

SPEC = "tests.streams.table_app:"
ORDERS = 11
Rows = dict[tuple[str, int], OpenOrder]


class Drive:
    """A data directory under drivers that follow each other, each with a version of the application."""

    def __init__(self, data: Path, version: str, since: int = 0, small_epoch: int = 3) -> None:
        self.data = data
        self.app = load_app(SPEC + version)
        self.spec = SPEC + version
        self._number = 0
        self.inline = self._open(since, small_epoch)

    def _open(self, since: int, small_epoch: int) -> Inline:
        runtime = Inline(
            self.data,
            2,
            self.spec,
            self.app.name,
            since=since,
            small_epoch=small_epoch,
            epoch_records_max=4,
        )
        runtime.driver.recover(self.app).result()
        runtime.driver.append_later()
        return runtime

    def use(self, version: str, since: int) -> None:
        """Go on with another version, as a deployment does."""
        self.inline.close()
        self.app, self.spec = load_app(SPEC + version), SPEC + version
        self.inline = self._open(since, 3)

    def call(self, key: str, method: str, **arguments: object) -> None:
        self._number += 1
        body, _ = encoded(self.app, Call("Order", key, method, (), arguments))
        entry = Entry(RequestId(f"{method}-{self._number}"), body, b"", self._number)
        self.inline.log.append([entry])

    def finish(self) -> None:
        """Process the log until no record is left."""
        reached = None
        while reached != (reached := int(self.inline.log.end())):
            self.inline.advance(reached)

    def pieces(self) -> list[int]:
        """Return the number of keys of each piece in the log."""
        records = self.inline.log.read(0, self.inline.log.end())  # type: ignore[arg-type]
        return [len(decode_scan(each.body).keys) for each in records if is_scan(each.body)]

    def folded(self) -> Rows:
        """Add up the changes of the table."""
        rows: Rows = {}
        stream = self.app.topology.streams["open_orders"]
        for atom in streams_of(self.inline.journal).get("open_orders", []):
            for data in atom:
                change = stream.events.decode(data)
                if isinstance(change, Put):
                    rows[change.key, change.place] = change.row
                else:
                    del rows[change.key, change.place]
        return rows

    def copied(self) -> Rows:
        """Return the copy of the desk."""
        task = self.app.topology.rows["copies.Copy"]
        rows: Rows = {}
        for key, row in state_of(self.inline.journal).items():
            name, _, text = key.partition("/")
            if name == "copies.Copy":
                kept = task.decode(text, row)["rows"]
                rows |= {(text, place): each for place, each in kept.items()}
        return rows


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drive:
    """Return an unpublished shop with orders, the third of them shipped."""
    monkeypatch.setattr("penstock.model.table_scan.PIECE_KEYS", 4)
    data = tmp_path / "data"
    data.mkdir()
    drive = Drive(data, "before")
    for number in range(ORDERS):
        drive.call(f"o{number:02}", "create", total=number)
    drive.call("o03", "ship")
    drive.finish()
    return drive


def open_rows(drive: Drive) -> Rows:
    """Return the rows of all orders that are open, from the state."""
    order = drive.app.entities["Order"]
    rows: Rows = {}
    for key, row in state_of(drive.inline.journal).items():
        if key.startswith("Order/"):
            values = order.decode(key[6:], row)
            if not values["shipped"]:
                rows[key[6:], 0] = OpenOrder(key[6:], values["total"])
    return rows


def test_a_table_begins_with_the_rows_that_are_there(drive: Drive) -> None:
    """A scan takes the orders in pieces, and a change in between is not lost; a restart begins nothing again."""
    drive.use("shop", 5)
    drive.call("o09", "add", more=100)
    drive.call("zz", "create", total=1)
    drive.call("o01", "ship")
    drive.finish()
    assert drive.folded() == open_rows(drive)
    assert drive.pieces() == [4, 4, 4]
    drive.use("shop", 5)
    drive.finish()
    assert drive.pieces() == [4, 4, 4]
    drive.inline.close()


@pytest.mark.parametrize("small_epoch", [0, 3])
def test_a_late_desk_takes_the_rows_and_then_the_changes(drive: Drive, small_epoch: int) -> None:
    """The other application begins with the rows of the table; a replay gives the same, and so does one thread."""
    drive.use("shop", 5)
    drive.finish()
    drive.inline.close()
    drive.inline = drive._open(5, small_epoch)
    drive.use("shop_and_desk", 9)
    first = drive.inline.driver.epoch + 1
    drive.call("o05", "ship")
    drive.call("new", "create", total=3)
    drive.finish()
    drive.call("o10", "add", more=1)
    drive.finish()
    assert drive.copied() == drive.folded() == open_rows(drive)
    check_one_thread(drive)
    drive.inline.close()
    app: App = drive.app
    with (
        HistoryReader(drive.data, app) as past,
        CodeVersions(past, app, drive.spec, present_only=True) as versions,
    ):
        replayed = replay(past, versions, Limits(), past.span(first, None), lambda *_: None)
    assert replayed.divergence is None


def check_one_thread(drive: Drive) -> None:
    """The records of the log in one thread give the same state, with the versions that they had."""
    records = drive.inline.log.read(0, drive.inline.log.end())  # type: ignore[arg-type]
    first = next(index for index, record in enumerate(records) if is_scan(record.body))
    serial = LocalRuntime(load_app(SPEC + "before"), secret=drive.inline.journal.secret)
    serial.replay(records[:first])
    serial._use(drive.app)
    serial.replay(records[first:])
    journal = state_of(drive.inline.journal)
    tables = {key: row for key, row in journal.items() if key.startswith("$table")}
    assert tables == {key: row for key, row in serial.state.items() if key.startswith("$table")}


def test_another_row_function_publishes_the_difference(drive: Drive) -> None:
    """After a deployment with another function, the stream has what differs; an order that fails has no rows, and is set aside."""
    drive.use("shop", 5)
    drive.call("o02", "add", more=-50)
    drive.finish()
    drive.use("changed_shop", 7)
    drive.finish()
    rows = drive.folded()
    assert rows == {
        (key, place): OpenOrder(key, (place + 1) * row.total)
        for (key, _), row in open_rows(drive).items()
        for place in (0, 1)
        if row.total >= 0
    }
    [[failed]] = streams_of(drive.inline.journal)["open_orders-failed"]
    decoded = drive.app.topology.streams["open_orders-failed"].events.decode(failed)
    assert (decoded.source, decoded.message) == ("Order", "ValueError: a negative total")
    puts = sum(map(len, streams_of(drive.inline.journal)["open_orders"]))
    drive.use("changed_shop", 8)  # the same code again: nothing differs
    drive.finish()
    assert sum(map(len, streams_of(drive.inline.journal)["open_orders"])) == puts
    drive.inline.close()


def test_a_table_that_comes_back_forgets_what_was_deleted_meanwhile(drive: Drive) -> None:
    """While no version published the table, an order was deleted, and another one made."""
    drive.use("shop", 5)
    drive.finish()
    drive.use("before", 6)
    drive.call("o00", "delete")
    drive.call("later", "create", total=5)
    drive.finish()
    drive.use("shop", 7)
    drive.finish()
    assert drive.folded() == open_rows(drive)
    drive.inline.close()


@pytest.mark.parametrize("lost", ["piece", "state"])
def test_a_crash_between_two_pieces_loses_nothing(drive: Drive, lost: str) -> None:
    """A driver that ends after the commit of a piece, or without its stores, goes on with the next piece."""
    drive.use("shop", 5)
    drive.inline.advance(int(drive.inline.log.end()))
    drive.inline.close()
    if lost == "state":
        for store in (drive.data / "state").rglob("*.mdb"):
            store.unlink()
    drive.inline = drive._open(5, 3)
    drive.finish()
    assert drive.folded() == open_rows(drive)
    drive.inline.close()


@pytest.mark.parametrize("step", [0, 1])
def test_an_entity_that_kills_the_worker_has_no_rows(drive: Drive, step: int) -> None:
    """After two deaths in the step of a table, or in the record of a piece, the entities are set aside; others have rows."""
    drive.use("shop", 5)
    if step:
        drive.finish()
        drive.call("o05", "add", more=1)
    last = drive.inline.driver.epoch
    scratch = max(drive.data.glob("scratch-*"), key=lambda folder: folder.stat().st_mtime_ns)
    noted = STEPS_OF + PART_OF if step else 0
    (scratch / f"e{last + 1}-r1-t0.deaths").write_text(f"{noted} {noted}")
    drive.finish()
    failed = drive.app.topology.streams["open_orders-failed"].events
    aside = [
        failed.decode(data)
        for atom in streams_of(drive.inline.journal)["open_orders-failed"]
        for data in atom
    ]
    keys = {msgspec.msgpack.decode(key) for each in aside for key in each.events}
    assert keys == ({"o05"} if step else {"o00", "o01", "o02", "o03"})
    expected = open_rows(drive)
    assert drive.folded() == {at: row for at, row in expected.items() if at[0] not in keys}
    drive.inline.close()


def test_an_import_brings_its_entities_to_a_published_table(drive: Drive) -> None:
    """A scan follows the epoch of the import, also if the driver ends before it has appended the first piece."""
    drive.use("shop", 5)
    drive.finish()
    order = drive.app.entities["Order"]
    values = [{"order_id": f"i{n}", "total": n, "shipped": n == 2} for n in range(6)]
    states = [order.encode(each) for each in values]
    piece = StagedRows(drive.data).stage([f"i{n}" for n in range(6)], states, "x")
    body = encode_control(Import("Order", order.shape.tag, (piece,), 6))
    drive.inline.log.append([Entry(RequestId("import~~x"), body, b"", 0, is_control=True)])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drive.inline.driver, "append_later", lambda *_: None)
        drive.inline.advance(int(drive.inline.log.end()))
    drive.use("shop", 5)
    drive.finish()
    assert drive.folded() == open_rows(drive)
    assert len(drive.folded()) == ORDERS - 1 + 5
    first = drive.inline.driver.epoch
    app: App = drive.app
    with (
        HistoryReader(drive.data, app) as past,
        CodeVersions(past, app, drive.spec, present_only=True) as versions,
    ):
        span = past.span(Epoch(first - 4), None)
        replayed = replay(past, versions, Limits(), span, lambda *_: None)
        name = entity_key("Order", "i1")
        told = entity_history(past, versions, name, past.span(None, None), 10, Limits())
    assert replayed.divergence is None
    [change] = told.changes
    assert (change.request_id, change.kind, told.erased) == ("import~~x", "create", 0)
    assert change.call == "an import of 6 rows into Order"
    drive.inline.close()
