"""Programs of users pass mypy and pyright in strict mode, without a plugin; mistakes are reported.

Both checkers read the same directory once: the examples, the programs of the pages, what `penstock new` writes,
a program that says which types it expects, and a program in which each wrong line is marked.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.cli.new import write
from tests.docs.test_pages import STREAMS, snippets

EXPECTED = """
import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import (
    Any, Generic, Literal, NamedTuple, NewType, NotRequired, Self, TypedDict, TypeVar, assert_type
)

import msgspec
import pydantic

from penstock import (
    App, AsyncClient, Client, Entity, PenstockError, key, readonly, reference, transactional
)
from penstock.testing import Kit


class Item(Entity):
    item_id: str = key()
    price: int
    stock: int = 0

    def restock(self, amount: int) -> int:
        self.stock += amount
        return self.stock

    @readonly
    def left(self) -> int:
        return self.stock


class User(Entity):
    name: str = key()
    first: Item
    bought: list[Item] = []
    friend: "User | None" = None

    def buy(self, item: Item, amount: int = 1) -> int:
        self.bought.append(item)
        assert_type(self.bought[0].restock(-amount), int)
        return self.first.price

    def again(self) -> list[Item]:
        assert_type(Item("i1"), Item)
        assert_type(Item("i1").item_id, str)
        assert_type(Item.create(price=3), Item)
        assert_type(Item.upsert("i2", price=3, stock=1), Item)
        assert_type(Item.exists("i2"), bool)
        assert_type(Item.exists(self.first), bool)
        self.first.delete()
        return self.bought


class Order(Entity):
    def __init__(self, number: int, item: Item) -> None:
        self.number = number
        self.item = item

    def __key__(self) -> int:
        return self.number


@transactional
def order(number: int, item: Item) -> Order:
    return Order.create(number, item)


class Size(NamedTuple):
    width: int
    height: int = 0


class Label(TypedDict):
    text: str
    size: NotRequired[Size]


T = TypeVar("T")
ParcelId = NewType("ParcelId", str)


@dataclass
class Wrapped(Generic[T]):
    inside: T


class Stamp(msgspec.Struct):
    cents: int = 0


class Parcel(Entity):
    parcel_id: ParcelId = key()
    size: Size = Size(1)
    label: Label | None = None
    wrapped: Wrapped[Item] | None = None
    stamps: deque[Stamp] = field(default_factory=deque[Stamp])
    before: Self | None = None
    way: Literal["air", "sea"] = "sea"

    def stamp(self, stamp: Stamp, label: Label) -> Size:
        self.stamps.append(stamp)
        self.label = label
        assert_type(self.wrapped.inside if self.wrapped else None, Item | None)
        assert_type(self.before, Self | None)
        return self.size


class Hall(Enum):
    BIG = "big"


class Address(pydantic.BaseModel):
    street: str
    numbers: list[int] = []


class Room(Entity):
    hall: Hall = key()
    address: Address | None = None
    door: "Chair | None" = reference(exists=True, default=None)

    def move(self, address: Address) -> list[int]:
        self.address = address
        assert_type(self.hall, Hall)
        assert_type(self.address.street, str)
        return self.address.numbers


class Chair(Entity):
    place: tuple[Hall, int] = key()
    size: Size = Size(1)
    room: Room = reference(exists=True)

    def where(self) -> Hall:
        assert_type(self.room.door, "Chair | None")
        assert_type(Chair.create((Hall.BIG, 2), room=self.room), Chair)
        assert_type(Chair((Hall.BIG, 2)).place, tuple[Hall, int])
        return self.room.hall


class Ticket(Entity):
    size: Size = key()


