"""The page of deployments: what is in force, its differences, and an operator who checks, deploys and rolls back."""

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from selenium import webdriver

from penstock.base.ids import Lsn
from penstock.deployment.archives import pack
from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from penstock.model.control import Deploy, Move, decode_control
from penstock.process.data_directory import DataDirectory
from tests.browser.page import Page
from tests.browser.test_console_audit import CUT, OVERFLOW, UNFOLD, narrow, violations
from tests.gateway_thread import RunningGateway
from tests.history import journal_of

MODULE = "consolekiosk"
APP = """
from penstock import App, Entity, key

class Item(Entity):
    name: str = key()
    price: {type}
{more}
app = App("kiosk", Item)
"""
FIRST = APP.format(type="int", more="")
WITH_CUP = """
from penstock import App, Entity, key

class Item(Entity):
    name: str = key()
    price: int

class Cup(Entity):
    name: str = key()

app = App("kiosk", Item, Cup)
"""
SECOND = APP.format(
    type="int | float", more="\n    def halve(self) -> None:\n        self.price /= 2\n"
)


class Served(NamedTuple):
    """A browser with an operator's key on the console of a kiosk that has two deployments, and no driver."""

    page: Page
    data: Path
    folder: Path


@pytest.fixture(scope="module")
def served(browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run the kiosk once for all tests of this file."""
    top = tmp_path_factory.mktemp("kiosk")
    file, data = top / f"{MODULE}.py", top / "data"
    for text, name in ((FIRST, "tea"), (SECOND, "rum")):
        file.write_text(text)
        sys.modules.pop(MODULE, None)  # the former version
        calls: Any = [[("Item", name, "create", {"price": 3})]]
        journal_of(str(file), data, calls, deploys=True)
    key = KeyStore(data).add("ops", granted(["admin"]), None, datetime.now(UTC))[1]
    with RunningGateway(str(file), data, drives=False) as gateway:
        page = Page(browser, gateway.url)
        page.forget()
        browser.execute_script("sessionStorage.setItem('penstock-key', arguments[0])", key)
        yield Served(page, data, top)
        browser.execute_script("sessionStorage.clear()")
        browser.set_script_timeout(30)
        page.theme("")
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get("about:blank")


def controls(data: Path) -> list[Any]:
    """Return all control records of the log."""
    with closing(DataDirectory(data).open_log()) as log:
        return [
            decode_control(log.read(lsn, Lsn(lsn + 1))[0].body)
            for lsn in log.controls(Lsn(0), log.end())
        ]


def opened(served: Served) -> Page:
    served.page.open("/deployments")
    served.page.until("#partitions", "1 partition.")
    return served.page


def test_history_shows_the_differences(served: Served) -> None:
    """The code in force is named; each deployment opens the differences that it has made, in words and colours."""
    page = opened(served)
    assert f"{MODULE}:app" in page.text("#in-force")
    newest, first = page.rows("#deployments")
    assert [newest[0], newest[1], newest[3]] == ["2", "1", "the start of a driver"]
    assert "stored form of Item" in newest[5]
    assert (newest[6], first[5], first[6]) == ("in force", "the first deployment", "Roll back …")
    page.click("#deployments details summary")
    text = page.until("#deployments .findings", "method Item.halve is added")
    assert "Item: price: int became int | float" in text


def test_operator_checks_and_deploys_files(served: Served) -> None:
    """Chosen files become an archive that the gateway reads; the record in the log names the key."""
    page = opened(served)
    chosen = served.folder / "chosen"
    chosen.mkdir()
    file = chosen / f"{MODULE}.py"
    file.write_text(APP.format(type="str", more=""), encoding="utf-8")
    page.labelled("Files of the source").send_keys(str(file))
    page.press("Check")
    refused = page.until("#report", "it would be refused")
    assert "refused schema" in refused
    assert controls(served.data) == []
    text = SECOND + "# §\n"
    file.write_text(text, encoding="utf-8")
    page.labelled("Files of the source").send_keys(str(file))
    page.press("Check")
    page.until("#report", "safe to deploy")
    page.press("Deploy")
    page.until("#deploy .done", "No driver runs")
    (order,) = controls(served.data)
    assert isinstance(order, Deploy)
    assert order.by == "ops"
    assert order.code.archive in {path.stem for path in (served.data / "archives").iterdir()}
    assert (served.data / "archives" / f"{order.code.archive}.zip").read_bytes() == pack(
        {file.name: text.encode()}
    )
    file.write_text("import nowhere_at_all")
    page.labelled("Files of the source").send_keys(str(file))
    page.press("Deploy")
    page.until("#deploy .problem", "This code cannot be deployed")
    page.labelled("Files of the source").clear()
    page.press("Check")
    assert "asked again" not in page.until("#deploy .problem", "No file is chosen")


def test_roll_back_and_moves_ask_first(served: Served) -> None:
    """Both have a question; the gateway's refusal is shown with its reason, and a move is in the log."""
    page = opened(served)
    before = len(controls(served.data))
    page.press("Roll back …")
    page.until("dialog[open]", "Deploy the code of deployment 1 again?")
    page.click("dialog[open] .quiet-button")
    assert len(controls(served.data)) == before
    page.press("Roll back …")
    page.click("dialog[open] .danger")
    page.until("#page-deployments .problem", "price")
    page.write("New number", "2")
    page.press("Move the buckets …")
    page.click("dialog[open] .danger")
    page.until("#page-deployments .done", "The next start changes the number to 2.")
    assert controls(served.data)[before:] == [Move(2)]


def test_roll_back_drops_the_classes_that_are_named(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    """A class of which entities are stored is dropped if the operator names it, as on the command line."""
    file, data = tmp_path / f"{MODULE}.py", tmp_path / "data"
    for text, call in (
        (FIRST, ("Item", "tea", "create", {"price": 3})),
        (WITH_CUP, ("Cup", "blue", "create", {})),
    ):
        file.write_text(text)
        sys.modules.pop(MODULE, None)  # the former version
        journal_of(str(file), data, [[call]], deploys=True)
    key = KeyStore(data).add("ops", granted(["admin"]), None, datetime.now(UTC))[1]
    with RunningGateway(str(file), data, drives=False) as gateway:
        page = Page(browser, gateway.url)
        page.forget()
        browser.execute_script("sessionStorage.setItem('penstock-key', arguments[0])", key)
        page.open("/deployments")
        page.press("Roll back …")
        page.click("dialog[open] .danger")
        page.until("#page-deployments .problem", "Cup")
        assert controls(data) == []
        page.press("Roll back …")
        page.one("dialog[open] input").send_keys(" Cup ")
        page.click("dialog[open] .danger")
        page.until("#page-deployments .done", "No driver runs")
        (order,) = controls(data)
        assert isinstance(order, Deploy)
        assert list(order.dropped) == ["Cup"]
        browser.execute_script("sessionStorage.clear()")
        browser.get("about:blank")


def test_application_of_a_set_is_removed(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """Each application of a set can be named for a deployment, and has a button that removes it after a question."""
    names = ("consolebar", "consolecellar")
    for name, entity in zip(names, ("Bottle", "Barrel"), strict=True):
        text = FIRST.replace("Item", entity).replace('"kiosk"', f'"{name}"')
        (tmp_path / f"{name}.py").write_text(text)
    spec, data = ",".join(str(tmp_path / f"{name}.py") for name in names), tmp_path / "data"
    journal_of(spec, data, [[("Bottle", "rum", "create", {"price": 3})]], deploys=True)
    key = KeyStore(data).add("ops", granted(["admin"]), None, datetime.now(UTC))[1]
    with RunningGateway(spec, data, drives=False) as gateway:
        page = Page(browser, gateway.url)
        page.forget()
        browser.execute_script("sessionStorage.setItem('penstock-key', arguments[0])", key)
        page.open("/deployments")
        page.until("#in-force", "consolebar:app")
        assert page.labelled("Application").get_attribute("value") == ""
        page.labelled("Application").send_keys("")
        suggested = [each.get_attribute("value") for each in page.all("datalist option")]
        assert suggested == [f"{name}:app" for name in names]
        page.click('[aria-label="Remove consolecellar:app …"]')
        page.until("dialog[open]", "Remove the application consolecellar:app?")
        assert controls(data) == []
        page.click("dialog[open] .danger")
        page.until("#page-deployments .done", "No driver runs")
        (order,) = controls(data)
        assert isinstance(order, Deploy)
        assert list(order.code.sources) == ["consolebar:app"]
        browser.execute_script("sessionStorage.clear()")
        browser.get("about:blank")


def test_page_passes_the_audit(served: Served) -> None:
    """axe-core finds nothing, and a narrow window does not scroll sideways."""
    page = opened(served)
    page.browser.execute_script(UNFOLD)
    page.until("#deployments .findings", "halve")
    assert violations(page) == []
    narrow(page, 360)
    assert page.browser.execute_script(OVERFLOW) == 0
    assert page.browser.execute_script(CUT) == []
