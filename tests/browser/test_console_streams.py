"""The page of streams in the console: all streams, and the atoms of one stream while they come."""

from pathlib import Path

from selenium import webdriver

from tests.browser.page import Page
from tests.stream_gateway import counting
from tests.stream_journal import publish


def test_streams_are_listed_and_followed(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The list leads to the atoms of a stream; new ones appear, and older ones on demand."""
    with counting(tmp_path) as (gateway, _, journal):
        publish(journal, {"lines": [[f"line {n}", "<b>"] for n in range(60)]})
        page = Page(browser, gateway.url)
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
        publish(journal, {"lines": [["the newest"]]})
        page.until("#atoms", "the newest")
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
        browser.get("about:blank")
