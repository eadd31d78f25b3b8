"""Ports of the servers that tests and benchmarks start."""

from benchmarks.harness.ports import END, FIRST, free_port
from tests.forked import run

DRAWN = """
import sys
from types import SimpleNamespace
from benchmarks.harness import ports

drawn = iter([int(sys.argv[1]), *range(ports.FIRST, ports.END)])
ports.random = SimpleNamespace(SystemRandom=lambda: SimpleNamespace(randrange=lambda *_: next(drawn)))
sys.exit(ports.free_port("127.0.0.1") == int(sys.argv[1]))
"""


def test_a_port_is_for_one_server_before_it_listens() -> None:
    """Neither this process nor another one gets the port of a server that has not started; the system gives it to no connection."""
    ports = [free_port("127.0.0.1") for _ in range(100)]
    assert len(set(ports)) == 100
    assert all(FIRST <= port < END for port in ports)
    assert run(DRAWN, ports[0]).returncode == 0
