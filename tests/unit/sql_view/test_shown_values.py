"""Every value of a declared type is shown, by every reader alike, and stops no reader."""

import dataclasses
import json
import math
import sys
import types
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock import App, entity, key
from penstock.base.ids import Epoch
from penstock.files.layout import SNAPSHOTS
from penstock.model.entity_type import EntityType
from penstock.process.config import ViewConfig
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.snapshots.state_as_of import state_as_of
from penstock.snapshots.table import DEEPEST, LONGEST, column_of, tables_of
from penstock.snapshots.text import DEPTH_MAX
from penstock.sql_view.query import Query, QueryResult
from penstock.sql_view.result_format import ResultFormat, encode_result
from penstock.sql_view.view import View
from tests.memory_journal import MemoryJournal
from tests.unit.model.rare_values import ANY_TYPE
from tests.unit.model.typed_values import Colour
from tests.unit.sql_view.gallery_app import Written
from tests.unit.sql_view.shown_twin import UnfitError, shown

SETTINGS = ViewConfig(memory_mb=256)
NAME = "Made"
KEY = "made_id"


KEY_TYPES = {
    str: st.text(min_size=1, max_size=5),
    int: st.integers(-(2**63), 2**64 - 1),
    UUID: st.uuids(),
    date: st.dates(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    Colour: st.sampled_from(Colour),
    tuple[str, int]: st.tuples(st.text(max_size=5), st.integers(-(2**63), 2**64 - 1)),
}
Rows = dict[str, dict[str, Any]]


def made(key_type: Any, annotations: list[Any]) -> App:
    names = {f"a{index}": one for index, one in enumerate(annotations)}
    cls = type(NAME, (), {"__annotations__": {KEY: key_type, **names}, KEY: key()})
    return App("made", entity(cls))


class Readers:
    """A journal of one class, and all readers of it."""

    def __init__(self, folder: Path, app: App) -> None:
        self.folder = folder
        self.app = app
        self.kind: EntityType = app.entities[NAME]
        self.journal = MemoryJournal()
        self.written = Written(self.journal)
        self.states: dict[str, bytes] = {}
        self.snapshots = Snapshots(folder / SNAPSHOTS, self.journal.identity)
        self.view = View(folder, app, self.journal, SETTINGS)
        self.view.start()

    def close(self) -> None:
        self.view.close()

    def commit(self, rows: Rows) -> Epoch:
        states = {text: self.state(values) for text, values in rows.items()}
        self.states |= states
        return self.written.changes(*((NAME, text, state) for text, state in states.items()))

    def state(self, values: dict[str, Any]) -> bytes:
        state = self.kind.encode_change({KEY: None, **values}, None)
        assert state is not None
        return state

    def snapshot(self, epoch: Epoch) -> None:
        write_next_snapshot(self.app, self.journal, self.snapshots, epoch)

    def truth(self, *, wide: bool) -> pa.Table:
        """Return the rows as the committed states alone make them."""
        table = tables_of(self.app, [NAME] if wide else [])[NAME]
        return table.rows(list(self.states), list(self.states.values()))

    def ask(self, query: str, parameters: list[Any] | None = None) -> QueryResult:
        return self.view.ask(Query(query, parameters or []))

    def answers(self, epoch: Epoch) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows that every reader shows of the newest epoch."""
        yield "the view", self.ask(f"FROM {NAME}").table
        yield "the past", self.ask(f"FROM {NAME} AS OF EPOCH {epoch}").table
        yield "the journal alone", state_as_of(self.app, self.journal, NAME, epoch).rows
        found = state_as_of(self.app, self.journal, NAME, epoch, self.snapshots)
        yield "a snapshot and the journal", found.rows
        changed = f"SELECT after FROM changes('{NAME}', 0, {epoch}) QUALIFY epoch = max(epoch) OVER (PARTITION BY key)"
        after = self.ask(f"FROM (SELECT unnest(after) FROM ({changed}) WHERE after IS NOT NULL)")
        yield "the feed of changes", after.table
        self.snapshot(epoch)
        delta = DeltaTable(f"{self.snapshots.root}/{NAME}").to_pyarrow_table()
        yield "a Delta reader", delta.drop_columns(["key", "bucket", "epoch", "state"])


def plain(value: Any) -> Any:  # noqa: PLR0911 -- a line for each kind of value
    """Convert Arrow's values to one form: times and durations in microseconds, without order."""
    match value:
        case pa.MonthDayNano():
            return (value.months * 30 + value.days) * 86_400_000_000 + value.nanoseconds // 1_000
        case timedelta():
            return value // timedelta(microseconds=1)
        case time():
            return plain(timedelta(0, value.second, value.microsecond, 0, value.minute, value.hour))
        case float() if math.isnan(value):
            return "NaN"
        case datetime():
            return value.astimezone(UTC).isoformat()
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case list() | tuple():
            return sorted(map(plain, value), key=repr)
        case _:
            return value


def by_key(table: pa.Table) -> dict[str, dict[str, Any]]:
    rows = table.to_pylist()
    assert len({repr(row[KEY]) for row in rows}) == len(rows)
    return {repr(plain(row[KEY])): {name: plain(one) for name, one in row.items()} for row in rows}


@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_every_reader_shows_every_value(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """View, past, feed, snapshot and Delta tables show the same value, and it is the stored value."""
    key_type = data.draw(st.sampled_from(list(KEY_TYPES)))
    typed = data.draw(st.lists(ANY_TYPE, min_size=1, max_size=5))
    app = made(key_type, [one.annotation for one in typed])
    values = st.fixed_dictionaries({f"a{index}": one.values for index, one in enumerate(typed)})
    with closing(Readers(tmp_path_factory.mktemp("made"), app)) as readers:
        keys = st.lists(
            KEY_TYPES[key_type], min_size=2, max_size=4, unique_by=readers.kind.key_text
        )
        texts = [readers.kind.key_text(one) for one in data.draw(keys)]
        first = readers.commit({text: data.draw(values) for text in texts})
        readers.snapshot(first)
        last = readers.commit({text: data.draw(values) for text in texts[1:]})
        for name, table in readers.answers(last):
            assert by_key(table) == by_key(readers.truth(wide="_unshown" in table.column_names)), (
                name
            )
        answers = {name: by_key(table) for name, table in readers.answers(last)}
        expected = answers["the journal alone"]
        for name, found in answers.items():
            assert found == expected, name
        for chosen in ResultFormat:
            encode_result(readers.ask(f"FROM {NAME}"), chosen)
        assert readers.truth(wide=True)["_unshown"].null_count == len(texts)


class Offer(NamedTuple):
    """A record with decimals at several depths."""

    price: Decimal
    steps: list[Decimal]
    rest: "Decimal | None" = None


def test_decimals_of_a_table_that_widens_stay_numbers(tmp_path: Path) -> None:
    """Rows of a table with a decimal that does not fit keep their numbers, at any depth."""
    types = [
        Decimal,
        list[Decimal],
        dict[str, Decimal],
        tuple[int, Decimal],
        Offer,
        list[Offer],
        dict[Decimal, Offer],
    ]
    few = [Decimal(text) for text in ("12.5", "100", "-0.0", "1E-12", "-3.250")]
    offers = [Offer(few[0], few), Offer(few[4], [], few[1])]
    values = [
        few[4],
        few,
        {"a": few[1], "b": few[2]},
        (1, few[3]),
        offers[0],
        offers,
        {few[1]: offers[0]},
    ]
    row = {f"a{index}": value for index, value in enumerate(values)}
    app = made(str, types)
    with closing(Readers(tmp_path, app)) as readers:
        readers.commit({"narrow": row})
        assert readers.ask(f"SELECT a0 FROM {NAME}").table["a0"].to_pylist() == [few[4]]
        last = readers.commit({"wide": {**row, "a0": Decimal("Infinity")}})
        answers = {name: by_key(table) for name, table in readers.answers(last)}
        assert readers.ask(
            f"SELECT a0, a1 FROM {NAME} WHERE {KEY} = 'narrow'"
        ).table.to_pylist() == [{"a0": few[4], "a1": few}]
        for name, rows in answers.items():
            assert rows == by_key(readers.truth(wide=True)), name


@pytest.mark.parametrize("wide", [False, True])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_column_is_faithful(data: st.DataObject, *, wide: bool) -> None:
    """A table shows a value as a simple rule makes it from its annotation and itself."""
    typed = data.draw(ANY_TYPE)
    app = made(str, [typed.annotation])
    kind = app.entities[NAME]
    value = data.draw(typed.values)
    state = kind.encode_change({KEY: None, "a0": value}, None)
    assert state is not None
    [narrow, chosen] = [tables_of(app, names)[NAME] for names in ([], [NAME])]
    rows = (chosen if wide else narrow).rows
    try:
        [row] = rows(["k"], [state]).to_pylist()
    except TooNarrow:
        assert not wide
        return
    try:
        expected = shown(typed.annotation, value, wide=wide)
    except UnfitError:
        expected = None
    assert plain(row["a0"]) == plain(expected)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_value_that_cannot_be_shown_is_null_with_a_reason(tmp_path: Path) -> None:
    """It is NULL in its row alone, the row says why, and every reader says the same."""
    app = made(str, [Any, dict[float, int], str])
    rows = {
        text: {"a0": text, "a1": {0.5: 1}, "a2": text} for text in ("before", "between", "after")
    }
    with closing(Readers(tmp_path, app)) as readers:
        readers.snapshot(readers.commit(rows))
        last = readers.commit({"between": {**rows["between"], "a0": deep(DEPTH_MAX + 1)}})
        answers = dict(readers.answers(last))
        why = f"it is nested more than {DEPTH_MAX} levels deep"
        for name, table in answers.items():
            found = {row[KEY]: (row["a0"], row["_unshown"]) for row in table.to_pylist()}
            assert found == {
                "before": ('"before"', None),
                "between": (None, f'{{"a0":"{why}"}}'),
                "after": ('"after"', None),
            }, name
        last = readers.commit({"between": rows["between"]})
        for name, table in readers.answers(
            last
        ):  # the types depend on the state, not on its history
            is_feed = "feed" in name  # which has the value that was deleted
            assert ("_unshown" in table.column_names) is is_feed, name


def test_numbers_stay_numbers_beside_one_that_does_not_fit(tmp_path: Path) -> None:
    """A decimal with many places is rounded, with its exact value beside; no other column changes its type."""
    app = made(str, [Decimal, int])
    third = Decimal(1) / 3
    with closing(Readers(tmp_path, app)) as readers:
        rows = {"a": (Decimal(9), 1), "b": (Decimal(10), 2), "c": (Decimal("2.5"), 3)}
        first = readers.commit({name: {"a0": a, "a1": b} for name, (a, b) in rows.items()})
        readers.snapshot(first)
        query = f"SELECT max(a0) AS most, typeof(max(a0)) AS type FROM {NAME}"
        expected = [{"most": Decimal(10), "type": "DECIMAL(38,12)"}]
        readers.snapshot(
            readers.commit({"d": {"a0": third, "a1": 4}, "e": {"a0": Decimal(1), "a1": 2**64 - 1}})
        )
        assert readers.ask(query).table.to_pylist() == expected
        [row] = readers.ask(f"SELECT a0, _unshown FROM {NAME} WHERE {KEY} = 'd'").table.to_pylist()
        assert row["a0"] == round(third, 12)
        assert row["_unshown"] == f'{{"a0":"rounded from {third}"}}'
        larger = f"SELECT {KEY} FROM {NAME} WHERE a0 > $1 ORDER BY {KEY}"
        for limit in ("5", Decimal(5), 5):
            assert readers.ask(larger, [limit]).table[KEY].to_pylist() == ["a", "b"]
        assert (
            readers.ask(f"SELECT typeof(a1) AS type FROM {NAME}").table["type"].to_pylist()[0]
            == "HUGEINT"
        )
        last = readers.commit({name: {"a0": Decimal(1), "a1": 5} for name in "de"})
        for name, table in readers.answers(last):
            assert "feed" in name or table.column_names == [KEY, "a0", "a1"]
            assert {row[KEY]: row["a1"] for row in table.to_pylist()} == {
                **dict(zip("abc", (1, 2, 3), strict=True)),
                "d": 5,
                "e": 5,
            }, name
        assert (
            readers.ask(f"SELECT typeof(a1) AS type FROM {NAME}").table["type"].to_pylist()[0]
            == "BIGINT"
        )


def test_keys_that_are_one_in_sql_stop_nothing() -> None:
    """A dictionary of an older release with the same instant twice is NULL, and says why."""
    app = made(str, [dict[datetime, int], int])
    twice = {"2026-01-01T00:00:00": 1, datetime(2026, 1, 1, tzinfo=UTC): 2}
    tag = app.entities[NAME].shape.tag
    states = [msgspec.msgpack.encode([tag, one, 7]) for one in (twice, {})]
    rows = tables_of(app, [NAME])[NAME].rows(["a", "b"], states).to_pylist()
    why = "two keys of the dictionary are the same in SQL"
    assert [(row["a0"], row["a1"]) for row in rows] == [(None, 7), ([], 7)]
    assert [row["_unshown"] for row in rows] == [f'{{"a0":"{why}"}}', None]


UNSHOWABLE: list[tuple[Any, Any, str]] = [
    (Decimal, Decimal("-Infinity"), "-Infinity does not fit DECIMAL(38,12), which has at most 26 digits before the point and no infinity"),
    (list[Decimal], [Decimal(1), Decimal("1e26"), Decimal(2)], "1E+26 does not fit DECIMAL(38,12), which has at most 26 digits before the point and no infinity"),
    (timedelta, timedelta.min, "-999999999 days, 0:00:00 does not fit INTERVAL, which holds less than 292 years"),
    (dict[str, timedelta], {"a": timedelta(1), "b": timedelta(300 * 366)}, "109800 days, 0:00:00 does not fit INTERVAL, which holds less than 292 years"),
    (dict[Decimal, int], {Decimal(f"1.00000000000001{end}"): 1 for end in "12"}, "two keys of the dictionary are the same in SQL"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "value", "why"), UNSHOWABLE)
def test_a_reason_names_the_value_and_the_type_of_sql(
    annotation: Any, value: Any, why: str
) -> None:
    """The reason for a value that SQL cannot hold is a sentence of ours: the value, the type, and the values that fit it."""
    app = made(str, [annotation])
    state = app.entities[NAME].encode({KEY: "b", "a0": value})
    [row] = tables_of(app, [NAME])[NAME].rows(["b"], [state]).to_pylist()
    assert (row["a0"], json.loads(row["_unshown"])) == (None, {"a0": why})


def test_depth_of_types_is_bounded() -> None:
    """An annotation of any depth has a column; below ten levels it is JSON."""
    annotation: Any = int
    for _ in range(80):
        annotation = list[annotation]
    app = made(str, [annotation])
    table = tables_of(app)[NAME]
    assert table.definition.endswith('"a0" VARCHAR' + "[]" * DEEPEST)
    tag = app.entities[NAME].shape.tag
    [row] = table.rows(["k"], [msgspec.msgpack.encode([tag, [[]]])]).to_pylist()
    assert row["a0"] == [[]]


def test_dataclasses_that_know_each_other_stay_small() -> None:
    """However many dataclasses hold each other, the type of a column has a bounded length."""
    names = [f"Node{number}" for number in range(7)]
    nodes: list[Any] = [
        dataclasses.make_dataclass(name, [(f"to_{one}", f"list[{one}]") for one in names])
        for name in names
    ]
    module = types.ModuleType("nodes")
    for node in nodes:
        node.__module__ = module.__name__
        setattr(module, node.__name__, node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        column = column_of(nodes[0], wide=False)
    assert len(column.sql) <= LONGEST