app = App("typed", Item, User, Order, Parcel, Room, Chair, Ticket, order)
kit = Kit(app)
assert_type(kit.call(Item.create, "i1", price=3), Item)
assert_type(kit.call(Item.upsert, "i1", price=3), Item)
assert_type(kit.call(Item.exists, "i1"), bool)
assert_type(kit.call(Item.left, Item("i1")), int)
assert_type(kit.call(User.buy, User("ada"), Item("i1"), amount=2), int)
assert_type(kit.call(order, 1, Item("i1")), Order)
assert_type(kit.call(Order.create, 2, Item("i1")), Order)
assert_type(kit.call(Parcel.create, ParcelId("p1"), size=Size(2)), Parcel)
assert_type(kit.call(Parcel.stamp, Parcel("p1"), Stamp(5), {"text": "to you"}), Size)
assert_type(kit.call(Room.create, Hall.BIG), Room)
assert_type(kit.call(Room.move, Room(Hall.BIG), Address(street="High St")), list[int])
assert_type(kit.call(Chair.create, (Hall.BIG, 1), room=Room(Hall.BIG)), Chair)
assert_type(kit.call(Chair.where, Chair((Hall.BIG, 1))), Hall)
assert_type(kit.call(Ticket.exists, Size(1)), bool)
kit.call(Item.delete, Item("i1"))


def sync(client: Client) -> None:
    assert_type(client.call(Item.restock, Item("i1"), 3), int)
    assert_type(client.call.with_id("r1")(User.again, User("ada")), list[Item])
    calls = [client.prepare(Item.restock, Item("i1"), 3) for _ in range(3)]
    assert_type(client.bulk(calls), list[int])
    assert_type(client.bulk(calls, raise_errors=False), list[int | PenstockError])
    assert_type(client.send(calls[0], delay_s=3).result(), int)
    assert_type(client.pending("r1", int).result(), int)
    assert_type(client.Item("i1").restock(3), Any)


async def awaited(client: AsyncClient) -> None:
    assert_type(await client.call(Item.restock, Item("i1"), 3), int)
    assert_type(await client.call.with_id("r1")(Item.create, "i1", price=3), Item)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.call(Item.left, Item("i1")))
    assert_type(task.result(), int)
    calls = [client.prepare(Item.restock, Item("i1"), 3) for _ in range(3)]
    assert_type(await client.bulk(calls), list[int])
    assert_type(await (await client.send(calls[0])).result(), int)
"""

MISTAKEN = """
from dataclasses import field
from enum import Enum
from typing import NamedTuple, TypedDict

import pydantic

from penstock import AsyncClient, Client, Entity, key, reference
from penstock import Entty  # wrong


class Item(Entity):
    item_id: str = key()
    price: int
    stock: int = 0

    def restock(self, amount: int) -> int:
        return self.stok + amount  # wrong


class User(Entity):
    name: str = key()
    bought: list[Item] = []

    def buy(self, item: Item) -> str:
        self.bought.append("tea")  # wrong
        item.restock("two")  # wrong
        return item.restock(2)  # wrong


class Order(Entity):
    def __init__(self, number: int, item: Item) -> None:
        self.number = number
        self.item = item

    def __key__(self) -> int:
        return self.number


class Size(NamedTuple):
    width: int


class Label(TypedDict):
    text: str


class Parcel(Entity):
    name: str = key()
    size: Size = (1,)  # wrong
    counts: list[int] = field(default_factory=dict[str, int])  # wrong

    def label(self, label: Label) -> int:
        self.size = 3  # wrong
        return label["txt"]  # wrong


class Hall(Enum):
    BIG = "big"


class Address(pydantic.BaseModel):
    street: str


class Room(Entity):
    hall: Hall = key()
    address: Address = Address(street=3)  # wrong
    door: Item = reference(exists="yes")  # wrong
    window: Item = reference()  # wrong

    def move(self, address: Address) -> int:
        self.door = "tea"  # wrong
        return address.stret  # wrong


