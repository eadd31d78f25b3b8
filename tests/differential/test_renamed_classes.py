"""Renamed classes: a class that was deployed with another name keeps its entities, and serves both names."""

import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from penstock import App, DefinitionError, Entity, RequestError, entity, key, registry
from penstock.base.ids import EntityKey
from penstock.cli.main import execute
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.side_modules import load_aside
from penstock.files.layout import SNAPSHOTS
from penstock.model.application_set import combined
from penstock.model.control import DeployedCode
from penstock.model.request import Request, decode_request, encode_request
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import subject_named
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.snapshots.state_as_of import state_as_of
from penstock.testing import Kit
from tests.differential.test_live_deployments import Shop
from tests.differential.test_removed_classes import asked

SOURCE = """
from penstock import App, Entity, key

class {owner}(Entity{was_owner}):
    name: str = key()

class {item}(Entity{was_item}):
    name: str = key()
    stock: int = 0
    owner: {owner} | None = None

    def bump(self) -> int:
        self.stock += 1
        return self.stock

    def sell(self, owner: {owner}) -> int:
        self.owner = owner
        self.stock -= 1
        return self.stock

app = App("shop", {owner}, {item})
"""
FIRST = {"owner": "User", "was_owner": "", "item": "Item", "was_item": ""}
RENAMED = {
    "owner": "Person",
    "was_owner": ', was="User"',
    "item": "Product",
    "was_item": ', was="Item"',
}


def version(shop: Shop, **names: str) -> DeployedCode:
    source = textwrap.dedent(SOURCE).format(**names).encode()
    archive = Archives(shop.data).put(pack({f"{shop.name}.py": source}))
    return DeployedCode(archive, shop.name, "app", "3", {})


def call(shop: Shop, entity_name: str, method: str, *arguments: str) -> None:
    """Append a request to `tea`, as a caller who knows this name of the class encodes it."""
    given = msgspec.Raw(msgspec.msgpack.encode(arguments))
    request = Request(entity_name, "tea", method, given, msgspec.Raw(b"\x80"))
    shop._append(encode_request(request), is_control=False)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Return a running application with an item, whose class is then renamed."""
    (tmp_path / "data").mkdir()
    made = Shop(tmp_path / "data")
    made.deploy(version(made, **FIRST))
    call(made, "Item", "create")
    call(made, "Item", "bump")
    assert made.run()[1:] == ["tea", 1]
    yield made
    made.runtime.close()


def test_both_names_reach_the_stored_entities(shop: Shop) -> None:
    """Nothing is converted; a rollback leaves the former name alone, and the entities are the same."""
    shop.deploy(version(shop, **RENAMED))
    call(shop, "Product", "bump")
    call(shop, "Item", "bump")
    call(shop, "Product", "sell", "ada")
    shop.deploy(version(shop, **FIRST))
    call(shop, "Item", "bump")
    call(shop, "Product", "bump")
    assert shop.run()[3:] == [None, 2, 3, 2, None, 3, "request"]
    schemas = shop.runtime.journal.schemas()
    assert {name: len(versions) for name, versions in schemas.items()} == {"Item": 1}


def test_a_request_of_the_new_code_outlives_a_rollback(shop: Shop) -> None:
    """It names the class as stored entities do, so each version of the code understands it."""
    renamed = version(shop, **RENAMED)
    app = load_aside(unpacked(shop.data, renamed)).app
    body, _ = app.request("Product", "tea", "bump")
    assert decode_request(body).entity == "Item"
    shop.deploy(renamed)
    shop.deploy(version(shop, **FIRST))
    shop._append(body, is_control=False)
    assert shop.run()[3:] == [None, None, 2]


def test_queries_and_history_have_the_present_name(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQL, also of former epochs and of changes, snapshots and the history of an entity go on."""
    code = version(shop, **RENAMED)
    shop.deploy(code)
    call(shop, "Product", "sell", "ada")
    shop.run()
    location = unpacked(shop.data, code)
    assert asked(
        shop.data,
        location,
        "SELECT name, stock, owner FROM Product",
        "SELECT stock FROM Product AS OF EPOCH 1",
        "SELECT count(*) AS n FROM changes('Product', 0, 3)",
        "SELECT count(*) AS n FROM changes('Item', 0, 3)",
    ) == [
        [{"name": "tea", "stock": 0, "owner": "ada"}],
        [{"stock": 1}],
        [{"n": 2}],
        [{"n": 2}],
    ]
    for name in ("Product", "Item"):
        words = ["history", name, "tea", location.spec, "--data", str(shop.data), "--json"]
        assert execute(words) == 0
        changes = msgspec.json.decode(capsys.readouterr().out)["changes"]
        assert len(changes) == 3


