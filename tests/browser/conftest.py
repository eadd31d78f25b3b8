"""One running shop and one browser for all tests of a process; each test has keys of its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.browser.page import Page, chromium, need_browser
from tests.browser.running import RunningConsole
from tests.checkout import SHOP

IMPORT = """
const [file, code, given, done] = arguments;
import(new URL(file, document.querySelector("script[type=module]").src).href)
  .then((module) => done(new Function("module", "given", `return ${code}`)(module, given)))
  .catch((error) => done(String(error)));
"""


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """Run the shop as `penstock dev` does, but for Spark."""
    with RunningConsole(SHOP, tmp_path_factory.mktemp("shop") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Start a browser; without one, skip the tests that need it, but fail if CI is set."""
    need_browser()
    driver = chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: webdriver.Chrome, shop: RunningConsole) -> Iterator[Page]:
    """Return the browser on the shop's console, with nothing left of other tests."""
    page = Page(browser, shop.url)
    page.forget()
    yield page
    browser.get("about:blank")  # an open page goes on asking its gateway


@pytest.fixture(scope="module")
def ask(browser: webdriver.Chrome, shop: RunningConsole) -> Iterator[Any]:
    """Return a function that evaluates an expression over a module, outside of the page's policy.

    The tests of a file share one page, so an expression leaves nothing in it.
    """
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    page = Page(browser, shop.url)
    page.open("/requests")
    page.one("#now-driver")

    def evaluate(file: str, code: str, given: Any = None) -> Any:
        return browser.execute_async_script(IMPORT, file, code, given)

    yield evaluate
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
    browser.get("about:blank")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory that does not exist yet."""
    return tmp_path / "data"
