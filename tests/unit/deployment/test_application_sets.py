"""A set of applications is located, loaded, packed and watched as one application is."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.cli.running.source_deployer import SourceFiles
from penstock.deployment.archives import Archives, pack
from penstock.deployment.code_in_force import unpacked
from penstock.deployment.deploy_order import (
    append_deployment,
    deployed_code,
    store_code,
    store_without,
)
from penstock.deployment.deployed_set import member_changes, with_applications, without_application
from penstock.deployment.deployment_start import deploy
from penstock.deployment.dropped_classes import classes_in_force
from penstock.deployment.loading import Location, load, load_app, locate
from penstock.deployment.side_modules import load_aside
from penstock.deployment.source import code_of
from penstock.errors import ClassChanged, ConfigError, DefinitionError
from penstock.journal.deployments import Deployments
from penstock.model.control import DeployedCode
from penstock.process.config import Config
from penstock.process.data_directory import DataDirectory
from tests.market import MARKET, PLACES
from tests.modules import own_modules
from tests.unit.sql_view.gallery_app import Written

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with the three applications, which this process can import."""
    with own_modules(PLACES):
        yield shutil.copytree(MARKET, tmp_path / "market")


def test_a_folder_of_applications_is_a_set(market: Path) -> None:
    """It has the name of the folder; packages without an `app`, and modules, are no applications of it."""
    (market / "shared").mkdir()
    (market / "shared" / "__init__.py").write_text("rate = 1\n")
    (market / "broken").mkdir()
    (market / "broken" / "__init__.py").write_text("app = (\n")
    (market / "notes.py").write_text("app = None\n")
    location = locate(str(market))
    assert location.module == "orders:app,payment:app,stock:app"
    app = load(location)
    assert app.name == "market"
    assert [part.name for part in app.parts] == list(PLACES)
    assert set(app.entities) == {"Order", "User", "Item"}


def test_several_names_are_a_set(market: Path) -> None:
    """Without a name of its own, the set has the name of its first application; its places are independent."""
    elsewhere = market.parent / "elsewhere"
    elsewhere.mkdir()
    shutil.move(market / "stock", elsewhere / "stock")
    spec = f"{market / 'payment'},{elsewhere / 'stock'}:app,{market / 'orders'}"
    location = locate(spec)
    assert [Path(part.folder).name for part in location.applications] == [
        "market",
        "elsewhere",
        "market",
    ]
    assert load(location).name == "payment"
    assert locate(f"trade={spec}").name == "trade"


def test_the_text_of_a_set_leads_to_the_same_set(market: Path) -> None:
    """`spec` names the same modules and folders, whatever the working directory is."""
    location = locate(str(market))
    again = locate(location.spec)
    assert (again.module, again.name) == (location.module, location.name)
    assert [part.folder for part in again.applications] == [str(market)] * 3


def test_the_same_applications_are_one_object(market: Path) -> None:
    """A process that loads a set twice builds it once, as it imports an application once."""
    assert load_app(str(market)) is load_app(str(market))


def test_the_archive_of_a_set_has_the_source_of_each(market: Path, tmp_path: Path) -> None:
    """The set is loaded from its archive, also if the sources are gone."""
    location = locate(str(market))
    code, archive = code_of(location)
    Archives(tmp_path).put(archive)
    shutil.rmtree(market)
    place = unpacked(tmp_path, code)
    assert place == Location(location.module, "market", place.folder, None)
    app = load(place)
    assert (app.name, len(app.parts)) == ("market", 3)


def test_different_files_of_one_name_are_refused(market: Path) -> None:
    """Both applications would import the same module; the message has its path."""
    for name in ("one", "two"):
        folder = market.parent / name
        folder.mkdir()
        (folder / "app.py").write_text(f"from penstock import App\napp = App('{name}')\n")
    with pytest.raises(ConfigError, match=r"different files that are imported as app\.py"):
        code_of(locate(f"{market.parent}/one/app.py,{market.parent}/two/app.py"))


def test_an_application_that_uses_others_is_refused_alone(market: Path) -> None:
    """The message names the path that it uses, and the place."""
    with pytest.raises(DefinitionError, match="uses /stock/Item, and there is no application"):
        load_app(str(market / "orders"))


def test_all_applications_of_a_set_are_watched(market: Path) -> None:
    """A change in any of them is noticed."""
    sources = SourceFiles(locate(str(market)))
    for name in PLACES:
        file = market / name / "__init__.py"
        file.write_text(file.read_text() + "\n# a comment\n")
        assert not sources.changed()
        assert sources.changed()


