"""The page of views: state, reason and remedy of each, and the orders that its buttons give."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from selenium import webdriver

from penstock.base.ids import Epoch
from penstock.files.layout import CAPTURES
from penstock.journal.deployments import Deployments
from penstock.model.control import DeployedCode
from penstock.process import presence
from penstock.process.capture_files import CaptureReport, CaptureState, write_capture_report
from penstock.process.view_files import (
    ROLE,
    Held,
    ViewReport,
    ViewState,
    folder_of,
    held,
    hold,
    read_orders,
    write_report,
)
from tests.browser.page import Page
from tests.browser.test_console_audit import AUDIT, ENGINE, PAUSED
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

REASON = "the server does not answer, and a long sentence says so " * 4
REPORT = ViewReport(
    "reporting", "postgres", ViewState.WAITING, Epoch(0), 2, REASON, "start it", 1, 2, 0.25
)


@pytest.fixture
def page(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Page]:
    """A shop with a view of a database that does not answer, and the files of a former view."""
    with (
        RunningGateway(SHOP, tmp_path) as gateway,
        presence.present(tmp_path, ROLE, SHOP, view="reporting"),
    ):
        code = DeployedCode("a" * 64, "shop", "app", "3", {})
        Deployments(tmp_path / "journal").record(
            Epoch(0), 1, code, {}, views=["reporting"], captures=["crm"]
        )
        write_report(tmp_path, REPORT)
        write_report(tmp_path, replace(REPORT, name="former", target="sqlite", failed=0))
        page = Page(browser, gateway.url)
        page.forget()
        yield page
        browser.get("about:blank")


def test_operator_sees_what_to_do_and_gives_orders(page: Page, tmp_path: Path) -> None:
    """The reason is shown in full; pause, resume, rebuild and removal reach the files that appliers obey."""
    page.open("/views")
    page.until("#views", "waiting, 25 %")
    page.until("#views", REASON.strip())
    page.until("#views", "2: incomplete")
    page.until("#views", "penstock view remove former")
    page.press("Pause …")
    page.write("Reason", "the database moves")
    page.press("Pause")
    page.until("#views", "paused")
    page.until("#views", "the database moves")
    wait_for(lambda: read_orders(tmp_path, "reporting").paused, "the pause")
    page.press("Resume")
    page.until("#views", "waiting")
    assert not read_orders(tmp_path, "reporting").paused
    page.press("Rebuild …")
    page.press("Rebuild")
    page.until("#views", "ordered")
    assert read_orders(tmp_path, "reporting").rebuild == 1
    page.press("Remove …")
    page.press("Remove")
    wait_for(lambda: not folder_of(tmp_path, "former").exists(), "the removal")
    assert page.complaints() == []


def test_operator_ends_a_hold(page: Page, tmp_path: Path) -> None:
    """A copy says where it comes from, and its views write when an operator has said so."""
    hold(tmp_path, Held("forked from /var/lib/shop", 5))
    page.open("/views")
    page.until("#held", "forked from /var/lib/shop")
    page.until("#views", "held")
    page.press("Resume all …")
    page.press("Resume")
    wait_for(lambda: held(tmp_path) is None, "the end of the hold")
    page.until("#views", "waiting")
    assert page.text("#held") == ""


def test_page_is_accessible(page: Page, tmp_path: Path) -> None:
    """It passes the audit, and the keyboard keeps its place while the view moves on."""
    page.open("/views")
    page.until("#views", "waiting")
    page.browser.execute_script(ENGINE)
    assert page.browser.execute_async_script(AUDIT, PAUSED) == []
    page.browser.execute_script("document.querySelector('#views button').focus()")
    write_report(tmp_path, replace(REPORT, epoch=Epoch(7_777)))
    page.until("#views", "7,777")
    assert page.browser.execute_script("return document.activeElement.textContent") == "Pause …"


def test_operator_sees_the_changes_of_a_database_and_gives_orders(
    page: Page, tmp_path: Path
) -> None:
    """Position, rows and remedy are shown; a pause and a new reading reach the file that the capture obeys."""
    report = CaptureReport("crm", "postgres", CaptureState.REFUSED, "0/16B3748", 1_234, unfit=2)
    told = replace(report, reason="the slot is gone", remedy="read the tables again", time_us=1)
    write_capture_report(tmp_path, replace(told, untaken=("public.users.notes",)))
    with presence.present(tmp_path, "capture", SHOP, capture="crm"):
        page.open("/captures")
        for text in (
            "refused",
            "0/16B3748",
            "1,234",
            "public.users.notes",
            "read the tables again",
        ):
            page.until("#captures", text)
        page.press("Pause …")
        page.press("Pause")
        page.until("#captures", "paused")
        page.press("Read the tables again …")
        page.press("Read")
        wait_for(lambda: read_orders(tmp_path, "crm", CAPTURES).rebuild == 1, "the order")
    assert read_orders(tmp_path, "crm", CAPTURES).paused
