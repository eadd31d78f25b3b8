"""Functions with `@migrate` that never return, or end their process: tables and snapshots show all other rows."""

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch
from penstock.files.layout import SNAPSHOTS
from penstock.model.presenting import presenting_with
from penstock.process.isolated_upcasts import IsolatedUpcasts
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import state_as_of
from penstock.sql.query import Query
from penstock.sql.view import View
from tests.unit.sql.test_schema_versions import SETTINGS, Shop, app_of, rows_of

QUERY = "SELECT item_id, cents, _unshown FROM Item ORDER BY item_id"


def hostile(old: dict[str, Any]) -> dict[str, Any]:
    """Migrate, unless the cost says otherwise."""
    while old["cost"] == 5:
        pass
    if old["cost"] == 6:
        os._exit(3)
    if old["cost"] == 7:
        raise KeyboardInterrupt
    return {"cents": old["cost"] * 100}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return a shop with rows that the function cannot convert."""
    shop = Shop(tmp_path)
    costs = {"ale": 1, "bun": 5, "cup": 6, "dye": 7, "egg": 2}
    shop.write(app_of({"cost": int}), **{name: {"cost": cost} for name, cost in costs.items()})
    shop.write(app_of({"cents": int}, hostile), fig={"cents": 7})
    return shop


def test_rows_beside_the_hostile_ones_are_shown(shop: Shop) -> None:
    """The reason of each row names the class, the function and what it did; snapshots are taken, too."""
    app = app_of({"cents": int}, hostile)
    with (
        presenting_with(IsolatedUpcasts(call_s=0.5, patience=4)),
        closing(shop.journal(app)) as journal,
        closing(View(shop.data, app, journal, SETTINGS)) as view,
    ):
        view.start()
        for asked in (QUERY, f"{QUERY} AS OF EPOCH 1"):
            rows = rows_of(view.ask(Query(asked)))
            assert [row["cents"] for row in rows] == [100, None, None, None, 200, 7]
            reasons = [row["_unshown"] or "" for row in rows[1:4]]
            assert all("Item: @migrate(…, since=2)" in reason for reason in reasons)
            assert "did not return within 0.5 s" in reasons[0]
            assert "ended its process with exit code 3" in reasons[1]
            assert "ended its process" in reasons[2]
        shop.snapshot(app, 1)
        snapshots = Snapshots(shop.data / SNAPSHOTS, journal.identity)
        found = state_as_of(app, journal, "Item", Epoch(1), snapshots)
        assert found.rows["cents"].to_pylist() == [100, None, None, None, 200, 7]


def test_a_function_that_fails_again_and_again_is_given_up(tmp_path: Path) -> None:
    """The remaining rows have the reason at once, because each would cost the time limit."""
    shop = Shop(tmp_path)
    items = {f"i{number:02}": {"cost": 5} for number in range(40)}
    shop.write(app_of({"cost": int}), **items)
    app = app_of({"cents": int}, hostile)
    shop.write(app, fig={"cents": 7})
    with (
        presenting_with(IsolatedUpcasts(call_s=0.2, patience=2)),
        closing(shop.journal(app)) as journal,
        closing(View(tmp_path, app, journal, SETTINGS)) as view,
    ):
        view.start()
        fig, *others = rows_of(view.ask(Query(QUERY)))
        assert fig["cents"] == 7
        assert len(others) == 40
        given_up = [row for row in others if "given up after 2 rows" in row["_unshown"]]
        assert len(given_up) == 38
