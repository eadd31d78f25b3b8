"""The SQL page: suggestions, the list of tables, marked errors, pages of rows, queries of before."""

from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.waiting import wait_for

LIST = ".editor .suggestions"
CHOSEN = f"{LIST} [aria-selected=true] span"
NARROW = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
CUT = (
    "return [...document.querySelectorAll('.table-scroll')]"
    ".map((one) => one.scrollWidth - one.clientWidth).filter((more) => more > 0)"
)
NUMBERS = (
    "SELECT n, ((n * 7) % 250) * 0.5::DECIMAL(9, 2) AS price, "
    "TIMESTAMPTZ '2026-01-31 12:00:00Z' AS at FROM range(250) AS t(n)"
)


def query(page: Page) -> str:
    return str(page.labelled("Query").get_property("value"))


def opened(page: Page) -> None:
    """Open the page, wait for the tables, and put the focus into the editor."""
    page.open("/sql")
    page.one("#tables")
    wait_for(lambda: page.all(".tables li"), "the tables")
    page.click("#query")


def test_suggestions_are_taken_with_the_keyboard(page: Page) -> None:
    """A table, then a column of the alias before the point; Escape closes, and Tab leaves then."""
    opened(page)
    page.keys("SELECT * FROM Ite")
    page.until(CHOSEN, "Item")
    editor = page.labelled("Query")
    active = editor.get_attribute("aria-activedescendant")
    assert page.one(f"[id='{active}']").get_attribute("role") == "option"
    assert page.one(LIST).get_attribute("id") == editor.get_attribute("aria-controls")
    page.keys(Keys.TAB)
    page.keys(" AS i WHERE i.")
    page.until(LIST, "stock")
    page.keys(Keys.ARROW_DOWN)
    page.until(CHOSEN, "price")
    page.keys(Keys.ENTER)
    assert query(page) == "SELECT * FROM Item AS i WHERE i.price"
    page.keys(" > 1 limi")
    page.until(CHOSEN, "LIMIT")
    page.keys(Keys.ENTER)
    assert query(page).endswith("limi\n")
    page.keys("limi")
    page.until(CHOSEN, "LIMIT")
    page.keys(Keys.ESCAPE)
    assert not page.one("#query").get_attribute("aria-activedescendant")
    page.keys(Keys.TAB)
    assert page.browser.switch_to.active_element.get_attribute("id") != "query"
    assert page.complaints() == []


def test_name_of_the_list_is_written_at_the_caret(page: Page) -> None:
    """A click writes the table, in quotes if it is a word of SQL, and the editor keeps the focus."""
    opened(page)
    page.keys("SELECT count(*) FROM")
    page.browser.execute_script("document.getElementById('tables').open = true")
    page.press("Order")
    assert query(page) == 'SELECT count(*) FROM "Order"'
    assert page.browser.switch_to.active_element.get_attribute("id") == "query"
    page.chord(Keys.CONTROL, Keys.ENTER)
    page.until("#answer", "1 row at epoch")


def test_error_is_marked_at_its_place(page: Page) -> None:
    """The caret is at the error, the text is marked there, and the message has line and column."""
    opened(page)
    page.keys("SELECT *\nFROM range(3) AS t(n)\nORDER BY nope", Keys.ESCAPE)
    page.chord(Keys.CONTROL, Keys.ENTER)
    page.until("#result .problem", "line 3, column 10")
    wait_for(lambda: page.text(".mirror mark") == "nope", "the mark")
    editor = page.browser.switch_to.active_element
    assert editor.get_attribute("id") == "query"
    assert editor.get_attribute("aria-invalid") == "true"
    described = editor.get_attribute("aria-errormessage")
    assert "nope" in page.text(f"[id='{described}']")
    page.keys("n", Keys.DELETE, Keys.DELETE, Keys.DELETE, Keys.DELETE)
    assert page.all(".mirror mark") == []
    page.chord(Keys.CONTROL, Keys.ENTER)
    page.until("#answer", "3 rows at epoch")


def test_answer_has_pages_and_sorts_all_rows(page: Page) -> None:
    """A column sorts over all pages by size; decimals and times are as people write them."""
    page.open("/sql")
    page.write("Query", NUMBERS)
    page.press("Run")
    page.until("#answer", "250 rows")
    assert page.rows("#result")[1] == ["1", "3.50", "2026-01-31 12:00:00 UTC"]
    assert len(page.rows("#result")) == 100
    page.press("Next")
    wait_for(lambda: page.rows("#result")[0][0] == "100", "the second page")
    heads = page.all("#result thead button")
    heads[1].send_keys(Keys.ENTER)
    wait_for(lambda: page.rows("#result")[0][1] == "0.00", "the smallest price")
    page.all("#result thead button")[1].send_keys(Keys.ENTER)
    wait_for(lambda: page.rows("#result")[0][1] == "124.50", "the greatest price")
    assert [row[1] for row in page.rows("#result")[:3]] == ["124.50", "124.00", "123.50"]
    assert page.all("#result th")[1].get_attribute("aria-sort") == "descending"


def test_queries_of_the_tab_can_be_run_again(page: Page, shop: RunningConsole) -> None:
    """Each query is listed once, the newest first; the list is kept in the tab alone."""
    opened(page)
    for text in ("SELECT 1", "SELECT nope", "SELECT 1"):
        page.write("Query", text)
        page.press("Run")
        page.until("#result", "nope" if "nope" in text else "1 row")
    page.open("/sql")
    page.click("#queries summary")
    wait_for(lambda: page.all("#queries li"), "the queries")
    texts = [one.text for one in page.all("#queries li button")]
    assert texts == ["SELECT 1", "SELECT nope"]
    assert "an error" in page.text("#queries")
    page.click("#queries li button")
    page.until("#answer", "1 row at epoch")
    assert page.browser.execute_script("return Object.keys(localStorage)") == []
    page.press("Forget them")
    assert page.all("#queries li") == []


def test_no_column_of_an_answer_is_cut_in_a_narrow_window(page: Page) -> None:
    """At 360 pixels, an answer of ten columns does not scroll sideways."""
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
    try:
        columns = ", ".join(f"'a longer text' AS column_{index}" for index in range(10))
        page.open("/sql")
        page.write("Query", f"SELECT {columns}")
        page.press("Run")
        page.until("#answer", "1 row")
        assert page.browser.execute_script(CUT) == []
        overflow = "const d = document.documentElement; return d.scrollWidth - d.clientWidth"
        assert page.browser.execute_script(overflow) == 0
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
