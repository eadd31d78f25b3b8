"""Every page of the console: the audit of axe-core, the keyboard, a narrow window, and no other machine.

A page is opened once for all its tests. It covers WCAG 2.1 at levels A and AA, and the best practices of axe-core, in light colours in a
wide window, and in dark colours in a window of 360 pixels.
"""

from collections.abc import Iterator
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page, chromium, need_browser
from tests.browser.running import RunningConsole
from tests.waiting import wait_for

WITH_KEYBOARD: Final = (
    "overview",
    "performance",
    "entities",
    "sql",
    "requests",
    "flow",
    "deployments",
    "try",
)
PAGES: Final = (
    *WITH_KEYBOARD,
    "entities/Item/audited",
    "entities/Item/audited/history",
    "entities/Item/missing",
    "requests/audit",
    "requests/audit/trace",
    "requests/refused",
    "try?path=/call/Item/audited/add",
)
SIGHTS: Final = (("light", 1280), ("dark", 360))
"""Themes and widths. Colours do not depend on the width, and places do not depend on the theme."""

AUDIT_S: Final = 120
PAUSED: Final = "*, *::before, *::after { animation: none !important; transition: none !important }"
ENGINE: Final = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
AUDIT: Final = """
const [paused, done] = arguments;
const sheet = new CSSStyleSheet();
sheet.replaceSync(paused);
document.adoptedStyleSheets = [sheet];
axe.run(document, { resultTypes: ["violations"] })
  .then(({ violations }) => done(violations.flatMap((rule) => rule.nodes.map((node) =>
    `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary}`))))
  .catch((error) => done([String(error)]));
"""

LEVELS: Final = """
return [...document.querySelectorAll('h1, h2, h3, h4')]
  .filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))
"""
HEADS: Final = """
return [...document.querySelectorAll('main th[scope=col]:not(:has(.type))')]
  .filter((one) => !one.closest('.chart, td, dd')).map((one) => one.textContent)
"""
UNFOLD: Final = "document.querySelectorAll('details').forEach((one) => { one.open = true })"
CUT: Final = """
return [...document.querySelectorAll('.table-scroll')]
  .filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.getAttribute('aria-label'))
"""
LENGTHEN: Final = """
const names = [...document.querySelectorAll("main :is(h1, h2, label, .tabs a, .chips :is(button, a))")]
  .filter((one) => one.checkVisibility());
for (const one of names) one.append("m".repeat(60));
return names.length;
"""
KEEP_TWO: Final = """
for (const section of document.querySelectorAll("section.api"))
  [...section.querySelectorAll("details.part")].slice(2).forEach((part) => part.remove());
return document.querySelectorAll("details.part").length;
"""
"""The audit takes long on long pages, and the operations of a group are alike, as schemas are."""

OVERFLOW: Final = (
    "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
)

FOCUSABLE: Final = """
const describe = (one) => `${one.localName} ${one.getAttribute("aria-label") ?? one.textContent}`
  + ` ${one.labels?.[0]?.textContent ?? ""}`;
const isReached = (one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility()
  && !(one.type === "radio" && !one.checked);
"""
CONTROLS: Final = (
    FOCUSABLE
    + """
const all = "a[href], button, input, select, textarea, summary, [tabindex]";
return [...document.querySelectorAll(all)].filter(isReached).map(describe);
"""
)
FOCUSED: Final = (
    FOCUSABLE
    + """
const one = document.activeElement;
const { outlineStyle, outlineWidth } = getComputedStyle(one);
const box = one.matches(".graph a") ? one.querySelector(".box") : null;
const isSeen = box ? getComputedStyle(box).strokeWidth === "3px"
  : outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
return [describe(one), isSeen];
"""
)
STOPS_MAX: Final = 150


