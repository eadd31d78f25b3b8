"""The rows of an import that updates, against stored rows of former classes, limits and strange values."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from penstock.base.ids import EntityKey
from penstock.deployment.isolated_upcasts import IsolatedUpcasts
from penstock.engine.imported import ImportedRows, RowUpdate, encode_update, imported
from penstock.errors import Unencodable
from penstock.model.entity_type import EntityType
from penstock.model.versions.former_class import presenting_with
from penstock.model.versions.schema_change import change_of
from tests.schema_classes import history, item

STATE_BYTES = 200


def updated(present: EntityType, stored: bytes, **values: Any) -> ImportedRows:
    """Return the effect of one row, the third of its source, on an entity `i1` that has a stored row."""
    changes = {index: msgspec.Raw(value) for index, value in present.encode_some(values).items()}
    rows = ["i1"], [encode_update(RowUpdate(3, changes, None, "a new one needs price"))]
    held = {EntityKey(f"{present.prefix}i1"): stored}
    return imported(present, rows, held.get, "update", STATE_BYTES)


def learned(former: EntityType, present: EntityType) -> EntityType:
    """Let a class read the rows of its former version."""
    change = change_of(history(former), present, 7)
    assert change is not None
    present.learn((*history(former), change.version))
    return present


def double(values: dict[str, Any]) -> dict[str, Any]:
    return {"price": 100 * values["price"], "colour": "blue"}


def fail(values: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(values)


def end_process(values: dict[str, Any]) -> dict[str, Any]:
    raise SystemExit(3)


def test_a_row_of_a_former_class_is_updated_as_it_is_read() -> None:
    """The other attributes have the values that a handler would read: defaults, and those of `@migrate`."""
    former = item({"price": int})
    stored = former.encode({"item_id": "i1", "price": 2})
    present = learned(former, item({"price": int, "colour": str}, colour="blue"))
    made = updated(present, stored, price=5)
    assert present.plain("i1", made.states[0]) == {"price": 5, "colour": "blue"}
    assert updated(present, stored, colour="blue") == ImportedRows([], [], unchanged=1)
    migrated = learned(former, item({"price": int, "colour": str}, double, colour="blue"))
    made = updated(migrated, stored, colour="red")
    assert migrated.plain("i1", made.states[0]) == {"price": 200, "colour": "red"}


@pytest.mark.parametrize("function", [fail, end_process])
def test_a_row_that_cannot_be_read_is_refused(function: Any) -> None:
    """A function of `@migrate` that fails, or that ends its process, refuses the row with its number."""
    former = item({"price": int})
    stored = former.encode({"item_id": "i1", "price": 2})
    present = learned(former, item({"price": int, "colour": str}, function, colour="blue"))
    with presenting_with(IsolatedUpcasts(call_s=5.0)):
        made = updated(present, stored, colour="red")
    assert (made.refused, made.texts) == (1, [])
    assert made.named[0].startswith("row 3: Item 'i1' cannot be read: Item: @migrate")


def test_a_state_has_its_limit() -> None:
    """Attributes that fit alone may be too large together with the others."""
    present = item({"note": str, "more": str})
    stored = present.encode({"item_id": "i1", "note": "a" * 150, "more": ""})
    assert updated(present, stored, more="b" * 20).refused == 0
    made = updated(present, stored, more="b" * 90)
    assert made.refused == 1
    assert "row 3: Item 'i1' would take 250 bytes, more than limits" in made.named[0]


def test_values_alone_have_the_bytes_of_a_whole_row() -> None:
    """Equal values have one encoding, and a value that does not fit is refused with its attribute."""
    present = item({"amount": float, "price": Decimal, "marks": dict[tuple[int, str], set[bytes]]})
    values = {"amount": 1, "price": Decimal("1.50"), "marks": {(1, "a"): {b"\xff", b"x"}}}
    whole = present.encode_change({"item_id": "i1", **values}, None)
    assert whole is not None
    empty = present.encode({"item_id": "i1", "amount": 0.0, "price": Decimal(0), "marks": {}})
    assert present.replaced(empty, present.encode_some(values)) == whole
    wrongs: list[dict[str, Any]] = [
        {"amount": "x"},
        {"price": 1.5},
        {"marks": {1: set()}},
        {"size": 1},
    ]
    for wrong in wrongs:
        with pytest.raises(Unencodable, match=rf"Item.*{next(iter(wrong))}"):
            present.encode_some(wrong)