def test_snapshots_go_on_under_the_present_name(shop: Shop) -> None:
    """The first snapshot after the renaming has all rows, also for programs that read its Delta table."""
    former, present = version(shop, **FIRST), version(shop, **RENAMED)
    take_snapshot(shop, former)
    shop.deploy(present)
    call(shop, "Product", "sell", "ada")
    shop._append(
        encode_request(
            Request("Product", "cup", "create", msgspec.Raw(b"\x90"), msgspec.Raw(b"\x80"))
        ),
        is_control=False,
    )
    shop.run()
    take_snapshot(shop, present)
    table = DeltaTable(shop.data / SNAPSHOTS / "Product").to_pyarrow_table()
    assert sorted(table["name"].to_pylist()) == ["cup", "tea"]


def take_snapshot(shop: Shop, code: DeployedCode) -> None:
    """Write the snapshot of the newest epoch, and read it back."""
    app = load_aside(unpacked(shop.data, code)).app
    with closing(DataDirectory(shop.data).open_journal(app)) as journal:
        snapshots, newest = Snapshots(shop.data / SNAPSHOTS, journal.identity), journal.last()
        assert newest is not None
        manifest = write_next_snapshot(app, journal, snapshots, newest.epoch)
        assert manifest is not None
        assert state_as_of(app, journal, "Item", newest.epoch, snapshots).rows.num_rows


def test_a_name_that_another_class_has_is_refused() -> None:
    """Stored entities of two classes with one name could not be told apart."""

    class Item(Entity):
        name: str = key()

    class Product(Entity, was="Item"):
        name: str = key()

    class Ware(Entity, was="Item"):
        name: str = key()

    class Thing(Entity, was="not a name"):
        name: str = key()

    class Number(Entity, was=5):  # type: ignore[arg-type]
        name: str = key()

    for members, text in (
        ((Item, Product), "Product was Item, and this name is taken"),
        ((Product, Ware), "Ware was Item, and this name is taken"),
        ((Thing,), "needs the former name of the class"),
        ((Number,), "needs the former name of the class"),
    ):
        with pytest.raises(DefinitionError, match=text):
            App("shop", *members)


def test_another_application_may_use_the_former_path() -> None:
    """It is deployed by itself, so it learns the new name later."""

    class Product(Entity, was="Item"):
        name: str = key()
        stock: int = 0

        def bump(self) -> int:
            self.stock += 1
            return self.stock

    @registry.entity("/stock/Item")
    class Item(Entity):
        name: str = key()

        def bump(self) -> int:
            raise NotImplementedError

    class Cart(Entity):
        name: str = key()

        def put(self, item: Item) -> int:
            return item.bump()

    kit = Kit(combined([App("stock", Product), App("carts", Cart, Item)]))
    kit.call.Product.create("tea", stock=4)
    kit.call.Cart.create("mine")
    assert kit.call.Cart("mine").put(Product("tea")) == 5
    assert kit.entity("Item", "tea") == {"name": "tea", "stock": 5}


def test_personal_class_keeps_its_keys() -> None:
    """The subject of an erasure has the stored name, whichever name the order has."""

    @entity(personal=True, was="User")
    class Person:
        name: str = key()
        age: int = 0

        def grow(self) -> int:
            self.age += 1
            return self.age

    kit = Kit(App("people", Person))
    kit.call.Person.create("ada", age=1)
    assert kit.call.User("ada").grow() == 2
    app = kit.runtime.app
    subject = EntityKey("User/ada")
    assert subject_named(app, "Person/ada") == subject_named(app, "User/ada") == subject
    assert kit.entity("Person", "ada") == kit.entity("User", "ada") == {"name": "ada", "age": 2}
    kit.erase("Person", "ada")
    assert kit.entities("Person") == {}
    with pytest.raises(RequestError, match="there is no entity class 'Human'"):
        kit.entity("Human", "ada")
