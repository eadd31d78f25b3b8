"""The audit of axe-core, on every page of the console and on the page of the HTTP API.

The audit covers WCAG 2.1 at levels A and AA, and the best practices of axe-core, in light colours in a
wide window, and in dark colours in a window of 360 pixels.
"""

from collections.abc import Iterator
from importlib import resources
from typing import Final

import pytest
from selenium.webdriver.common.keys import Keys

from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.waiting import wait_for

PAGES: Final = (
    "overview",
    "performance",
    "entities",
    "entities/Item/audited",
    "entities/Item/audited/history",
    "entities/Item/missing",
    "sql",
    "requests",
    "requests/audit",
    "requests/audit/trace",
    "requests/refused",
    "flow",
    "try",
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

WITH_KEYBOARD: Final = ("overview", "performance", "entities", "sql", "requests", "flow", "try")
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


@pytest.fixture
def audited(page: Page, shop: RunningConsole) -> Iterator[Page]:
    """Return the console of a shop with requests of both outcomes."""
    for name, path, body in (
        ("audit", "/call/Item/audited/create", {"price": 1}),
        ("refused", "/call/Item/nowhere/add", [1]),
    ):
        shop.http.post(path, json=body, headers={"Idempotency-Key": name})
    yield page
    page.browser.set_script_timeout(30)
    page.theme("")
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


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


@pytest.mark.parametrize("place", PAGES)
def test_page_passes_the_audit(audited: Page, place: str) -> None:
    """Names, roles, contrast, landmarks, headings, lists, tables and ids are as WCAG wants them."""
    audited.open(f"/{place}")
    audited.one("#now-driver")
    audited.one("main h1")
    wait_for(lambda: not audited.all(".waiting, [aria-busy]"), f"{place} is complete")
    for unfolded in audited.all("details:not([open]) > summary"):
        audited.browser.execute_script("arguments[0].parentElement.open = true", unfolded)
    assert violations(audited) == []


def test_sign_in_passes_the_audit(audited: Page) -> None:
    """The dialog has a name, and its parts have labels."""
    audited.open("/overview")
    audited.one("#now-driver")
    audited.browser.execute_script("document.getElementById('key-dialog').showModal()")
    assert violations(audited) == []


def test_page_of_the_api_passes_the_audit(audited: Page, shop: RunningConsole) -> None:
    """The page `/docs` passes as the console does."""
    audited.browser.get(f"{shop.url}/docs")
    audited.one("h1")
    assert violations(audited) == []


@pytest.mark.parametrize("place", WITH_KEYBOARD)
def test_keyboard_reaches_every_control_and_shows_the_focus(audited: Page, place: str) -> None:
    """The tabulator stops at each control, the skip link first, and each stop is marked."""
    audited.open(f"/{place}")
    audited.one("#now-driver")
    audited.one("main h1")
    wait_for(lambda: not audited.all(".waiting, [aria-busy]"), f"{place} is complete")
    wanted = set(audited.browser.execute_script(CONTROLS))
    stops: list[str] = []
    while wanted - set(stops) and len(stops) < STOPS_MAX:
        audited.keys(Keys.TAB)
        name, is_seen = audited.browser.execute_script(FOCUSED)
        assert is_seen, name
        stops.append(name)
    assert wanted - set(stops) == set()
    assert stops[0].startswith("a Skip to content")
