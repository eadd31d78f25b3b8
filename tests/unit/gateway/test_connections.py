"""The connections of a gateway: idle and slow ones never keep honest callers out, and files stay free for the log."""

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.errors import ConfigError, Overloaded
from penstock.gateway.connections import Connections, _places
from penstock.process import open_files
from penstock.process.config import GatewayConfig
from penstock.process.open_files import RESERVE, connections_within
from tests.checkout import SHOP
from tests.gateway_thread import HOST, RunningGateway
from tests.waiting import wait_for

MOST = 32
HEAD = b"POST /send/Item/i/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
USELESS = {
    "idle": b"",
    "slow head": HEAD + b"X-A: ",
    "slow body": HEAD + b"Content-Length: 500\r\n\r\n[",
}
STREAMS = "tests.unit.gateway.newsstand_app:app"


@contextmanager
def held(port: int, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connect, send the same bytes on each connection, and do nothing more."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            sockets.append(stack.enter_context(socket.create_connection((HOST, port), 60)))
            sockets[-1].sendall(sent)
        yield sockets


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("sent", USELESS.values(), ids=USELESS.keys())
def test_useless_connections_give_way(tmp_path: Path, sent: bytes) -> None:
    """More useless connections than places: the oldest ones are sent away, and new and old callers are served."""
    settings = GatewayConfig(connections_max=MOST, receive_timeout_ms=600_000)
    with (
        RunningGateway(SHOP, tmp_path, settings, drives=False, reads=False) as gateway,
        held(gateway.config.gateway.port, 3 * MOST, sent) as useless,
    ):
        made = httpx.post(
            f"{gateway.url}/send/Item/i/create", json={"price": 3, "stock": 1}, timeout=60
        )
        assert made.status_code == 202
        wait_for(lambda: sum(map(is_closed, useless)) >= MOST, "useless ones end")


def test_callers_are_known_by_the_addresses_of_their_sockets(tmp_path: Path) -> None:
    """A connection that has brought a request, or whose request runs, is not taken for a useless one."""
    with (
        RunningGateway(SHOP, tmp_path, drives=False, reads=False) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as client,
    ):
        client.get("/healthz")
        assembly = gateway._assembly
        assert assembly is not None
        (place,) = _places(gateway.config.gateway.port)
        assert assembly.connections._asked == {place.client}


def test_connections_that_stay_leave_half_of_the_places(tmp_path: Path) -> None:
    """Event streams and requests that wait have half of the places; further ones are refused, and calls go on."""
    settings = GatewayConfig(connections_max=MOST)
    with (
        RunningGateway(STREAMS, tmp_path, settings, drives=False, reads=False) as gateway,
        ExitStack() as open_,
    ):
        path, accept = f"{gateway.url}/streams/headlines", {"Accept": "text/event-stream"}
        for _ in range(MOST // 2):
            answer = open_.enter_context(httpx.stream("GET", path, headers=accept, timeout=60))
            assert answer.status_code == 200
        waiting = f"{path}?wait=0.01"
        wait_for(lambda: httpx.get(waiting, timeout=60).status_code == 429, "all places are taken")
        for refused in (
            httpx.get(path, headers=accept, timeout=60),
            httpx.get(f"{path}?wait=30", timeout=60),
            httpx.get(f"{gateway.url}/requests/none?wait=30", timeout=60),
        ):
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
        assert httpx.get(f"{gateway.url}/healthz", timeout=60).status_code == 200


def test_places_of_connections_that_stay_are_given_back() -> None:
    """A connection that has ended leaves its place to the next one."""
    connections = Connections(4)
    with (
        connections.staying(),
        connections.staying(),
        pytest.raises(Overloaded, match="half of gateway"),
    ):
        connections.check_room()
    with connections.staying():
        connections.check_room()


def test_clients_that_are_gone_are_forgotten() -> None:
    """The memory for clients does not grow with their number."""
    connections = Connections(8)
    for port in range(1_000):
        connections.begin((HOST, str(port)))
        connections.end((HOST, str(port)))
    assert not connections.busy
    assert len(connections._asked) <= 16


def test_files_of_the_log_are_no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections end below the limit of open files; a limit without room for them is an error with its remedy."""
    monkeypatch.setattr(open_files, "raise_limit", lambda: 1_024)
    monkeypatch.setattr(open_files, "open_files", lambda: 40)
    assert connections_within(10_000, 2) == 1_024 - 40 - RESERVE - 16
    assert connections_within(100, 2) == 100
    monkeypatch.setattr(open_files, "raise_limit", lambda: 256)
    with pytest.raises(ConfigError, match="ulimit -Hn"):
        connections_within(10_000, 2)


def test_open_files_are_counted() -> None:
    """Each further file counts as one, whether the system says the number or lists the files."""
    before = open_files.open_files()
    with Path(os.devnull).open(), Path(os.devnull).open():
        assert open_files.open_files() == before + 2


def test_a_command_raises_its_limit_of_open_files() -> None:
    """Each process of Penstock may open as many files as the system allows it, also where its shell allows few."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "from penstock.cli.main import main\n"
        "sys.argv = ['penstock', '--version']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    allowed = 1 << 20 if hard == resource.RLIM_INFINITY else min(hard, 1 << 20)
    assert int(done.stdout.split()[-1]) == allowed
