"""SQL over a history of schemas: the newest columns for the present state, and those of its time for a past epoch."""

import enum
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock import App, entity, key, migrate, was
from penstock.base.ids import EntityKey, Epoch
from penstock.engine.replay import attributes_of
from penstock.files.layout import SNAPSHOTS
from penstock.journal.delta import DeltaJournal
from penstock.process.config import ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.snapshots.state_as_of import all_states_as_of, state_as_of
from penstock.sql_view.query import Query, QueryResult
from penstock.sql_view.view import View
from penstock.sql_view.view_store import ViewStore
from tests.unit.sql_view.gallery_app import Written

SETTINGS = ViewConfig(memory_mb=128, time_ms=60_000, rows_max=1_000)


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


def app_of(attributes: dict[str, Any], *functions: Callable[..., Any], **defaults: Any) -> App:
    """Return an application of one class; the functions make its versions from 2 on."""
    declared = {"item_id": str, **attributes}
    values = {"__annotations__": declared, "item_id": key(), "__module__": __name__, **defaults}
    cls = entity(type("Item", (), values))
    marked = [migrate(cls, since=2 + index)(function) for index, function in enumerate(functions)]
    return App("shop", cls, *marked)


FIRST = app_of({"cost": int, "size": Size, "tags": list[str]})
SECOND = app_of({"size": Size, "price": int | None, "note": str}, price=was("cost"), note="(none)")


class Shop:
    """A data directory that applications write to, one after another."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def write(self, app: App, **items: dict[str, Any]) -> Epoch:
        """Deploy an application, and commit an epoch of its items."""
        kind = app.entities["Item"]
        with closing(self.journal(app)) as journal:
            journal.deploy()
            rows = [
                ("Item", name, kind.encode({"item_id": name, **values}))
                for name, values in items.items()
            ]
            return Written(journal).changes(*rows)

    def journal(self, app: App) -> DeltaJournal:
        """Open the journal."""
        return DataDirectory(self.data).open_journal(app)

    def snapshot(self, app: App, upto: int) -> None:
        """Write the snapshot of an epoch."""
        with closing(self.journal(app)) as journal:
            snapshots = self.snapshots(journal)
            manifest = write_next_snapshot(app, journal, snapshots, Epoch(upto))
            assert manifest is not None

    def snapshots(self, journal: DeltaJournal) -> Snapshots:
        """Return the snapshots."""
        return Snapshots(self.data / SNAPSHOTS, journal.identity)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a shop whose class was changed between epoch 0 and epoch 1."""
    shop = Shop(tmp_path)
    shop.write(
        FIRST,
        tea={"cost": 3, "size": Size.SMALL, "tags": ["hot"]},
        jam={"cost": 5, "size": Size.LARGE, "tags": []},
    )
    shop.write(SECOND, tea={"size": Size.LARGE, "price": 4, "note": "new"})
    return shop


@pytest.fixture
def view(shop: Shop) -> Iterator[View]:
    """Start a view of the second application."""
    with (
        closing(shop.journal(SECOND)) as journal,
        closing(View(shop.data, SECOND, journal, SETTINGS)) as view,
    ):
        view.start()
        yield view


def rows_of(result: QueryResult) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result.table.to_pylist()
    return rows


OLD = [
    {"item_id": "jam", "cost": 5, "size": "l", "tags": []},
    {"item_id": "tea", "cost": 3, "size": "s", "tags": ["hot"]},
]
NEW = [
    {"item_id": "jam", "size": "l", "price": 5, "note": "(none)"},
    {"item_id": "tea", "size": "l", "price": 4, "note": "new"},
]


def test_each_epoch_has_the_columns_of_its_time(view: View) -> None:
    """The newest state has the new columns; rows of before are upcast, and AS OF shows the old columns."""
    newest = "SELECT * FROM Item ORDER BY item_id"
    assert rows_of(view.ask(Query(newest))) == NEW
    assert rows_of(view.ask(Query(f"{newest} AS OF EPOCH 1"))) == NEW
    assert rows_of(view.ask(Query(f"{newest} AS OF EPOCH 0"))) == OLD
    described = view.ask(Query("DESCRIBE Item AS OF EPOCH 0")).table
    assert described["column_name"].to_pylist() == ["item_id", "cost", "size", "tags"]
    assert described["column_type"].to_pylist() == ["VARCHAR", "BIGINT", "VARCHAR", "VARCHAR[]"]
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'Item'"
    listed = view.ask(Query(f"{columns} ORDER BY ordinal_position AS OF EPOCH 0")).table
    assert listed["column_name"].to_pylist() == ["item_id", "cost", "size", "tags"]