def settled(page: Page) -> None:
    """Wait until a page of the console has asked for everything."""
    page.one("#now-driver")
    page.one("main h1")
    wait_for(lambda: not page.all(".waiting, [aria-busy]"), "the page is complete")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Start a browser that notes addresses."""
    need_browser()
    driver = chromium(tmp_path_factory.mktemp("noting"), notes_addresses=True)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def audited(browser: webdriver.Chrome, shop: RunningConsole) -> Iterator[Page]:
    """Return the console of a shop with requests of both outcomes."""
    for name, path, body in (
        ("audit", "/call/Item/audited/create", {"price": 1}),
        ("refused", "/call/Item/nowhere/add", [1]),
    ):
        shop.http.post(path, json=body, headers={"Idempotency-Key": name})
    page = Page(browser, shop.url)
    page.forget()
    yield page
    browser.get("about:blank")


@pytest.fixture(scope="module")
def opened(audited: Page, request: pytest.FixtureRequest) -> Page:
    """Return the browser on one page, which its tests share."""
    audited.forget()
    audited.addresses()
    audited.open(f"/{request.param}")
    settled(audited)
    return audited


@pytest.fixture(autouse=True)
def _wide_and_light(browser: webdriver.Chrome) -> Iterator[None]:
    """Undo the choice of a sight."""
    yield
    browser.set_script_timeout(30)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def narrow(page: Page, width: int) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def violations(page: Page) -> list[str]:
    """Return the violations that axe-core finds, in each of the sights."""
    page.browser.set_script_timeout(AUDIT_S)
    page.browser.execute_script(ENGINE)
    found: list[str] = []
    for theme, width in SIGHTS:
        page.theme(theme)
        narrow(page, width)
        said: list[str] = page.browser.execute_async_script(AUDIT, PAUSED)
        found += [f"{theme}, {width} pixels: {violation}" for violation in said]
    return found


@pytest.mark.parametrize("opened", WITH_KEYBOARD, indirect=True, scope="module")
@pytest.mark.turns(3, "console")
def test_keyboard_reaches_every_control_and_shows_the_focus(opened: Page) -> None:
    """The tabulator stops at each control, the skip link first, and each stop is marked."""
    wanted = set(opened.browser.execute_script(CONTROLS))
    stops: list[str] = []
    while wanted - set(stops) and len(stops) < STOPS_MAX:
        opened.keys(Keys.TAB)
        name, is_seen = opened.browser.execute_script(FOCUSED)
        assert is_seen, name
        stops.append(name)
    assert wanted - set(stops) == set()
    assert stops[0].startswith("a Skip to content")


@pytest.mark.parametrize("opened", PAGES, indirect=True, scope="module")
@pytest.mark.turns(5, "console")
def test_page_serves_everyone(opened: Page, shop: RunningConsole) -> None:
    """It passes the audit, fits into a narrow window, asks no other machine, and leaves no complaint.

    Names, roles, contrast, landmarks, headings, lists, tables and ids are as WCAG wants them. A head of a table begins with
    a capital, unless it is the name of an attribute or a column. At 360 pixels nothing scrolls sideways, and no table has a
    column that is cut; the graph alone scrolls in its frame. The browser's console has no message, but for what is asked for
    and missing.
    """
    opened.browser.execute_script(UNFOLD)
    assert violations(opened) == []
    levels = opened.browser.execute_script(LEVELS)
    assert levels.count(1) == 1
    assert levels[0] == 1
    heads = opened.browser.execute_script(HEADS)
    assert [head for head in heads if not head[:1].isupper()] == []
    narrow(opened, 360)
    assert opened.browser.execute_script(OVERFLOW) == 0
    assert opened.browser.execute_script(CUT) == []
    asked = {urlsplit(address) for address in opened.addresses()}
    hosts = {one.netloc for one in asked if one.scheme in ("http", "https", "ws", "wss")}
    assert hosts == {urlsplit(shop.url).netloc}
    assert {one.scheme for one in asked} <= {"http", "about", "data"}
    assert [text for text in opened.complaints() if " 404 " not in text] == []


def test_a_form_with_errors_passes_the_audit(audited: Page) -> None:
    """A screen reader is told what is wrong with a field."""
    audited.open("/try?path=/call/Item/audited/add")
    settled(audited)
    audited.press("Send")
    audited.until(".field-error:not([hidden])", "is needed")
    assert violations(audited) == []


@pytest.mark.parametrize("place", ["/entities/Item", "/sql", "/try"])
def test_long_names_never_scroll_sideways(audited: Page, place: str) -> None:
    """At 360 pixels, names of sixty letters without a space are broken where they are names."""
    audited.open(place)
    settled(audited)
    narrow(audited, 360)
    assert audited.browser.execute_script(LENGTHEN) > 0
    assert audited.browser.execute_script(OVERFLOW) == 0


def test_sign_in_passes_the_audit(audited: Page) -> None:
    """The dialog has a name, and its parts have labels."""
    audited.open("/overview")
    audited.one("#now-driver")
    audited.browser.execute_script("document.getElementById('key-dialog').showModal()")
    assert violations(audited) == []


def test_reference_of_the_api_passes_the_audit(audited: Page) -> None:
    """The open reference passes as the other pages do, with two operations of each group, two errors and two schemas."""
    audited.open("/api")
    audited.until("#page-api", "Schemas")
    assert audited.browser.execute_script(KEEP_TWO) > 8
    audited.browser.execute_script(UNFOLD)
    wait_for(lambda: audited.all("details.part table"), "the parts have their content")
    assert violations(audited) == []
    assert audited.browser.execute_script(OVERFLOW) == 0
