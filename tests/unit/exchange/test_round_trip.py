"""The file of an export, imported again, gives the same states: all types, in each format."""

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import App, Entity, key
from penstock.base.file_formats import FileFormat
from penstock.engine.limits import Limits
from penstock.exchange.export import _WRITERS, _Entities
from penstock.exchange.source import open_source
from penstock.exchange.states import StatesOfRows
from penstock.model.entity_type import EntityType
from penstock.snapshots.newest_states import CLASS_STATES
from tests.unit.model.typed_values import KEYS, types

_numbers = itertools.count()


class Parts:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[pa.Table]:
        yield self._rows


def class_of(annotation: Any, key_annotation: Any = str) -> EntityType:
    names = {"__annotations__": {"name": key_annotation, "value": annotation}, "name": key()}
    cls = type(f"Kept{next(_numbers)}", (Entity,), {**names, "__module__": __name__})
    return App("kept", cls).entities[cls.__name__]


def states_of(entity_type: EntityType, rows: dict[Any, Any]) -> pa.Table:
    texts = [entity_type.key_text(name) for name in rows]
    states = [
        entity_type.encode_change({"name": name, "value": value}, None)
        for name, value in rows.items()
    ]
    return pa.table([texts, states], schema=CLASS_STATES)


def imported(entity_type: EntityType, file_format: FileFormat, path: Path) -> dict[str, bytes]:
    app = App("again", entity_type.cls)
    rows = StatesOfRows(app, entity_type, Limits(), "test")
    source = open_source(str(path), rows.names, file_format)
    rows.check_columns(source)
    made = {
        text: state
        for each in rows.states(source)
        for text, state in zip(each.texts, each.states, strict=True)
    }
    assert rows.misfits == []
    return made


def check(entity_type: EntityType, values: dict[Any, Any], tmp_path: Path) -> None:
    states = states_of(entity_type, values)
    expected = dict(zip(states["key"].to_pylist(), states["state"].to_pylist(), strict=True))
    for file_format in FileFormat:
        out = io.BytesIO()
        parts: Any = Parts(states)
        _WRITERS[file_format](_Entities(entity_type, parts), out, lambda _done, _most: None)
        path = tmp_path / "file"
        path.write_bytes(out.getvalue())
        assert imported(entity_type, file_format, path) == expected


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_values_of_every_type_come_back(tmp_path: Path, data: st.DataObject) -> None:
    """Whatever type an attribute has, its values are the same bytes behind an export and an import."""
    typed = data.draw(types)
    values = data.draw(st.lists(typed.values, min_size=1, max_size=4))
    entity_type = class_of(typed.annotation)
    check(entity_type, {f"k{number}": value for number, value in enumerate(values)}, tmp_path)


@pytest.mark.parametrize(
    "typed", [one for one in KEYS if one.annotation not in (float, bool)], ids=str
)
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_keys_of_every_type_come_back(tmp_path: Path, typed: Any, data: st.DataObject) -> None:
    """A key that is no text is the same key behind an export and an import."""
    name = data.draw(typed.values)
    if typed.annotation is str and (not name or len(name.encode()) > 100):
        name = "a"
    check(class_of(int, typed.annotation), {name: 1}, tmp_path)


TEXTS = ["", " ", "a,b", '"', "a\nb", "a\r\nb", "\ufeffx", "null", "NaN", "1", "é", "\x00"]


@pytest.mark.parametrize("annotation", [str, str | None, list[str], Any])
def test_strange_texts_come_back(tmp_path: Path, annotation: Any) -> None:
    """A text that CSV quotes, or that looks like another value, stays what it is; None and an empty text differ."""
    values: list[Any] = [*TEXTS, None] if annotation in (str | None, Any) else list(TEXTS)
    if annotation == list[str]:
        values = [[text] for text in TEXTS]
    named = {f"k{number}": value for number, value in enumerate(values)}
    check(class_of(annotation), named, tmp_path)


@dataclass
class Angry:
    """A record that ends its process for some values."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise SystemExit(3)


@pytest.mark.parametrize("file_format", [FileFormat.CSV, FileFormat.LINES])
def test_code_of_a_record_fails_its_row_alone(tmp_path: Path, file_format: FileFormat) -> None:
    """Whatever it raises is the reason of its row, and the other rows are read."""
    entity_type = class_of(Angry)
    source = tmp_path / "file"
    if file_format is FileFormat.CSV:
        source.write_text('name,value\na,"{""number"": 1}"\nb,"{""number"": -1}"\n')
    else:
        source.write_text('{"name":"a","value":{"number":1}}\n{"name":"b","value":{"number":-1}}\n')
    rows = StatesOfRows(App("again", entity_type.cls), entity_type, Limits(), "test")
    opened = open_source(str(source), rows.names, file_format)
    rows.check_columns(opened)
    made = [text for each in rows.states(opened) for text in each.texts]
    assert made == ["a"]
    assert [(each.row, each.column, each.reason) for each in rows.misfits] == [(2, "value", "3")]


def test_a_column_of_integers_gives_no_rounded_float(tmp_path: Path) -> None:
    """A value never changes its meaning: the row of an integer that no float equals is refused, all others are taken."""
    entity_type = class_of(float | None)
    values = [1, 2**53, 2**53 + 1, None, -(2**53) - 1, 2**60]
    column = pa.array(values, pa.int64())
    pq.write_table(pa.table({"name": list("abcdef"), "value": column}), tmp_path / "file")
    rows = StatesOfRows(App("again", entity_type.cls), entity_type, Limits(), "test")
    source = open_source(str(tmp_path / "file"), rows.names, FileFormat.PARQUET)
    rows.check_columns(source)
    made = [text for each in rows.states(source) for text in each.texts]
    assert made == ["a", "b", "d", "f"]
    told = [misfit.reason for misfit in rows.misfits]
    assert told[0] == "a float cannot hold 9007199254740993, only 9007199254740992.0"
    assert len(told) == 2
