"""The port of an application: held while it runs, refused if another process has it."""

import select
import socket
from contextlib import closing

import pytest

from penstock.cli.running.foreground import reserved
from penstock.errors import ConfigError

HERE = "127.0.0.1"


def gateway_socket(port: int) -> socket.socket:
    """Listen as a gateway does, which shares its port with others."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind((HERE, port))
    found.listen()
    return found


def test_gateways_share_the_port_that_is_held() -> None:
    """The process that holds the port accepts no connection; the gateways that share it accept all."""
    with reserved(HERE, 0) as port, gateway_socket(port) as one, gateway_socket(port) as other:
        sockets = [one, other]
        accepted = 0
        poll = select.poll()
        for gateway in sockets:
            poll.register(gateway, select.POLLIN)
        for _ in range(20):
            with socket.create_connection((HERE, port), timeout=30):
                ready = {number for number, _ in poll.poll(30_000)}
                for gateway in sockets:
                    if gateway.fileno() in ready:
                        gateway.accept()[0].close()
                        accepted += 1
        assert accepted == 20


@pytest.mark.parametrize("host", [HERE, "0.0.0.0"])
def test_port_of_another_application_is_refused(host: str) -> None:
    """A second application is told which port is in use, although gateways would share it."""
    with (
        reserved(HERE, 0) as port,
        pytest.raises(ConfigError, match=f"port {port} of {host}"),
        gateway_socket(port),
        reserved(host, port),
    ):
        pytest.fail("entered")


def test_port_that_is_only_held_is_refused() -> None:
    """Two applications that start at the same time do not get the same port."""
    with (
        reserved(HERE, 0) as port,
        pytest.raises(ConfigError, match="in use"),
        reserved(HERE, port),
    ):
        pytest.fail("entered")


def test_port_is_free_again_at_once() -> None:
    """Connections of a former run that linger do not keep an application from starting."""
    with reserved(HERE, 0) as port, closing(gateway_socket(port)) as gateway:
        client = socket.create_connection((HERE, port), timeout=30)
        connection, _ = gateway.accept()
        connection.close()  # first, so that this side lingers
        client.close()
    with reserved(HERE, port) as again:
        assert again == port


def test_address_that_is_not_here_is_refused() -> None:
    """An address that cannot be bound is reported with the system's reason."""
    with (
        pytest.raises(ConfigError, match=r"port 8000 of 192\.0\.2\.1 cannot"),
        reserved("192.0.2.1", 8_000),
    ):
        pytest.fail("entered")
