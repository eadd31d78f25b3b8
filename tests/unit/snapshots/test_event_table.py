"""The table of a stream has a row for each event, with the fields of records as columns."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from penstock import App, stream
from penstock.errors import Diverged
from penstock.journal.api import EVENTS
from penstock.model.streams.stream import Stream
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.event_table import EventTable

TIME_US = 1_700_000_000_000_000
TIME = datetime.fromtimestamp(TIME_US / 1_000_000, UTC)


@dataclass
class Sale:
    item: str
    price: int
    epoch: str
    rest: Any = None


@dataclass
class LaterSale(Sale):
    currency: str = "EUR"
    copies: int = field(default_factory=lambda: 1)


class Spot(NamedTuple):
    x: float
    y: float


def stored(source: Stream[Any], *atoms: list[Any]) -> pa.Table:
    """Return atoms as the journal stores them, all of epoch 5."""
    App("events", source)
    rows = [
        {
            "epoch": 5,
            "stream": source.name,
            "atom": number,
            "partition": 0,
            "lsn": number,
            "step": 0,
            "time_us": TIME_US,
            "count": len(events),
            "events": msgspec.msgpack.encode(
                [msgspec.Raw(source.events.encode(event)) for event in events]
            ),
        }
        for number, events in enumerate(atoms, start=7)
    ]
    return pa.Table.from_pylist(rows, EVENTS)


def test_fields_of_records_are_columns() -> None:
    """A record has a column for each field, and a field with the name of another column gets a number."""
    source = stream("sales", Sale)
    atoms = stored(
        source, [Sale("tea", 3, "old"), Sale("cup", 4, "new", {"a": [1]})], [], [Sale("pot", 5, "")]
    )
    rows = EventTable(source, wide=False).rows(atoms)
    assert rows.column_names == [
        "atom",
        "place",
        "item",
        "price",
        "epoch_2",
        "rest",
        "epoch",
        "time",
    ]
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        (7, 0, "tea", 3, "old", None, 5, TIME),
        (7, 1, "cup", 4, "new", '{"a":[1]}', 5, TIME),
        (9, 0, "pot", 5, "", None, 5, TIME),
    ]


@pytest.mark.parametrize(
    ("annotation", "event", "shown"),
    [
        (str, "a", "a"),
        (tuple[str, int], ("a", 1), {"_1": "a", "_2": 1}),
        (list[int], [1, 2], [1, 2]),
        (timedelta, timedelta(hours=1), timedelta(hours=1)),
        (str | int, "a", '"a"'),
        (int | None, None, None),
        (Sale | None, Sale("tea", 3, ""), {"item": "tea", "price": 3, "epoch": "", "rest": None}),
    ],
)
def test_event_that_is_no_record_is_one_column(annotation: Any, event: Any, shown: Any) -> None:
    """A scalar, a list, a tuple or an optional record is the column `event`."""
    source: Stream[Any] = stream("events", annotation)
    rows = EventTable(source, wide=False).rows(stored(source, [event]))
    assert rows.column_names == ["atom", "place", "event", "epoch", "time"]
    assert rows["event"].to_pylist() == [shown]


def test_named_tuple_has_columns() -> None:
    """A `NamedTuple` is a record, though it is stored as an array."""
    source = stream("spots", Spot)
    rows = EventTable(source, wide=False).rows(stored(source, [Spot(1.5, 2.0)], [Spot(0.0, -1.0)]))
    assert rows.select(["x", "y"]).to_pylist() == [{"x": 1.5, "y": 2.0}, {"x": 0.0, "y": -1.0}]


@pytest.mark.parametrize("wide", [False, True])
def test_a_field_that_an_event_does_not_have_is_null(*, wide: bool) -> None:
    """An event from before a field was added has NULL there: the default of later code is no value of the event."""
    atoms = stored(stream("sales", Sale), [Sale("tea", 3, "")])
    later = stream("sales", LaterSale)
    App("later", later)
    [row] = EventTable(later, wide=wide).rows(atoms).to_pylist()
    assert (row["item"], row["currency"], row["copies"]) == ("tea", None, None)


def test_value_that_does_not_fit_needs_wide_columns() -> None:
    """A narrow table refuses the value; a wide table shows it, or NULL with the reason."""
    source = stream("sales", Sale)
    deep: Any = []
    for _ in range(150):
        deep = [deep]
    atoms = stored(source, [Sale("tea", 2**64 - 1, "", deep), Sale("cup", 1, "")])
    with pytest.raises(TooNarrow, match="sales"):
        EventTable(source, wide=False).rows(atoms)
    rows = EventTable(source, wide=True).rows(atoms).to_pylist()
    assert [row["price"] for row in rows] == [2**64 - 1, 1]
    assert rows[0]["rest"] is None
    assert "nested" in rows[0]["_unshown"]
    assert rows[1]["_unshown"] is None


def test_events_of_another_type_are_refused() -> None:
    """Events that the code declares differently now are an error with the name of the stream."""
    atoms = stored(stream("sales", str), ["a"])
    other = stream("sales", Sale)
    App("events", other)
    for wide in (False, True):
        with pytest.raises(Diverged, match="event of stream sales"):
            EventTable(other, wide=wide).rows(atoms)


def test_stream_without_events_has_the_same_columns() -> None:
    """No atoms, or only empty atoms, give an empty table with typed columns."""
    source = stream("sales", Sale)
    table = EventTable(source, wide=True)
    some = table.rows(stored(source, [Sale("tea", 3, "")])).schema
    assert table.rows(stored(source, [], [])).schema == some
    assert table.rows(EVENTS.empty_table()).schema == some
