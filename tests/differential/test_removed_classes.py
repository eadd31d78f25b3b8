"""Removed classes: rows stay, queries and history show them, requests fail, and a later deployment brings them back."""

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.base.ids import Epoch, RequestId
from penstock.cli.main import execute
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_in_force import code_in_force, unpacked
from penstock.deployment.deploy_order import append_deployment
from penstock.deployment.dropped_classes import classes_in_force, drop_at_start, dropped
from penstock.deployment.loading import Location
from penstock.deployment.side_modules import load_aside
from penstock.errors import ClassChanged, ConfigError, JournalUnavailable
from penstock.files.layout import SNAPSHOTS
from penstock.history.restore import fork
from penstock.log.api import Entry
from penstock.model.control import Deploy, DeployedCode, encode_control
from penstock.model.request import Request, encode_request
from penstock.process.config import Config, ViewConfig
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import subject_named
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import write_next_snapshot
from penstock.sql_view.query import Query
from penstock.sql_view.view import View
from penstock.state.digest import digest_of_mapping
from tests.differential.committed import digest_of_stores, state_of
from tests.differential.persons import Persons
from tests.differential.test_live_deployments import Shop
from tests.readable_files import readable_in

ITEM = """
from penstock import App, Entity, key

class Item(Entity):
    name: str = key()
    stock: int = 0

    def bump(self) -> float:
        self.stock += 1
        return self.stock
{more}
app = App("shop", Item{names})
"""
BOX = """
class Box(Entity):
    name: str = key()
    {attributes}
    items: list[Item] = []

    def put(self, item: Item) -> float:
        self.size += item.bump()
        self.items.append(item)
        return self.size
"""
"""A class that refers to the class that stays."""


def version(shop: Shop, box: str | None = "size: int = 0") -> DeployedCode:
    """Store a version, with the class `Box` or without it."""
    more = "" if box is None else BOX.replace("{attributes}", box)
    text = ITEM.replace("{more}", more).replace("{names}", "" if box is None else ", Box")
    archive = Archives(shop.data).put(pack({f"{shop.name}.py": textwrap.dedent(text).encode()}))
    return DeployedCode(archive, shop.name, "app", "3", {})


def box(shop: Shop, method: str, *items: str) -> None:
    """Append a request to the box `b`, as a caller who knows the class encodes it."""
    shop._append(body(method, *items), is_control=False)


def body(method: str, *items: str) -> bytes:
    """Return the body of a request to the box `b`."""
    arguments = msgspec.Raw(msgspec.msgpack.encode(items))
    return encode_request(Request("Box", "b", method, arguments, msgspec.Raw(b"\x80")))


