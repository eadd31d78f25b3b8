"""An application whose class has changed is refused by every command, before anything is written."""

import asyncio
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.commands import COMMANDS
from penstock.cli.main import execute
from penstock.deployment.loading import load_app
from penstock.engine.execute import Limits
from penstock.errors import ClassChanged
from penstock.gateway.reader_pool import ReaderNursery
from penstock.gateway.serving import assemble
from penstock.process.config import Config
from penstock.retention.maintenance import maintain
from penstock.runtime.spark.messages import WorkerSettings
from penstock.runtime.spark.runtime import SparkRuntime
from penstock.runtime.spark.stage import Worker
from penstock.runtime.spark.table import read_table
from tests.history import Call, journal_of

APP = """
    from penstock import App, entity, key, stream

    @entity
    class Item:
        item_id: str = key()
        price: {price}
        stock: int

        def sell(self) -> int:
            self.stock -= 1
            return self.price

    app = App("shop", Item, stream("lines", str))
"""
COMMAND_LINES = {
    "run": ["APP", "--port", "0"],
    "dev": ["APP", "--port", "0"],
    "driver": ["APP"],
    "gateway": ["APP", "--port", "0"],
    "view": ["serve", "APP"],
    "sql": ["FROM Item", "APP"],
    "changes": ["Item", "APP"],
    "call": ["APP", "Item", "i1", "sell"],
    "append": ["APP", "lines", "x"],
    "tail": ["lines", "APP", "--no-follow"],
    "replay": ["APP"],
    "what-if": ["APP", "--without", "r1"],
    "trace": ["r0", "APP"],
    "history": ["Item", "i1", "APP"],
    "snapshot": ["APP"],
    "erase": ["APP", "--list"],
    "failed": ["APP"],
    "verify": ["APP"],
    "effects": ["serve", "APP"],
}
CREATED: Call = ("Item", "i1", "create", {"price": 3, "stock": 10})
UNCONCERNED = {
    "deploy": "reports a changed class as a finding, and writes nothing",
    "remove": "deploys stored code, which a process of its own compares with the stored entities",
    "rollback": "deploys stored code, which a process of its own compares with the stored entities",
    "apps": "lists what was deployed, and must be able to do so with any code",
    "rebalance": "copies rows as they are stored, and must be able to do so with any code",
    "new": "writes a first application",
    "client": "looks at the code",
    "capture": "is about files of captures, and must be able to pause one with any code",
    "explain": "looks at the code",
    "status": "looks at processes and counts, and must show a running application with other code",
    "keys": "is about permissions, and must be able to revoke a key with any code",
    "flow": "opens and closes admission, and must be able to pause with any code",
    "cancel": "works in the log, which holds no entity, and must be able to cancel with any code",
    "resume": "is about files of views, and must be able to end a hold with any code",
    "retry": "appends a request as it was, and must be able to do so with any code",
    "discard": "appends a request as it was, and must be able to do so with any code",
    "schedule": "shows and orders the ticks of the code in force, and must be able to pause with any source",
    "import": "converts rows by the deployed code",
    "export": "reads rows by the deployed code",
    "host": "runs the deployed code",
    "generate": "asks a gateway, which refuses the application when it starts",
    "savepoint": "names an epoch, and must be able to do so with any code",
    "backup": "copies what is stored, and must be able to do so with any code",
    "fork": "copies what is stored, and must be able to do so with any code",
    "restore": "takes no application; a command that runs there afterwards is refused",
    "demo": "has an application and a directory of its own",
    "bench": "has an application and a directory of its own",
}


def written(folder: Path, name: str, price: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(APP.format(price=price)))
    return str(path)


def settings_of(spec: str, data: Path) -> WorkerSettings:
    config = Config(data)
    sizes = config.record_bytes_max, config.retention_s
    return WorkerSettings(spec, str(data), str(data / "scratch"), Limits(), *sizes, config.fault)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@dataclass(frozen=True)
