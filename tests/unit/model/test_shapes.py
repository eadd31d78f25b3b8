"""How classes are stored: the content of a shape, the tag of each row, and refusals of others."""

import enum
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pytest

from penstock import App, entity, key
from penstock.base.ids import EntityKey, RequestId
from penstock.engine.execute import Executor, Limits
from penstock.engine.replay import attributes_of
from penstock.errors import ClassChanged, ConfigError, Corrupt, Diverged
from penstock.journal import action
from penstock.journal.api import CHANGES, PartKind
from penstock.journal.delta import DeltaJournal
from penstock.journal.shapes import NAME
from penstock.model.shape import Shape, tag_of
from penstock.process.data_directory import DataDirectory
from penstock.snapshots.table import tables_of

LINES: dict[str, Any] = {"price": int, "stock": int}


def app_of(
    attributes: dict[str, Any] | None = None, *, key_type: type = str, key_name: str = "item_id"
) -> App:
    """Return an application of one class, with these attributes in order."""
    declared = {key_name: key_type, **(LINES if attributes is None else attributes)}
    values = {"__annotations__": declared, key_name: key(), "__module__": __name__}
    return App("shop", entity(type("Item", (), values)))


def shape(attributes: dict[str, Any], **more: Any) -> Shape:
    return app_of(attributes, **more).shapes["Item"]


def rows(app: App, **values: Any) -> pa.Table:
    data = app.entities["Item"].encode({"item_id": "i1", **values})
    return pa.Table.from_pylist(
        [{"epoch": 0, "entity": "Item", "key": "i1", "state": data}], CHANGES
    )


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Grown(enum.Enum):
    RED = 1
    BLUE = 2
    GREEN = 3


Grown.__name__ = "Colour"


@dataclass
class Line:
    colour: Colour
    inside: "list[Line]"


Wider: Any = make_dataclass("Line", [("colour", Colour), ("inside", list), ("count", int)])

OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "swapped": ({"price": int, "stock": int}, {"stock": int, "price": int}),
    "added": ({"price": int}, {"price": int, "stock": int}),
    "removed": ({"price": int, "stock": int}, {"price": int}),
    "renamed": ({"price": int}, {"cost": int}),
    "of another type": ({"price": int}, {"price": float}),
    "optional": ({"price": int}, {"price": int | None}),
    "another inner type": ({"prices": list[int]}, {"prices": list[str]}),
    "a set": ({"prices": list[int]}, {"prices": set[int]}),
    "enum member": ({"colour": Colour}, {"colour": Grown}),
    "dataclass field": ({"line": Line}, {"line": Wider}),
    "dataclass field inside": ({"lines": dict[str, Line]}, {"lines": dict[str, Wider]}),
    "literal": ({"size": Literal["s", "m"]}, {"size": Literal["s", "l"]}),
}


@pytest.mark.parametrize("how", OTHERS)
def test_change_of_a_class_is_another_shape(how: str) -> None:
    """Every difference in storage shows in the lines, and so in the tag."""
    before, after = (shape(one) for one in OTHERS[how])
    assert before.tag != after.tag


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ({"price": int | None}, {"price": None | int}),
        ({"price": int | str}, {"price": str | int}),
        ({"size": Literal["s", "m"]}, {"size": Literal["m", "s"]}),
        ({"all": list}, {"all": list[Any]}),
    ],
)
def test_other_spelling_is_the_same_shape(one: dict[str, Any], same: dict[str, Any]) -> None:
    """Declarations with the same storage have one tag, in any way of writing them."""
    assert shape(one) == shape(same)


def test_shape_says_what_is_stored_at_any_depth() -> None:
    """A person reads the key, every attribute, and the content of dataclasses and enumerations."""
    assert shape({"price": int, "line": Line, "others": "list[Item]"}).lines == (
        "item_id: str, the key",
        "price: int",
        "line: Line",
        "others: list[Item(str)]",
        "Line.colour: Colour",
        "Line.inside: list[Line]",
        "Colour.BLUE = 2",
        "Colour.RED = 1",
    )
    assert shape({}, key_type=int) != shape({}) != shape({}, key_name="sku")


def test_defaults_and_methods_are_no_part_of_a_shape() -> None:
    """Code may change freely as long as the stored form stays the same."""

    def make(default: int, method: Callable[..., Any]) -> Shape:
        values = {"__annotations__": {"name": str, "count": int}, "count": default}
        cls = type("Item", (), {**values, "name": key(), "go": method, "__module__": __name__})
        return App("shop", entity(cls)).shapes["Item"]

    assert make(0, lambda self: 1) == make(7, lambda self, other: 2)


def test_row_begins_with_the_tag_of_its_shape() -> None:
    """A reader in any language finds it: the first element, in five bytes."""
    app = app_of()
    kind = app.entities["Item"]
    data = kind.encode({"item_id": "i1", "price": 3, "stock": 10})
    assert msgspec.msgpack.decode(data) == [app.shapes["Item"].tag, 3, 10]
    assert data[1:6] == b"\xce" + app.shapes["Item"].tag.to_bytes(4, "big")
    assert tag_of(data) == app.shapes["Item"].tag
    assert [tag_of(one) for one in (b"", b"\x90", b"\x91\x07", b"\x01")] == [None] * 4
    changed = kind.encode_change({"item_id": "i1", "price": 4, "stock": 10}, data)
    assert changed is not None
    assert kind.decode("i1", changed) == {"item_id": "i1", "price": 4, "stock": 10}
    assert kind.plain("i1", changed) == {"price": 4, "stock": 10}


