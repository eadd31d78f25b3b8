"""A gateway as a process of its own: very many waiting requests, a graceful end, a sudden one."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from benchmarks.harness.load import Load, Request
from benchmarks.harness.ports import free_port
from penstock.process import presence
from penstock.process.config import Config
from tests.checkout import SHOP
from tests.serial_driver import SerialDriver
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.long,
    pytest.mark.turns(
        1, "gateway", "process", "log", "cli/running", of="a gateway in a process of its own"
    ),
]

HOST = "127.0.0.1"
LOG = "gateway.stderr"
MANY = 10_000
BYTES_MAX = 500 << 20


@contextmanager
def gateway(data: Path, port: int, *settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a gateway of the shop; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "penstock", "gateway", SHOP, "--data", str(data)]
    command += ["--port", str(port)]
    for setting in settings:
        command += ["--set", setting]
    with (
        (data / LOG).open("ab") as log,
        subprocess.Popen(command, stderr=log) as process,
    ):
        try:
            wait_for(
                lambda: any(one.pid == process.pid for one in presence.find(data, "gateway")),
                "a gateway that listens",
            )
            yield process
        finally:
            process.kill()


@contextmanager
def driver(data: Path) -> Iterator[None]:
    """Process the requests of the log."""
    running = SerialDriver(SHOP, Config(data=data, cores=1))
    running.start()
    try:
        yield
    finally:
        running.stop()


def waiting(port: int) -> int:
    told: dict[str, Any] = httpx.get(f"http://{HOST}:{port}/readyz", timeout=60).json()
    return int(told["waiting"])


def create(number: int) -> Request:
    return Request("POST", "/stock/item/create/1", request_id=f"create-{number}")


@pytest.fixture
def port() -> int:
    return free_port(HOST)


def test_ten_thousand_wait_in_little_memory(tmp_path: Path, port: int) -> None:
    """10,000 clients wait for a driver in less than 500 MB, more are refused, and all get answers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MANY if hard == resource.RLIM_INFINITY else min(hard, 2 * MANY)
    assert wanted > MANY + 100, "this machine lets no process have 10,000 connections"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with (
        gateway(
            tmp_path, port, f"gateway.waiting_max={MANY}", f"gateway.connections_max={2 * MANY}"
        ) as process,
        ThreadPoolExecutor(1) as thread,
    ):
        load = Load(HOST, port, MANY)
        crowd = thread.submit(load.run, iter([create(number) for number in range(MANY)]))
        wait_for(lambda: waiting(port) == MANY, "everybody waiting")
        assert psutil.Process(process.pid).memory_info().rss < BYTES_MAX
        more = httpx.post(f"http://{HOST}:{port}/stock/item/create/1", timeout=60)
        assert (more.status_code, more.headers["retry-after"]) == (429, "1")
        with driver(tmp_path):
            answers = crowd.result(timeout=300)
    assert Counter(one.status for one in answers) == {200: MANY}
    assert len({one.body for one in answers}) == MANY


def test_first_signal_answers_who_waits(tmp_path: Path, port: int) -> None:
    """After SIGTERM waiting requests are answered, new ones are refused, and the process ends with 0."""
    with gateway(tmp_path, port) as process, ThreadPoolExecutor(1) as thread:
        crowd = thread.submit(Load(HOST, port, 50).run, iter([create(one) for one in range(50)]))
        wait_for(lambda: waiting(port) == 50, "everybody waiting")
        process.send_signal(signal.SIGTERM)
        url = f"http://{HOST}:{port}"
        wait_for(lambda: httpx.get(f"{url}/readyz", timeout=60).status_code == 503, "the drain")
        refused = httpx.post(f"{url}/stock/item/create/1", timeout=60)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "stopping")
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        with driver(tmp_path):
            answers = crowd.result(timeout=60)
        assert {one.status for one in answers} == {200}
        assert process.wait(timeout=300) == 0


def test_second_signal_ends_at_once(tmp_path: Path, port: int) -> None:
    """A second SIGTERM ends the process, also if requests still wait."""
    with gateway(tmp_path, port) as process, ThreadPoolExecutor(1) as thread:
        load = Load(HOST, port, 1, timeout_s=20)
        thread.submit(load.run, iter([Request("POST", "/stock/item/create/1")]))
        wait_for(lambda: waiting(port) == 1, "somebody waiting")
        process.send_signal(signal.SIGTERM)
        wait_for(
            lambda: httpx.get(f"http://{HOST}:{port}/readyz", timeout=60).status_code == 503,
            "the drain",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 130


def test_drain_ends_in_its_time(tmp_path: Path) -> None:
    """After `gateway.drain_ms` a request that waits gets 504, and the gateway stops.

    The setting `log_level` hides its warning.
    """
    warnings, answers = {}, []
    with ExitStack() as stack:
        thread = stack.enter_context(ThreadPoolExecutor(2))
        processes = {}
        for level in ("warning", "error"):
            (data := tmp_path / level).mkdir(mode=0o700)
            port = free_port(HOST)
            settings = ("gateway.drain_ms=200", f"log_level={level}", "log_format=json")
            processes[level] = stack.enter_context(gateway(data, port, *settings))
            load = Load(HOST, port, 1, timeout_s=20)
            answers.append(thread.submit(load.run, iter([Request("POST", "/stock/item/create/1")])))
            wait_for(partial(waiting, port), "a request that waits")
            processes[level].send_signal(signal.SIGTERM)
        for level, process in processes.items():
            assert process.wait(timeout=300) == 0
            lines = (tmp_path / level / LOG).read_text().splitlines()
            warnings[level] = [json.loads(line)["level"] for line in lines]
        for answer in answers:
            assert [one.status for one in answer.result(timeout=60)] == [504]
    assert warnings == {"warning": ["warning"], "error": []}


def test_killed_gateway_takes_nothing_with_it(tmp_path: Path, port: int) -> None:
    """A request whose gateway dies before the answer is answered by another one, once done."""
    with (
        gateway(tmp_path, port) as first,
        gateway(tmp_path, port),
        ThreadPoolExecutor(1) as thread,
    ):
        load = Load(HOST, port, 40)
        crowd = thread.submit(load.run, iter([create(number) for number in range(40)]))

        def everybody() -> int:
            counts = {}
            for _ in range(20):  # each connection reaches one of the two
                told = httpx.get(f"http://{HOST}:{port}/readyz", timeout=60).json()
                counts[told["pid"]] = told["waiting"]
            return sum(counts.values())

        wait_for(lambda: everybody() == 40, "everybody waiting")
        os.kill(first.pid, signal.SIGKILL)
        with driver(tmp_path):
            answers = crowd.result(timeout=60)
            again = Load(HOST, port, 1).run(iter([create(number) for number in range(40)]))
    assert {one.status for one in answers} == {200}
    assert max(one.tries for one in answers) > 1, "some clients were the killed gateway's"
    first_told = {one.request.request_id: one.body for one in answers}
    assert {one.request.request_id: one.body for one in again} == first_told
