"""The console in a headless Chromium, as a person uses it: by labels, names and keys."""

import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from tests import waiting

LOOK_S = 0.05  # each look asks the browser, which then draws its page later
BROWSER = "chromium-headless-shell"
"""Chromium's engine without the parts that a person sees around a page, which take processor time, too."""

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--window-size=1280,900",
    # One process for the pages of all sites, and none in advance: to start one takes longer than to show a page.
    "--disable-features=SpareRendererForSitePerProcess,ProactivelySwapBrowsingInstance,BackForwardCache",
    "--disable-site-isolation-trials",
    # Nobody watches a movement.
    "--in-process-gpu",
    "--disable-smooth-scrolling",
)
NOTE_CLICK = """
window.clicked = false;
arguments[0].addEventListener("click", () => { window.clicked = true; }, {capture: true, once: true});
"""
# One question for each look. Selenium sends a program of 50 kB to ask whether an element is shown.
SHOWN = """
const isShown = (one) => one.checkVisibility({visibilityProperty: true, opacityProperty: true});
"""
FIND_SHOWN = f"""{SHOWN}
const found = document.querySelector(arguments[0]);
return found !== null && isShown(found) ? found : null;
"""
FIND_NAMED = f"""{SHOWN}
const kind = XPathResult.ORDERED_NODE_ITERATOR_TYPE;
const found = document.evaluate(arguments[0], document, null, kind);
for (let one = found.iterateNext(); one !== null; one = found.iterateNext()) {{
  if (isShown(one)) return one;
}}
return null;
"""
SHOWN_TEXT = f"""{SHOWN}
const found = document.querySelector(arguments[0]);
return found !== null && isShown(found) ? (found.innerText ?? found.textContent).trim() : "";
"""
_NUMBERS = count()
# The page was drawn again, or it moved while it was pressed.
_GONE = (NoSuchElementException, StaleElementReferenceException, ElementClickInterceptedException)


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of a condition about a page."""
    return waiting.wait_for(condition, what, look_s=LOOK_S)


def need_browser() -> None:
    """Skip the test where there is no browser, but fail it if CI is set."""
    if missing := [name for name in (BROWSER, "chromedriver") if shutil.which(name) is None]:
        message = f"no {' and no '.join(missing)}: apt install {BROWSER} chromium-driver"
        (pytest.fail if "CI" in os.environ else pytest.skip)(message)


def chromium(profile: Path, *, notes_addresses: bool = False) -> webdriver.Chrome:
    """Start Debian's Chromium with its own driver, and make its profile in an empty directory.

    `notes_addresses` is for `Page.addresses`; it takes a fifth of the time of each page.
    """
    options = Options()
    # With a debugger the browser opens no page by itself, and its driver expects one.
    profile.mkdir(parents=True, exist_ok=True)
    program = profile / "start"
    program.write_text(f'#!/bin/sh\nexec {BROWSER} "$@" about:blank\n')
    program.chmod(0o700)
    options.binary_location = str(program)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    logs = ("browser", "performance") if notes_addresses else ("browser",)
    options.set_capability("goog:loggingPrefs", dict.fromkeys(logs, "ALL"))
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


class Page:
    """One browser on one console."""

    def __init__(self, browser: webdriver.Chrome, url: str) -> None:
        self.browser = browser
        self.url = url

    def open(self, place: str) -> None:
        """Load the console at a place, such as `/sql`, with a fresh page."""
        # With the same query string, the browser would go to another place in the same page.
        self.browser.get(f"{self.url}/console/?{next(_NUMBERS)}#{place}")

    def forget(self) -> None:
        """Empty the storage of the console's site, and the browser's complaints so far."""
        self.browser.get(f"{self.url}/console/icon.svg")  # a small file of the same site
        self.browser.execute_script("sessionStorage.clear(); localStorage.clear()")
        self.complaints()

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """Return an element that is shown, as soon as it is."""
        found: WebElement = wait_for(lambda: self._shown(selector), f"{selector} is shown")
        return found

    def text(self, selector: str) -> str:
        """Return an element's text; empty if it is missing."""
        text: str = self.browser.execute_script(SHOWN_TEXT, selector)
        return text

    def until(self, selector: str, part: str) -> str:
        """Wait until an element's text has a part; return the text."""
        return str(wait_for(lambda: self._text_with(selector, part), f"{part!r} in {selector}"))

    def click(self, selector: str) -> None:
        """Click an element as soon as it is shown."""
        wait_for(lambda: self._clicked(self._shown(selector)), f"a click on {selector}")

    def press(self, name: str) -> None:
        """Click the first button or link of this name that is shown, as soon as one is."""
        path = f"//*[self::button or self::a][normalize-space()='{name}']"
        wait_for(lambda: self._pressed(path), f"{name!r} is shown")

    def labelled(self, label: str) -> WebElement:
        """Return the input that a label names, as assistive technology finds it."""
        path = f"//label[normalize-space()='{label}']"
        wait_for(lambda: self.browser.find_elements(By.XPATH, path), f"the label {label!r}")
        found = self.browser.find_element(By.XPATH, path).get_attribute("for")
        return self.one(f"[id='{found}']")

    def write(self, label: str, text: str) -> None:
        element = self.labelled(label)
        element.clear()
        element.send_keys(text)

    def choose(self, label: str, beginning: str) -> None:
        """Choose the option that begins like this."""
        select = Select(self.labelled(label))
        options = [one.text for one in select.options]
        select.select_by_visible_text(next(one for one in options if one.startswith(beginning)))

    def rows(self, selector: str) -> list[list[str]]:
        """Return the texts of a table's cells."""
        script = (
            "return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
            ".map((row) => [...row.children].map((cell) => cell.innerText))"
        )
        found: list[list[str]] = self.browser.execute_script(script, selector)
        return found

    def keys(self, *keys: str) -> None:
        """Press keys where the focus is."""
        webdriver.ActionChains(self.browser).send_keys(*keys).perform()

    def chord(self, modifier: str, key: str) -> None:
        """Press a key while another one is held."""
        actions = webdriver.ActionChains(self.browser)
        actions.key_down(modifier).send_keys(key).key_up(modifier).perform()

    def tab_to(self, element_id: str, most: int = 60) -> None:
        """Move the focus with the tabulator until an element has it."""
        for _ in range(most):
            if self.browser.switch_to.active_element.get_attribute("id") == element_id:
                return
            self.keys(Keys.TAB)
        raise AssertionError(f"the tabulator does not reach #{element_id}")

    def theme(self, name: str) -> None:
        """Let the system prefer `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def complaints(self) -> list[str]:
        """Return the browser's complaints since the last question."""
        said = [entry["message"] for entry in self._log("browser")]
        # The browser itself asks for this icon when it first shows a file of a site that is no page.
        return [message for message in said if "/favicon.ico " not in message]

    def addresses(self) -> set[str]:
        """Return every address that was asked for since the last question; the browser must note them."""
        messages = [json.loads(one["message"]) for one in self._log("performance")]
        events = [one["message"] for one in messages]
        sent: list[dict[str, Any]] = [
            one["params"] for one in events if one["method"] == "Network.requestWillBeSent"
        ]
        return {one["request"]["url"] for one in sent}

    def _log(self, name: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.browser.get_log(name)  # type: ignore[no-untyped-call]
        return entries

    def _pressed(self, path: str) -> bool:
        return self._clicked(self.browser.execute_script(FIND_NAMED, path))

    def _clicked(self, element: WebElement | None) -> bool:
        """Click, and say whether the element got the click: where the page moves meanwhile, another place gets it."""
        if element is None:
            return False
        try:
            self.browser.execute_script(NOTE_CLICK, element)
            element.click()
            # A click may load another page, which knows nothing of it.
            return self.browser.execute_script("return window.clicked") is not False
        except _GONE:
            return False

    def _shown(self, selector: str) -> WebElement | None:
        element: WebElement | None = self.browser.execute_script(FIND_SHOWN, selector)
        return element

    def _text_with(self, selector: str, part: str) -> str:
        found = self.text(selector)
        return found if part in found else ""
