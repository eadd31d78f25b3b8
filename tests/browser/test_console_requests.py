"""The list of requests: filters, pages, live mode, outcomes and arguments."""

from typing import Any

import pytest

from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.waiting import wait_for

NARROW = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
CUT = (
    "return [...document.querySelectorAll('.table-scroll')]"
    ".map((one) => one.scrollWidth - one.clientWidth).filter((more) => more > 0)"
)


def sent(shop: RunningConsole, item: str, amounts: list[int]) -> None:
    """Create an item, and add amounts under the request ids `item-amount`."""
    shop.call(f"Item/{item}/create", price=1)
    for amount in amounts:
        answer = shop.http.post(
            f"/call/Item/{item}/add",
            json={"amount": amount},
            headers={"Idempotency-Key": f"{item}-{amount}"},
        )
        assert answer.status_code == 200, answer.text


def listed(page: Page) -> list[str]:
    """Return the request ids of the list, in order."""
    return [row[4] for row in page.rows("#recent")]


def joined(call: str) -> str:
    """Return a call whose parts are boxes of their own, as one line."""
    return call.replace("\n", "")


def test_filters_choose_requests_and_stay_in_the_address(page: Page, shop: RunningConsole) -> None:
    """Filters of entity, key, method and outcome combine; the address opens the same list again."""
    sent(shop, "sieve", [5, 6])
    answer = shop.http.post("/call/Item/sieve-none/add", json=[9])
    assert answer.status_code == 404
    page.open("/requests")
    page.choose("Entity or function", "Item")
    page.write("Key", "sieve")
    page.write("Method", "add")
    wait_for(lambda: listed(page) == ["sieve-6", "sieve-5"], "the two requests")
    call, arguments, outcome = page.rows("#recent")[0][1:4]
    assert (joined(call), arguments, outcome) == ("Item(sieve).add", "amount 6", "took effect")
    address = page.browser.current_url
    page.open("/overview")
    page.one("#page-overview")
    page.browser.get(address)
    wait_for(lambda: listed(page) == ["sieve-6", "sieve-5"], "the same list")
    assert page.labelled("Key").get_attribute("value") == "sieve"
    page.write("Key", "sieve-none")
    page.choose("Outcome", "undone")
    wait_for(lambda: len(listed(page)) == 1, "the request that was undone")
    assert page.rows("#recent")[0][3].startswith("undone: no-such-entity")
    page.choose("Outcome", "took effect")
    page.until("#recent", "No such request")
    page.press("This list as SQL")
    page.until("#result #answer", "0 rows")


def test_pages_go_to_older_requests_and_back(page: Page, shop: RunningConsole) -> None:
    """Each request is on exactly one page, and both directions have the same pages."""
    sent(shop, "pages", list(range(60)))
    page.open("/requests?of=Item&key=pages&method=add")
    seen = [page_from(page, 59)]
    for button, newest in (("Older", 34), ("Older", 9), ("Newer", 34), ("Newer", 59)):
        page.press(button)
        seen.append(page_from(page, newest))
    assert seen[0] + seen[1] + seen[2] == [f"pages-{amount}" for amount in range(59, -1, -1)]
    assert seen[3:] == [seen[1], seen[0]]


def page_from(page: Page, newest: int) -> list[str]:
    """Wait for the page that begins with an amount; return its request ids."""
    wait_for(lambda: listed(page)[:1] == [f"pages-{newest}"], f"the page from {newest}")
    return listed(page)


def test_live_list_shows_a_new_request_and_keeps_the_focus(
    page: Page, shop: RunningConsole
) -> None:
    """With Live, a request appears without a key press, and a link keeps the focus."""
    sent(shop, "alive", [1])
    page.open("/requests?of=Item&key=alive&method=add&live=yes")
    wait_for(lambda: listed(page) == ["alive-1"], "the first request")
    page.browser.execute_script("document.querySelector('#recent .request-id a').focus()")
    sent(shop, "alive-other", [7])
    shop.http.post(
        "/call/Item/alive/add", json=[2], headers={"Idempotency-Key": "alive-2"}
    ).raise_for_status()
    wait_for(lambda: listed(page) == ["alive-2", "alive-1"], "the new request")
    assert page.browser.switch_to.active_element.text == "alive-1"


