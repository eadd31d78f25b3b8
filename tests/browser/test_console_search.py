"""The page of searches: rows are found while words are typed, with counts, marks and the epoch."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from penstock.base.ids import Epoch
from penstock.journal.deployments import Deployments
from penstock.model.control import DeployedCode
from penstock.model.target_choice import search
from penstock.process.view_files import ViewReport, ViewState, folder_of, write_report
from penstock.views.search_target import SearchTarget
from penstock.views.target import TableChange
from tests.browser.page import Page
from tests.browser.test_console_audit import AUDIT, ENGINE, PAUSED
from tests.gateway_thread import RunningGateway
from tests.views.search_rows import ITEMS, SHAPES, item, position


@pytest.fixture
def page(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Page]:
    """An application with a search index that was filled by hand."""
    folder = folder_of(tmp_path, "catalogue")
    rows = [
        item("a", "green tea <b>bold</b>", brand="Leaf & Co"),
        item("b", "black tea", brand="Leaf & Co"),
        item("c", "tea pot", brand="Clay"),
    ]
    target = SearchTarget(folder, search(text=["name"], facets=["brand"]))
    target.load(None, position(7), SHAPES, [TableChange(ITEMS, (), rows)])
    target.close()
    with RunningGateway("tests.views.catalogue_app:app", tmp_path) as gateway:
        code = DeployedCode("a" * 64, "shop", "app", "3", {})
        Deployments(tmp_path / "journal").record(Epoch(0), 1, code, {}, views=["catalogue"])
        write_report(
            tmp_path,
            ViewReport("catalogue", "search", ViewState.FOLLOWING, Epoch(7), 0, "", "", 1, 2),
        )
        page = Page(browser, gateway.url)
        page.forget()
        yield page
        browser.get("about:blank")


def test_rows_are_found_while_words_are_typed(page: Page) -> None:
    """The hits follow the words, texts of rows are no markup, and a mistake is shown with its place."""
    page.open("/search")
    page.until("#hits", "3 rows at epoch 7")
    page.until("#hits", "Leaf & Co (2), Clay (1)")
    page.write("Words", "green")
    page.until("#hits", "1 row at epoch 7")
    page.until("#hits", "green tea <b>bold</b>")
    page.until("#hits mark", "green")
    assert page.complaints() == []
    page.write("Words", "nam:x")
    page.until("#hits", "did you mean name")
    page.open("/search?view=catalogue&q=pot")
    page.until("#hits mark", "pot")
    page.until("#pages", "Search")


def test_page_is_accessible(page: Page) -> None:
    """It passes the audit with hits."""
    page.open("/search?view=catalogue&q=tea")
    page.until("#hits mark", "tea")
    page.browser.execute_script(ENGINE)
    assert page.browser.execute_async_script(AUDIT, PAUSED) == []
