"""The console for every user: without a mouse, in light and dark; `test_console_audit` visits every page."""

from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from penstock.deployment.loading import load_app
from penstock.gateway.auth.keys import KeyStore, utc_now
from penstock.gateway.auth.principal import granted
from penstock.gateway.openapi.document import openapi_document
from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

CONTRAST_TEXT = 4.5
CONTRAST_PARTS = 3.0

DEBTS = """
from decimal import Decimal
from penstock import App, Entity, key

class Debt(Entity):
    name: str = key()
    amount: Decimal = Decimal(0)

    @property
    def worth(self) -> Decimal:
        return -self.amount

    def pay(self, by: Decimal) -> None:
        self.amount += by

app = App("debts", Debt)
"""

COLOUR = """
const probe = document.createElement('i');
probe.style.color = `var(${arguments[0]})`;
document.body.append(probe);
const found = getComputedStyle(probe).color;
probe.remove();
return found.match(/[\\d.]+/g).slice(0, 3).map(Number);
"""


@pytest.fixture
def seen(page: Page, shop: RunningConsole) -> Page:
    """Return the console of a shop that has at least one item."""
    if shop.http.get("/entities/Item/seen").status_code == 404:
        shop.http.post(
            "/call/Item/seen/create", json={"price": 1}, headers={"Idempotency-Key": "see"}
        )
    return page


def settled(page: Page, place: str) -> None:
    """Open a page and wait until it has asked for everything."""
    page.open(f"/{place}")
    page.one("#now-driver")
    page.one("main h1")
    wait_for(lambda: not page.all(".waiting, [aria-busy]"), f"{place} is complete")


