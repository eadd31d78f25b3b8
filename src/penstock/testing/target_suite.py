"""`TargetSuite`: whether a target of views keeps the contract of `penstock.views.target.Target`.

Derive a class in a test module, and say how to open the target and how to read its rows; pytest runs the rest:

```python
class TestMyTarget(TargetSuite):
    def opened(self, place: Path) -> Target:
        return MyTarget(place / "store")

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        return my_rows(place / "store", shape)
```

Random loads and changes are compared with dictionaries. Writers are killed and stopped at many points, and lose races.
The suite needs pytest, hypothesis and a system with `fork`.
"""

import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.ids import Epoch
from penstock.views.target import (
    FAILED,
    UNSHOWN,
    ColumnShape,
    Kind,
    Overtaken,
    Owner,
    Position,
    Row,
    Standing,
    TableChange,
    TableShape,
    Target,
    TargetProblem,
)

Rows: TypeAlias = dict[tuple[Any, ...], Row]
"""The rows of a table by row key."""

Model: TypeAlias = dict[TableShape, Rows]

KINDS: Final = TableShape.of("Kinds", 1, {"_key": Kind.TEXT, **{each.value: each for each in Kind}})
"""A table with a column of each kind."""

ROWS: Final = TableShape.of(
    'the "rows" of 100% %s; DROP',
    2,
    {
        "_key": Kind.TEXT,
        "_place": Kind.INTEGER,
        "Größe": Kind.INTEGER,
        "select": Kind.TEXT,
        "a%b": Kind.DECIMAL,
    },
)
"""A table whose owners have several rows; its names need quotes."""

EVENTS: Final = TableShape.of(
    "events", 2, {"_atom": Kind.INTEGER, "_place": Kind.INTEGER, "event": Kind.JSON}
)
FAILURES: Final = TableShape.of(FAILED, 1, {"_key": Kind.TEXT, "reason": Kind.TEXT})
SHAPES: Final = (KINDS, ROWS, EVENTS, FAILURES)

_INTEGERS: Final = st.integers(-(1 << 63), (1 << 63) - 1)
_TEXTS: Final = st.text(max_size=20) | st.sampled_from(
    ["", "\\N", "\\.", "NULL", "a\tb\nc\r", "\0", "'\"", "é" * 300, "\\x41", "𝄞"]
)
_JSON: Final = st.recursive(
    st.none() | st.booleans() | _INTEGERS | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=5,
)
VALUES: Final[dict[Kind, st.SearchStrategy[Any]]] = {
    Kind.TEXT: _TEXTS,
    Kind.INTEGER: _INTEGERS,
    Kind.FLOAT: st.floats(),
    Kind.BOOLEAN: st.booleans(),
    Kind.DECIMAL: st.decimals()
    | st.sampled_from([Decimal("1.00"), Decimal("1E+9"), Decimal("-0.0001"), Decimal(10) ** 60]),
    Kind.BYTES: st.binary(max_size=20),
    Kind.DATE: st.dates(),
    Kind.TIME: st.times(),
    Kind.TIMESTAMP: st.datetimes(timezones=st.just(UTC))
    | st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    Kind.DURATION: st.timedeltas(),
    Kind.UUID: st.uuids(),
    Kind.JSON: _JSON.map(json.dumps)
    | _JSON.map(lambda value: json.dumps(value, ensure_ascii=False)),
}
"""Values of each kind, with those that stores find hard."""

_OWNERS: Final[dict[Kind, list[Owner]]] = {
    Kind.TEXT: ["a", "A", "b ", "b", "é", "e\u0301", "100%", "'", "\\", "10", "9", "a/b"],
    Kind.INTEGER: [0, 1, 2, 3, 1 << 40, (1 << 63) - 1],
}
"""Few, so that changes meet."""