class Shop:
    """The code that has written the data, and code that cannot read them."""

    before: str
    after: str


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Write an application in two versions; a process can load a module of one name once only."""
    folder = tmp_path_factory.mktemp("shop")
    return Shop(
        written(folder, "priced_before", "int"),
        written(folder, "priced_after", "str"),
    )


@pytest.fixture
def data(shop: Shop, tmp_path: Path) -> Path:
    """Sell an item with the former code."""
    sold = [CREATED, ("Item", "i1", "sell", ())]
    journal_of(shop.before, tmp_path / "data", [[one] for one in sold])
    return tmp_path / "data"


def test_every_command_is_looked_at() -> None:
    """A new command either checks the classes, and is tried here, or says why it need not."""
    assert sorted([*COMMAND_LINES, *UNCONCERNED]) == sorted(COMMANDS)


def test_every_command_refuses_a_changed_class(
    shop: Shop, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message shows the difference and the remedy, the exit code is 2, and no file has changed."""
    places = {"APP": shop.after}
    known = contents(data)
    for name, words in COMMAND_LINES.items():
        line = [name, *(places.get(one, one) for one in words), "--data", str(data)]
        assert execute(line) == 2, (name, capsys.readouterr())
        told = capsys.readouterr().err
        assert "[class-changed]" in told, name
        assert "Item: price: int is stored, str is declared: str cannot hold int" in told
        assert "go back to the code that wrote them" in told
        assert contents(data) == known, name


def test_code_that_is_put_back_finds_everything(
    shop: Shop, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Going back is all that it takes: nothing is lost, and nothing is to be done."""
    where = ["--data", str(data)]
    assert execute(["verify", shop.after, *where]) == 2
    assert execute(["verify", shop.before, *where]) == 0
    assert "nothing has to be done" in capsys.readouterr().out
    query = "SELECT price, stock FROM Item"
    assert execute(["sql", query, shop.before, *where, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["3,9"]


def test_other_processes_refuse_it_too(shop: Shop, data: Path) -> None:
    """Workers, maintenance and tables of Spark open the journal themselves, and refuse it themselves."""
    app, known = load_app(shop.after), contents(data)
    openers: list[Callable[[], object]] = [
        lambda: maintain(app, Config(data), snapshot=True),
        lambda: Worker(settings_of(shop.after, data)),
        lambda: SparkRuntime(shop.after, Config(data)),
        lambda: read_table(app, "Item", data=data),
        lambda: asyncio.run(assemble(app, shop.after, Config(data), ReaderNursery())),
    ]
    for opened in openers:
        with pytest.raises(ClassChanged, match="str cannot hold int"):
            opened()
        assert contents(data) == known


def test_copies_keep_the_shapes(
    shop: Shop, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fork, a backup and its restored copy are refused to other code like the original."""
    copies = {name: str(tmp_path / name) for name in ("forked", "backups", "restored", "earlier")}
    where = ["--data", str(data)]
    assert execute(["fork", copies["forked"], shop.before, *where]) == 0
    assert execute(["snapshot", shop.before, *where]) == 0
    assert execute(["backup", copies["backups"], shop.before, *where]) == 0
    assert execute(["restore", copies["backups"], copies["restored"]]) == 0
    assert execute(["restore", copies["backups"], copies["earlier"], "--to-epoch", "0"]) == 0
    capsys.readouterr()
    for name in ("forked", "restored", "earlier"):
        assert execute(["verify", shop.before, "--data", copies[name]]) == 0, capsys.readouterr()
        assert execute(["replay", shop.after, "--data", copies[name]]) == 2
        assert "str cannot hold int" in capsys.readouterr().err


def test_damaged_shapes_are_found(
    shop: Shop, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` names the file, as one that only a backup has."""
    path = data / "journal" / "_shapes.json"
    path.write_bytes(path.read_bytes().replace(b"price", b"prize"))
    assert execute(["verify", shop.before, "--data", str(data)]) == 1
    assert "journal/_shapes.json" in capsys.readouterr().out


def test_row_of_a_shape_that_is_not_recorded_is_found(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` compares the tag of every row with the journal's description of its class."""
    wrong: dict[str, bytes | dict[str, Any]] = {"Item/i1": b"\x93\x01\x02\x03"}
    journal_of(shop.before, tmp_path / "data", [[CREATED]], damage=wrong)
    assert execute(["verify", shop.before, "--data", str(tmp_path / "data")]) == 1
    assert "1 rows of Item do not have its shape" in capsys.readouterr().out