def deploy(shop: Shop, code: DeployedCode, *names: str) -> None:
    """Append a deployment that drops classes."""
    shop._append(encode_control(Deploy(code, names)), is_control=True)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Return a running application with a box that holds an item."""
    (tmp_path / "data").mkdir()
    made = Shop(tmp_path / "data")
    made.call("create")
    deploy(made, version(made))
    box(made, "create")
    box(made, "put", "tea")
    assert made.run() == ["tea", None, "b", 1.0]
    yield made
    made.runtime.close()


def asked(data: Path, location: Location, *queries: str) -> list[list[dict[str, Any]]]:
    """Return the rows of queries to a view of some code that starts now."""
    app = load_aside(location).app
    with (
        closing(DataDirectory(data).open_journal(app)) as journal,
        closing(View(data, app, journal, ViewConfig())) as view,
    ):
        view.start()
        return [view.ask(Query(query)).table.to_pylist() for query in queries]


def take_snapshot(shop: Shop, code: DeployedCode) -> Epoch:
    """Write the snapshot of the newest epoch, and return the epoch."""
    app = load_aside(unpacked(shop.data, code)).app
    with closing(DataDirectory(shop.data).open_journal(app)) as journal:
        snapshots = Snapshots(shop.data / SNAPSHOTS, journal.identity)
        upto = journal.last().epoch  # type: ignore[union-attr]
        manifest = write_next_snapshot(app, journal, snapshots, upto)
        assert manifest is not None
        assert manifest.classes["Box"].files
        return upto


def test_a_class_disappears_with_a_word_only(shop: Shop) -> None:
    """Without the word, the deployment is refused; with it, requests fail with the reason, and the others go on."""
    without = version(shop, None)
    deploy(shop, without)
    box(shop, "put", "tea")
    deploy(shop, without, "Box")
    box(shop, "put", "tea")
    box(shop, "create")
    shop.call("bump")
    assert shop.run()[4:] == ["class-changed", 3.0, None, "request", "request", 3]
    shop.runtime.spec = unpacked(shop.data, without).spec
    shop.runtime.stop()  # else its stores may still be brought to the last epoch
    shutil.rmtree(shop.data / "state")
    shop.runtime.start()
    shop.call("bump")
    assert shop.run()[-1] == 4
    digest = digest_of_stores(shop.runtime.config, shop.runtime.journal)
    assert digest == digest_of_mapping(state_of(shop.runtime.journal))


def test_rows_of_a_removed_class_stay_readable(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQL, AS OF, snapshots, replay, trace, history, verification and a fork go on, from snapshots, too."""
    without = version(shop, None)
    deploy(shop, without, "Box")
    shop.call("bump")
    assert shop.run()[-1] == 2
    location = unpacked(shop.data, without)
    spec = location.spec
    take_snapshot(shop, without)
    shop.call("bump")
    shop.run()
    take_snapshot(shop, without)
    queries = ("FROM Box", "FROM Box AS OF EPOCH 2", "FROM Item", "FROM Box AS OF EPOCH 0")
    row = {"name": "b", "size": 1, "items": ["tea"]}
    tea = {"name": "tea", "stock": 3}
    assert asked(shop.data, location, *queries) == [[row], [row], [tea], []]
    for words in (["replay"], ["verify"], ["trace", "r3"], ["trace", "r5"]):
        capsys.readouterr()
        assert execute([*words, spec, "--data", str(shop.data), "--json"]) == 0, words
    capsys.readouterr()
    kept = tmp_path / "kept"
    words = ["what-if", spec, "--from", "4", "--without", "r5", "--keep", str(kept), "--json"]
    assert execute([*words, "--data", str(shop.data)]) == 0
    assert asked(kept, location, "FROM Box", "SELECT stock FROM Item") == [[row], [{"stock": 2}]]
    backups, restored = str(tmp_path / "backups"), tmp_path / "restored"
    assert execute(["backup", backups, spec, "--data", str(shop.data)]) == 0
    assert execute(["restore", backups, str(restored)]) == 0
    assert asked(restored, location, "FROM Box") == [[row]]
    for at, target in ((3, "in-force"), (2, "before")):
        forked = tmp_path / target
        fork(shop.data, "shop", forked, Epoch(at))
        code = without if at == 3 else version(shop)
        assert asked(forked, unpacked(shop.data, code), "FROM Box") == [[row]]


def test_a_class_that_comes_back_has_its_entities(shop: Shop) -> None:
    """It is compared with the class that was stored: a changed one reads the former rows, another one is refused."""
    deploy(shop, version(shop, None), "Box")
    deploy(shop, version(shop, "size: str = ''"))
    deploy(shop, version(shop))
    box(shop, "put", "tea")
    deploy(shop, version(shop, None), "Box")
    deploy(shop, version(shop, "size: int | float = 0; lid: str = 'blue'"))
    box(shop, "put", "tea")
    assert shop.run()[4:] == [None, "class-changed", None, 3.0, None, None, 6.0]
    numbers = [(v.number, v.removed) for v in shop.runtime.journal.schemas()["Box"]]
    assert numbers == [(1, False), (1, True), (1, False), (1, True), (2, False)]
    shop.runtime.spec = (code_in_force(shop.data) or ("",))[0]
    shop.runtime.restart()
    box(shop, "put", "tea")
    assert shop.run()[-1] == 10.0


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_driver_that_ends_before_the_commit_changes_nothing(
    shop: Shop, *, comes_back: bool
) -> None:
    """The class is as before the record, also for a driver that starts; the record is executed then."""
    code = version(shop, None)
    if comes_back:
        deploy(shop, code, "Box")
        shop.run()
        deploy(shop, version(shop))
    else:
        deploy(shop, code, "Box")
    commit, end = shop.runtime.journal.commit, int(shop.runtime.log.end())

    def fail(_: object) -> None:
        raise JournalUnavailable("the disk is full")

    shop.runtime.journal.commit = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(JournalUnavailable):
        shop.runtime.advance(end)
    shop.runtime.journal.commit = commit  # type: ignore[method-assign]
    location = unpacked(shop.data, code if comes_back else version(shop))
    shop.runtime.spec = location.spec
    with closing(DataDirectory(shop.data).open_journal(load_aside(location).app)) as journal:
        journal.deploy()
        assert journal.schemas()["Box"][-1].removed == comes_back
    shop.runtime.restart()
    box(shop, "put", "tea")
    assert shop.run()[-1] == (3.0 if comes_back else "request")