ENOUGH: Final = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[
        HealthCheck.differing_executors,
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
_DONE: Final = 0
_OVERTAKEN: Final = 3
_PROBLEM: Final = 4


def position_of(epoch: int, definition: str = "d1") -> Position:
    """Return a position of the suite's journal."""
    return Position("lineage", "journal", Epoch(epoch), f"checksum {epoch}", definition)


class TargetSuite:
    """The tests that each target passes.

    Attributes:
        kills: At how many places of a load, and of a change, a writer is killed.
    """

    kills: ClassVar[int] = 25

    def opened(self, place: Path) -> Target:
        """Return the target of a place.

        Args:
            place: A directory that exists, and that belongs to this target alone. The same place is the same store.
        """
        raise NotImplementedError

    def rows_in(self, place: Path, shape: TableShape) -> list[Row]:
        """Return the rows of a table as any reader sees them, with the values that the kinds of the columns have.

        The value of `UNSHOWN` is a dictionary, or None.
        """
        raise NotImplementedError

    @given(st.data())
    @ENOUGH
    def test_random_steps_equal_the_model(self, tmp_path: Path, data: st.DataObject) -> None:
        """After random loads, changes, reopenings and lost races the rows are those of dictionaries."""
        self.random_steps(tmp_path, data)

    def random_steps(self, tmp_path: Path, data: st.DataObject) -> None:
        """Do random steps, and compare; the test of a slow target may call it with fewer examples than `ENOUGH`."""
        place = _new_place(tmp_path)
        target = self.opened(place)
        model: Model = {}
        before: Position | None = None
        try:
            assert target.position().position is None
            for epoch in range(1, data.draw(st.integers(2, 7), "steps")):
                step = data.draw(st.sampled_from(["load", "apply", "apply", "reopen", "lose"]))
                after = position_of(epoch)
                if before is None or step == "load":
                    model = data.draw(_models(), "loaded")
                    target.load(before, after, list(model), _parts(model))
                    before = after
                elif step == "reopen":
                    target.close()
                    target = self.opened(place)
                elif step == "lose":
                    changes = data.draw(_changes(list(model)), "lost")
                    with pytest.raises(Overtaken):
                        target.apply(position_of(1_000), after, changes)
                else:
                    changes = data.draw(_changes(list(model)), "changes")
                    target.apply(before, after, changes)
                    model, before = changed(model, changes), after
                self._check(target, place, model, before)
        finally:
            target.close()

    def test_fresh_target_has_no_position(self, tmp_path: Path) -> None:
        """A target that was never filled says so, also a second time and after it was reopened."""
        for _ in range(2):
            target = self.opened(tmp_path)
            assert target.position() == target.position() == (None, 0)
            target.close()

    def test_standing_counts_failed_rows(self, tmp_path: Path) -> None:
        """The standing has the number of rows in the table of failed rows."""
        target = self.opened(tmp_path)
        rows: list[Row] = [(f"k{at}", "it raises", None) for at in range(3)]
        target.load(None, position_of(1), [FAILURES], [TableChange(FAILURES, (), rows)])
        assert target.position() == (position_of(1), 3)
        target.apply(position_of(1), position_of(2), [TableChange(FAILURES, ["k0"], [])])
        assert target.position() == (position_of(2), 2)
        target.close()

    def test_second_writer_changes_nothing(self, tmp_path: Path) -> None:
        """Of two writers that have read one position, the later one is overtaken, in `load` and in `apply`."""
        first, second = self.opened(tmp_path), self.opened(tmp_path)
        model = _filled()
        first.load(None, position_of(1), list(model), _parts(model))
        with pytest.raises(Overtaken):
            second.load(None, position_of(5), list(model), _parts(_filled("other")))
        change = [TableChange(EVENTS, [1], [(1, 0, '"first"', None)])]
        first.apply(position_of(1), position_of(2), change)
        late = [TableChange(EVENTS, [1], [(1, 0, '"late"', None)])]
        with pytest.raises(Overtaken):
            second.apply(position_of(1), position_of(3), late)
        with pytest.raises(Overtaken):
            second.load(position_of(1), position_of(4), list(model), _parts(_filled("other")))
        self._check(second, tmp_path, changed(model, change), position_of(2))
        first.close()
        second.close()

    def test_every_part_of_the_position_counts(self, tmp_path: Path) -> None:
        """A position that differs in one field is another position."""
        target = self.opened(tmp_path)
        at = position_of(1)
        target.load(None, at, [EVENTS], [])
        for other in (
            Position("another", at.journal, at.epoch, at.checksum, at.definition),
            Position(at.lineage, "another", at.epoch, at.checksum, at.definition),
            Position(at.lineage, at.journal, Epoch(2), at.checksum, at.definition),
            Position(at.lineage, at.journal, at.epoch, "another", at.definition),
            Position(at.lineage, at.journal, at.epoch, at.checksum, "another"),
        ):
            with pytest.raises(Overtaken):
                target.apply(other, position_of(3), [])
        assert target.position().position == at
        target.close()

    def test_insert_delete_insert_of_one_owner(self, tmp_path: Path) -> None:
        """The last state of an owner is shown, whichever states it had before."""
        target = self.opened(tmp_path)
        target.load(None, position_of(1), [EVENTS], [])
        for epoch, rows in enumerate(
            ([(7, 0, "1", None)], [], [(7, 0, "2", None), (7, 1, "3", None)], [(7, 1, "4", None)])
        ):
            target.apply(
                position_of(epoch + 1), position_of(epoch + 2), [TableChange(EVENTS, [7], rows)]
            )
            self._check(
                target, tmp_path, {EVENTS: {row[:2]: row for row in rows}}, position_of(epoch + 2)
            )
        target.close()

    def test_values_move_between_owners(self, tmp_path: Path) -> None:
        """Owners that exchange their values and their number of rows do so in one change."""
        target = self.opened(tmp_path)
        rows = [(owner, place, f"{owner}", None) for owner in range(50) for place in range(owner)]
        target.load(None, position_of(1), [EVENTS], [TableChange(EVENTS, (), rows)])
        moved = [(49 - owner, place, value, None) for owner, place, value, _ in rows]
        target.apply(position_of(1), position_of(2), [TableChange(EVENTS, [*range(50)], moved)])
        self._check(target, tmp_path, {EVENTS: {row[:2]: row for row in moved}}, position_of(2))
        target.close()

    def test_keys_stay_different(self, tmp_path: Path) -> None:
        """No two keys share a row, even if a store finds their characters hard."""
        target = self.opened(tmp_path)
        keys = ["a", "a\0", "a\0b", "␀", '␀"a\\u0000"', "\0", "\0\0", "A", " a", "a "]
        rows: list[Row] = [(key, 0, at, None, None, None) for at, key in enumerate(keys)]
        target.load(None, position_of(1), [ROWS], [TableChange(ROWS, (), rows)])
        assert sorted(row[2] for row in self.rows_in(tmp_path, ROWS)) == [*range(len(keys))]
        target.apply(position_of(1), position_of(2), [TableChange(ROWS, keys[1:3], [])])
        assert sorted(row[2] for row in self.rows_in(tmp_path, ROWS)) == [0, *range(3, len(keys))]
        target.close()

    def test_another_definition_in_place(self, tmp_path: Path) -> None:
        """A load with other columns, kinds, keys and tables leaves exactly what it names."""
        target = self.opened(tmp_path)
        unshown = ColumnShape(UNSHOWN, Kind.JSON)
        key, place = ColumnShape("_key", Kind.TEXT), ColumnShape("_place", Kind.INTEGER)
        size, name = ColumnShape("size", Kind.INTEGER), ColumnShape("name", Kind.TEXT)
        definitions: list[Model] = [
            {TableShape("T", 1, (key, size, unshown)): {("a",): ("a", 1, None)}},
            {TableShape("T", 1, (key, name, size, unshown)): {("a",): ("a", "x", 2, None)}},
            {TableShape("T", 1, (key, unshown)): {("b",): ("b", None)}},
            {
                TableShape("T", 2, (key, place, unshown)): {("b", 4): ("b", 4, None)},
                TableShape("U", 1, (key, unshown)): {("b",): ("b", None)},
            },
            {TableShape("T", 1, (size, name, place, unshown)): {(3,): (3, "x", None, None)}},
            {
                TableShape("T", 1, (key, ColumnShape("size", Kind.TEXT), unshown)): {
                    ("a",): ("a", "s", None)
                }
            },
        ]
        before = None
        for epoch, model in enumerate(definitions):
            after = position_of(epoch, f"d{epoch}")
            target.load(before, after, list(model), _parts(model))
            self._check(target, tmp_path, model, after)
            before = after
        target.close()

    def test_failing_source_leaves_everything(self, tmp_path: Path) -> None:
        """If the rows of a load end with an error, the error passes, and the former rows stay."""
        target = self.opened(tmp_path)
        model = _filled()
        target.load(None, position_of(1), list(model), _parts(model))

        def broken() -> Iterator[TableChange]:
            yield TableChange(EVENTS, (), [(5, 5, "5", None)])
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            target.load(position_of(1), position_of(2), [EVENTS], broken())
        self._check(target, tmp_path, model, position_of(1))
        target.load(position_of(1), position_of(2), [EVENTS], [])
        self._check(target, tmp_path, {EVENTS: {}}, position_of(2))
        target.close()

    def test_load_takes_its_rows_one_part_at_a_time(self, tmp_path: Path) -> None:
        """A load keeps no part when it asks for the next one, so its memory has a bound."""
        target = self.opened(tmp_path)
        alive: list[Row] = []

        class Part(list[Row]):
            def __init__(self, rows: Sequence[Row]) -> None:
                super().__init__(rows)
                alive.extend(rows)

            def __del__(self) -> None:
                del alive[: len(self)]

        def parts() -> Iterator[TableChange]:
            for at in range(20):
                assert len(alive) <= 2 * 100
                yield TableChange(
                    EVENTS, (), Part([(at, place, "0", None) for place in range(100)])
                )

        target.load(None, position_of(1), [EVENTS], parts())
        assert len(self.rows_in(tmp_path, EVENTS)) == 2_000
        target.close()

    @pytest.mark.faults
    @pytest.mark.parametrize("work", ["apply", "load"])
    def test_killed_writer_leaves_before_or_after(self, tmp_path: Path, work: str) -> None:
        """A process that is killed at any step of a load or a change leaves all of it or nothing, and the next goes on."""
        model, changes, wanted = _contested(work)
        calls = self._calls_of(_new_place(tmp_path), model, changes, work)
        for at in range(self.kills):
            place = _new_place(tmp_path)
            self._fill(place, model)
            code = self._in_child(place, changes, work, calls * at // self.kills, signal.SIGKILL)
            assert code in (_DONE, -signal.SIGKILL)
            standing = self._settled(place, model, wanted)
            target = self.opened(place)
            if standing == position_of(1):
                _write(target, work, standing, position_of(2), changes)
            self._check(target, place, wanted, position_of(2))
            target.close()

    @pytest.mark.faults
    def test_stopped_writer_wakes_late(self, tmp_path: Path) -> None:
        """Of two writers, one of which is stopped at any step and continued, one wins, and no row differs."""
        model, changes, wanted = _contested("apply")
        calls = self._calls_of(_new_place(tmp_path), model, changes, "apply")
        other = [TableChange(EVENTS, [2], [(2, 0, '"other"', None)])]
        places = 6
        for at in range(places):
            place = _new_place(tmp_path)
            self._fill(place, model)
            child = self._start_child(place, changes, "apply", calls * at // places, signal.SIGSTOP)
            target = self.opened(place)
            has_won = True
            try:
                target.apply(position_of(1), position_of(9), other)
            except TargetProblem:  # the stopped writer holds a lock, or is through
                has_won = False
            os.kill(child, signal.SIGCONT)
            code = _ended(child)
            if has_won:
                assert code in (_OVERTAKEN, _PROBLEM)
                self._check(target, place, changed(model, other), position_of(9))
            elif code == _DONE:
                self._check(target, place, wanted, position_of(2))
            else:
                self._check(target, place, model, position_of(1))
            target.close()

    def test_purge_keeps_the_rows(self, tmp_path: Path) -> None:
        """Only rows that were removed before are destroyed: tables and position stay, and changes go on."""
        model, changes, wanted = _contested("apply")
        target = self.opened(tmp_path)
        target.load(None, position_of(1), list(model), _parts(model))
        target.purge()
        self._check(target, tmp_path, model, position_of(1))
        target.apply(position_of(1), position_of(2), changes)
        target.purge()
        self._check(target, tmp_path, wanted, position_of(2))
        target.close()

    def test_drop_removes_what_was_made(self, tmp_path: Path) -> None:
        """A target that was dropped is as one that was never filled; only the expected position is dropped."""
        model = _filled()
        target = self.opened(tmp_path)
        target.load(None, position_of(1), list(model), _parts(model))
        with pytest.raises(Overtaken):
            target.drop(position_of(2))
        self._check(target, tmp_path, model, position_of(1))
        target.drop(position_of(1))
        assert target.position() == Standing(None)
        with pytest.raises(Overtaken):
            target.drop(position_of(1))
        target.purge()
        target.load(None, position_of(3), list(model), _parts(model))
        self._check(target, tmp_path, model, position_of(3))
        target.close()

    def _check(self, target: Target, place: Path, model: Model, position: Position) -> None:
        assert target.position().position == position
        for shape, rows in model.items():
            _compare(shape, rows, self.rows_in(place, shape))

    def _settled(self, place: Path, model: Model, wanted: Model) -> Position:
        """Check that a target shows everything before or after a change; return its position."""
        target = self.opened(place)
        while True:
            standing = target.position().position
            assert standing in (position_of(1), position_of(2))
            expected = model if standing == position_of(1) else wanted
            shown = {shape: self.rows_in(place, shape) for shape in expected}
            # A server may still commit the work of a process that is gone.
            if target.position().position == standing:
                break
        for shape, rows in expected.items():
            _compare(shape, rows, shown[shape])
        target.close()
        return standing

    def _fill(self, place: Path, model: Model) -> None:
        target = self.opened(place)
        target.load(None, position_of(1), list(model), _parts(model))
        target.close()

    def _calls_of(
        self, place: Path, model: Model, changes: Sequence[TableChange], work: str
    ) -> int:
        """Return how many calls of functions the work has."""
        self._fill(place, model)
        receiver, sender = os.pipe()
        child = _fork(lambda: self._count(place, changes, work, sender))
        os.close(sender)
        with open(receiver, "rb") as reader:  # noqa: PTH123 -- a descriptor
            counted = int(reader.read())
        assert _ended(child) == _DONE
        return counted

    def _count(self, place: Path, changes: Sequence[TableChange], work: str, sender: int) -> int:
        calls = 0

        def note(_frame: FrameType, _event: str, _argument: Any) -> None:
            nonlocal calls
            calls += 1

        code = self._work(place, changes, work, note)
        os.write(sender, str(calls).encode())
        return code

    def _in_child(
        self,
        place: Path,
        changes: Sequence[TableChange],
        work: str,
        at: int,
        number: signal.Signals,
    ) -> int:
        return _ended(self._start_child(place, changes, work, at, number))

    def _start_child(
        self,
        place: Path,
        changes: Sequence[TableChange],
        work: str,
        at: int,
        number: signal.Signals,
    ) -> int:
        """Start a process that works, and sends itself a signal at a call; return when it has ended or is stopped."""
        calls = 0

        def note(_frame: FrameType, _event: str, _argument: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                sys.setprofile(None)
                os.kill(os.getpid(), number)

        child = _fork(lambda: self._work(place, changes, work, note))
        os.waitid(os.P_PID, child, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        return child

    def _work(
        self, place: Path, changes: Sequence[TableChange], work: str, note: Callable[..., None]
    ) -> int:
        target = self.opened(place)
        sys.setprofile(note)
        try:
            _write(target, work, position_of(1), position_of(2), changes)
        except Overtaken:
            return _OVERTAKEN
        except TargetProblem:
            return _PROBLEM
        finally:
            sys.setprofile(None)
        return _DONE


def changed(model: Model, changes: Sequence[TableChange]) -> Model:
    """Return what a model shows after changes."""
    result = {shape: dict(rows) for shape, rows in model.items()}
    for change in changes:
        rows = result[change.shape]
        for key in [key for key in rows if key[0] in change.touched]:
            del rows[key]
        rows.update({row[: change.shape.key_width]: row for row in change.rows})
    return result


def _write(
    target: Target, work: str, before: Position, after: Position, changes: Sequence[TableChange]
) -> None:
    if work == "apply":
        target.apply(before, after, changes)
    else:
        target.load(before, after, [change.shape for change in changes], changes)


def _contested(work: str) -> tuple[Model, list[TableChange], Model]:
    """Return rows, changes that writers fight for, and the rows after them."""
    model = _filled()
    changes = [
        TableChange(EVENTS, [*range(5)], [(owner, 0, '"new"', None) for owner in range(1, 5)]),
        TableChange(ROWS, ["a", "b"], [("b", 7, 7, "new", Decimal("7.00"), {"x": "y"})]),
    ]
    if work == "apply":
        return model, changes, changed(model, changes)
    empty: Model = {change.shape: {} for change in changes}
    return model, changes, changed(empty, changes)


def _filled(text: str = "old") -> Model:
    events: Rows = {
        (owner, place): (owner, place, json.dumps(text), None)
        for owner in range(8)
        for place in (0, 1)
    }
    rows: Rows = {
        (owner, place): (owner, place, place, text, None, None)
        for owner in "abc"
        for place in (0, 1)
    }
    return {EVENTS: events, ROWS: rows}


def _parts(model: Model) -> Iterator[TableChange]:
    for shape, rows in model.items():
        values = [*rows.values()]
        for at in range(0, len(values), 3):
            yield TableChange(shape, (), values[at : at + 3])


@st.composite
def _rows_of(draw: st.DrawFn, shape: TableShape, owners: Sequence[Owner]) -> list[Row]:
    rows: list[Row] = []
    for owner in owners:
        places = (
            [()]
            if shape.key_width == 1
            else [(place,) for place in draw(st.sets(st.integers(0, 3), max_size=3))]
        )
        for place in places:
            values = [
                draw(st.none() | VALUES[column.kind])
                for column in shape.columns[shape.key_width : -1]
            ]
            unshown = draw(st.none() | st.just({"x": "a reason: \0"}))
            rows.append((owner, *place, *values, unshown))
    return rows


def _owners(shape: TableShape) -> st.SearchStrategy[list[Owner]]:
    return st.lists(st.sampled_from(_OWNERS[shape.columns[0].kind]), unique=True, max_size=8)


@st.composite
def _models(draw: st.DrawFn) -> Model:
    shapes = draw(st.lists(st.sampled_from(SHAPES), unique=True, min_size=1))
    model: Model = {}
    for shape in shapes:
        rows = draw(_rows_of(shape, draw(_owners(shape))))
        model[shape] = {row[: shape.key_width]: row for row in rows}
    return model


@st.composite
def _changes(draw: st.DrawFn, shapes: Sequence[TableShape]) -> list[TableChange]:
    changes: list[TableChange] = []
    for shape in draw(st.lists(st.sampled_from(shapes), unique=True)):
        touched = draw(_owners(shape))
        present = draw(st.lists(st.sampled_from(touched), unique=True)) if touched else []
        changes.append(TableChange(shape, touched, draw(_rows_of(shape, present))))
    return changes


def _compare(shape: TableShape, expected: Rows, shown: Sequence[Row]) -> None:
    """Check that rows are shown as expected; a value that is missing has a reason."""
    width = shape.key_width
    by_key = {tuple(row[:width]): row for row in shown}
    assert len(by_key) == len(shown)
    assert by_key.keys() == expected.keys()
    for key, row in expected.items():
        *values, reasons = by_key[key]
        for column, value, held in zip(shape.columns, row, values, strict=False):
            if held is None and value is not None:
                assert column.name in reasons, f"{column.name} of {key} is missing without a reason"
            else:
                assert _is_same(column.kind, value, held), (
                    f"{column.name} of {key}: {held!r} is not {value!r}"
                )
        assert _reasons_of(row[-1]).items() <= _reasons_of(reasons).items()


def _reasons_of(reasons: dict[str, str] | None) -> dict[str, str]:
    return {name: reason.replace("\0", "") for name, reason in (reasons or {}).items()}


def _is_same(held_kind: Kind, value: Any, held: Any) -> bool:
    if value is None or held is None:
        return value is held
    if held_kind is Kind.JSON:
        return bool(json.loads(value) == json.loads(held))
    if held_kind is Kind.DECIMAL and (value.is_nan() or held.is_nan()):
        return bool(value.is_nan() and held.is_nan())
    if held_kind is Kind.FLOAT and value != value:
        return bool(held != held)
    return type(value) is type(held) and bool(value == held)


def _new_place(folder: Path) -> Path:
    place = folder / f"place{len([*folder.iterdir()])}"
    place.mkdir()
    return place


def _fork(work: Callable[[], int]) -> int:
    """Run a function in a forked process; its result is the exit code. Return the number of the process."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the child uses no thread of this process
        child = os.fork()
    if child == 0:
        # Garbage of the parent stays: a client of Kafka among it would wait for its threads, which this process does not have.
        gc.freeze()
        code = 70
        try:
            code = work()
        finally:
            os._exit(code)
    return child


def _ended(child: int) -> int:
    """Wait for a process; return its exit code, or the negative number of the signal that ended it."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
