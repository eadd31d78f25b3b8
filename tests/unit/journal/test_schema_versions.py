"""The schema versions of a journal: who stores them, and when, and who is refused."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import App, entity, key, migrate
from penstock.errors import ClassChanged
from penstock.files.sealed import seal
from penstock.journal.api import CHANGES, PartKind
from penstock.journal.commits import CommitLog
from penstock.journal.shapes import NAME, Shapes
from penstock.model.entity_type import EntityType
from penstock.model.shape import Shape
from penstock.process.data_directory import DataDirectory
from tests.schema_classes import history


@dataclass
class Line:
    count: int


def in_cents(old: dict[str, Any]) -> dict[str, Any]:
    return {"cents": old["price"] * 100, "label": ""}


def rows(entity_type: EntityType, **values: Any) -> pa.Table:
    data = entity_type.encode({"item_id": "i1", **values})
    row = {"epoch": 0, "entity": "Item", "key": "i1", "state": data}
    return pa.Table.from_pylist([row], CHANGES)


def app_of(attributes: dict[str, Any], **defaults: Any) -> App:
    values = {"item_id": key(), **defaults, "__module__": __name__}
    cls = entity(type("Item", (), {"__annotations__": {"item_id": str, **attributes}, **values}))
    return App("shop", cls)


def test_driver_stores_a_version_and_readers_wait_for_none(tmp_path: Path) -> None:
    """Until a driver deploys the change, nothing is written; then the journal has two versions."""
    first, second = app_of({"stock": int}), app_of({"stock": int, "tag": str}, tag="new")
    directory = DataDirectory(tmp_path)
    with closing(directory.open_journal(first)) as journal:
        journal.write(PartKind.CHANGES, rows(first.entities["Item"], stock=1), "one")
        assert journal.deploy() == []
    before = (tmp_path / "journal" / NAME).read_bytes()
    assert [change.changes for change in directory.check_app(second)] == [["+ tag: str"]]
    assert (tmp_path / "journal" / NAME).read_bytes() == before
    with closing(directory.open_journal(second)) as journal:
        with pytest.raises(ClassChanged, match="not the newest stored version"):
            journal.write(PartKind.CHANGES, rows(second.entities["Item"], stock=1, tag=""), "two")
        assert [change.name for change in journal.deploy()] == ["Item"]
        journal.write(PartKind.CHANGES, rows(second.entities["Item"], stock=1, tag=""), "two")
        assert journal.deploy() == directory.check_app(second) == []
        versions = journal.schemas()["Item"]
    assert [(version.number, version.shape) for version in versions] == [
        (1, first.shapes["Item"]),
        (2, second.shapes["Item"]),
    ]
    assert [change.changes for change in directory.check_app(first)] == [["- tag: str"]]


def test_part_of_known_classes_needs_no_look_at_the_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task writes a part in each epoch; a look for the newest commit would sync the directory of the commits."""
    app = app_of({"stock": int})
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        journal.write(PartKind.CHANGES, rows(app.entities["Item"], stock=1), "one")
        looks: list[None] = []
        monkeypatch.setattr(CommitLog, "newest", lambda _: looks.append(None))
        journal.write(PartKind.CHANGES, rows(app.entities["Item"], stock=2), "two")
    assert looks == []


def test_file_of_one_shape_for_each_class_is_read(tmp_path: Path) -> None:
    """A journal from the time when classes could not change has the first version of each."""
    app = app_of({"stock": int, "tags": list[Line]}, tags=[])
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        former: dict[str, Shape] = app.shapes
        (tmp_path / "journal" / NAME).write_bytes(seal("shapes", former))
        assert journal.schemas() == {"Item": history(app.entities["Item"])}
    assert DataDirectory(tmp_path).check_app(app) == []


def test_function_that_old_rows_need_must_stay(tmp_path: Path) -> None:
    """Code without it is refused, and the message says which function it was."""
    first = app_of({"price": int})
    with closing(DataDirectory(tmp_path).open_journal(first)) as journal:
        journal.write(PartKind.CHANGES, rows(first.entities["Item"], price=1), "one")
    values = {"__annotations__": {"item_id": str, "cents": int, "label": str}, "item_id": key()}
    cls = entity(type("Item", (), {**values, "__module__": __name__}))
    second = App("shop", cls, migrate(cls, since=2)(in_cents))
    with closing(DataDirectory(tmp_path).open_journal(second)) as journal:
        journal.deploy()
    with pytest.raises(ClassChanged, match="since=2\\) is gone; keep it"):
        DataDirectory(tmp_path).check_app(app_of({"cents": int, "label": str}))


def test_class_with_functions_begins_in_an_empty_journal(tmp_path: Path) -> None:
    """Its first version has the number of the last function, so that the functions are of the past there, too."""
    values = {"__annotations__": {"item_id": str, "cents": int, "label": str}, "item_id": key()}
    cls = entity(type("Item", (), {**values, "__module__": __name__}))
    app = App("shop", cls, migrate(cls, since=2)(in_cents))
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        data = rows(app.entities["Item"], cents=1, label="")
        journal.write(PartKind.CHANGES, data, "one")
    with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
        assert journal.deploy() == []
        assert [version.number for version in journal.schemas()["Item"]] == [2]


def test_version_without_an_epoch_is_taken_back(tmp_path: Path) -> None:
    """The former code, or another change, follows the version that has rows."""
    item = {"stock": int, "tag": str}
    first, shorter = app_of(item), app_of({"stock": int})
    data = tmp_path / "journal"
    shapes = Shapes(data, first.entities)
    data.mkdir()
    shapes.create()
    shapes.record(["Item"], 0)
    before = shapes.versions()
    assert [change.version.since for change in Shapes(data, shorter.entities).deploy(5)] == [5]
    assert Shapes(data, first.entities).check(5) == []
    assert len(shapes.versions()["Item"]) == 2, "a reader writes nothing"
    with pytest.raises(ClassChanged, match="tag is new and has no default"):
        Shapes(data, first.entities).deploy(6)
    assert Shapes(data, first.entities).deploy(5) == []
    assert shapes.versions() == before
    longer = app_of({**item, "note": str}, note="")
    Shapes(data, shorter.entities).deploy(5)
    (change,) = Shapes(data, longer.entities).deploy(5)
    assert change.changes == ["+ note: str"]
    assert [version.number for version in shapes.versions()["Item"]] == [1, 2]