@pytest.mark.parametrize("how", OTHERS)
def test_row_of_another_shape_is_never_read(how: str) -> None:
    """Handlers, `GET /entities`, SQL and snapshots refuse it, and name entity and both shapes."""
    before, after = (app_of(one) for one in OTHERS[how])
    values = {"item_id": "i1", **dict.fromkeys(OTHERS[how][0])}
    tag = before.shapes["Item"].tag
    data = msgspec.msgpack.encode([tag, *list(values.values())[1:]])
    kind = after.entities["Item"]
    readers: list[Callable[[], object]] = [
        lambda: kind.decode("i1", data),
        lambda: kind.plain("i1", data),
        lambda: tables_of(after)["Item"].rows(["i1"], [data]),
        lambda: attributes_of(after, EntityKey("Item/i1"), data),
    ]
    for read in readers:
        with pytest.raises(Diverged, match=f"Item 'i1' .* {tag:08x}.* {kind.shape.tag:08x}"):
            read()


def test_row_of_another_shape_is_no_outcome() -> None:
    """The run ends also if the handler has caught the error: the request is not its cause."""

    @entity
    class Item:
        item_id: str = key()
        stock: int = 0

        def look(self, other: "Item") -> str:
            try:
                return str(other.stock)
            except Diverged as error:
                return str(error)

    app = App("shop", Item)
    kind = app.entities["Item"]
    stored = {"Item/good": kind.encode({"item_id": "good", "stock": 1}), "Item/bad": b"\x91\x01"}
    executor = Executor(app, stored.get, Limits())
    for root, other in (("good", "bad"), ("bad", "good")):
        body, _ = app.request("Item", root, "look", (kind.of_text(other),))
        with pytest.raises(Diverged, match="Item 'bad' is stored in no shape"):
            executor.run(RequestId("r"), body, 0)
    body, _ = app.request("Item", "good", "look", (kind.of_text("good"),))
    assert executor.run(RequestId("r"), body, 0).error is None


def test_class_is_recorded_before_its_first_row(tmp_path: Path) -> None:
    """A class that was never stored may change; from its first part on it must read its rows."""
    with closing(DataDirectory(tmp_path).open_journal(app_of())):
        pass
    for attributes in ({"cost": float}, LINES):
        app = app_of(attributes)
        with closing(DataDirectory(tmp_path).open_journal(app)) as journal:
            if attributes is LINES:
                journal.write(PartKind.CHANGES, rows(app, price=3, stock=10), "part")
    assert DataDirectory(tmp_path).check_app(app_of()) == []
    before = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    for refuse in (DataDirectory(tmp_path).check_app, DataDirectory(tmp_path).open_journal):
        with pytest.raises(
            ClassChanged, match="Item: price: int is stored, str is declared"
        ) as caught:
            refuse(app_of({"price": str, "stock": int}))
        assert "go back to the code" in str(caught.value)
        assert "--data" in str(caught.value)
    with pytest.raises(ClassChanged, match="no such class"):
        DataDirectory(tmp_path).check_app(App("shop"))
    assert before == {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}


def test_new_class_may_join_and_who_comes_second_is_refused(tmp_path: Path) -> None:
    """Two processes with different code store a class for the first time: one shape gets in."""
    first, second = app_of(), app_of({"stock": int, "price": int})
    with (
        closing(DataDirectory(tmp_path).open_journal(first)) as one,
        closing(DataDirectory(tmp_path).open_journal(second)) as other,
    ):
        one.write(PartKind.CHANGES, rows(first, price=3, stock=10), "one")
        one.write(PartKind.CHANGES, rows(first, price=3, stock=11), "one")
        with pytest.raises(ClassChanged, match="not the newest stored version"):
            other.write(PartKind.CHANGES, rows(second, price=3, stock=10), "other")
        assert len(list((tmp_path / "journal").glob("kind=changes/*.parquet"))) == 2


def test_lost_or_damaged_shapes_stop_everything(tmp_path: Path) -> None:
    """Without the file the meaning of the rows is lost, so the message asks for a backup."""
    with closing(DataDirectory(tmp_path).open_journal(app_of())):
        pass
    path = tmp_path / "journal" / NAME
    whole = path.read_bytes()
    for content, complaint in (
        (b"{}", "is damaged"),
        (whole[:-9] + b'{"a": 1}}', "damaged|checksum"),
    ):
        path.write_bytes(content)
        with pytest.raises(Corrupt, match=complaint):
            DataDirectory(tmp_path).open_journal(app_of())
    path.unlink()
    with pytest.raises(Corrupt, match="is missing; put the file back from a backup"):
        DataDirectory(tmp_path).check_app(app_of())


def test_journal_without_shapes_is_of_an_earlier_penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without a tag cannot be read safely; the message says what can be done."""
    former = {name: one for name, one in action.CONFIGURATION.items() if name != action.FORMAT}
    with monkeypatch.context() as patch:
        patch.setattr(action, "CONFIGURATION", former | {action.FORMAT: "1"})
        DeltaJournal(tmp_path / "journal", "shop").close()
    with pytest.raises(ConfigError, match=r"earlier Penstock.*--data"):
        DataDirectory(tmp_path).open_journal(app_of())