def test_a_class_is_dropped_at_a_start(tmp_path: Path) -> None:
    """Only a stored class that the source lacks can be dropped, also again; code that has it again finds it."""
    shop = Shop(tmp_path)
    deploy(shop, version(shop))
    box(shop, "create")
    shop.run()
    shop.runtime.close()
    full = load_aside(unpacked(shop.data, version(shop))).app
    without = load_aside(unpacked(shop.data, version(shop, None))).app
    directory = DataDirectory(shop.data)
    with pytest.raises(ClassChanged, match="with --drop Box"):
        directory.check_app(without)
    for app, name in ((full, "Box"), (without, "Crate")):
        with pytest.raises((ConfigError, ClassChanged), match=f"--drop {name}|--drop Box"):
            drop_at_start(shop.data, app, dropped([name]))
    for _ in ("the start", "a start again with the same options"):
        drop_at_start(shop.data, without, dropped(["Box"]))
    assert directory.check_app(without) == []
    assert directory.check_app(full) == []
    config = Config(shop.data)
    with pytest.raises(ConfigError, match="--drop Crate: the code still has"):
        append_deployment(config, version(shop, None), drop=dropped(["Crate", "Box"]))
    assert classes_in_force(shop.data).names == ("Item", "Box")


def test_a_scheduled_request_to_a_removed_class_fails_when_it_is_due(shop: Shop) -> None:
    """Its reply is a failure that names the class."""
    later = RequestId("later")
    shop.runtime.log.schedule(Entry(later, body("put", "tea"), b"", 0), 5)
    deploy(shop, version(shop, None), "Box")
    shop.run()
    assert shop.runtime.log.promote(10) == 1
    shop.count += 1
    assert shop.run()[-1] == "request"


NOTES = """
from penstock import App, Entity, key

class Note(Entity):
    name: str = key()

app = App("persons", Note)
"""


def test_a_person_of_a_removed_class_can_be_erased(tmp_path: Path) -> None:
    """Its rows stay encrypted and readable until then; the class is not in the code any more."""
    persons = Persons(tmp_path / "data")
    persons.begin()
    archive = Archives(persons.folder).put(pack({"personnotes.py": NOTES.encode()}))
    code = DeployedCode(archive, "personnotes", "app", "3", {})
    control = encode_control(Deploy(code, ("User", "Page")))
    persons.runtime.log.append([Entry(RequestId("drop"), control, b"", 0, is_control=True)])
    persons.runtime.advance(persons.runtime.log.end())
    location, query = unpacked(persons.folder, code), "SELECT name FROM User ORDER BY name"
    names = [{"name": "Babbage"}, {"name": "Countess Lovelace"}]
    assert asked(persons.folder, location, query) == [names]
    app = load_aside(location).app
    DataDirectory(persons.folder).open_journal(app).close()
    persons.order(subject_named(app, "User/ada"))
    persons.runtime.advance(persons.runtime.log.end())
    assert asked(persons.folder, location, query) == [names[:1]]
    assert readable_in(persons.folder, "Countess") == []
    persons.runtime.close()
