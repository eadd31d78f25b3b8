"""Functions with `@migrate` that never return, or end their process: tables and snapshots show all other rows."""

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Epoch
from penstock.deployment.isolated_upcasts import IsolatedUpcasts
from penstock.files.layout import SNAPSHOTS
from penstock.model.entity_type import EntityType
from penstock.model.versions.former_class import presenting_with
from penstock.model.versions.schema_change import compare_classes, first_version_of
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.state_as_of import state_as_of
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from tests.unit.sql_view.test_schema_versions import SETTINGS, Shop, app_of, rows_of

QUERY = "SELECT item_id, cents, _unshown FROM Item ORDER BY item_id"


def hostile(old: dict[str, Any]) -> dict[str, Any]:
    """Migrate, unless the cost says otherwise."""
    while old["cost"] == 5:
        pass
    if old["cost"] == 6:
        os._exit(3)
    if old["cost"] == 7:
        raise KeyboardInterrupt
    if old["cost"] == 8:
        os.closerange(3, 65_536)
        while True:
            time.sleep(1)
    if old["cost"] == 9:
        _write_to_the_pipe()
    return {"cents": old["cost"] * 100}


BEFORE: set[int] = set()
"""The descriptors that a test had open before the upcasts."""


def _write_to_the_pipe() -> None:
    for descriptor in open_descriptors() - BEFORE:
        with suppress(OSError):
            os.write(descriptor, b"\x05\x00\x00\x00hello")
    os._exit(0)


def open_descriptors() -> set[int]:
    """Return the open descriptors of this process."""
    return {int(path.name) for path in Path("/proc/self/fd").iterdir()}


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
        presenting_with(IsolatedUpcasts(call_s=2, patience=4)),
        closing(shop.journal(app)) as journal,
        closing(View(shop.data, app, journal, SETTINGS)) as view,
    ):
        view.start()
        for asked in (QUERY, f"{QUERY} AS OF EPOCH 1"):
            rows = rows_of(view.ask(Query(asked)))
            assert [row["cents"] for row in rows] == [100, None, None, None, 200, 7]
            reasons = [row["_unshown"] or "" for row in rows[1:4]]
            assert all("Item: @migrate(…, since=2)" in reason for reason in reasons)
            assert "did not return within 2 s" in reasons[0]
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


@pytest.mark.parametrize(
    ("cost", "reason"), [(8, "did not return within"), (9, "ended its process with exit code 0")]
)
def test_a_function_that_spoils_the_pipe_fails_alone(cost: int, reason: str) -> None:
    """It closes the descriptors of its process and goes on, or writes to them."""
    declared, states = versions_of(hostile, [1, cost, 2])
    upcasts = IsolatedUpcasts(call_s=1.0)
    BEFORE.update(open_descriptors())
    rows = upcasts(declared, ["a", "b", "c"], states)
    assert [isinstance(row, bytes) for row in rows] == [True, False, True]
    assert reason in str(rows[1])


def test_the_function_of_a_later_deployment_begins_without_failures() -> None:
    """A function that was given up is mended under the same number, in a process that goes on."""
    upcasts = IsolatedUpcasts(call_s=0.2, patience=1)
    wrong, states = versions_of(hostile, [6, 6])
    assert not any(isinstance(row, bytes) for row in upcasts(wrong, ["a", "b"], states))
    mended, _ = versions_of(lambda old: {"cents": old["cost"]}, [])
    assert all(isinstance(row, bytes) for row in upcasts(mended, ["a", "b"], states))


def versions_of(function: Callable[..., Any], costs: list[int]) -> tuple[EntityType, list[bytes]]:
    """Return a class whose second version a function makes, and rows of its first version."""
    former = app_of({"cost": int}).entities["Item"]
    declared = app_of({"cents": int}, function).entities["Item"]
    stored = {"Item": (first_version_of(former, 0),)}
    assert not compare_classes(stored, {"Item": declared}, 1).refusals
    return declared, [former.encode({former.key_name: "a", "cost": cost}) for cost in costs]
