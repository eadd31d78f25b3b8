"""The page of hosts: state, lag of each copy, lease and money of each; the link is there only with data in a store."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from selenium import webdriver

from penstock.files.heartbeat import Beat
from penstock.files.layout import HOSTS
from penstock.files.roots import shared_root, use_store
from penstock.process.hosts import HostReport
from tests.browser.page import Page
from tests.browser.test_console_audit import AUDIT, ENGINE, PAUSED
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway
from tests.object_store import StoreServer

GB = 1 << 30
WELL = HostReport(
    name="shop-0",
    url="http://10.0.0.2:8000",
    processes={"supervisor": 1, "driver": 1, "view": 1, "gateway": 2},
    penstock="0.2.0",
    python="3.12",
    epoch=123_456,
    state_epoch=123_456,
    view_epoch=123_450,
    log_lag=0,
    disk_free=40 * GB,
    disk_bytes=50 * GB,
    puts_per_s=32.5,
    gets_per_s=60.0,
    cents_per_day=1_612,
)
LATE = msgspec.structs.replace(
    WELL,
    name="shop-1",
    url="http://10.0.0.3:8000",
    processes={"supervisor": 1, "standby": 1, "gateway": 2},
    state_epoch=120_000,
    view_epoch=None,
    log_lag=1_234,
    disk_free=GB,
    clock_s=3_600.0,
    trouble="Spark's master at spark://10.0.0.2:7077 does not answer",
)


@pytest.fixture
def page(
    browser: webdriver.Chrome,
    tmp_path: Path,
    store_server: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Page]:
    """A shop in an object store, and what two hosts have said of themselves."""
    for name, text in store_server.environment().items():
        monkeypatch.setenv(name, text)
    use_store(tmp_path, store_server.url(tmp_path.name))
    with RunningGateway(SHOP, tmp_path) as gateway:
        for host in (WELL, LATE):
            beat = Beat(msgspec.Raw(msgspec.json.encode(host)))
            shared_root(tmp_path).replace(f"{HOSTS}/{host.name}", msgspec.json.encode(beat))
        page = Page(browser, gateway.url)
        page.forget()
        yield page
        browser.get("about:blank")


def test_operator_sees_each_host(page: Page) -> None:
    """Lags are counted, a note says what to do, the money of all hosts is added up; the page passes the audit."""
    page.open("/hosts")
    page.until("#hosts", "shop-0")
    page.until("#hosts", "6 epochs behind")
    page.until("#hosts", "3,456 epochs behind")
    page.until("#hosts", "1,234 messages behind")
    page.until("#hosts", "does not run")
    page.until("#hosts", "in trouble")
    page.until("#hosts", "does not answer")
    page.until("#hosts", "let a time service set it")
    page.until("#hosts", "almost full")
    page.until("#hosts-sum", "$32.24 a day")
    page.browser.execute_script(ENGINE)
    assert page.browser.execute_async_script(AUDIT, PAUSED) == []
    assert page.complaints() == []