def luminance(colour: list[float]) -> float:
    linear = [
        one / 255 / 12.92 if one / 255 <= 0.04045 else ((one / 255 + 0.055) / 1.055) ** 2.4
        for one in colour
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(page: Page, text: str, ground: str) -> float:
    """Return the ratio of WCAG 2.2 between two colours of the palette."""
    levels = [luminance(page.browser.execute_script(COLOUR, name)) for name in (text, ground)]
    return (max(levels) + 0.05) / (min(levels) + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_from_their_ground(seen: Page, theme: str) -> None:
    """Every pair of colours that holds text has the contrast that WCAG AA wants."""
    settled(seen, "overview")
    seen.theme(theme)
    for ground in ("--paper", "--surface", "--sunken", "--accent-soft"):
        for text in ("--ink", "--muted", "--accent", "--bad"):
            assert contrast(seen, text, ground) >= CONTRAST_TEXT, (text, ground)
    for text, ground in (
        ("--on-accent", "--accent"),
        ("--bad", "--bad-soft"),
        ("--ink", "--bad-soft"),
    ):
        assert contrast(seen, text, ground) >= CONTRAST_TEXT, (text, ground)
    for part in ("--line-strong", "--good", *(f"--series-{index}" for index in range(6))):
        assert contrast(seen, part, "--surface") >= CONTRAST_PARTS, part
    seen.theme("")


def test_chosen_theme_outlives_the_page(seen: Page) -> None:
    """The theme that a person chooses wins over the system's, now and next time."""
    seen.theme("light")
    seen.open("/sql")
    light = seen.browser.execute_script(COLOUR, "--paper")
    seen.press("Dark theme")
    assert seen.browser.execute_script(COLOUR, "--paper") != light
    seen.open("/sql")
    assert seen.one("#theme").text == "Light theme"
    assert seen.browser.execute_script(COLOUR, "--paper") != light
    seen.theme("")


def test_sql_needs_no_mouse(seen: Page) -> None:
    """With the keyboard alone one reaches the editor, runs, sorts, and reads the chart."""
    settled(seen, "overview")
    seen.tab_to("skip")
    seen.keys(Keys.ENTER)
    assert seen.browser.switch_to.active_element.get_attribute("id") == "main"
    settled(seen, "sql")
    seen.tab_to("query")
    seen.keys("SELECT * FROM range(3) AS t(n), range(1) AS u(m)")
    seen.chord(Keys.CONTROL, Keys.ENTER)
    seen.until("#answer", "3 rows")
    seen.tab_to("show-as-table")
    seen.keys(Keys.ARROW_RIGHT)
    seen.one("#result .chart")
    wait_for(lambda: _tabbed_onto(seen, "canvas"), "the chart has the focus")
    seen.keys(Keys.HOME)
    assert seen.text("#result .tip") != ""
    assert "m 0" in seen.browser.execute_script(
        "return document.querySelector('#result figure [aria-live]').textContent"
    )


def _tabbed_onto(page: Page, name: str) -> bool:
    page.keys(Keys.TAB)
    return name in (page.browser.switch_to.active_element.get_attribute("class") or "")


def test_reference_of_the_api_works_with_a_key(browser: webdriver.Chrome, data: Path) -> None:
    """`/docs` asks for a key; with any valid one it shows every path, also on the next visit, and complains of nothing."""
    data.mkdir()
    key = KeyStore(data).add("ada", granted(["call"]), None, utc_now())[1]
    with RunningGateway("examples/shop", data, drives=False) as gateway:
        page = Page(browser, gateway.url)
        browser.get(f"{gateway.url}/docs")
        page.one("#key-dialog[open]")
        page.one("#key").send_keys("psk_00000000_wrong")
        page.click("#key-form .main-button")
        page.until("#page-api .problem", "not valid")
        page.click("#sign-in")
        page.one("#key").clear()
        page.one("#key").send_keys(key)
        page.click("#key-form .main-button")
        text = page.until("#page-api", "Schemas")
        paths = openapi_document(load_app("examples/shop"))["paths"]
        shown = [path for path in paths if not path.startswith("/send/")]
        assert [path for path in shown if path not in text] == []
        page.click("#scopes summary")
        page.until("#scopes table", "call:Item.add")
        wait_for(lambda: page.text("#notice") == "", "a key without the scope admin suffices")
        browser.get("about:blank")
        browser.get(f"{gateway.url}/docs")
        page.until("#page-api", "Schemas")
        browser.execute_script("sessionStorage.clear()")


def test_parts_of_the_reference_have_addresses(page: Page, shop: RunningConsole) -> None:
    """An address opens an operation, its types lead to their schemas, and its link to the form."""
    page.open("/api?operation=call.Item.add")
    page.until("details[open]", "Fields of the body")
    page.open("/api?operation=deployments.list")
    page.until("details[open]", "PenstockDeployment")
    opened = "#operation-deployments\\.list[open]"
    for link, place, text in (
        (f"{opened} a[href*=PenstockDeployment]", "#schema-PenstockDeployment[open]", "number"),
        (f"{opened} a[href*=error]", "details[id^=error-][open]", "Code"),
        (f"{opened} a[href*=try]", "#sent", "GET /deployments"),
    ):
        page.one(link).send_keys(Keys.ENTER)
        page.until(place, text)


def test_properties_and_former_values_mean_what_they_say(
    browser: webdriver.Chrome, data: Path
) -> None:
    """A property is no call of its entity, and a line through a former value does not hide its minus sign."""
    data.mkdir()
    source = data.parent / "debts.py"
    source.write_text(DEBTS)
    with RunningGateway(str(source), data) as gateway:
        for call, body in (("create", {"amount": "-11.10"}), ("pay", {"by": "1.10"})):
            done = httpx.post(f"{gateway.url}/call/Debt/a/{call}", json=body, timeout=60)
            assert done.status_code == 200, done.text
        page = Page(browser, gateway.url)
        page.open("/entities/Debt/a")
        page.until("main", "pay")
        links = [link.text for link in page.all("main a")]
        assert "pay" in links
        assert "worth" not in links
        page.open("/entities/Debt/a/history")
        page.until(".differences del", "-11.10")
        former = page.one(".differences del")
        assert former.value_of_css_property("text-decoration-line") == "none"
