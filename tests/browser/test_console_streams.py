"""The page of streams in the console: all streams, and the atoms of one stream while they come."""

from collections.abc import Iterator

import pytest
from selenium import webdriver

from penstock.journal.api import Journal
from tests.browser.page import Page
from tests.browser.test_console_audit import violations
from tests.stream_gateway import counting
from tests.stream_journal import publish


@pytest.fixture(scope="module")
def served(
    browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, Journal]]:
    """A browser on the console of an application with sixty atoms."""
    with counting(tmp_path_factory.mktemp("counting")) as (gateway, _, journal):
        publish(journal, {"lines": [[f"line {n}", "<b>"] for n in range(60)]})
        page = Page(browser, gateway.url)
        yield page, journal
        browser.set_script_timeout(30)
        page.theme("")
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get("about:blank")


def test_streams_are_listed_and_followed(served: tuple[Page, Journal]) -> None:
    """The list leads to the atoms of a stream; new ones appear, and older ones on demand."""
    page, journal = served
    page.open("/overview")
    page.press("Streams")
    page.until("#page-streams", "workflow double")
    rows = {row[0]: row[1:] for row in page.rows("#page-streams")}
    assert rows["lines"][:2] == ["str", "appends and emit"]
    assert rows["lines"][3:5] == ["0", "60"]
    assert rows["numbers"][2] == "workflow double, splitter parity"
    page.press("lines")
    page.until("#atoms", "line 59")
    assert len(page.rows("#atoms")) == 50
    publish(journal, {"lines": [["line sixty"]]})
    page.until("#atoms", "line sixty")
    assert page.rows("#atoms")[0][0] == "60"
    page.press("Older atoms")
    page.until("#atoms", '"line 0"')
    assert len(page.rows("#atoms")) == 61
    page.open("/streams/lines")
    page.press("Append events")
    page.until("#page-try", "POST /streams/lines")
    page.open("/streams/doubled")
    page.until("#atoms", "There are no atoms yet.")
    page.open("/streams/lnes")
    page.until("#page-streams", "did you mean lines")


@pytest.mark.parametrize(
    ("place", "shown"), [("streams", "workflow double"), ("streams/lines", "line 59")]
)
def test_pages_pass_the_audit(served: tuple[Page, Journal], place: str, shown: str) -> None:
    """axe-core finds nothing in the list, and nothing in the page of a stream."""
    page, _ = served
    page.open(f"/{place}")
    page.until("#page-streams", shown)
    page.one("#now-driver")
    assert violations(page) == []