def test_one_query_joins_epochs_with_different_columns(view: View) -> None:
    """Each table with its own clause has the columns of its own epoch."""
    query = (
        "SELECT old.cost, new.price FROM (SELECT * FROM Item AS OF EPOCH 0) AS old "
        "JOIN (SELECT * FROM Item AS OF EPOCH 1) AS new USING (item_id) ORDER BY item_id"
    )
    assert rows_of(view.ask(Query(query))) == [
        {"cost": 5, "price": 5},
        {"cost": 3, "price": 4},
    ]


def test_change_feed_has_the_columns_of_its_last_epoch(view: View) -> None:
    """Both sides of a change have the same columns, also if the earlier side was stored with others."""
    feed = "SELECT key, kind, before, after FROM changes('Item', {}, {}) ORDER BY epoch, key"
    [change] = rows_of(view.ask(Query(feed.format(1, 1))))
    before = {"item_id": "tea", "size": "s", "price": 3, "note": "(none)"}
    assert change == {"key": "tea", "kind": "update", "before": before, "after": NEW[1]}
    assert [row["after"] for row in rows_of(view.ask(Query(feed.format(0, 0))))] == OLD
    assert rows_of(view.ask(Query(feed.format(0, 1))))[0]["after"] == NEW[0]


@pytest.mark.parametrize("epochs", [[0], [1], [0, 1]])
def test_snapshots_change_no_answer(shop: Shop, epochs: list[int]) -> None:
    """A snapshot has the columns of its epoch; the state after an epoch is the same with and without it."""
    apps = [FIRST, SECOND]
    for epoch in epochs:
        shop.snapshot(SECOND, epoch)
    with closing(shop.journal(SECOND)) as journal:
        for epoch in range(2):
            alone = state_as_of(SECOND, journal, "Item", Epoch(epoch))
            found = state_as_of(SECOND, journal, "Item", Epoch(epoch), shop.snapshots(journal))
            assert found.rows.equals(alone.rows)
            assert alone.rows.column_names[1:] == list(apps[epoch].entities["Item"].attributes)


def test_view_from_an_older_snapshot_has_the_present_columns(shop: Shop, tmp_path: Path) -> None:
    """Rows of a snapshot from before a change of the class are shown as those of the journal."""
    shop.snapshot(SECOND, 0)
    with (
        closing(shop.journal(SECOND)) as journal,
        closing(ViewStore(tmp_path, SECOND, journal.identity, SETTINGS)) as store,
    ):
        snapshots = shop.snapshots(journal)
        store.fill(snapshots, snapshots.open(Epoch(0)))
        shown = store.sealed().execute("FROM Item ORDER BY item_id").fetchall()
    assert shown == [("jam", "l", 5, "(none)"), ("tea", "s", 3, "(none)")]


def test_delta_table_of_a_class_gets_the_new_columns(shop: Shop) -> None:
    """Other readers see the columns of each version; the versions of before can still be read."""
    for epoch in range(2):
        shop.snapshot(SECOND, epoch)
    path = str(shop.data / SNAPSHOTS / "Item")
    own = ("key", "bucket", "epoch", "state")
    for version, rows in enumerate([OLD, NEW]):
        table: pa.Table = DeltaTable(path, version=version).to_pyarrow_table()
        assert [name for name in table.column_names if name not in own] == list(rows[0])
        assert table.drop_columns(list(own)).sort_by("item_id").to_pylist() == rows
    assert DeltaTable(path).version() == 1


def test_attribute_that_came_back_has_its_new_default(tmp_path: Path) -> None:
    """The columns of a snapshot are equal to the present columns, and its values are not those of the class."""
    shop = Shop(tmp_path)
    third = app_of({"cost": int, "stock": int}, stock=7)
    shop.write(app_of({"cost": int, "stock": int}), tea={"cost": 3, "stock": 2})
    shop.snapshot(app_of({"cost": int, "stock": int}), 0)
    shop.write(app_of({"cost": int}), jam={"cost": 4})
    shop.write(third, nut={"cost": 5, "stock": 1})
    with closing(shop.journal(third)) as journal:
        found = state_as_of(third, journal, "Item", Epoch(2), shop.snapshots(journal))
        assert found.rows.equals(state_as_of(third, journal, "Item", Epoch(2)).rows)


@dataclass(frozen=True)
class Depot:
    city: str


class Box(NamedTuple):
    width: int


