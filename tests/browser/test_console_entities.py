"""The lists of entities: filters by attribute, order, nested values."""

from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.browser.test_console_audit import OVERFLOW
from tests.browser.test_console_requests import CUT, NARROW
from tests.waiting import wait_for

LONG = "a-reference-with-a-key-that-is-wider-than-a-telephone"


def keys(page: Page) -> list[str]:
    return [row[0] for row in page.rows("#entities")]


def test_entities_are_filtered_and_sorted_by_attributes(page: Page, shop: RunningConsole) -> None:
    """Filters combine with the key, a head sorts both ways, and the address keeps all of it."""
    for name, price, stock in (("a", 10, 3), ("b", 30, 2), ("c", 20, 9), ("d", 5, 8)):
        shop.call(f"Item/sort-{name}/create", price=price, stock=stock)
    page.open("/entities/Item")
    page.write("Find by item_id", "sort-")
    wait_for(lambda: keys(page) == ["sort-a", "sort-b", "sort-c", "sort-d"], "all by key")
    page.press("Add a filter by attribute")
    page.choose("Attribute", "price")
    page.choose("Condition", "is at least")
    page.write("Value", "10")
    wait_for(lambda: keys(page) == ["sort-a", "sort-b", "sort-c"], "those of at least 10")
    page.click("#entities th:nth-child(2) button")
    wait_for(lambda: keys(page) == ["sort-a", "sort-c", "sort-b"], "rising prices")
    assert page.browser.switch_to.active_element.text.startswith("price")  # the focus stayed
    page.click("#entities th:nth-child(2) button")
    wait_for(lambda: keys(page) == ["sort-b", "sort-c", "sort-a"], "falling prices")
    assert page.one("#entities th:nth-child(2)").get_attribute("aria-sort") == "descending"
    address = page.browser.current_url
    page.open("/overview")
    page.one("#page-overview")
    page.browser.get(address)
    wait_for(lambda: keys(page) == ["sort-b", "sort-c", "sort-a"], "the same list")
    page.write("Value", "cheap")
    page.until("#entities .problem", "cheap")
    page.press("Remove")
    wait_for(lambda: keys(page) == ["sort-b", "sort-c", "sort-a", "sort-d"], "no filter")


def test_nested_values_are_tables(page: Page, shop: RunningConsole) -> None:
    """A list of tuples is a table with links, in the list and on the page, also when it is narrow."""
    shop.call("User/nest/create", credit=1)
    shop.call(f"User/{LONG}/create", credit=1)
    shop.call("Order/long/create", user_id=LONG)
    shop.call("Order/nest/create", user_id="nest")
    for number in range(3):
        shop.call(f"Item/nest-{number}/create", price=1, stock=9)
        shop.http.post("/call/Order/nest/addItem", json=[f"nest-{number}", number + 1])
    nested = [["nest-0", "1"], ["nest-1", "2"], ["nest-2", "3"]]
    page.open("/entities/Order?find=nest")
    page.click("#entities summary")
    wait_for(lambda: page.rows("#entities td .table-scroll") == nested, "the nested table")
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
    try:
        assert page.browser.execute_script(CUT) == []
        page.open("/entities/Order/long")
        page.until('[data-attribute="user_id"]', LONG)
        assert page.browser.execute_script(OVERFLOW) == 0
        page.open("/entities/Order/nest")
        wait_for(lambda: page.rows('[data-attribute="items"]') == nested, "the table of the page")
        assert page.browser.execute_script(CUT) == []
        page.press("Requests to it")
        wait_for(lambda: len(page.rows("#recent")) == 4, "the requests to the order")
        assert page.text("#recent").count("addItem") == 3
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
