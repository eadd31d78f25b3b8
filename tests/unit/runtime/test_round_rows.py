"""The rows of a round: the same for few and for many changes, whose keys are split in another way."""

import pytest

from penstock.base.ids import EntityKey, Epoch, LogPartition, Lsn, RequestId
from penstock.engine.execute import Outcome
from penstock.journal.api import PartKind
from penstock.log.api import Record
from penstock.runtime.spark.rows import RoundRows, merge, roots_of


@pytest.mark.parametrize("count", [1, 64, 65, 200])
def test_rows_of_few_and_of_many_changes(count: int) -> None:
    """Class and key are split at the first slash, a deleted entity has no state, and each method is counted."""
    rows, written = RoundRows(Epoch(3)), {}
    for number in range(count):
        record = Record(Lsn(number), RequestId(f"q{number}"), b"body", 10 + number)
        root = None if number % 3 == 2 else ("Item.add", "User.buy")[number % 3]
        rows.add(number, LogPartition(0), record, Outcome(None, b"reply", (), {}), root)
        key = EntityKey(f"Item/a/{number}\u00e9")
        written[key] = None if number % 2 else b"state"
        rows.wrote(number, [key])
    tables = rows.tables(written)
    changes = merge([tables])[PartKind.CHANGES].to_pylist()
    assert changes == [
        {
            "epoch": 3,
            "entity": "Item",
            "key": f"a/{number}\u00e9",
            "state": None if number % 2 else b"state",
        }
        for number in range(count)
    ]
    assert tables[PartKind.CHANGES]["position"].to_pylist() == list(range(count))
    counts = {"Item.add": (count + 2) // 3, "User.buy": (count + 1) // 3}
    assert roots_of([tables]) == {root: each for root, each in counts.items() if each}
    last = tables[PartKind.TRANSACTIONS].to_pylist()[-1]
    assert last["request_id"] == f"q{count - 1}"
    assert (last["lsn"], last["time_us"], last["lines"]) == (count - 1, 9 + count, None)
