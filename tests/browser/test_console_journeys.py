"""Journeys through the console, from the first click to the wanted result."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from selenium import webdriver

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import EVERYTHING
from penstock.process import presence
from penstock.process.incidents import Incident
from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway
from tests.waiting import meanwhile, wait_for

QUERY = (
    "SELECT price, count(*) AS items FROM \"Item\" WHERE starts_with(item_id, 'chart') GROUP BY 1"
)

CAUSE = 'Traceback:\n  File "shop.py", line 3\nRuntimeError: the sampler is singular\n'


def rate_of(page: Page, method: str) -> str:
    return page.text(f'[data-method="{method}"] .rate')


@contextmanager
def adding(shop: RunningConsole, item: str) -> Iterator[list[str]]:
    """Add one to an item again and again meanwhile; give the answers."""
    answers: list[str] = []

    def add(stop: threading.Event) -> None:
        with httpx.Client(base_url=shop.url, timeout=60) as client:
            while not stop.wait(0.02):
                answer = client.post(f"/call/Item/{item}/add", json=[1])
                assert answer.status_code == 200, answer.text
                answers.append(answer.json())

    with meanwhile(add):
        yield answers


def test_overview_shows_the_graph_and_rates_that_move(page: Page, shop: RunningConsole) -> None:
    """Every operator and every call between them is drawn, and calls show where they pass."""
    page.open("/overview")
    page.one('[data-node="Item"]')
    names = {one.get_attribute("data-node") for one in page.all("[data-node]")}
    assert names == {"Item", "User", "Order", "init_items", "init_users", "init_orders"}
    edges = {one.get_attribute("data-edge") for one in page.all("[data-edge]")}
    assert edges >= {"Order.checkout>Item.subtract", "Order.checkout>User.pay"}
    wait_for(lambda: rate_of(page, "Item.add") == "·", "Item.add is idle")
    shop.call("Item/rates/create", price=1)
    with adding(shop, "rates"):
        wait_for(lambda: rate_of(page, "Item.add").endswith("/s"), "a rate at Item.add")
        page.one('[data-edge=">Item.add"].moving')
    wait_for(lambda: page.text("#now-epoch dd").replace(",", "") > "0", "an epoch is named")
    wait_for(lambda: rate_of(page, "Order.checkout") == "·", "Order.checkout is idle")


def test_incidents_are_shown_with_their_cause(page: Page, shop: RunningConsole) -> None:
    """A request that was set aside is on the overview, with the last line that it ran."""
    page.open("/overview")
    page.one('[data-node="Item"]')
    assert page.text("#incidents") == ""
    shop.incidents.add(
        Incident("a1b2c3", time.time_ns() // 1_000, Epoch(3), Lsn(7), RequestId("odd-1"), CAUSE)
    )
    wait_for(lambda: "odd-1" in page.text("#incidents"), "the incident")
    assert "RuntimeError: the sampler is singular" in page.text("#incidents summary")
    assert "File" not in page.text("#incidents summary")


def test_entity_that_was_created_by_trying_is_found(page: Page) -> None:
    """An entity that the form creates is in the table, and on its own page."""
    page.open("/try")
    page.choose("Of", "Item")
    page.choose("Operation", "create")
    page.write("key", "lamp-1")
    page.write("price", "12")
    page.write("stock (optional)", "7")
    page.press("Send")
    page.until("#answer .status", "200")
    assert "Idempotency-Key" in page.text("#answer .curl")
    page.press("Entities")
    page.write("Find by item_id", "lamp")
    wait_for(lambda: page.rows("#entities") == [["lamp-1", "12", "7"]], "the one row")
    page.press("lamp-1")
    page.until('[data-attribute="price"]', "12")
    assert page.text("h1") == "Item lamp-1"


def test_query_is_charted_and_its_link_reproduces_it(page: Page, shop: RunningConsole) -> None:
    """The address holds the query and its display: every visitor sees the same."""
    for number, price in enumerate((3, 3, 5)):
        shop.call(f"Item/chart-{number}/create", price=price)
    page.open("/sql")
    page.write("Query", f"{QUERY} ORDER BY 1")
    page.press("Run")
    page.until("#result #answer", "2 rows at epoch")
    assert page.rows("#result") == [["3", "2"], ["5", "1"]]
    page.click('label[for="show-as-chart"]')
    page.one("#result .bar")
    link = page.browser.current_url
    page.open("/overview")
    page.one("#page-overview")
    page.browser.get(link)
    page.one("#result .bar")
    assert len(page.all("#result .canvas .bar")) == 2
    assert page.labelled("Query").get_attribute("value") == f"{QUERY} ORDER BY 1"


def test_wrong_query_is_explained(page: Page) -> None:
    """The error of a query is shown, and the editor keeps the query."""
    page.open("/sql?q=SELECT+nothing_of_the_kind")
    assert "nothing_of_the_kind" in page.until("#result .problem", "nothing_of_the_kind")
    assert page.labelled("Query").get_attribute("value") == "SELECT nothing_of_the_kind"


def test_latency_is_known_from_before_the_page_was_opened(page: Page, shop: RunningConsole) -> None:
    """The page shows the latency of requests that were answered before, without a new one."""
    shop.call("Item/before/create", price=1)
    page.open("/performance?window=3600")
    figure = "#page-performance .figures div:last-child"
    page.until(figure, "Latency p50")
    wait_for(lambda: any(one.isdigit() for one in page.text(f"{figure} dd")), "the latency")


def test_request_is_found_by_its_id(page: Page, shop: RunningConsole) -> None:
    """The outcome of a call can be looked up by the id of its request."""
    shop.http.post(
        "/call/Item/wanted/create", json={"price": 1}, headers={"Idempotency-Key": "find-me"}
    )
    shop.http.post("/call/Item/wanted/add", json=[4], headers={"Idempotency-Key": "find-me-too"})
    shop.http.post("/call/Item/no-such/add", json=[4], headers={"Idempotency-Key": "undone"})
    page.open("/requests")
    page.write("Request id", "find-me-too")
    page.press("Look up")
    page.one('[data-status="answered"]')
    assert page.text("#reply") == '"Item: wanted stock updated to: 4"'
    page.write("Request id", "undone")
    page.press("Look up")
    page.until("#request", "nothing of the transaction remains")
    page.write("Request id", "never-sent")
    page.press("Look up")
    page.until("#request", "There is no such request")
    page.until("#recent", "find-me-too")


def test_killed_driver_comes_back_with_nothing_lost(page: Page, shop: RunningConsole) -> None:
    """Requests that are sent during a kill are all answered, and the page reports the kill."""
    shop.call("Item/kill/create", price=1)
    page.open("/overview")
    with adding(shop, "kill") as answers:
        page.click("#kill-driver")
        page.press("Kill it")
        for event in ("killed", "back", "working", "whole"):
            page.one(f'[data-event="{event}"]')
        reached = len(answers)
        wait_for(lambda: len(answers) > reached + 3, "answers after the kill")
    assert shop.http.get("/stock/find/kill").json()["stock"] == len(answers)
    assert "Nothing lost" in page.text('[data-event="whole"]')
    assert any("driver: ended with SIGKILL" in line for line in shop.said)


def test_console_asks_for_a_key_and_keeps_it_in_the_tab(
    browser: webdriver.Chrome, data: Path
) -> None:
    """Without a key the page is empty of data; with one it works until the tab is closed."""
    data.mkdir()
    _, secret = KeyStore(data).add("root", [EVERYTHING], None, utc_now())
    with presence.present(data, "driver", SHOP), RunningGateway(SHOP, data) as shop:
        page = Page(browser, shop.url)
        page.open("/overview")
        page.write("API key or token", secret)
        page.click("#key-form [type=submit]")
        page.one('[data-node="Item"]')
        page.open("/requests")
        page.until("#now-driver", "idle")
        assert browser.execute_script("return Object.values(localStorage)") == []
        browser.execute_script("sessionStorage.clear()")
        page.open("/overview")
        page.one("#key-dialog[open]")
        assert page.all("[data-node]") == []
        browser.get("about:blank")
