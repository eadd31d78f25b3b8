"""The difference of two answers is what turns one table into the other; and the pace of questions."""

import time
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.views.view import QueryTable
from penstock.views import sql_answer
from penstock.views.pace import Pace
from penstock.views.sql_answer import SqlAnswer
from penstock.views.target import FAILED, Row

COLUMNS = {
    "a": (pa.string(), "VARCHAR"),
    "b": (pa.int64(), "BIGINT"),
    "number": (pa.float64(), "DOUBLE"),
    "pause": (pa.month_day_nano_interval(), "INTERVAL"),
    "list": (pa.list_(pa.float64()), "DOUBLE[]"),
}
TABLE = QueryTable("shown", "", ("a", "b"), timedelta(seconds=1))
KEYS = st.tuples(st.sampled_from(["", "x", "y", '"', None]), st.sampled_from([-1, 0, 1, None]))
NUMBERS = st.sampled_from([0.0, -0.0, float("nan"), 1.5, None])
PAUSES = st.sampled_from([(0, 30, 0), (1, 0, 0), (0, 0, 86_400 * 10**9), (0, 1, 0), None])
ROWS = st.lists(
    st.tuples(KEYS, NUMBERS, PAUSES, st.none() | st.lists(NUMBERS, max_size=2)), max_size=12
)


def answer_of(rows: list[Any]) -> SqlAnswer:
    values = zip(*((*key, *others) for key, *others in rows), strict=True) if rows else [()] * 5
    arrays = [
        pa.array([None if value is None else pa.MonthDayNano(value) for value in column], arrow)
        if name == "pause"
        else pa.array(column, arrow)
        for (name, (arrow, _)), column in zip(COLUMNS.items(), values, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, names=list(COLUMNS))
    return SqlAnswer(TABLE, table, [sql_type for _, sql_type in COLUMNS.values()])


def filled(answer: SqlAnswer) -> dict[str, dict[Any, str]]:
    """Return the rows of each table by their keys, as text, in which -0.0 and NaN can be compared."""
    tables: dict[str, dict[Any, str]] = {"shown": {}, FAILED: {}}
    for change in answer.filling():
        put(tables[change.shape.name], list(change.rows))
    return tables


def put(table: dict[Any, str], rows: list[Row]) -> None:
    for row in rows:
        assert row[0] not in table
        table[row[0]] = repr(row)


@settings(max_examples=40, deadline=None)
@given(ROWS, ROWS)
def test_difference_turns_one_answer_into_the_next(former: list[Any], present: list[Any]) -> None:
    """Also with values that are equal and not the same, with keys that are NULL, and with several rows of a key."""
    before, after = answer_of(former), answer_of(present)
    tables = filled(before)
    for change in after.changes_since(before):
        table = tables[change.shape.name]
        assert len(set(change.touched)) == len(change.touched)
        for owner in change.touched:
            table.pop(owner, None)
        put(table, list(change.rows))
    assert tables == filled(after)


def test_an_answer_is_compared_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slices together have each row once."""
    monkeypatch.setattr(sql_answer, "SLICE", 7)
    monkeypatch.setattr("penstock.sql_view.result_diff.SLICE", 7)
    rows = [((f"k{at}", at), float(at), None, None) for at in range(100)]
    before, after = (
        answer_of(rows),
        answer_of([*rows[10:], *rows[:3], ((None, 1), 1.0, None, None)]),
    )
    changes = list(after.changes_since(before))
    gone = [owner for change in changes if not change.rows for owner in change.touched]
    assert sorted(gone) == sorted(f'["k{at}","{at}"]' for at in range(3, 10))


def test_many_equal_keys_are_counted() -> None:
    """The table of failed rows is bounded."""
    rows = [((f"k{at // 2}", 0), 1.0, None, None) for at in range(2 * 1_500)]
    failed = filled(answer_of(rows))[FAILED]
    assert len(failed) == 1_001
    assert "500 more keys have several rows" in failed["shown"]


def test_pace_keeps_every_and_the_share() -> None:
    """The next question comes not before `every`, and not before the share allows it."""
    pace = Pace(25)
    now = time.monotonic()
    pace.spent(now - 5, now)
    assert 14 < pace.due_in() <= 15
    pace.keep([QueryTable("shown", "", ("a",), timedelta(seconds=60))])
    now = time.monotonic()
    pace.spent(now - 1, now)
    assert [pace.rests] == [False]
    assert 2 < pace.rest_in() <= 3
    assert 58 < pace.due_in() <= 59
    pace.spent(now - 20, now)
    assert [pace.rests] == [True]
    assert pace.rest_in() == pytest.approx(pace.due_in(), abs=0.5)
    pace.keep([])
    assert (pace.took_s, pace.rests) == (None, False)
