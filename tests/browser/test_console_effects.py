"""The page of effects: what waits, why, and the orders that its buttons give."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from selenium import webdriver

from penstock.effects.queue import Queue, Status
from penstock.model.waiting_effect import WaitingEffect, decode_waiting_effect, effect_key
from penstock.orders.paused_workflows import newest_rows
from penstock.process.config import Config
from penstock.process.effect_files import (
    EffectCounts,
    EffectsReport,
    queue_of,
    write_effects_report,
)
from penstock.process.view_files import Held, held, hold
from tests.browser.page import Page
from tests.browser.test_console_audit import AUDIT, ENGINE, PAUSED
from tests.effects.till import SPEC, running
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for

REQUEST = "r1~~1"


def row(data: Path) -> bytes | None:
    (state,) = newest_rows(Config(data), [effect_key(REQUEST)])
    return state


def effect(data: Path) -> WaitingEffect:
    state = row(data)
    assert state is not None
    return decode_waiting_effect(state)


@pytest.fixture
def page(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Page]:
    """A till with an effect that waits for its next try; no process calls effects."""
    # The driver of a gateway alone keeps no rows of the state, which the orders read.
    with (
        running(tmp_path / "data", "http://127.0.0.1:9") as till,
        RunningGateway(SPEC, till.data, drives=False) as gateway,
    ):
        httpx.post(f"{gateway.url}/call/Order/o1/create", timeout=60).raise_for_status()
        headers = {"Idempotency-Key": "r1"}
        httpx.post(f"{gateway.url}/call/Order/o1/check_out", headers=headers, timeout=60)
        state = row(till.data)
        with closing(Queue(queue_of(till.data), "test")) as queue:
            queue.take([(REQUEST, state)])
            queue.put(REQUEST, Status.RUNNING)
            queue.put_later(REQUEST, 2_000_000_000_000_000, 0, "RemoteDisconnected: <b>cut</b>")
        counts = EffectCounts("charge", 1, 0, 0, 1_234, 56)
        write_effects_report(till.data, EffectsReport("following", functions=(counts,)))
        page = Page(browser, gateway.url)
        page.forget()
        yield page
        browser.get("about:blank")


def test_operator_sees_what_waits_and_gives_orders(page: Page, tmp_path: Path) -> None:
    """The error is shown as it is; a retry and a discard are records that change the row."""
    data = tmp_path / "data"
    page.open("/effects")
    page.until("#page-effects", "1,234")
    page.until("#all", "All effects as SQL")
    page.until("#effects", "RemoteDisconnected: <b>cut</b>")
    page.until("#effects", f"charge {REQUEST}")
    page.browser.execute_script(ENGINE)
    assert page.browser.execute_async_script(AUDIT, PAUSED) == []
    page.press("Retry")
    wait_for(lambda: effect(data).nudges == 1, "the retry")
    page.press("Discard …")
    page.press("Discard")
    wait_for(lambda: row(data) is None, "the discard")
    hold(data, Held("restored from a backup", 5))
    page.until("#held", "restored from a backup")
    page.press("Resume all …")
    page.press("Resume")
    wait_for(lambda: held(data) is None, "the end of the hold")
    assert page.complaints() == []
