"""`/readyz` tells of the processes beside the gateway, and fails where requests are refused or no epoch comes."""

import shutil
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.errors import LogUnavailable
from penstock.gateway.telemetry.load_sampler import LoadSampler
from penstock.log.sqlite import SqliteLog
from penstock.process import presence, startup
from penstock.process.config import GatewayConfig
from tests.checkout import SHOP
from tests.gateway_thread import RunningGateway
from tests.waiting import wait_for


def test_readiness_tells_of_starting_processes(tmp_path: Path) -> None:
    """The gateway is ready for requests, and says which step the driver and the SQL view have reached."""
    with RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway:
        startup.note(tmp_path, "driver", "Java starts")
        startup.note(tmp_path, "view", "its tables are opened")
        ready = httpx.get(f"{gateway.url}/readyz")
        body = ready.json()
        assert (ready.status_code, body["driver"], body["view"]) == (200, "starting", "starting")
        assert "(Java starts)" in body["missing"][0]
        assert "(its tables are opened)" in body["missing"][1]
        with presence.present(tmp_path, "view", SHOP, socket="view.sock"):
            assert httpx.get(f"{gateway.url}/readyz").json()["view"] == "running"


def readiness(gateway: RunningGateway) -> tuple[int, str]:
    answer = httpx.get(f"{gateway.url}/readyz", timeout=60)
    return answer.status_code, " | ".join(answer.json()["reasons"])


def becomes(gateway: RunningGateway, expected: Callable[[int, str], bool]) -> None:
    wait_for(lambda: expected(*readiness(gateway)), f"readiness: {readiness(gateway)}")


def test_a_gateway_that_refuses_every_append_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so with and without requests, names no path, and is ready again as soon as the log can be written."""

    def fail(*_: Any, **__: Any) -> None:
        raise LogUnavailable(f"{tmp_path}/log: database or disk is full")

    with RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway:
        assert readiness(gateway) == (200, "")
        with monkeypatch.context() as full:
            full.setattr(SqliteLog, "check_writable", fail)
            becomes(gateway, lambda status, why: status == 503 and "cannot be written" in why)
            assert str(tmp_path) not in readiness(gateway)[1]
            full.setattr(SqliteLog, "append", fail)
            sent = httpx.post(f"{gateway.url}/send/Item/a/create", json={"price": 3, "stock": 1})
            assert (sent.status_code, readiness(gateway)[0]) == (503, 503)
        becomes(gateway, lambda status, _: status == 200)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data directory without free space makes the gateway unready before an append fails."""
    usage = namedtuple("usage", "total used free")
    with RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 5))
        assert readiness(gateway) == (503, "the disk is full: 5 bytes are free")


def test_waiting_records_without_an_epoch_are_told(tmp_path: Path) -> None:
    """A gateway is not ready while records wait and no epoch takes them for `stuck_s`; it says which process is missing."""
    gateway = RunningGateway(SHOP, tmp_path, GatewayConfig(lag_max=1), drives=False, reads=False)
    gateway.config = replace(gateway.config, stuck_s=1)
    with gateway:
        assert readiness(gateway) == (200, "")
        for key in "ab":
            httpx.post(f"{gateway.url}/send/Item/{key}/create", json={"price": 3, "stock": 1})
        becomes(gateway, lambda status, why: status == 503 and "no epoch for" in why)
        assert "2 records wait in the log: no driver runs" in readiness(gateway)[1]
        assert "gateway.lag_max refuses more" in readiness(gateway)[1]
        with presence.present(tmp_path, "driver", SHOP):
            assert "the driver stands still" in readiness(gateway)[1]


def test_records_stand_still_only_without_progress(tmp_path: Path) -> None:
    """A long log whose epochs come is no standstill, and neither is a record that has just come."""
    accepted, processed, now_s = [0], [0], [10.0]
    sampler = LoadSampler(tmp_path, lambda: accepted[0], lambda: processed[0])

    def standing_after(seconds: float, appended: int, committed: int) -> float:
        now_s[0] += seconds
        accepted[0] += appended
        processed[0] += committed
        sampler._looked()
        return now_s[0] - sampler._moved[1] if accepted[0] > processed[0] else 0.0

    monotonic, time.monotonic = time.monotonic, lambda: now_s[0]
    try:
        steps = [(500, 1, 0), (20, 1, 0), (20, 5, 1), (20, 5, 0), (20, 0, 11), (20, 1, 0)]
        assert [standing_after(*step) for step in steps] == [0.0, 20.0, 0.0, 20.0, 0.0, 0.0]
    finally:
        time.monotonic = monotonic
