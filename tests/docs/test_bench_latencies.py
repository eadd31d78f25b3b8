"""Benchmarks over HTTP time the acceptance of a request apart from its commit."""

import asyncio
import math
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import uvloop

from benchmarks import page, stream_apps, stream_latency
from benchmarks.harness.http import await_archive, is_checkout, sent_checkouts
from benchmarks.harness.latencies import Timed, latencies_of, send_all
from benchmarks.harness.load import Load, Request
from benchmarks.harness.shop import EXAMPLE
from penstock.runtime.spark.class_archive import RECORDING
from tests.gateway_thread import HOST, RunningGateway
from tests.waiting import wait_for


def test_sent_checkouts_have_both_latencies(tmp_path: Path) -> None:
    """Every order is checked out once, and is accepted before it is committed."""
    with RunningGateway(EXAMPLE, tmp_path, reads=False) as gateway:
        port = gateway.config.gateway.port
        paths = (
            "stock/batch_init/20/99/1",  # one item, or one user, may be in many orders: they are drawn
            "payment/batch_init/20/99",
            "orders/batch_init/20/20/20/1",
        )
        load = Load(HOST, port, 1)
        load.run(Request("POST", f"/{path}") for path in paths)
        timed = sent_checkouts(port, 4, list(range(20)), 600.0)
    assert [is_checkout(one) for one in timed] == [True] * 20
    for one in timed:
        assert 0 < one.accepted_s < one.committed_s
    found = latencies_of(timed)
    for name, accepted_ms in found["accepted_ms"].items():
        committed_ms = found["committed_ms"][name]
        assert accepted_ms is not None
        assert committed_ms is not None
        assert accepted_ms <= committed_ms


def test_a_benchmark_waits_for_the_class_archive() -> None:
    """It begins when no process that it has started makes the archive any more."""
    program = "import sys; sys.stdin.read()"
    with (
        subprocess.Popen(
            [sys.executable, "-c", program, RECORDING], stdin=subprocess.PIPE
        ) as maker,
        ThreadPoolExecutor(1) as pool,
    ):
        wait_for(lambda: RECORDING in psutil.Process(maker.pid).cmdline(), "the maker")
        waiting = pool.submit(await_archive, os.getpid())
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        maker.communicate()
        waiting.result(60)


def test_all_connections_open_before_the_first_request() -> None:
    """The time in which a thousand clients connect is none of their first requests."""

    async def accept_all(server: socket.socket) -> None:
        async with Load(HOST, server.getsockname()[1], 5).opened():
            server.settimeout(60.0)
            for _ in range(5):
                server.accept()[0].close()

    with socket.create_server((HOST, 0)) as server:
        asyncio.run(accept_all(server))


def test_request_that_is_refused_or_fails_is_an_error(tmp_path: Path) -> None:
    """A request that the gateway refuses was never accepted; one that fails has its code."""
    with RunningGateway(EXAMPLE, tmp_path, reads=False) as gateway:
        load = Load(HOST, gateway.config.gateway.port, 1)
        requests = [
            Request("POST", "/send/Order/1/nothing", b"[]", "r0"),
            Request("POST", "/send/Order/1/checkout", b"[]", "r1"),
        ]
        refused, failed = uvloop.run(send_all(load, iter(requests), 600.0))
    assert refused.error.startswith("4")
    assert math.isnan(refused.accepted_s)
    assert failed.error.startswith("no-such-entity")
    assert not is_checkout(failed)
    assert not is_checkout(Timed(0.0, 0.1, 0.2, "", "Checkout perhaps"))


def test_appends_of_events_are_timed_from_when_they_were_due(tmp_path: Path) -> None:
    """Each append has the milliseconds until it was durable."""
    with RunningGateway(f"{stream_apps.__file__}:echoing", tmp_path, reads=False) as gateway:
        port = gateway.config.gateway.port
        due_ns, accepted_ms = uvloop.run(stream_latency._append(port, 500, 50))
    assert len(due_ns) == len(accepted_ms) == 50
    assert min(accepted_ms) > 0


def test_table_shows_a_dash_without_an_accepted_latency() -> None:
    """A system that has nothing durable before the commit has dashes, Penstock has figures."""
    row = {"what": "w", "system": "s", "clients": 1, "in_flight": 1, "per_s": 5.0, "checked": True}
    row |= {"latency_ms": {"p50": 30.0, "p99": 40.0}, "durable": "d"}
    figures = dict(page.measured()["checkouts"])
    figures["rows"] = [row, row | {"accepted_ms": {"p50": 1.0, "p99": 2.0}}]
    lines = page.checkouts_content(figures).splitlines()
    assert "| - | - | 30.0 | 40.0 |" in lines[2]
    assert "| 1.00 | 2.00 | 30.0 | 40.0 |" in lines[3]
