"""Pauses in the console: a class is paused and resumed in the page, and the record names the action."""

from pathlib import Path

import pytest
from selenium import webdriver

from penstock.base.ids import RequestId
from penstock.log.api import Entry
from penstock.model.call import append_of, encoded
from tests.browser.page import Page
from tests.browser.running import RunningConsole
from tests.differential.inline import Inline
from tests.differential.pausing_app import FORBIDDEN, SPEC, app, numbers
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

FLOW = "/flow"
CALL = "/call/init_users"
BODY = {"n": 0, "starting_money": 0}


def status_of_call(shop: RunningConsole) -> int:
    return shop.http.post(CALL, json=BODY).status_code


def test_operator_pauses_and_resumes(page: Page, shop: RunningConsole) -> None:
    """The page pauses a target with a reason, which is not blank; gateways obey, and the button resumes it."""
    page.open("/flow")
    page.until("#paused", "Nothing is paused.")
    assert page.labelled("Pause").get_attribute("value") == ""  # nothing is chosen in advance
    page.choose("Pause", "init_users")
    page.write("Reason", "  ")
    page.press("Pause")
    assert page.all("#pause-reason:invalid")
    page.write("Reason", "the bank is closed")
    page.press("Pause")
    page.until("#paused", "the bank is closed")
    wait_for(lambda: page.labelled("Reason").get_attribute("value") == "", "an empty form")
    wait_for(lambda: status_of_call(shop) == 503, "the pause")
    refused = shop.http.post(CALL, json=BODY).json()["error"]
    assert refused["message"] == "init_users is paused: the bank is closed"
    page.press("Resume")
    page.until("#paused", "Nothing is paused.")
    wait_for(lambda: status_of_call(shop) == 200, "the resume")
    assert [row[1:4] for row in page.rows("#record")[:2]] == [
        ["resume", "init_users", "anonymous"],
        ["pause", "init_users", "anonymous"],
    ]
    assert page.text("#drain") == ""
    assert page.complaints() == []


def test_pausing_everything_asks_first(page: Page, shop: RunningConsole) -> None:
    """The question can be left; the page then says when the application is drained."""
    page.open("/flow")
    page.choose("Pause", "everything")
    page.write("Reason", "new disk")
    page.press("Pause")
    page.press("Leave it running")
    assert status_of_call(shop) == 200
    page.press("Pause")
    page.press("Pause everything")
    page.until("#drain", "Drained: every admitted request is committed.")
    page.press("Resume")
    page.until("#paused", "Nothing is paused.")
    wait_for(lambda: status_of_call(shop) == 200, "the second resume")
    assert page.complaints() == []


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.example"}],
)
def test_page_of_another_site_cannot_pause(shop: RunningConsole, headers: dict[str, str]) -> None:
    """A page of another site cannot change the flow."""
    body = {"kind": "pause", "target": "*"}
    assert shop.http.post(FLOW, headers=headers, json=body).status_code == 403
    assert shop.http.get(FLOW).json()["standing"]["paused"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"kind":"stop","target":"*"}',
        b'{"kind":"pause","target":"Ordr"}',
        b'{"kind":"resume","target":"Order"}',
        b'{"kind":"pause","target":"*","reason":"' + b"x" * 501 + b'"}',
        b"[" * 9_000,
    ],
)
def test_wrong_change_is_refused(shop: RunningConsole, body: bytes) -> None:
    """A body that is no change of this application changes nothing."""
    answer = shop.http.post(FLOW, content=body)
    assert answer.status_code == 400, answer.text
    page = shop.http.get(FLOW).json()
    assert page["standing"]["paused"] == []
    assert page["targets"][:3] == ["*", "Item", "Item.add"]


def test_operator_resumes_a_workflow(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The page lists a workflow that has failed; a button sets the failed atom aside, and the list becomes empty."""
    FORBIDDEN.clear()
    FORBIDDEN.add(0)
    (tmp_path / "data").mkdir()
    driver = Inline(tmp_path / "data", 1, SPEC, app.name)
    for number in (0, 2):
        body, hint = encoded(app, append_of(numbers, [number]))
        driver.log.append([Entry(RequestId(f"n{number}"), body, hint, number)])
    driver.advance(int(driver.log.end()))
    with RunningGateway(SPEC, driver.config.data, drives=False) as gateway:
        page = Page(browser, gateway.url)
        page.open("/flow")
        page.until("#paused-workflows", "ValueError: 0 is forbidden")
        (row,) = page.rows("#paused-workflows")
        assert (row[0], row[2]) == ("total", "2")
        page.press("Skip the atom")
        page.until("#paused-workflows", "resumes …")
        driver.advance(int(driver.log.end()))
        page.until("#record", "workflows/total")
        wait_for(lambda: page.text("#paused-workflows") == "", "the resume")
        assert page.rows("#record")[0][1:3] == ["skip", "workflows/total"]
        browser.get("about:blank")
    driver.close()


def test_operator_pauses_a_schedule(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The page lists schedules with their next times; its buttons pause and resume one."""
    with RunningGateway("tests.unit.model.test_schedules:app", tmp_path) as gateway:
        page = Page(browser, gateway.url)
        page.open("/flow")
        page.until("#schedule-list", "30 2 * * * (Europe/Berlin)")
        page.click('[aria-label="Pause sweep"]')
        page.until("#schedule-list", "paused")
        page.click('[aria-label="Resume sweep"]')
        wait_for(lambda: "paused" not in page.text("#schedule-list"), "the resume")
        browser.get("about:blank")