Room(Hall.SMALL)  # wrong
Room({"big"})  # wrong
Room.create([Hall.BIG])  # wrong
Room(Hall.BIG).hall.valu  # wrong
Item(3.5)  # wrong
Item("tea", 3)  # wrong
Item.create(["tea"], price=3)  # wrong
Item.create("tea", 3)  # wrong
Item.create("tea", price=3).sell()  # wrong
Item.exists()  # wrong
Order.create(1, "tea")  # wrong


def sync(client: Client) -> None:
    client.call(Item.restock, Item("tea"), "2")  # wrong
    client.call(Item.restock, "tea", 2)  # wrong
    client.call(Parcel.label, Parcel("p1"), {"txt": "tea"})  # wrong
    client.call(Item.restock, Item("tea"))  # wrong
    text: str = client.call(Item.restock, Item("tea"), 2)  # wrong
    text = client.send(client.prepare(Item.restock, Item("tea"), 2)).result()  # wrong
    print(text)


async def awaited(client: AsyncClient) -> None:
    text: str = client.call(User.buy, User("ada"), Item("tea"))  # wrong
    text = await client.call(User.buy, User("ada"), Item("tea"))
    print(text)
"""

PYPROJECT = """
[tool.mypy]
strict = true
mypy_path = [{source!r}]
follow_imports = "silent"

[tool.pyright]
typeCheckingMode = "strict"
extraPaths = [{source!r}]
"""
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600

Findings = dict[str, list[str]]
"""For each file, what a checker reports as errors, each with its line first."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the programs, and how they are to be checked."""
    folder = tmp_path_factory.mktemp("programs")
    shutil.copytree(
        ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    application, on_spark, test = snippets("README.md")
    (folder / "kiosk.py").write_text(application)
    (folder / "kiosk_on_spark.py").write_text(on_spark)
    (folder / "test_kiosk.py").write_text(test)
    (folder / "guide.py").write_text("\n".join(snippets("docs/GUIDE.md")[:3]))
    (folder / "indexes.py").write_text("\n".join(snippets("docs/guide/indexes.md")))
    (folder / "words.py").write_text(snippets("docs/STREAMS.md")[0])
    for page in STREAMS[1:]:
        text = "\n".join(snippets(str(page.relative_to(ROOT))))
        (folder / f"streams_{page.stem}.py").write_text(text)
    (folder / "clients.py").write_text("\n".join(snippets("docs/CLIENTS.md")))
    write(folder / "shelf")
    (folder / "expected.py").write_text(EXPECTED)
    (folder / "mistaken.py").write_text(MISTAKEN)
    source = str(Path(penstock.__file__).parents[1])
    (folder / "pyproject.toml").write_text(PYPROJECT.format(source=source))
    return folder


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},  # nothing is looked up elsewhere
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(folder: Path) -> Findings:
    options = ["--no-error-summary", f"--cache-dir={os.devnull}"]
    shown = run(sys.executable, "-m", "mypy", *options, ".", folder=folder)
    found: Findings = {}
    for name, line, text in re.findall(r"^([^:\n]+):(\d+): error: (.*)$", shown, re.MULTILINE):
        found.setdefault(name, []).append(f"{line}: {text}")
    return found


def pyright(folder: Path) -> Findings:
    shown = run(
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        folder=folder,
    )
    found: Findings = {}
    for one in json.loads(shown)["generalDiagnostics"]:
        name = str(Path(one["file"]).relative_to(folder))
        line = one["range"]["start"]["line"] + 1
        found.setdefault(name, []).append(f"{line}: {one['message']}")
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
@pytest.mark.turns(1, "model", "testing", "client")
def test_programs_of_users_are_typed(checker: Callable[[Path], Findings], programs: Path) -> None:
    """Only the marked lines are errors, and each of them is one."""
    found = checker(programs)
    wrong = [n for n, line in enumerate(MISTAKEN.splitlines(), 1) if line.endswith("# wrong")]
    reported = {int(text.partition(":")[0]) for text in found.pop("mistaken.py", [])}
    assert found == {}
    assert sorted(reported) == wrong