def test_scheduled_requests_are_listed_by_due_time(page: Page, shop: RunningConsole) -> None:
    """Each scheduled request has its due time, call and arguments; the next one is first."""
    sent(shop, "later", [])
    for hours in (200, 100):
        shop.http.post(
            f"/send/Item/later/add?delay={hours * 3_600}",
            json={"amount": hours},
            headers={"Idempotency-Key": f"later-{hours}"},
        ).raise_for_status()
    page.open("/requests")
    page.until(".tabs", "Scheduled 2")
    page.press("Scheduled 2")
    page.until("#scheduled h2", "2 requests")
    rows = page.rows("#scheduled")
    assert [[joined(row[1]), *row[2:4]] for row in rows] == [
        ["Item(later).add", f"amount {hours}", f"later-{hours}"] for hours in (100, 200)
    ]
    assert "in 4 d" in rows[0][0]
    page.press("later-100")
    page.one('[data-status="scheduled"]')
    page.open("/requests?show=scheduled")
    page.until("#scheduled h2", "2 requests")
    page.click('[aria-label="Cancel later-100 …"]')
    page.press("Keep it")
    page.until("#scheduled h2", "2 requests")
    page.click('[aria-label="Cancel later-100 …"]')
    page.press("Cancel it")
    page.until("#scheduled h2", "1 request")
    assert [row[3] for row in page.rows("#scheduled")] == ["later-200"]
    page.press("Recent")
    wait_for(lambda: "later-100" in listed(page), "the list has the cancelled request")
    cancelled = shop.http.get("/requests/later-100", params={"wait": 30}).json()
    assert cancelled["error"]["code"] == "cancelled"


def test_request_shows_its_call_and_arguments(page: Page, shop: RunningConsole) -> None:
    """The page of one request names the call, its arguments and its reply."""
    sent(shop, "shown", [8])
    page.open("/requests/shown-8")
    page.until("#request", "Item(shown).add")
    page.until("#request", "amount 8")
    assert "stock updated to: 8" in page.text("#reply")


def test_ids_are_short_and_copied_whole(page: Page, shop: RunningConsole) -> None:
    """Each row is one line of the same height; a long id is cut, and its button copies all of it."""
    long = "an-id-of-forty-letters-that-a-caller-made"
    sent(shop, "copied", [1])
    shop.http.post("/call/Item/copied/add", json=[2], headers={"Idempotency-Key": long})
    page.open("/requests?of=Item&key=copied")
    wait_for(lambda: len(listed(page)) == 3, "the requests")
    assert listed(page)[:2] == [f"{long[:12]}…", "copied-1"]
    heights = "return [...new Set([...document.querySelectorAll('#recent tbody tr')].map((row) => row.clientHeight))]"
    found: Any = page.browser.execute_script(heights)
    assert len(found) == 1
    page.browser.execute_script(
        "navigator.clipboard.writeText = async (text) => { window.written = text; }"
    )
    page.click(f'[aria-label="Copy {long}"]')
    page.one(f'[aria-label="Copy {long}"][data-said="Copied"]')
    assert page.browser.execute_script("return window.written") == long


@pytest.mark.parametrize("place", ["requests", "requests/narrow-3"])
def test_no_column_is_cut_in_a_narrow_window(page: Page, shop: RunningConsole, place: str) -> None:
    """At 360 pixels, each value is below the last one, and no table scrolls sideways."""
    if shop.http.get("/entities/Item/narrow").status_code == 404:
        sent(shop, "narrow", [3])
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
    try:
        page.open(f"/{place}")
        wait_for(lambda: listed(page), "the list")
        assert page.browser.execute_script(CUT) == []
        roles = "return document.querySelector('#recent tbody td').computedRole"
        found: Any = page.browser.execute_script(roles)
        assert found in (None, "cell", "gridcell")
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
