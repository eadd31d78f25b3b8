"""The page of erasures: an operator erases a person after a question, and finds the certificate."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from penstock.gateway.auth.keys import KeyStore
from penstock.gateway.auth.principal import granted
from tests.browser.page import Page
from tests.browser.test_console_audit import CUT, OVERFLOW, narrow, violations
from tests.differential.persons import PERSONS, Persons
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for


@pytest.fixture
def served(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[tuple[Page, Persons]]:
    """A browser with an operator's key on the console of an application with persons, whose driver the test runs."""
    persons = Persons(tmp_path / "data")
    persons.begin()
    key = KeyStore(persons.folder).add("ops", granted(["admin", "read"]), None, datetime.now(UTC))[
        1
    ]
    with RunningGateway(PERSONS, persons.folder, drives=False) as gateway:
        page = Page(browser, gateway.url)
        page.forget()
        browser.execute_script("sessionStorage.setItem('penstock-key', arguments[0])", key)
        yield page, persons
        browser.execute_script("sessionStorage.clear()")
        browser.set_script_timeout(30)
        page.theme("")
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.get("about:blank")
    persons.runtime.close()


def test_person_is_erased_after_a_question(served: tuple[Page, Persons]) -> None:
    """The page of a person leads to the order; its certificate is listed, and found where the person was."""
    page, persons = served
    end = persons.runtime.log.end()
    page.open("/entities/Page/home")
    page.one("[data-attribute]")
    assert "Erase this person" not in page.text("main")
    page.open("/entities/User/ada")
    page.press("Erase this person …")
    page.until("#certificates", "Nobody was erased.")
    assert page.text("#pages").split("\n")[-3:] == ["Erasures", "Try it", "API"]
    page.press("Erase …")
    page.until("dialog[open]", "Erase User/ada?")
    page.keys(Keys.ESCAPE)
    wait_for(lambda: not page.all("dialog[open]:not(#key-dialog)"), "the end of the question")
    assert persons.runtime.log.end() == end
    page.keys(Keys.ENTER)  # the focus is on the button again
    page.click("dialog[open] .danger")
    wait_for(lambda: persons.runtime.log.end() > end, "the order")
    persons.run()
    page.until("#erase .done", "The key is destroyed.")
    page.until("#certificates", "User/ada")
    assert violations(page) == []
    narrow(page, 360)
    assert page.browser.execute_script(OVERFLOW) == 0
    assert page.browser.execute_script(CUT) == []
    page.open("/entities/User/ada")
    page.until("#entity", "A person with this key was erased in epoch")