@pytest.fixture
def deployed(market: Path, tmp_path: Path) -> Path:
    """Return a data directory in which the set is deployed."""
    data = tmp_path / "data"
    app = load_app(str(market))
    DataDirectory(data).create()
    with closing(DataDirectory(data).open_journal(app)) as journal:
        deploy(data, str(market), app, journal)
    return data


def change(market: Path, name: str, old: str, new: str) -> None:
    """Replace a text in the source of an application."""
    file = market / name / "__init__.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_an_application_is_deployed_by_itself(market: Path, deployed: Path) -> None:
    """The other applications keep their deployed source, also if their files have changed meanwhile."""
    change(market, "stock", "stock: int = 0", "stock: int = 7")
    change(market, "payment", "credit: int = 0", "credit: int = 9")
    spec = with_applications(deployed, deployment_of(deployed), str(market / "stock"))
    with own_modules(PLACES):
        app = load_app(spec)
        assert app.name == "market"
        assert app.entities["Item"].defaults == {"stock": 7}
        assert app.entities["User"].defaults == {"credit": 0}
    was, now = deployment_of(deployed), code_of(locate(spec))[0]
    assert {name for name in was.sources if was.sources[name] != now.sources[name]} == {"stock:app"}


def deployment_of(data: Path) -> DeployedCode:
    """Return the code of the last deployment."""
    return Deployments(data / "journal").every()[-1].code


def test_a_further_application_joins_the_set(market: Path, deployed: Path) -> None:
    """It is loaded with the deployed ones, and may use them."""
    (market / "gifts.py").write_text("from penstock import App\napp = App('gifts')\n")
    with own_modules(PLACES):
        app = load_app(
            with_applications(deployed, deployment_of(deployed), str(market / "gifts.py"))
        )
    assert [part.name for part in app.parts] == ["orders", "payment", "stock", "gifts"]


def test_a_version_that_others_cannot_use_is_refused(market: Path, deployed: Path) -> None:
    """The method that orders use has another parameter: both places are named, and nothing is deployed."""
    change(market, "stock", "def subtract(self, amount: int)", "def subtract(self, amount: str)")
    with (
        own_modules(PLACES),
        pytest.raises(DefinitionError, match=r"subtract\(amount: int\) -> str, and"),
    ):
        load_app(with_applications(deployed, deployment_of(deployed), str(market / "stock")))
    assert len(Deployments(deployed / "journal").every()) == 1


def test_an_application_that_others_use_cannot_be_removed(deployed: Path) -> None:
    """The message names the application and the path that it uses; the last user can be removed."""
    with (
        own_modules(PLACES),
        pytest.raises(DefinitionError, match="application orders uses /stock/Item"),
    ):
        load_app(without_application(deployed, deployment_of(deployed), "stock"))
    with own_modules(PLACES):
        app = load_app(without_application(deployed, deployment_of(deployed), "orders"))
        assert (app.name, [part.name for part in app.parts]) == ("market", ["payment", "stock"])
    with pytest.raises(ConfigError, match="no deployed application 'ordres'"):
        without_application(deployed, deployment_of(deployed), "ordres")


def test_a_single_application_is_deployed_as_it_is(tmp_path: Path) -> None:
    """Without a deployment, the name of the application stays as it was given, and it cannot be removed."""
    assert with_applications(tmp_path, None, "shop.py") == "shop.py"
    code = DeployedCode("0", "shop", "app", "3", {})
    archive = Archives(tmp_path).put(pack({"shop.py": b""}))
    code = msgspec.structs.replace(code, archive=archive)
    with pytest.raises(ConfigError, match="shop is the only application"):
        without_application(tmp_path, code, "shop")
    with pytest.raises(ConfigError, match="no deployed application 'shp'; did you mean shop"):
        without_application(tmp_path, code, "shp")


@pytest.fixture
def alone(market: Path, tmp_path: Path) -> Path:
    """Return a data directory in which a single application is deployed."""
    data, spec = tmp_path / "data", str(market / "stock")
    app = load_app(spec)
    DataDirectory(data).create()
    with closing(DataDirectory(data).open_journal(app)) as journal:
        deploy(data, spec, app, journal)
    return data