def later_records() -> tuple[type, type]:
    """Return the two records with a field more."""

    @dataclass(frozen=True)
    class Depot:
        city: str
        size: Size = Size.SMALL
        codes: tuple[int, ...] = (1, 2)

    class Box(NamedTuple):
        width: int
        height: float = 0.5

    return Depot, Box


def test_record_that_got_a_field_is_shown_in_each_epoch(tmp_path: Path) -> None:
    """An epoch between two versions shows the default that the field had then; so does a snapshot of that epoch."""
    shop = Shop(tmp_path)
    shop.write(
        app_of({"at": list[Depot], "box": Box}),
        tea={"at": [Depot("Delft")], "box": Box(2)},
    )
    wide_depot, wide_box = later_records()
    second = app_of({"at": list[wide_depot], "box": wide_box, "note": str}, note="-")  # type: ignore[valid-type]
    shop.write(second, jam={"at": [wide_depot("Gouda")], "box": wide_box(3), "note": "new"})
    third = app_of({"note": str})
    shop.write(third, oil={"note": "newer"})
    old = {"at": [{"city": "Delft"}], "box": {"width": 2}, "item_id": "tea"}
    depot = {"city": "Delft", "size": "s", "codes": [1, 2]}
    between = {"at": [depot], "box": {"width": 2, "height": 0.5}, "note": "-", "item_id": "tea"}
    for has_snapshot in (False, True):
        if has_snapshot:
            shop.snapshot(third, 1)
        with (
            closing(shop.journal(third)) as journal,
            closing(View(tmp_path, third, journal, SETTINGS)) as view,
        ):
            view.start()
            for epoch, expected in enumerate([old, between, {"item_id": "tea", "note": "-"}]):
                asked = f"FROM Item WHERE item_id = 'tea' AS OF EPOCH {epoch}"
                assert rows_of(view.ask(Query(asked))) == [expected]


def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    if old["cost"] == 6:
        raise SystemExit
    return {"cents": old["cost"] * 100 // (old["cost"] != 5)}


def journal_row(journal: DeltaJournal, name: str) -> bytes:
    """Return the stored row of an item."""
    states = all_states_as_of(journal, Epoch(0)).to_pylist()
    return next(bytes(row["state"]) for row in states if row["key"] == name)


def test_failing_migration_is_a_row_without_values(tmp_path: Path) -> None:
    """The function of one row raises: its attributes are NULL with the reason, and the other rows are shown."""
    shop = Shop(tmp_path)
    shop.write(app_of({"cost": int}), tea={"cost": 3}, jam={"cost": 5}, oil={"cost": 6})
    app = app_of({"cents": int}, in_cents)
    shop.write(app, nut={"cents": 7})
    query = "SELECT item_id, cents, _unshown FROM Item ORDER BY item_id"
    with (
        closing(shop.journal(app)) as journal,
        closing(View(tmp_path, app, journal, SETTINGS)) as view,
    ):
        view.start()
        for asked in (query, f"{query} AS OF EPOCH 1"):
            jam, nut, oil, tea = rows_of(view.ask(Query(asked)))
            assert (jam["cents"], nut["cents"], tea["cents"]) == (None, 7, 300)
            assert "@migrate" in jam["_unshown"]
            assert "ZeroDivisionError" in jam["_unshown"]
            assert "SystemExit" in oil["_unshown"]
            assert (nut["_unshown"], tea["_unshown"]) == (None, None)
        jam_row = journal_row(journal, "jam")
        assert attributes_of(app, EntityKey("Item/jam"), jam_row) == {"cost": 5}, "its own"
        old = view.ask(Query("SELECT item_id, cost FROM Item ORDER BY item_id AS OF EPOCH 0"))
        assert rows_of(old) == [
            {"item_id": "jam", "cost": 5},
            {"item_id": "oil", "cost": 6},
            {"item_id": "tea", "cost": 3},
        ]


def test_view_of_the_former_class_is_rebuilt(shop: Shop) -> None:
    """A view whose file was built before the change shows the new columns when it is opened again."""
    first = Shop(shop.data.parent / "other")
    first.write(FIRST, tea={"cost": 3, "size": Size.SMALL, "tags": []})
    for app, expected in ((FIRST, ["cost", "size", "tags"]), (SECOND, ["size", "price", "note"])):
        with (
            closing(first.journal(app)) as journal,
            closing(View(first.data, app, journal, SETTINGS)) as view,
        ):
            view.start()
            result = view.ask(Query("SELECT * EXCLUDE (item_id) FROM Item"))
            assert result.table.column_names == expected
            assert result.table.num_rows == 1