def test_another_application_joins_a_single_one(market: Path, alone: Path) -> None:
    """The set has the name of the first application; the report and the deployment name the new one."""
    deployed = deployment_of(alone)
    code = store_code(alone, str(market / "payment"))
    assert (code.module, code.name) == ("stock:app,payment:app", "stock")
    appended = append_deployment(Config(alone), code, replaces=deployed)
    assert appended is not None
    assert appended.changes == ["application payment:app joins stock:app"]


def test_a_moved_application_replaces_itself(market: Path, alone: Path) -> None:
    """An application of the same name in another module is the next version of the deployed one."""
    (market / "stock").rename(market / "moved_stock")
    code = store_code(alone, str(market / "moved_stock"))
    assert (code.module, code.name) == ("moved_stock", "app")


def test_files_that_two_applications_import_come_from_the_deployed_one(tmp_path: Path) -> None:
    """An application that another one imports is deployed alone, and both run its files."""
    text = "from penstock import App, Entity, key\n{}\nclass {}(Entity):\n    k: str = key()\napp = App('{}', {})\n"
    with own_modules(("part_a", "part_b")):
        for name, head in (("a", "import part_b"), ("b", "RATE = 1")):
            source = text.format(head, name.upper(), name, name.upper())
            (tmp_path / f"part_{name}.py").write_text(source)
        spec = f"both={tmp_path}/part_a.py,{tmp_path}/part_b.py"
        app, data = load_app(spec), tmp_path / "data"
        DataDirectory(data).create()
        with closing(DataDirectory(data).open_journal(app)) as journal:
            deploy(data, spec, app, journal)
        part = tmp_path / "part_b.py"
        part.write_text(part.read_text().replace("RATE = 1", "RATE = 2"))
        code = store_code(data, str(part))
    assert b"RATE = 2" in Archives(data).files(code.archive)["part_b.py"]
    changes = member_changes(deployment_of(data), code)
    assert changes == [f"application part_{name}:app has other files" for name in "ab"]


def test_two_deployments_of_one_set_do_not_undo_each_other(market: Path, deployed: Path) -> None:
    """The second is made of the first, which still waits in the log; one that is made of older code is refused."""
    config, older = Config(deployed), deployment_of(deployed)
    change(market, "stock", "stock: int = 0", "stock: int = 7")
    first = store_code(deployed, str(market / "stock"))
    assert append_deployment(config, first, replaces=older) is not None
    change(market, "stock", "stock: int = 7", "stock: int = 8")
    change(market, "payment", "credit: int = 0", "credit: int = 9")
    second = store_code(deployed, str(market / "payment"))
    with pytest.raises(ConfigError, match="another deployment has been made meanwhile"):
        append_deployment(config, second, replaces=older)
    assert append_deployment(config, second, replaces=first) is not None
    assert second.sources["stock:app"] == first.sources["stock:app"]
    assert second.sources["payment:app"] != first.sources["payment:app"]


def test_a_removal_that_others_forbid_is_refused_before_the_log(deployed: Path) -> None:
    """The reason names the user and the path."""
    with pytest.raises(DefinitionError, match="application orders uses /payment/User"):
        append_deployment(Config(deployed), store_without(deployed, "payment"))
    assert deployed_code(deployed) == deployment_of(deployed)
    appended = append_deployment(Config(deployed), store_without(deployed, "orders"))
    assert appended is not None
    assert appended.code.module == "payment:app,stock:app"


def test_stored_entities_do_not_prevent_a_removal(deployed: Path) -> None:
    """The record names the classes that may go: those of the code in force. A deployment alone cannot drop them."""
    app = load_aside(unpacked(deployed, deployment_of(deployed))).app
    order = app.entities["Order"]
    row = order.encode(
        {
            "order_id": "o",
            "user_id": app.entities["User"].of_text("u"),
            "items": [],
            "total_cost": 0,
            "paid": False,
        }
    )
    with closing(DataDirectory(deployed).open_journal(app)) as journal:
        Written(journal).changes(("Order", "o", row))
    with pytest.raises(ClassChanged, match="Order: entities of it are stored"):
        append_deployment(Config(deployed), store_without(deployed, "orders"))
    drop = classes_in_force(deployed)
    assert set(drop.names) == {"Item", "Order", "User"}
    appended = append_deployment(Config(deployed), store_without(deployed, "orders"), drop=drop)
    assert appended is not None
    (change,) = appended.changes
    assert change.startswith("Order: the class is removed")
